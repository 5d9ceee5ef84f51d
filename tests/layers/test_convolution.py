import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.config import dumps, loads
from harken.layers.convolution import (
    CausalConvolutionConfig,
    Convolutions,
    ConvPyramidConfig,
    GatedConvolutionConfig,
)
from small_ctc import lengths_present
from small_layers import randomized

BATCH, TIME, WIDTH = 2, 13, 5
CAUSAL = {
    "causal": CausalConvolutionConfig(layers=2, activation="tanh"),
    "causal, even": CausalConvolutionConfig(layers=3, kernel=2, activation="gelu"),
    "causal, not doubling": CausalConvolutionConfig(layers=2, dilated=False, activation="gelu"),
    "gated, causal": GatedConvolutionConfig(layers=2, causal=True),
}
ConvolutionConfig = ConvPyramidConfig | CausalConvolutionConfig | GatedConvolutionConfig
ALL: dict[str, ConvolutionConfig] = {
    **CAUSAL,
    "gated": GatedConvolutionConfig(layers=2),
    "gated, even": GatedConvolutionConfig(layers=2, kernel=4),
    "stride2": ConvPyramidConfig(layers=3, activation="tanh"),
    "stride2, even": ConvPyramidConfig(layers=2, kernel=2, activation="gelu"),
    "stride2, wide": ConvPyramidConfig(layers=2, kernel=5, activation="gelu"),
}
every_kind = pytest.mark.parametrize("kind", ALL)
every_causal_kind = pytest.mark.parametrize("kind", CAUSAL)
few = settings(max_examples=12)
SIGMAS = {
    "relu": lambda number: max(0.0, number),
    "tanh": math.tanh,
    "gelu": lambda number: (
        0.5 * number * (1 + math.tanh(math.sqrt(2 / math.pi) * (number + 0.044715 * number**3)))
    ),
}


def drawn(config: Any, width: int = WIDTH) -> Any:
    return randomized(config.build(width), std=0.4)


