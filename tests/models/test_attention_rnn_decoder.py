"""The RNN that looks at a memory, against the sources' formulas written as a loop."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import AdditiveConfig, ScaledConfig, TransformerXLConfig
from harken.inspection.record import record
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.models.decoders import (
    AttentionRNNDecoder,
    AttentionRNNDecoderConfig,
    LocationConfig,
)
from small_layers import randomized

BATCH, TIME, PLACES, VOCABULARY = 2, 5, 7, 17
WIDTH, HIDDEN, MEMORY = 3, 11, 13


def built(**choices: object) -> AttentionRNNDecoder:
    config = AttentionRNNDecoderConfig(**({"width": WIDTH, "hidden": HIDDEN} | choices))
    return randomized(config.build(VOCABULARY, MEMORY, HIDDEN, seed=0), std=0.5)


def given_things() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    memory = torch.randn(BATCH, PLACES, MEMORY, dtype=torch.float64)
    source = torch.randn(BATCH, HIDDEN, dtype=torch.float64)
    return memory, source, torch.randint(0, VOCABULARY, (BATCH, TIME))


@torch.no_grad()
def test_steps_by_the_formula() -> None:
    decoder = built(cell=TanhConfig())
    memory, source, tokens = given_things()
    states = decoder(tokens, decoder.init_state(memory, None, source))
    scores = decoder.logits(states)
    key = decoder.attention.score.matrix[0]  # W_key, hidden x memory
    table, to_words = decoder.embedding.weight, decoder.to_words.weight
    cell = decoder.cell.state_dict()
    of_input = next(value for name, value in cell.items() if "weight_ih" in name)
    of_state = next(value for name, value in cell.items() if "weight_hh" in name)
    for b in range(BATCH):
        before = source[b]  # h[0]
        for t in range(TIME):
            raw = [before @ key @ memory[b, place] for place in range(PLACES)]
            masses = [math.exp(score) for score in raw]
            mixed = sum(mass / sum(masses) * memory[b, place] for place, mass in enumerate(masses))
            read = torch.cat((mixed, table[tokens[b, t]]))
            before = torch.tanh(of_input @ read + of_state @ before)
            assert_close(states[b, t], before, rtol=0, atol=1e-12)
            for word in range(VOCABULARY):
                assert_close(scores[b, t, word], table[word] @ (to_words @ before))


def test_attention_of_a_step_decides_the_word_after_it() -> None:
    """A change of the memory at step t is felt in the scores read at t, not before."""
    decoder = built(cell=GRUConfig())
    memory, source, tokens = given_things()
    begun = decoder.init_state(memory, None, source)
    with record(decoder) as seen:
        states = decoder(tokens, begun)
    assert len(seen) == TIME
    state = begun
    for t in range(3):
        _, state = decoder._step_token(decoder.embedding(tokens[:, t]), state)
    elsewhere = decoder.init_state(memory + 1.0, None, source)
    changed, _ = decoder._step_token(
        decoder.embedding(tokens[:, 3]), state._replace(memory=elsewhere.memory)
    )
    assert not torch.allclose(changed, states[:, 3])
    # Of the words consumed, the query of step t has felt those before t alone.
    other = tokens.clone()
    other[:, 3] = (other[:, 3] + 1) % VOCABULARY
    with record(decoder) as again:
        decoder(other, begun)
    assert torch.equal(again[3].weights, seen[3].weights)
    assert not torch.equal(again[4].weights, seen[4].weights)


@pytest.mark.parametrize("cell", [TanhConfig(), GRUConfig(), LSTMConfig()])
@pytest.mark.parametrize("location", [None, LocationConfig(kernel=3, window=2)])
def test_padding_of_the_memory_changes_nothing(cell: object, location: object) -> None:
    decoder = built(cell=cell, location=location)
    memory, source, tokens = given_things()
    present = torch.arange(PLACES) < torch.tensor([[4], [PLACES]])
    whole = decoder(tokens, decoder.init_state(memory, present, source))
    other = torch.where(present[..., None], memory, 99.0)
    assert_close(decoder(tokens, decoder.init_state(other, present, source)), whole)
    alone = decoder(tokens[:1], decoder.init_state(memory[:1, :4], None, source[:1]))
    assert_close(alone, whole[:1], rtol=0, atol=1e-12)


ATTENTIONS = {
    "scaled": MultiHeadConfig(heads=1, score=ScaledConfig()),
    "additive": MultiHeadConfig(heads=1, score=AdditiveConfig(), out_proj=False),
    "two heads": MultiHeadConfig(heads=2, head_width=5, key_width=3),
}


@pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS.keys())
def test_any_attention_works(attention: MultiHeadConfig) -> None:
    decoder = built(attention=attention)
    memory, source, tokens = given_things()
    with record(decoder) as seen:
        states = decoder(tokens, decoder.init_state(memory, None, source))
    assert states.shape == (BATCH, TIME, HIDDEN)
    assert_close(seen[0].weights.sum(dim=-1), torch.ones(BATCH, attention.heads, 1).double())


@given(st.integers(0, TIME))
def test_steps_continue(cut: int) -> None:
    decoder = built(cell=LSTMConfig(), location=LocationConfig(kernel=3))
    memory, source, tokens = given_things()
    begun = state = decoder.init_state(memory, None, source)
    for token in tokens[:, :cut].unbind(dim=1):
        _, state = decoder._step_token(decoder.embedding(token), state)
    whole = decoder(tokens, begun)
    if cut < TIME:
        assert_close(decoder(tokens[:, cut:], state), whole[:, cut:], rtol=0, atol=1e-12)


def test_location_window_restricts_attention() -> None:
    decoder = built(location=LocationConfig(kernel=3, window=1))
    memory, source, tokens = given_things()
    with record(decoder) as seen:
        decoder(tokens, decoder.init_state(memory, None, source))
    assert (seen[0].weights[..., 2:] == 0).all()  # the first center is the first place
    assert (seen[0].weights[..., :2] > 0).all()
    for call in seen:
        assert ((call.weights > 0).sum(dim=-1) <= 3).all()


def test_location_depends_on_the_last_weights() -> None:
    decoder = built(location=LocationConfig(kernel=3))
    memory, source, tokens = given_things()
    begun = decoder.init_state(memory, None, source)
    assert begun.location is not None
    moved = begun.location._replace(weights=begun.location.weights.roll(3, dims=1))
    first, _ = decoder._step_token(decoder.embedding(tokens[:, 0]), begun)
    other, _ = decoder._step_token(decoder.embedding(tokens[:, 0]), begun._replace(location=moved))
    assert not torch.allclose(first, other)


# The RNN attends to nothing but a memory, to which it has no distance.
RELATIVE = MultiHeadConfig(heads=3, score=TransformerXLConfig())


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"hidden": 12, "attention": RELATIVE}, "'transformer_xl' needs distances"),
        ({"hidden": 11, "attention": MultiHeadConfig(heads=2)}, "does not divide into 2 heads"),
        ({"cell": GRUConfig(direction="backward")}, "expected 'forward', got"),
        ({"cell": GRUConfig(direction="both")}, "expected 'forward', got"),
    ],
)
def test_incompatible_choices_are_rejected(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionRNNDecoderConfig(**choices)
