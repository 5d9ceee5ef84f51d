"""Preferred offsets of designed heads, of trained heads, and compared with slow loops."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    LearnedConfig,
    PositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import RelativeConfig, RotaryConfig, Rotation, alibi_slopes, rotate
from harken.attention.scores import DotConfig
from harken.inspection.ablation import HeadRef, ablated
from harken.inspection.circuits import query_key
from harken.inspection.offset_preferences import (
    OffsetPreferences,
    _run_length,
    input_path,
    offset_preferences,
)
from harken.layers.norm import NormConfig
from harken.layers.spatial import SpatialConfig
from harken.models.decoders import TransformerDecoderConfig
from harken.models.encoders import TextEncoder, TextEncoderConfig, TransformerEncoderConfig
from harken.models.gpt import GPT, GPTConfig
from harken.models.recognizer import RecognizerConfig
from harken.models.seq2seq import EncoderDecoderConfig
from small_models import HEADS, LEGAL, VOCABULARY, small_model

FIRST = "stack.blocks.0.attention"
WIDTH, LENGTH, BASE = 16, 44, 10000.0


def reading(model: torch.nn.Module, name: str = FIRST, length: int = LENGTH) -> OffsetPreferences:
    return offset_preferences(model.get_submodule(name), input_path(model, name), length=length)


def encoder_with(
    position: PositionConfig, queries: Tensor, keys: Tensor, bias: bool = False
) -> TextEncoder:
    """Return an encoder with one head and no norm before it, and small embeddings."""
    config = TextEncoderConfig(
        layers=1,
        width=WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=1, score=DotConfig(), bias=bias),
        position=position,
        norm=NormConfig(place="post"),
    )
    model = config.build(53, seed=0).double()
    score = model.backbone.stack.blocks[0].attention.score
    with torch.no_grad():
        model.embedding.weight.mul_(0.1 / model.embedding.weight.std())
        score.q_proj.weight.copy_(queries)
        score.k_proj.weight.copy_(keys)
    return model


def shifted(offset: int, zeroed: int = 0) -> Tensor:
    """Return A, key first: blocks [[cos, -sin], [sin, cos]] of T / base^(2i/d)."""
    blocks = []
    for i in range(WIDTH // 2):
        angle = torch.tensor(offset / BASE ** (2 * i / WIDTH)).double()
        block = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos())).view(2, 2)
        blocks.append(block * (i >= zeroed))
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("offset", [-7, -2, 0, 1, 5, 10])
def test_a_head_written_for_an_offset_is_read_as_that_offset(offset: int) -> None:
    own = torch.eye(WIDTH).double()
    model = encoder_with(SinusoidConfig(), shifted(offset), own)
    read = reading(model, "backbone." + FIRST)
    assert read.preferred.tolist() == [offset] and read.exact
    # A is key first and W~ query first: exchanged, they prefer -T.
    mistaken = encoder_with(SinusoidConfig(), own, shifted(offset))
    assert reading(mistaken, "backbone." + FIRST).preferred.tolist() == [-offset]
    assert read.position.item() > 0.5 > read.content.item()


def test_a_head_written_for_a_band_is_read_as_wide_as_its_waves_fall() -> None:
    """profile(T + d) - profile(T) = sum over the blocks that are left of cos(w_i d) - 1."""
    own, widths = torch.eye(WIDTH).double(), []
    for zeroed in range(3):
        model = encoder_with(SinusoidConfig(), shifted(3, zeroed), own)
        read = reading(model, "backbone." + FIRST)
        assert read.preferred.tolist() == [3]
        waves = BASE ** (-2 * torch.arange(zeroed, WIDTH // 2) / WIDTH)
        away = (read.offsets - 3)[:, None] * waves
        assert read.band.item() == int(((1 - away.cos()).sum(dim=-1) <= 1).sum())
        widths.append(read.band.item())
    assert widths[0] < widths[1] < widths[2]


@pytest.mark.parametrize("offset", [-4, 0, 6])
def test_rotary_heads_are_read_from_their_mean_query_and_key(offset: int) -> None:
    model = encoder_with(
        RotaryConfig(), torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH, WIDTH), bias=True
    )
    score = model.backbone.stack.blocks[0].attention.score
    key = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1)).double()
    there = model.backbone.position.rotation(torch.tensor([[[abs(offset)]]]))
    sign = 1 if offset < 0 else -1  # the query that is turned back by T meets the key T before
    turned = rotate(key[None, None, None], Rotation(there.cosine, sign * there.sine))
    with torch.no_grad():
        score.q_proj.bias.copy_(turned[0, 0, 0])
        score.k_proj.bias.copy_(key)
    read = reading(model, "backbone." + FIRST)
    assert read.preferred.tolist() == [offset]
    assert_close(read.position, torch.ones(1).double())


def test_alibi_is_read_as_its_slopes() -> None:
    model = small_model(position="alibi")
    for parameter in model.stack.blocks[0].attention.score.parameters():
        parameter.data.zero_()
    read = reading(model, length=20)
    slopes = torch.tensor(alibi_slopes(HEADS)).double()
    assert read.preferred.tolist() == [0] * HEADS
    assert_close(read.profile[:, :-1] - read.profile[:, 1:], slopes[:, None].expand(-1, 9))


def test_a_learned_bias_is_read_as_it_stands() -> None:
    config = GPTConfig(
        layers=1, width=12, max_length=20, attention=MultiHeadConfig(heads=3),
        position=RelativeConfig(buckets=16, max_distance=20, causal=True),
    )  # fmt: skip
    model = config.build(VOCABULARY, seed=0)
    with torch.no_grad():
        model.position.tables[0].weight.zero_()
        for head, offset in enumerate((4, 0, 2)):
            model.position.tables[0].weight[offset, head] = 3.0
    read = reading(model, length=20)
    assert read.preferred.tolist() == [4, 0, 2]
    assert read.band.tolist() == [1, 1, 1]


@torch.no_grad()
def test_the_profile_is_the_mean_score_of_random_tokens() -> None:
    """Compare with loops over pairs of tokens, through the norm and the factors of the head."""
    model, length, tokens = small_model("scaled", "learned", norm="pre"), 11, 3
    path, attention = input_path(model, FIRST), model.stack.blocks[0].attention
    read = offset_preferences(attention, path, length=length, tokens=tokens, seed=4)
    drawn = torch.randint(VOCABULARY, (2, 3), generator=torch.Generator().manual_seed(4))
    asking, asked = model.embedding.weight[drawn]
    places, norm = model.position.tables[0].weight, model.stack.blocks[0].attention_norm
    product = query_key(attention)
    for head in range(HEADS):
        table = torch.zeros(tokens, tokens, 5, 6).double()  # … queries 6..10, offsets 0..5
        for n in range(tokens):
            for m in range(tokens):
                for i in range(6, 11):
                    for d in range(6):
                        query = product.left[head] @ norm(asking[n] + places[i])
                        key = product.right[head] @ norm(asked[m] + places[i - d])
                        table[n, m, i - 6, d] = query @ key
        profile = table.mean(dim=(0, 1, 2))
        assert_close(read.profile[head], profile - profile.mean())
        assert_close(
            read.attention_by_position[head], table.mean(dim=(0, 1)).softmax(dim=-1).mean(dim=0)
        )
        mean, by_key = table.mean(dim=(0, 1)), table.mean(dim=1)
        parts = torch.stack((
            mean.var(dim=-1, correction=0).mean(),
            (by_key - mean).var(dim=-1, correction=0).mean(dim=-1).sum() / (tokens - 1),
            table.var(dim=1).mean(),
        ))  # fmt: skip
        shares = torch.stack((read.position[head], read.mixed[head], read.content[head]))
        assert_close(shares, parts / parts.sum())


def test_without_positions_all_is_content_and_without_contents_all_is_position() -> None:
    blind = small_model(position="none")
    assert_close(reading(blind, length=11).content, torch.ones(HEADS).double())
    same = small_model(position="learned")
    same.embedding.weight.data[:] = same.embedding.weight.data[:1].clone()
    assert_close(reading(same, length=11).position, torch.ones(HEADS).double())


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_every_choice_can_be_read(score: str, position: str) -> None:
    model = small_model(score, position)
    for layer in range(2):
        read = reading(model, f"stack.blocks.{layer}.attention", length=11)
        shares = torch.stack((read.position, read.mixed, read.content))
        assert_close(shares.sum(dim=0), torch.ones(HEADS).double())
        assert_close(read.attention_by_position.sum(dim=-1), torch.ones(HEADS).double())
        assert shares.min() >= 0 and read.exact == (layer == 0)
        assert read.offsets.tolist() == list(range(6))


def test_the_first_place_is_left_out() -> None:
    """Heads often rest on the first token, at any distance."""
    model = small_model("random", "none")
    before = reading(model, length=11)
    model.stack.blocks[0].attention.score.table.data[:, :, 0] += 50.0
    after = reading(model, length=11)
    assert_close(after.profile, before.profile)
    model.stack.blocks[0].attention.score.table.data[:, :, 1] += 50.0
    assert reading(model, length=11).preferred.tolist() == [5] * HEADS


def test_offsets_are_those_that_the_mask_lets_see() -> None:
    for seen, offsets in (("strictly_causal", [1, 2, 3, 4, 5]), ("window", [0, 1, 2, 3])):
        assert reading(small_model(seen=seen), length=11).offsets.tolist() == offsets


def test_tokens_come_down_the_path_of_norms() -> None:
    def norms(model: torch.nn.Module, name: str) -> list[str]:
        names = {id(module): path for path, module in model.named_modules()}
        return [names[id(norm)] for norm in input_path(model, name).norms]

    second = "stack.blocks.1.attention"
    assert norms(small_model(norm="pre"), second) == ["stack.blocks.1.attention_norm"]
    assert norms(small_model(norm="post"), FIRST) == []
    assert norms(small_model(norm="post"), second) == [
        "stack.blocks.0.attention_norm",
        "stack.blocks.0.feedforward_norm",
    ]
    bert = TextEncoderConfig(
        width=8, embedding_norm=True, segments=2, norm=NormConfig(place="post")
    )
    model = bert.build(7, seed=0)
    assert norms(model, "backbone." + FIRST) == ["backbone.norm"]
    path = input_path(model, "backbone." + FIRST)
    assert_close(path.table, model.embedding.weight + model.segment.weight[0])


def test_an_encoder_that_shares_the_embedding_of_its_decoder() -> None:
    config = EncoderDecoderConfig(
        encoder=TransformerEncoderConfig(layers=1, max_length=16),
        decoder=TransformerDecoderConfig(layers=1, width=8, max_length=16),
    )
    model = config.build(29, seed=0)
    table = model.decoder.embedding.weight
    encoder = input_path(model, "encoder." + FIRST)
    decoder = input_path(model, "decoder." + FIRST)
    assert encoder.table.equal(table) and encoder.mask_kind == "bidirectional"
    assert decoder.table.equal(table) and decoder.mask_kind == "causal"
    assert input_path(model, "decoder.stack.blocks.0.cross") is None


def test_speech_has_no_embedding_and_images_no_path() -> None:
    model = RecognizerConfig(width=16).build(9, features=8, hop_ms=10.0, seed=0)
    path = input_path(model, "encoder.blocks.1.attention")
    assert path.table.shape == (1, 16) and not path.table.any() and not path.is_first_layer
    norms = [norm for norm in path.norms if not isinstance(norm, nn.Identity)]
    assert len(norms) == 2  # past the first block, and into the second's attention
    spatial = SpatialConfig(layers=1).build(16, 3, 3)
    assert input_path(spatial, FIRST) is None


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_a_band_ends_where_it_is_first_left(row: list[bool], data: st.DataObject) -> None:
    peak = data.draw(st.integers(0, len(row) - 1))
    row[peak] = True
    left = right = peak
    while left > 0 and row[left - 1]:
        left -= 1
    while right < len(row) - 1 and row[right + 1]:
        right += 1
    assert _run_length(torch.tensor([row]), torch.tensor([peak])).tolist() == [right - left + 1]


def copying_loss(model: GPT, tokens: Tensor, offset: int) -> Tensor:
    scores = model(tokens)[:, offset:]
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, : tokens.shape[1] - offset].flatten())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("position", "offset"),
    [(SinusoidConfig(), 1), (SinusoidConfig(), 3), (SinusoidConfig(), 5), (LearnedConfig(), 5)],
    ids=lambda value: str(getattr(value, "kind", value)),
)
def test_weights_name_the_offset_that_a_model_was_trained_for(
    position: PositionConfig, offset: int
) -> None:
    """The task is to copy the token T back; the head whose ablation costs most must prefer T."""
    words, length = 13, 24
    config = GPTConfig(
        layers=1, width=48, max_length=length, attention=MultiHeadConfig(heads=2),
        position=position, tie_embeddings=False,
    )  # fmt: skip
    model = config.build(words, seed=offset)
    untrained = reading(model, length=length)
    generator = torch.Generator().manual_seed(offset)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(450):
        tokens = torch.randint(words, (32, length), generator=generator)
        optimizer.zero_grad()
        copying_loss(model, tokens, offset).backward()
        optimizer.step()
    tokens = torch.randint(words, (64, length), generator=generator)
    with torch.no_grad():
        assert copying_loss(model, tokens, offset) < 0.5
        missed = []
        for head in (1, 2):
            with ablated(model, [HeadRef(FIRST, head)]):
                missed.append(copying_loss(model, tokens, offset).item())
    counts = missed.index(max(missed))
    read = reading(model, length=length)
    assert read.preferred[counts] == offset
    assert read.band[counts] == 1 and read.position[counts] > 0.9
    assert (
        untrained.attention_by_position[counts].max()
        < 0.2
        < 0.5
        < read.attention_by_position[counts].max()
    )
