"""The encoder sees all of its text, both ways, and nothing of the padding around it."""

from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    NoPositionConfig,
    PositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import AlibiConfig, RelativeConfig, RotaryConfig
from harken.attention.scores import AdditiveConfig, ScaledConfig, ScoreConfig, SynthesizerConfig
from harken.config import dumps, loads
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.models.encoders import TextEncoder, TextEncoderConfig

VOCABULARY, WIDTH, LENGTH, SEGMENTS = 19, 13, 11, 3
TOKENS = torch.arange(1, 15).reshape(2, 7)
SCORES: dict[str, ScoreConfig] = {
    "scaled": ScaledConfig(),
    "additive": AdditiveConfig(),
    "dense": SynthesizerConfig(form="dense"),
    "random": SynthesizerConfig(form="random"),
}
POSITIONS: dict[str, PositionConfig] = {
    "none": NoPositionConfig(),
    "learned": LearnedConfig(),
    "sinusoid": SinusoidConfig(),
    "rotary": RotaryConfig(),
    "alibi": AlibiConfig(),
    "relative": RelativeConfig(buckets=8, max_distance=11),
    "concat": FourierConfig(place="concat"),
}
# Each score and each position once; all pairs are tried where attention itself is.
KINDS = [
    *(("scaled", position) for position in POSITIONS),
    *(("additive", "alibi"), ("dense", "learned"), ("random", "none")),
]
every_kind = pytest.mark.parametrize(("score", "position"), KINDS)
every_norm = pytest.mark.parametrize("norm", ["pre", "post"])
Norm = Literal["pre", "post"]


def small_config(
    score: str = "scaled", position: str = "learned", norm: Norm = "pre", layers: int = 2
) -> TextEncoderConfig:
    merged = score == "merged"  # its keys are whole tokens, and rotary turns pairs
    key_width = None if merged else 4
    return TextEncoderConfig(
        layers=layers,
        width=WIDTH + 1 if merged and position == "rotary" else WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=3, head_width=5, key_width=key_width, score=SCORES[score]),
        position=POSITIONS[position],
        norm=NormConfig(place=norm),
        segments=SEGMENTS,
        embedding_norm=True,
    )


def stirred(model: TextEncoder, strength: float = 1.5) -> TextEncoder:
    """Weights large enough that a wrong path shows."""
    generator = torch.Generator().manual_seed(0)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty_like(parameter).normal_(generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(strength * parameter.shape[-1] ** -0.5 * noise)
    return model


def small_encoder(
    score: str = "scaled", position: str = "learned", norm: Norm = "pre", layers: int = 2
) -> TextEncoder:
    return stirred(small_config(score, position, norm, layers).build(VOCABULARY, seed=0))


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
    spans = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH))

    @given(st.integers(0, 2**31), st.lists(spans, min_size=1, max_size=3))
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
            alone = model(tokens[row, inside][None], segments=segments[row, inside][None])[0]
            assert_close(states[row, inside], alone, rtol=0, atol=1e-10)

    holds()


@torch.no_grad()
def test_row_of_padding_is_finite() -> None:
    present = torch.tensor([[False] * 7, [True] * 7])
    states = small_encoder()(TOKENS, present=present)
    assert states.isfinite().all()
    assert_close(states[1:], small_encoder()(TOKENS[1:]), rtol=0, atol=1e-12)


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


def test_segments_without_table_are_rejected() -> None:
    model = TextEncoderConfig(layers=1, width=12, max_length=7).build(VOCABULARY, seed=0)
    with pytest.raises(ValueError, match="built without segments"):
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
    ours = stirred(config.build(VOCABULARY, seed=0))
    layer = nn.TransformerEncoderLayer(
        width, heads, inner, 0.0, "gelu", layer_norm_eps=1e-3, batch_first=True
    )
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    own = ours.state_dict()
    for number, block in enumerate(theirs.layers):
        assert isinstance(block, nn.TransformerEncoderLayer)
        at = f"backbone.stack.blocks.{number}"
        for part in ("weight", "bias"):
            names = ("score.q_proj", "score.k_proj", "v_proj")
            fused = torch.cat([own[f"{at}.attention.{name}.{part}"] for name in names])
            getattr(block.self_attn, f"in_proj_{part}").copy_(fused)
            for name, module in (
                ("attention.out_proj", block.self_attn.out_proj),
                ("attention_norm", block.norm1),
                ("feedforward.up_proj", block.linear1),
                ("feedforward.down_proj", block.linear2),
                ("feedforward_norm", block.norm2),
            ):
                getattr(module, part).copy_(own[f"{at}.{name}.{part}"])
    present = torch.arange(7) < torch.tensor([[4], [7]])
    summed = own["embedding.weight"][TOKENS] + own["backbone.position.tables.0.weight"][:7]
    entered = nn.functional.layer_norm(
        summed, (width,), own["backbone.norm.weight"], own["backbone.norm.bias"], eps=1e-3
    )
    expected = theirs(entered, src_key_padding_mask=~present)
    assert_close(ours(TOKENS, present=present)[present], expected[present], rtol=0, atol=1e-12)


@torch.no_grad()
def test_embedding_norm_is_optional() -> None:
    plain = TextEncoderConfig(layers=1, width=12, max_length=7).build(VOCABULARY, seed=0)
    assert not any(name.startswith(("backbone.norm.", "segment.")) for name in plain.state_dict())
    normed = TextEncoderConfig(layers=1, width=12, max_length=7, embedding_norm=True)
    assert {"backbone.norm.weight", "backbone.norm.bias"} <= set(
        normed.build(VOCABULARY, 0).state_dict()
    )


@pytest.mark.parametrize("position", ["learned", "sinusoid", "rotary", "relative", "concat"])
@torch.no_grad()
def test_positions_encode_order(position: str) -> None:
    tokens = torch.tensor([[3, 5, 7], [5, 3, 7]])
    straight, swapped = small_encoder(position=position, layers=1)(tokens)
    assert (straight[-1] - swapped[-1]).abs().max() > 1e-3
    straight, swapped = small_encoder(position="none", layers=1)(tokens)
    assert_close(straight[-1], swapped[-1], rtol=0, atol=1e-12)


def test_dropout_is_active_in_training_only() -> None:
    model = TextEncoderConfig(layers=1, width=12, max_length=7, dropout=0.5).build(
        VOCABULARY, seed=0
    )
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
