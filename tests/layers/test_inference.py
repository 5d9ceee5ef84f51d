"""Models in `optimized_for_inference`, compared with the same models outside of it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.cache import KeyValues
from harken.attention.context import attention_context, build_position
from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.attention.relative import AlibiConfig, RotaryConfig
from harken.attention.scores import AdditiveConfig, MergedConfig, ScaledConfig, TransformerXLConfig
from harken.inspection.record import record
from harken.layers.feedforward import ACTIVATIONS, FeedForwardConfig
from harken.layers.inference import FusedBlock, is_fusible, optimized_for_inference
from harken.layers.norm import NormConfig
from harken.layers.transformer import TransformerBlock, TransformerConfig
from harken.models.gpt import GPTConfig

WIDTH, HEADS, LENGTH, MEMORY = 104, 4, 7, 11


def small_block(position: Any, **options: Any) -> tuple[TransformerBlock, Any]:
    """Return a block with random weights and norms, and its positional encoding."""
    torch.manual_seed(0)
    config = TransformerConfig(**{"attention": MultiHeadConfig(heads=HEADS), **options})
    block = config.build(WIDTH, LENGTH, memory_width=101).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    return block, build_position(position, config.attention, WIDTH, LENGTH)


def context_of(position: Any, mask: Mask, queries: Tensor, keys: Tensor) -> AttentionContext:
    return attention_context(position, mask, queries[None], keys[None])


@torch.inference_mode()
def decode(block: TransformerBlock, position: Any, prefix: int) -> list[Tensor]:
    """Run a prefix, then the rest with cached keys; return all outputs, keys and values."""
    torch.manual_seed(1)
    inputs, memory = torch.randn(3, LENGTH, WIDTH), torch.randn(3, MEMORY, 101)
    order, places = torch.arange(LENGTH), torch.arange(MEMORY)
    present = torch.arange(MEMORY) < torch.tensor([[MEMORY], [5], [1]])
    cross = AttentionContext(
        mask=Mask(visible=present[:, None, None, :]),
        query_positions=order[None],
        key_positions=places[None],
    )
    assert block.cross is not None
    projected = block.cross.project_kv(memory)
    cache: KeyValues | None = None
    results = []
    for start, stop in ((0, prefix), *((t, t + 1) for t in range(prefix, LENGTH))):
        mask = CAUSAL if start == 0 else NO_MASK
        context = context_of(position, mask, order[start:stop], order[:stop])
        output, cache = block(inputs[:, start:stop], context, cache, projected, cross)
        results.append(output)
    assert cache is not None and cache.keys is not None
    return [*results, cache.keys, cache.values]


CASES = {
    **{
        activation: {"feedforward": FeedForwardConfig(activation=activation, inner=53)}
        for activation in ACTIVATIONS
    },
    **{place: {"norm": NormConfig(place=place)} for place in ("pre", "post", "parallel")},
    "rms": {"norm": NormConfig(kind="rms")},
    "no biases": {"feedforward": FeedForwardConfig(bias=False)},
    "biases": {"attention": MultiHeadConfig(heads=HEADS, bias=True)},
    "grouped": {"attention": MultiHeadConfig(heads=HEADS, kv_heads=2)},
    "widths": {"attention": MultiHeadConfig(heads=HEADS, head_width=17, key_width=26)},
    "additive": {"attention": MultiHeadConfig(heads=HEADS, score=AdditiveConfig())},
    "transformer_xl": {"attention": MultiHeadConfig(heads=HEADS, score=TransformerXLConfig())},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("position", [NoPositionConfig(), RotaryConfig(), AlibiConfig()])
def test_fused_blocks_equal_plain_ones(case: str, position: Any) -> None:
    if (case, position.kind) in {("additive", "rotary"), ("transformer_xl", "rotary")}:
        pytest.skip("conflicting choices")
    block, encoding = small_block(position, **CASES[case])
    expected = decode(block, encoding, prefix=3)
    with optimized_for_inference(block):
        assert isinstance(vars(block)["forward"], FusedBlock)
        results = decode(block, encoding, prefix=3)
    assert "forward" not in vars(block)
    for result, value in zip(results, expected, strict=True):
        assert_close(result, value, rtol=1e-4, atol=1e-4)


def test_recording_sees_fused_blocks() -> None:
    model = GPTConfig(width=64, layers=2, max_length=8).build(67, seed=0).eval()
    tokens = torch.arange(5)[None]
    with torch.inference_mode(), optimized_for_inference(model), record(model) as records:
        logits = model(tokens)
    assert_close(logits, model(tokens).detach(), rtol=1e-4, atol=1e-4)
    assert [layer.weights.shape for layer in records] == [(1, 4, 5, 5)] * 2


@pytest.mark.parametrize("reason", ["score", "hook", "small", "double", "no out_proj"])
def test_other_blocks_stay_as_they_are(reason: str) -> None:
    attention = MultiHeadConfig(
        heads=HEADS,
        score=MergedConfig() if reason == "score" else ScaledConfig(),
        out_proj=reason != "no out_proj",
    )
    width = 8 if reason == "small" else WIDTH
    block = TransformerConfig(attention=attention).build(width, LENGTH)
    if reason == "hook":
        block.feedforward.register_forward_hook(lambda *_: None)
    if reason == "double":
        block.double()
    assert not is_fusible(block)


def test_gradients_use_the_weights_as_they_are() -> None:
    model = GPTConfig(width=64, layers=1, max_length=8).build(67, seed=0).eval()
    tokens = torch.arange(5)[None]
    with optimized_for_inference(model):
        model(tokens).logsumexp(dim=-1).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(tokens).logsumexp(dim=-1).sum().backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert gradient is not None and torch.equal(gradient, parameter.grad)


@pytest.mark.parametrize("rows", [(7,), (3, 1), (5, 11, 13), (0, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_layers_equal_pytorch(rows: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(67, 71, bias=bias)
    inputs = torch.randn(67, *rows).movedim(0, -1)  # not contiguous
    expected = layer(inputs)
    with torch.no_grad(), optimized_for_inference(layer):
        assert "forward" in vars(layer)
        assert_close(layer(inputs), expected, rtol=1e-5, atol=1e-5)
    assert_close(layer(inputs), expected, rtol=0, atol=0)


def test_gradients_and_small_or_double_weights_are_left_to_pytorch() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2), nn.Linear(64, 64).double())
    with optimized_for_inference(model):
        assert ["forward" in vars(layer) for layer in model] == [True, False, False]
        model[0](torch.randn(3, 64)).sum().backward()
    assert model[0].weight.grad is not None


def test_layers_come_back_after_an_error() -> None:
    layer = nn.Linear(64, 64)
    with pytest.raises(ZeroDivisionError), optimized_for_inference(layer):
        raise ZeroDivisionError
    assert vars(layer).keys() == vars(nn.Linear(1, 1)).keys() and "forward" not in vars(layer)
