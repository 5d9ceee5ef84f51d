"""A designed head in a layer attends as designed, for every score and position kind."""

import pytest
import torch

from harken.attention.context import attention_context, build_position
from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import CAUSAL
from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.attention.positions import FourierConfig, SinusoidConfig
from harken.attention.relative import AlibiConfig, RelativeConfig, RotaryConfig
from harken.attention.scores import (
    AdditiveConfig,
    DotConfig,
    MergedConfig,
    ScaledConfig,
    SynthesizerConfig,
    TransformerXLConfig,
)
from harken.attention.sinusoids import Sinusoids
from harken.design.content import copy_head
from harken.design.head import Subspaces, concatenated_subspaces, head_attention
from harken.design.install import install, install_synthesizer_shift
from harken.design.shift import ShiftPlan, rotary_shift_head, shift_head
from harken.errors import UserError

LENGTH, WIDTH, HEADS, OFFSET = 19, 22, 3, 4
PLAN = ShiftPlan(basis=Sinusoids(width=WIDTH), offset=OFFSET, length=LENGTH, key_width=14)


def layer_of(score, width: int = WIDTH, **choices) -> MultiHead:
    config = MultiHeadConfig(heads=HEADS, head_width=5, score=score, **choices)
    torch.manual_seed(0)
    return config.build(width, LENGTH).double()


def weights_of(layer: MultiHead, tokens, position) -> torch.Tensor:
    """Return the attention weights of the layer, B k T S."""
    positions = torch.arange(LENGTH)[None]
    context = attention_context(position, CAUSAL, positions, positions)
    memory = layer.project_kv(tokens, context.rotation)
    terms: ScoreTerms = layer.terms(tokens, memory, context)
    return attention_weights(terms, CAUSAL)


def position_of(config):
    attention = MultiHeadConfig(heads=HEADS, head_width=5, key_width=14)
    return build_position(config, attention, WIDTH, LENGTH)


def to_right(weights: torch.Tensor, offset: int = OFFSET) -> float:
    return float(weights.diagonal(-offset, dim1=-2, dim2=-1).min())


@pytest.mark.parametrize(
    "score", [DotConfig(), ScaledConfig(), MergedConfig()], ids=lambda config: config.kind
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "position", [SinusoidConfig(), FourierConfig()], ids=lambda config: config.kind
)
@torch.no_grad()
def test_a_shift_in_a_layer(score, bias: bool, position) -> None:
    choices = {} if score.kind == "merged" else {"key_width": 17}
    layer = layer_of(score, bias=bias, **choices)
    basis = PLAN.basis
    if position.kind == "fourier":
        basis = Sinusoids(kind="fourier", width=WIDTH, span=LENGTH)
    head = shift_head(ShiftPlan(basis=basis, offset=OFFSET, length=LENGTH, key_width=14))
    position_module = position_of(position)
    tokens = position_module.embed(
        torch.zeros(1, LENGTH, WIDTH).double(), torch.arange(LENGTH)[None, :, None]
    )
    before = weights_of(layer, tokens, position_module)
    install(head, layer, 1)
    after = weights_of(layer, tokens, position_module)
    assert to_right(before[:, 1]) < 0.5
    assert to_right(after[:, 1]) >= 0.99 - 1e-4  # models compute sinusoids in float32
    torch.testing.assert_close(after[:, [0, 2]], before[:, [0, 2]])
    expected = head_attention(head, basis.vectors(LENGTH))
    torch.testing.assert_close(after[0, 1], expected, rtol=0, atol=1e-4)


@torch.no_grad()
def test_concatenated_positions_are_independent_of_contents() -> None:
    layer = layer_of(ScaledConfig(), width=2 * WIDTH, key_width=14)
    subspaces = Subspaces(width=2 * WIDTH, content=range(WIDTH), position=range(WIDTH, 2 * WIDTH))
    position_module = position_of(SinusoidConfig(combine="concat"))
    install(shift_head(PLAN, subspaces), layer, 0)
    contents = 7 * torch.randn(2, LENGTH, WIDTH).double()
    tokens = position_module.embed(contents, torch.arange(LENGTH)[None, :, None])
    assert to_right(weights_of(layer, tokens, position_module)[:, 0]) >= 0.99 - 1e-4


