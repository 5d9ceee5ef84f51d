"""The encoder sees all of its text, both ways, and nothing of the padding around it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    PositionConfig,
)
from harken.attention.relative import RelativeConfig, RotaryConfig
from harken.attention.scores import SynthesizerConfig
from harken.config import dumps, loads
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.models.encoders import TextEncoder, TextEncoderConfig
from small_layers import copy_to_pytorch
from small_models import LENGTH, POSITIONS, SCORES, VOCABULARY, WIDTH, Norm, stirred

SEGMENTS = 3
TOKENS = torch.arange(1, 15).reshape(2, 7)
ENCODER_POSITIONS: dict[str, PositionConfig] = {
    **{kind: POSITIONS[kind] for kind in ("none", "learned", "sinusoid", "rotary", "alibi")},
    "relative": RelativeConfig(buckets=8, max_distance=11),
    "concat": FourierConfig(combine="concat"),
}
PLAIN = TextEncoderConfig(layers=1, width=12, max_length=7)
# Each score and each position once; all pairs are tried where attention itself is.
KINDS = [
    *(("scaled", position) for position in ENCODER_POSITIONS),
    *(("additive", "alibi"), ("dense", "learned"), ("random", "none")),
]
every_kind = pytest.mark.parametrize(("score", "position"), KINDS)
every_norm = pytest.mark.parametrize("norm", ["pre", "post"])


def small_config(
    score: str = "scaled", position: str = "learned", norm: Norm = "pre", layers: int = 2
) -> TextEncoderConfig:
    return TextEncoderConfig(
        layers=layers,
        width=WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=3, head_width=5, key_width=4, score=SCORES[score]),
        position=ENCODER_POSITIONS[position],
        norm=NormConfig(place=norm),
        segments=SEGMENTS,
        embedding_norm=True,
    )


def small_encoder(*choices: Any, **options: Any) -> TextEncoder:
    return stirred(small_config(*choices, **options))


def some(high: int, rows: int, time: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, high, (rows, time), generator=generator)


@every_norm
@every_kind
@torch.no_grad()
def test_every_token_sees_every_token(score: str, position: str, norm: Norm) -> None:
    model = small_encoder(score, position, norm)
    before = model(TOKENS)
    assert before.shape == (2, 7, model.width)
    for time in range(7):
        changed = TOKENS.clone()
        changed[:, time] += 3
        after = model(changed)
        assert (before != after).any(dim=-1).all()


@every_norm
@every_kind
@torch.no_grad()
def test_padding_on_either_side_changes_nothing(score: str, position: str, norm: Norm) -> None:
    model = small_encoder(score, position, norm)
    spans = st.tuples(st.integers(0, LENGTH - 1), st.integers(0, LENGTH))

    @given(st.integers(0, 2**31), st.lists(spans, min_size=1, max_size=3))
    @example(0, [(0, 0), (2, 5)])
    @settings(max_examples=8)
    def holds(seed: int, rows: list[tuple[int, int]]) -> None:
        tokens = some(VOCABULARY, len(rows), LENGTH, seed)
        segments = some(SEGMENTS, len(rows), LENGTH, seed + 1)
        slots = torch.arange(LENGTH)
        begins = torch.tensor([[begin] for begin, _ in rows])
        lengths = torch.tensor([[length] for _, length in rows])
        present = (begins <= slots) & (slots < begins + lengths)
        states = model(tokens, present=present, segments=segments)
        assert states.isfinite().all()
        for row, inside in enumerate(present):
            if not inside.any():  # a row of padding must only be finite
                continue
            alone = model(tokens[row, inside][None], segments=segments[row, inside][None])[0]
            assert_close(states[row, inside], alone, rtol=0, atol=1e-10)

    holds()


@torch.no_grad()
def test_segments_are_added_and_default_to_zero() -> None:
    model = small_encoder()
    zeros = torch.zeros_like(TOKENS)
    assert torch.equal(model(TOKENS), model(TOKENS, segments=zeros))
    assert not torch.equal(model(TOKENS), model(TOKENS, segments=zeros + 1))
    assert model.segment is not None
    table = model.segment.weight
    table[1] = table[0]
    assert torch.equal(model(TOKENS), model(TOKENS, segments=zeros + 1))


def test_segments_and_embedding_norm_are_optional() -> None:
    model = PLAIN.build(VOCABULARY, seed=0)
    assert not any(name.startswith(("backbone.norm.", "segment.")) for name in model.state_dict())
    with pytest.raises(ValueError, match="built without segment"):
        model(TOKENS, segments=torch.zeros_like(TOKENS))


@torch.no_grad()
def test_agrees_with_pytorch() -> None:
    """A post-norm stack with a norm at the entrance, against nn.TransformerEncoder."""
    width, heads, inner = 12, 3, 17
    config = TextEncoderConfig(
        layers=2,
        width=width,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=heads, bias=True),
        feedforward=FeedForwardConfig(activation="gelu", inner=inner),
        norm=NormConfig(place="post", eps=1e-3),
        embedding_norm=True,
    )
    ours = stirred(config)
    layer = nn.TransformerEncoderLayer(
        width, heads, inner, 0.0, "gelu", layer_norm_eps=1e-3, batch_first=True
    )
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    own = ours.state_dict()
    for block, layer in zip(ours.backbone.stack.blocks, theirs.layers, strict=True):
        copy_to_pytorch(block, layer)
    present = torch.arange(7) < torch.tensor([[4], [7]])
    summed = own["embedding.weight"][TOKENS] + own["backbone.position.tables.0.weight"][:7]
    entered = nn.functional.layer_norm(
        summed, (width,), own["backbone.norm.weight"], own["backbone.norm.bias"], eps=1e-3
    )
    expected = theirs(entered, src_key_padding_mask=~present)
    assert_close(ours(TOKENS, present=present)[present], expected[present], rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", ["learned", "sinusoid", "rotary", "relative", "concat"])
@torch.no_grad()
def test_positions_encode_order(position: str) -> None:
    tokens = torch.tensor([[3, 5, 7], [5, 3, 7]])
    straight, swapped = small_encoder(position=position, layers=1)(tokens)
    assert (straight[-1] - swapped[-1]).abs().max() > 1e-3
    straight, swapped = small_encoder(position="none", layers=1)(tokens)
    assert_close(straight[-1], swapped[-1], rtol=0, atol=1e-12)


def test_dropout_is_active_in_training_only() -> None:
    model = replace(PLAIN, dropout=0.5).build(VOCABULARY, seed=0)
    assert not torch.equal(model.train()(TOKENS), model(TOKENS))
    assert torch.equal(model.eval()(TOKENS), model(TOKENS))


def test_half_precision_runs() -> None:
    assert small_encoder(position="rotary").bfloat16()(TOKENS).dtype == torch.bfloat16


def test_incompatible_choices_are_rejected() -> None:
    synthesizer = MultiHeadConfig(score=SynthesizerConfig())
    with pytest.raises(ValueError, match="'synthesizer' has none"):
        TextEncoderConfig(attention=synthesizer, position=RotaryConfig())
    with pytest.raises(ValueError, match="does not divide into 4 heads"):
        TextEncoderConfig(width=7)
    with pytest.raises(ValueError, match="even key width, got 5"):
        TextEncoderConfig(width=15, attention=MultiHeadConfig(heads=3), position=RotaryConfig())


def test_configs_load_from_toml() -> None:
    config = small_config("dense", "learned", "post")
    assert loads(TextEncoderConfig, dumps(config), base=Path()) == config
    assert config.position == LearnedConfig()
    assert 'kind = "transformer"' in dumps(config)
