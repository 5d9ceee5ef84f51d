"""`model.init_heads` makes a head of a new model attend as designed."""

import pytest
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    NoPositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import AlibiConfig, RelativeConfig, RotaryConfig
from harken.attention.scores import (
    AdditiveConfig,
    MergedConfig,
    ScaledConfig,
    SynthesizerConfig,
)
from harken.attention.sinusoids import Sinusoids
from harken.design.head import head_attention
from harken.design.install import (
    InitHeadConfig,
    design_head,
    init_heads,
    stack_sites,
)
from harken.errors import UserError
from harken.inspection.record import record
from harken.layers.norm import NormConfig
from harken.models.gpt import GPT, GPTConfig

VOCABULARY, LENGTH, OFFSET = 47, 37, 3
SHIFT = InitHeadConfig(layer=1, head=2, offset=OFFSET)


def model_of(position=None, score=None, norm="layer", place="pre", **choices) -> GPT:
    return GPTConfig(
        layers=2,
        width=48,
        max_length=LENGTH,
        tie_embeddings=False,
        attention=MultiHeadConfig(heads=3, score=score or ScaledConfig(), bias=True),
        position=position or SinusoidConfig(),
        norm=NormConfig(kind=norm, place=place),
        **choices,
    ).build(VOCABULARY, seed=0)


def sites(model: GPT):
    return stack_sites(model.stack, model.position, model.max_length, model.mask_kind)


@torch.no_grad()
def recorded_attention(model: GPT, layer: int, head: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (5, LENGTH), generator=generator)
    with record(model) as records:
        model(tokens)
    return records[layer - 1].weights[:, head - 1]


def to_right(weights: torch.Tensor, offset: int = OFFSET) -> float:
    return float(weights.diagonal(-offset, dim1=-2, dim2=-1).min())


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("score", [ScaledConfig(), MergedConfig()], ids=lambda config: config.kind)
@pytest.mark.parametrize(
    "position",
    [SinusoidConfig(), SinusoidConfig(combine="concat"), FourierConfig()],
    ids=["added", "concatenated", "fourier"],
)
def test_shift_with_contents_and_norms(position, score, norm: str) -> None:
    model = model_of(position, score, norm)
    assert to_right(recorded_attention(model, 1, 2)) < 0.2
    init_heads(sites(model), [SHIFT])
    assert to_right(recorded_attention(model, 1, 2)) > 0.98
    assert to_right(recorded_attention(model, 1, 1)) < 0.2
    site = sites(model)[0]
    assert to_right(head_attention(design_head(site, SHIFT), site.normed_positions())) >= 0.99


@pytest.mark.parametrize("place", ["pre", "post"])
def test_second_layer_and_strict_mask(place: str) -> None:
    model = model_of(place=place, mask="strictly_causal")
    init_heads(sites(model), [InitHeadConfig(layer=2, head=3, offset=2)])
    assert to_right(recorded_attention(model, 2, 3), 2) > 0.95


def test_rotary_by_offsets_and_a_synthesizer_by_its_table() -> None:
    for position, score in (
        (RotaryConfig(), ScaledConfig()),
        (LearnedConfig(), SynthesizerConfig(form="random")),
    ):
        model = model_of(position, score)
        init_heads(sites(model), [SHIFT])
        assert to_right(recorded_attention(model, 1, 2)) >= 0.99 - 1e-4


def test_band_is_as_wide_after_an_rms_norm() -> None:
    band = InitHeadConfig(kind="band", offset=12, band=4.0, sharpness=3.0)
    model = model_of(norm="rms")
    init_heads(sites(model), [band])
    row = recorded_attention(model, 1, 1)[:, -1].mean(dim=0)
    assert int(row.argmax()) == LENGTH - 1 - 12
    alone = design_head(sites(model_of(norm="rms", place="post"))[0], band)
    assert float(row.max()) == pytest.approx(_row(alone).max().item(), rel=0.15)


def _row(head) -> torch.Tensor:
    return head_attention(head, Sinusoids(width=48).vectors(LENGTH))[-1]


def test_frozen_head_is_restored() -> None:
    model = model_of()
    init_heads(sites(model), [InitHeadConfig(layer=1, head=2, offset=1, frozen=True)])
    queries = model.stack.blocks[0].attention.score.q_proj.weight
    before = queries.clone()
    tokens = torch.arange(30).reshape(2, 15)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        model(tokens).logsumexp(dim=-1).sum().backward()
        optimizer.step()
    assert not torch.equal(queries[16:32], before[16:32])  # weight decay changed them
    model(tokens)  # the next pass restores them
    assert torch.equal(queries[16:32], before[16:32])
    assert not torch.equal(queries[:16], before[:16])


def test_frozen_head_can_be_changed_in_eval_mode() -> None:
    model = model_of().eval()
    init_heads(sites(model), [InitHeadConfig(layer=1, head=2, offset=1, frozen=True)])
    queries = model.stack.blocks[0].attention.score.q_proj.weight
    with torch.no_grad():
        queries.zero_()
        model(torch.arange(30).reshape(2, 15))
    assert not queries.any()


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (LearnedConfig(), "learned vectors"),
        (NoPositionConfig(), "got none"),
        (AlibiConfig(), "fixed bias"),
        (RelativeConfig(), "all layers share"),
    ],
)
def test_positions_without_sinusoids_are_rejected(position, message: str) -> None:
    with pytest.raises(UserError, match=message):
        init_heads(sites(model_of(position)), [SHIFT])


def test_other_rejected_heads() -> None:
    with pytest.raises(UserError, match="expected 1 to 2"):
        init_heads(sites(model_of()), [InitHeadConfig(layer=3)])
    with pytest.raises(UserError, match="no head 4 in layer 1"):
        init_heads(sites(model_of()), [InitHeadConfig(head=4)])
    with pytest.raises(UserError, match="inside a tanh"):
        init_heads(sites(model_of(score=AdditiveConfig())), [SHIFT])
    with pytest.raises(UserError, match="expected 'shift'"):
        init_heads(sites(model_of(RotaryConfig())), [InitHeadConfig(kind="band")])
