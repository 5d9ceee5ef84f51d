import os
import platform
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.config import dumps, loads
from harken.layers.recurrent import (
    GRUConfig,
    LSTMConfig,
    Recurrent,
    RecurrentConfig,
    RecurrentState,
    TanhConfig,
)
from small_ctc import lengths_present
from small_layers import randomized

BATCH, TIME, WIDTH, HIDDEN, LAYERS = 2, 7, 5, 3, 2
CONFIGS = {"tanh": TanhConfig, "gru": GRUConfig, "lstm": LSTMConfig}
THEIRS = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
every_kind = pytest.mark.parametrize("kind", CONFIGS)
every_direction = pytest.mark.parametrize("direction", ["forward", "backward", "both"])
few = settings(max_examples=12)


def config(kind: str, **choices: Any) -> Any:
    return CONFIGS[kind](**{"hidden": HIDDEN, "layers": LAYERS, **choices})


def built(kind: str, **choices: Any) -> Recurrent:
    return randomized(config(kind, **choices).build(WIDTH), std=0.6)


def some_inputs(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randn(batch, time, WIDTH, dtype=torch.float64)


def some_state(kind: str, batch: int = BATCH, layers: int = LAYERS) -> RecurrentState:
    hidden, cell = torch.randn(2, batch, layers, HIDDEN, dtype=torch.float64).tanh()
    return RecurrentState(hidden, cell if kind == "lstm" else None)


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    assert_close(ours, theirs, rtol=0, atol=tolerance)


def pytorchs(kind: str, ours: Recurrent, both: bool) -> nn.RNNBase:
    """All layers in one module of theirs, with our weights."""
    theirs = THEIRS[kind](
        WIDTH, HIDDEN, LAYERS, bias=kind != "tanh", batch_first=True, bidirectional=both
    ).double()
    copied = {}
    for depth in range(LAYERS):
        ways = {"": ours.forwards, "_reverse": ours.backwards if both else None}
        for suffix, layers in ways.items():
            if layers is not None:
                for name, parameter in layers[depth].named_parameters():
                    copied[name.replace("_l0", f"_l{depth}{suffix}")] = parameter.data
    theirs.load_state_dict(copied, strict=True)
    return theirs


@pytest.mark.parametrize("both", [False, True])
@every_kind
def test_agrees_with_pytorch_in_values_and_gradients(kind: str, both: bool) -> None:
    ours = built(kind, direction="both" if both else "forward")
    theirs, inputs = pytorchs(kind, ours, both), some_inputs().requires_grad_()
    outputs, state = ours(inputs)
    expected, last = theirs(inputs)
    last = last if isinstance(last, tuple) else (last,)
    assert_same(outputs, expected)
    for actual, other in zip([part for part in state if part is not None], last, strict=True):
        assert_same(actual.transpose(0, 1), other)
    downstream = torch.randn_like(outputs)
    (mine,) = torch.autograd.grad(outputs, inputs, downstream)
    (yours,) = torch.autograd.grad(expected, inputs, downstream)
    assert_same(mine, yours)
    assert sum(parameter.numel() for parameter in ours.parameters()) == sum(
        parameter.numel() for parameter in theirs.parameters()
    )


@every_kind
def test_backward_equals_forward_on_reversed_rows(kind: str) -> None:
    forward, backward = built(kind), built(kind, direction="backward")
    backward.backwards.load_state_dict(forward.forwards.state_dict())
    inputs = some_inputs()
    outputs, state = backward(inputs)
    turned, expected = forward(inputs.flip(1))
    assert_same(outputs, turned.flip(1))
    assert_same(state, expected)


@every_direction
@every_kind
def test_padding_changes_nothing(kind: str, direction: str) -> None:
    recurrent = built(kind, direction=direction)

    @given(st.integers(0, 2**31), st.lists(st.integers(1, TIME), min_size=1, max_size=3))
    @few
    def holds(seed: int, lengths: list[int]) -> None:
        torch.manual_seed(seed)
        inputs, present = some_inputs(len(lengths)), lengths_present(lengths, TIME)
        outputs, state = recurrent(inputs, present)
        assert torch.equal(outputs[~present], torch.zeros_like(outputs[~present]))
        for row, length in enumerate(lengths):
            alone, left = recurrent(inputs[row : row + 1, :length])
            assert_same(outputs[row : row + 1, :length], alone)
            assert_same(state.hidden[row : row + 1], left.hidden)
            if kind == "lstm":
                assert_same(state.cell[row : row + 1], left.cell)
        gradients = torch.autograd.grad(scalar(outputs, state), recurrent.parameters())
        apart = [
            scalar(*recurrent(inputs[row : row + 1, :length])) for row, length in enumerate(lengths)
        ]
        assert_same(gradients, torch.autograd.grad(sum(apart), recurrent.parameters()), 1e-10)

    holds()


def scalar(outputs: Tensor, state: RecurrentState) -> Tensor:
    """One number in which every output and every part of the state has its say."""
    return sum(
        ((part.cos() - 1) * (1 + torch.arange(part.shape[-1]))).sum()
        for part in (outputs, *state)
        if part is not None
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_direction
@every_kind
def test_values_at_padding_are_ignored(kind: str, direction: str, dtype: torch.dtype) -> None:
    recurrent, present = (
        built(kind, direction=direction).to(dtype),
        lengths_present([TIME, 3], TIME),
    )
    inputs = some_inputs().to(dtype)
    spoilt = inputs.masked_fill(~present[..., None], float("nan")).requires_grad_()
    expected, left = recurrent(inputs, present)
    outputs, state = recurrent(spoilt, present)
    assert torch.equal(outputs, expected)
    assert torch.equal(state.hidden, left.hidden)
    assert kind != "lstm" or torch.equal(state.cell, left.cell)
    (gradient,) = torch.autograd.grad(scalar(outputs, state), spoilt)
    assert torch.equal(gradient.any(dim=-1), present)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("padding", [1, 4, 300])
def test_lstm_state_does_not_change_at_padding(padding: int) -> None:
    recurrent, inputs = built("lstm").float(), some_inputs().float()
    _, alone = recurrent(inputs)
    longer = torch.cat((inputs, torch.zeros(BATCH, padding, WIDTH)), dim=1)
    _, state = recurrent(longer, lengths_present([TIME] * BATCH, TIME + padding))
    assert_same(state, alone, 1e-6)


@every_kind
@torch.no_grad()
def test_chunks_equal_the_whole_row(kind: str) -> None:
    recurrent = built(kind)

    @given(st.integers(0, 2**31), st.sets(st.integers(1, TIME - 1)))
    @few
    def holds(seed: int, cuts: set[int]) -> None:
        torch.manual_seed(seed)
        inputs, state = some_inputs(), some_state(kind)
        whole, expected = recurrent(inputs, None, state)
        pieces = []
        edges = [0, *sorted(cuts), TIME]
        for first, last in pairwise(edges):
            outputs, state = recurrent(inputs[:, first:last], None, state)
            pieces.append(outputs)
        assert_same(torch.cat(pieces, dim=1), whole)
        assert_same(state, expected)

    holds()


@every_kind
@torch.no_grad()
def test_rows_of_different_lengths_continue(kind: str) -> None:
    recurrent = built(kind)
    inputs, later = some_inputs(3), some_inputs(3, 4)
    _, state = recurrent(inputs, lengths_present([TIME, 2, 5], TIME))
    outputs, state = recurrent(later, lengths_present([4, 3, 0], 4), state)
    for row, (early, late) in enumerate([(TIME, 4), (2, 3), (5, 0)]):
        joined = torch.cat((inputs[row, :early], later[row, :late]))[None]
        whole, expected = recurrent(joined)
        assert_same(outputs[row, :late], whole[0, early:])
        assert_same(state.hidden[row], expected.hidden[0])
        if kind == "lstm":
            assert_same(state.cell[row], expected.cell[0])


@every_kind
def test_steps_equal_whole_rows(kind: str) -> None:
    recurrent = built(kind)
    inputs, state = some_inputs().requires_grad_(), some_state(kind)
    whole, expected = recurrent(inputs, None, state)
    steps = []
    for t in range(TIME):
        output, state = recurrent.step(inputs[:, t], state)
        steps.append(output)
    outputs = torch.stack(steps, dim=1)
    assert_same(outputs, whole)
    assert_same(state, expected)
    downstream = torch.randn_like(whole)
    assert_same(
        torch.autograd.grad(outputs, inputs, downstream),
        torch.autograd.grad(whole, inputs, downstream),
    )


@pytest.mark.parametrize("direction", ["backward", "both"])
def test_backward_layers_reject_states(direction: str) -> None:
    recurrent = built("gru", direction=direction)
    _, state = recurrent(some_inputs())
    with pytest.raises(AssertionError, match="only forward RNNs accept a state"):
        recurrent(some_inputs(), None, state)
    with pytest.raises(AssertionError, match="only forward"):
        recurrent.step(some_inputs()[:, 0], state)


def test_padding_must_be_on_the_right() -> None:
    present = lengths_present([TIME, 4], TIME).flip(1)
    with pytest.raises(AssertionError, match="on the right"):
        built("gru")(some_inputs(), present)


@every_kind
def test_widths(kind: str) -> None:
    make = CONFIGS[kind]
    for direction in ("forward", "backward", "both"):
        recurrent = make(direction=direction, layers=3).build(10)
        assert recurrent.width == 10
        assert recurrent(torch.randn(BATCH, TIME, 10))[0].shape == (BATCH, TIME, 10)
    both = make(direction="both", hidden=7).build(WIDTH)
    outputs, state = both(some_inputs().float())
    assert both.width == 14 and outputs.shape == (BATCH, TIME, 14)
    assert state.hidden.shape == both.init_state(BATCH).hidden.shape == (BATCH, 2, 7)
    with pytest.raises(ValueError, match="even width, got 5; change the width, or set hidden"):
        make(direction="both").build(5)


def test_dropout_applies_between_layers_only() -> None:
    inputs = some_inputs()
    for layers in (1, 2):
        recurrent = built("tanh", layers=layers, dropout=1 - 1e-9).train()
        outputs, state = recurrent(inputs)
        kept, expected = recurrent.eval()(inputs)
        assert_same(state.layer(0), expected.layer(0))
        assert outputs.any() == (layers == 1)  # a second layer without offsets reads only zeros
        assert kept.any()
    state = recurrent.init_state(BATCH)
    assert not recurrent.train().step(inputs[:, 0], state)[0].any()
    assert recurrent.eval().step(inputs[:, 0], state)[0].any()


@every_direction
@every_kind
def test_gradients_flow_from_every_output_to_every_token_it_has_read(
    kind: str, direction: str
) -> None:
    recurrent, inputs = built(kind, direction=direction), some_inputs().requires_grad_()
    outputs, _ = recurrent(inputs)
    for t in range(TIME):
        (gradient,) = torch.autograd.grad(outputs[:, t].sum(), inputs, retain_graph=True)
        read = torch.ones(BATCH, TIME, dtype=torch.bool)
        if direction == "forward":
            read[:, t + 1 :] = False
        elif direction == "backward":
            read[:, :t] = False
        assert torch.equal(gradient.any(dim=-1), read)


@every_kind
def test_configs_load_from_toml(kind: str) -> None:
    chosen = config(kind, direction="both", dropout=0.25)
    text = f'kind = "{kind}"\nhidden = 3\nlayers = 2\ndirection = "both"\ndropout = 0.25\n'
    assert loads(RecurrentConfig, text, base=Path()) == chosen
    assert dumps(chosen) == text


BFLOAT16 = """
import torch
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig

assert not torch.ops.mkldnn._is_mkldnn_bf16_supported(), "the machine was to be an old one"
present = torch.arange(7) < torch.tensor([[7], [4], [0]])
for kind in (TanhConfig, GRUConfig, LSTMConfig):
    layer = kind(layers=2, direction="both").build(6)
    for shown in (None, present):
        inputs = torch.randn(3, 7, 6)
        exact, _ = layer(inputs, shown)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, _ = layer(inputs.bfloat16(), shown)
        ours.float().sum().backward()
        assert (ours.float() - exact).abs().max() < 0.03
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an instruction set of x86")
def test_bfloat16_on_a_processor_without_it() -> None:
    """oneDNN is told to use no instruction beyond AVX2, for which it has no bfloat16 LSTM."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", BFLOAT16], env=environment, check=True)