def some_inputs(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randn(batch, time, WIDTH, dtype=torch.float64)


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    assert_close(ours, theirs, rtol=0, atol=tolerance)


def bent(name: str, numbers: Tensor) -> Tensor:
    return torch.tensor([SIGMAS[name](number) for number in numbers.tolist()], dtype=torch.float64)


def windowed(weight: Tensor, row: Tensor, center: int, lowest: int, dilation: int = 1) -> Tensor:
    """The sum over Δ of W[Δ] row[center + dilation Δ], zeros beyond the ends."""
    total = torch.zeros(weight.shape[0], dtype=torch.float64)
    for index in range(weight.shape[2]):
        place = center + dilation * (lowest + index)
        if 0 <= place < len(row):
            total += weight[:, :, index] @ row[place]
    return total


@pytest.mark.parametrize("time", [1, 2, 7, 8])
@pytest.mark.parametrize(
    ("kernel", "lowest", "sigma"),
    [(2, 0, "relu"), (3, -1, "tanh"), (4, -1, "gelu"), (5, -2, "relu")],
)
@torch.no_grad()
def test_pyramid_by_the_formula(kernel: int, lowest: int, sigma: Any, time: int) -> None:
    cnn = drawn(ConvPyramidConfig(layers=3, kernel=kernel, activation=sigma))
    down, inputs = cnn.down, some_inputs(time=time)
    levels = down(inputs)
    assert len(levels) == 4
    for below, above, weights, threshold in zip(
        levels, levels[1:], down.kernels, down.thresholds, strict=False
    ):
        assert above.shape == (BATCH, math.ceil(below.shape[1] / 2), WIDTH)
        for b in range(BATCH):
            for t in range(above.shape[1]):
                read = windowed(weights.weight, below[b], 2 * t, lowest)
                assert_same(above[b, t], bent(sigma, read - threshold))
    merged = levels[-1]
    for depth in (2, 1, 0):
        below = torch.empty_like(levels[depth])
        weight = cnn.up.kernels[depth].weight  # (read, written, place)
        for b in range(BATCH):
            for t in range(below.shape[1]):
                total = levels[depth][b, t] - cnn.up.thresholds[depth]
                for above in range(merged.shape[1]):
                    for index in range(kernel):
                        if 2 * above + lowest + index == t:
                            total = total + merged[b, above] @ weight[:, :, index]
                below[b, t] = bent(sigma, total)
        merged = below
    assert_same(cnn(inputs), merged)


@pytest.mark.parametrize("doubling", [False, True])
@pytest.mark.parametrize(("kernel", "sigma"), [(1, "relu"), (2, "tanh"), (3, "gelu")])
@torch.no_grad()
def test_causal_by_the_formula(kernel: int, sigma: Any, doubling: bool) -> None:
    stack = drawn(
        CausalConvolutionConfig(layers=3, kernel=kernel, activation=sigma, dilated=doubling)
    )
    inputs = some_inputs()
    outputs, expected = stack(inputs), inputs
    for depth, layer in enumerate(stack.kernels):
        dilation = 2**depth if doubling else 1
        written = torch.empty_like(expected)
        for b in range(BATCH):
            for t in range(TIME):
                read = windowed(layer.weight, expected[b], t, 1 - kernel, dilation) + layer.bias
                written[b, t] = expected[b, t] + bent(sigma, read)
        expected = written
    assert_same(outputs, expected)


@pytest.mark.parametrize(
    ("causal", "kernel", "lowest"),
    [(False, 1, 0), (False, 3, -1), (False, 4, -1), (True, 3, -2), (True, 4, -3)],
)
@torch.no_grad()
def test_gated_by_the_formula(causal: bool, kernel: int, lowest: int) -> None:
    stack = drawn(GatedConvolutionConfig(layers=2, kernel=kernel, causal=causal))
    inputs = some_inputs()
    outputs, expected = stack(inputs), inputs
    for layer in stack.kernels:
        written = torch.empty_like(expected)
        for b in range(BATCH):
            for t in range(TIME):
                read = windowed(layer.weight, expected[b], t, lowest) + layer.bias
                value, gate = read[:WIDTH], read[WIDTH:]
                gated = value / (1 + (-gate).exp())
                written[b, t] = (expected[b, t] + gated) / math.sqrt(2)
        expected = written
    assert_same(outputs, expected)


def test_gated_agrees_with_pytorch_in_gradients() -> None:
    stack, inputs = drawn(GatedConvolutionConfig(layers=1)), some_inputs()
    theirs = nn.Conv1d(WIDTH, 2 * WIDTH, 3, padding=1).double()
    theirs.load_state_dict(stack.kernels[0].state_dict())
    expected = (inputs + F.glu(theirs(inputs.mT).mT)) * 0.5**0.5
    outputs, downstream = stack(inputs), torch.randn_like(inputs)
    assert_same(outputs, expected)
    assert_same(
        torch.autograd.grad(outputs, stack.kernels[0].parameters(), downstream),
        torch.autograd.grad(expected, theirs.parameters(), downstream),
    )


@every_kind
def test_padding_changes_nothing(kind: str) -> None:
    module = drawn(ALL[kind])

    @given(st.integers(0, 2**31), st.lists(st.integers(1, TIME), min_size=1, max_size=3))
    @few
    def holds(seed: int, lengths: list[int]) -> None:
        torch.manual_seed(seed)
        inputs, present = some_inputs(len(lengths)), lengths_present(lengths, TIME)
        outputs = module(inputs, present)
        assert torch.equal(outputs[~present], torch.zeros_like(outputs[~present]))
        alone = [module(inputs[row : row + 1, :length])[0] for row, length in enumerate(lengths)]
        for row, length in enumerate(lengths):
            assert_same(outputs[row, :length], alone[row])
        parameters = list(module.parameters())
        whole = torch.autograd.grad(outputs.square().sum(), parameters)
        apart = torch.autograd.grad(sum(output.square().sum() for output in alone), parameters)
        for gradient, other in zip(whole, apart, strict=True):
            assert_same(gradient, other, 1e-12 * (1 + other.abs().max().item()))

    holds()


@every_kind
def test_values_at_padding_are_ignored(kind: str) -> None:
    module, inputs = drawn(ALL[kind]), some_inputs()
    present = lengths_present([TIME, 6], TIME)
    spoilt = inputs.masked_fill(~present[..., None], float("nan")).requires_grad_()
    outputs = module(spoilt, present)
    assert torch.equal(outputs, module(inputs, present))
    (gradient,) = torch.autograd.grad(outputs.square().sum(), spoilt)
    assert torch.equal(gradient.any(dim=-1), present)


@pytest.mark.parametrize(
    ("config", "field", "ahead"),
    [
        (CausalConvolutionConfig(layers=4, activation="tanh"), 31, 0),
        (CausalConvolutionConfig(layers=3, kernel=2, activation="tanh"), 8, 0),
        (CausalConvolutionConfig(layers=4, activation="tanh", dilated=False), 9, 0),
        (CausalConvolutionConfig(layers=2, kernel=1), 1, 0),
        (GatedConvolutionConfig(layers=3, kernel=5, causal=True), 13, 0),
        (GatedConvolutionConfig(layers=3, kernel=5), 13, 6),
        (GatedConvolutionConfig(layers=2, kernel=4), 7, 4),
    ],
)
def test_an_output_depends_on_its_receptive_field_and_on_nothing_else(
    config: Any, field: int, ahead: int
) -> None:
    module, inputs = drawn(config), some_inputs(1, 43).requires_grad_()
    (gradient,) = torch.autograd.grad(module(inputs)[0, 35].sum(), inputs)
    seen = gradient[0].any(dim=-1).nonzero().flatten().tolist()
    assert seen == list(range(35 + ahead - field + 1, 35 + ahead + 1))


@every_causal_kind
@torch.no_grad()
def test_chunks_equal_the_whole_row(kind: str) -> None:
    module: Convolutions = drawn(ALL[kind])

    @given(st.integers(0, 2**31), st.sets(st.integers(1, TIME - 1)))
    @few
    def holds(seed: int, cuts: set[int]) -> None:
        torch.manual_seed(seed)
        inputs, state = some_inputs(), module.init_state(BATCH)
        _, expected = module.step(inputs, None, state)
        pieces = []
        edges = [0, *sorted(cuts), TIME]
        for first, last in pairwise(edges):
            outputs, state = module.step(inputs[:, first:last], None, state)
            pieces.append(outputs)
        assert_same(torch.cat(pieces, dim=1), module(inputs))
        assert_same(state, expected)

    holds()


@every_causal_kind
@torch.no_grad()
def test_rows_of_different_lengths_continue(kind: str) -> None:
    module: Convolutions = drawn(ALL[kind])
    inputs, later = some_inputs(3), some_inputs(3, 4)
    _, state = module.step(inputs, lengths_present([TIME, 2, 5], TIME), module.init_state(3))
    outputs, last = module.step(later, lengths_present([4, 3, 0], 4), state)
    for row, (early, late) in enumerate([(TIME, 4), (2, 3), (5, 0)]):
        joined = torch.cat((inputs[row, :early], later[row, :late]))[None]
        assert_same(outputs[row, :late], module(joined)[0, early:])
        _, expected = module.step(joined, None, module.init_state(1))
        assert_same([tail[row] for tail in last], [tail[0] for tail in expected])
        assert not outputs[row, late:].any()


def test_state_sizes() -> None:
    module = CausalConvolutionConfig(layers=3).build(WIDTH)
    assert [tail.shape for tail in module.init_state(BATCH)] == [
        (BATCH, places, WIDTH) for places in (2, 4, 8)
    ]


def test_invalid_states_are_rejected() -> None:
    centered, causal = drawn(ALL["gated"]), drawn(ALL["causal"])
    with pytest.raises(AssertionError, match="needs later tokens"):
        centered.step(some_inputs(), None, centered.init_state(BATCH))
    with pytest.raises(AssertionError, match="on the right"):
        causal.step(
            some_inputs(), lengths_present([TIME, 4], TIME).flip(1), causal.init_state(BATCH)
        )


@every_kind
def test_gradients_flow_to_every_weight_and_every_token(kind: str) -> None:
    module, inputs = drawn(ALL[kind]), some_inputs().requires_grad_()
    leaves = [inputs, *module.parameters()]
    for gradient in torch.autograd.grad(module(inputs).square().sum(), leaves):
        assert gradient.flatten(0, -2).any(dim=-1).all() if gradient.ndim > 1 else gradient.any()


@pytest.mark.parametrize("kind", ["causal", "gated", "gated, causal", "stride2"])
def test_dropout_applies_to_kernel_inputs_only(kind: str) -> None:
    config, inputs = ALL[kind], some_inputs()
    without = drawn(config)
    module = type(config)(
        **{name: getattr(config, name) for name in config.__slots__ if name != "dropout"},
        dropout=1 - 1e-9,
    ).build(WIDTH)
    module.double().load_state_dict(without.state_dict())
    for name, parameter in module.named_parameters():
        if "bias" in name or "threshold" in name:
            nn.init.zeros_(parameter)
    nothing_read = {
        "causal": inputs,
        "gated": inputs / 2,  # two layers, each by sqrt(1/2)
        "gated, causal": inputs / 2,
        "stride2": inputs.tanh(),
    }
    assert_same(module.train()(inputs), nothing_read[kind])
    assert (module.eval()(inputs) != nothing_read[kind]).any(dim=-1).all()
    if kind in CAUSAL:
        outputs, _ = module.train().step(inputs, None, module.init_state(BATCH))
        assert_same(outputs, nothing_read[kind])


@every_kind
def test_configs_load_from_toml(kind: str) -> None:
    config = ALL[kind]
    assert loads(ConvolutionConfig, dumps(config), base=Path()) == config
    assert dumps(config).startswith(f'kind = "{config.kind}"')