@pytest.mark.parametrize("offset", [0, 1, OFFSET])
@torch.no_grad()
def test_rotary_needs_only_constants(offset: int) -> None:
    plan = ShiftPlan(basis=Sinusoids(width=14), offset=offset, length=LENGTH)
    layer = layer_of(ScaledConfig(), key_width=14, bias=True)
    position_module = position_of(RotaryConfig())
    install(rotary_shift_head(plan, WIDTH), layer, 1)
    tokens = torch.randn(2, LENGTH, WIDTH).double()
    assert to_right(weights_of(layer, tokens, position_module)[:, 1], offset) >= 0.99 - 1e-4


@pytest.mark.parametrize("position", [None, AlibiConfig(), RelativeConfig()])
@torch.no_grad()
def test_a_random_synthesizer_holds_a_shift(position) -> None:
    layer = layer_of(SynthesizerConfig(form="random"))
    install_synthesizer_shift(layer, 1, OFFSET, 0.01)
    position_module = position_of(position or SinusoidConfig())
    weights = weights_of(layer, torch.randn(2, LENGTH, WIDTH).double(), position_module)
    assert to_right(weights[:, 1]) >= 0.99 - 1e-4 or position is not None
    assert weights[:, 1, OFFSET:].argmax(dim=-1).tolist() == [list(range(LENGTH - OFFSET))] * len(
        weights
    )


@torch.no_grad()
def test_head_with_values_copies_contents() -> None:
    subspaces = concatenated_subspaces(5, WIDTH, 5)
    plan = ShiftPlan(basis=Sinusoids(width=WIDTH), offset=2, length=LENGTH, tolerance=1e-4)
    config = MultiHeadConfig(heads=1, head_width=7, key_width=WIDTH, bias=True)
    layer = config.build(32, LENGTH).double()
    install(shift_head(plan, subspaces), layer, 0)
    layer.out_proj.bias.zero_()
    tokens = torch.randn(1, LENGTH, 32).double()
    tokens[..., 5:27] = plan.basis.vectors(LENGTH)
    position_module = position_of(SinusoidConfig())
    positions = torch.arange(LENGTH)[None]
    outputs, _ = layer(tokens, attention_context(position_module, CAUSAL, positions, positions))
    torch.testing.assert_close(outputs[0, 2:, 27:], tokens[0, :-2, :5], rtol=0, atol=1e-3)
    assert not outputs[..., :27].any()


def test_frozen_weights_get_no_gradient_and_others_do() -> None:
    layer = layer_of(ScaledConfig(), key_width=17)
    install(shift_head(PLAN), layer, 1, frozen=True)
    positions = torch.arange(LENGTH)[None]
    tokens = torch.randn(2, LENGTH, WIDTH).double()
    context = attention_context(position_of(SinusoidConfig()), CAUSAL, positions, positions)
    outputs, _ = layer(tokens, context)
    outputs.square().sum().backward()
    for linear in (layer.score.q_proj, layer.score.k_proj):
        assert not linear.weight.grad[17:34].any()
        assert linear.weight.grad[:17].any() and linear.weight.grad[34:].any()


@pytest.mark.parametrize(
    ("score", "choices", "message"),
    [
        (AdditiveConfig(), {"key_width": 17}, "inside a tanh"),
        (SynthesizerConfig(), {}, "does not compare queries with keys"),
        (TransformerXLConfig(), {"key_width": 17}, "distances"),
        (ScaledConfig(), {"key_width": 13}, "key width 14"),
        (ScaledConfig(), {"key_width": 17, "kv_heads": 1}, "expected 3 kv_heads"),
    ],
)
def test_incompatible_layers_are_unchanged(score, choices: dict, message: str) -> None:
    layer = layer_of(score, **choices)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    with pytest.raises(UserError, match=message):
        install(shift_head(PLAN), layer, 1)
    assert all(torch.equal(before[name], weight) for name, weight in layer.state_dict().items())


def test_other_incompatible_layers() -> None:
    head = shift_head(PLAN)
    with pytest.raises(UserError, match="expected 0 to 2"):
        install(head, layer_of(ScaledConfig(), key_width=17), 3)
    with pytest.raises(UserError, match="width 22"):
        install(head, layer_of(ScaledConfig(), width=23, key_width=17), 0)
    constant = copy_head(torch.eye(WIDTH, dtype=torch.float64), [0], 0.1)
    with pytest.raises(UserError, match="have no bias"):
        install(constant, layer_of(ScaledConfig(), key_width=WIDTH), 0)
    with pytest.raises(UserError, match="'merged' has none"):
        install(constant, layer_of(MergedConfig()), 0)
    with pytest.raises(UserError, match="random synthesizer"):
        install_synthesizer_shift(layer_of(ScaledConfig(), key_width=17), 0, 1, 0.1)
