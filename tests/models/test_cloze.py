"""A blank is filled from its two sides, and never from the word that stood there."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig
from harken.layers.convolution import ConvPyramidConfig, GatedConvolutionConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, RecurrentConfig, TanhConfig
from harken.models.cloze import (
    BiRNNCloze,
    BiRNNClozeConfig,
    ClozeConfig,
    ClozeModel,
    MaskedLM,
    MaskedLMConfig,
)
from harken.models.encoders import EncoderConfig, TransformerEncoderConfig
from small_models import add_noise

VOCABULARY, WIDTH, HIDDEN, LENGTH = 23, 13, 11, 17
MASK, END = 2, 3
WORDS = st.integers(4, VOCABULARY - 1)

CELLS: dict[str, RecurrentConfig] = {
    "tanh": TanhConfig(hidden=HIDDEN, layers=2),
    "gru": GRUConfig(hidden=HIDDEN, layers=3),
    "lstm": LSTMConfig(hidden=HIDDEN, layers=2),
}
BODIES: dict[str, EncoderConfig] = {
    "transformer": TransformerEncoderConfig(
        layers=2,
        max_length=LENGTH + 2,
        attention=MultiHeadConfig(heads=3, head_width=5, key_width=4),
    ),
    "concat": TransformerEncoderConfig(
        layers=1,
        max_length=LENGTH + 2,
        attention=MultiHeadConfig(heads=2, head_width=7, key_width=4),
        position=FourierConfig(combine="concat"),
    ),
    "gru": GRUConfig(hidden=HIDDEN, direction="both"),
    "lstm": LSTMConfig(hidden=HIDDEN, direction="both", layers=2),
    "stride2": ConvPyramidConfig(layers=5),
    "gated": GatedConvolutionConfig(layers=9, kernel=5),
}
EVERY: dict[str, ClozeConfig] = {
    **{f"rnn {name}": BiRNNClozeConfig(width=WIDTH, cell=cell) for name, cell in CELLS.items()},
    **{
        f"masked {name}": MaskedLMConfig(width=WIDTH, encoder=encoder)
        for name, encoder in BODIES.items()
    },
}
every_model = pytest.mark.parametrize("name", EVERY)
every_cell = pytest.mark.parametrize("cell", CELLS)


def stirred(config: ClozeConfig) -> ClozeModel:
    """In float64, with weights large enough that a wrong path shows."""
    model = config.build(VOCABULARY, mask=MASK, end=END, seed=0).double().eval()
    add_noise(model, strength=1.0)
    return model


def scores_of(model: ClozeModel, words: list[int], blanks: list[bool]) -> Tensor:
    """Of one row without padding."""
    tokens = torch.tensor([words])
    return model(tokens, torch.ones_like(tokens).bool(), torch.tensor([blanks]))


def everywhere(words: list[int]) -> list[bool]:
    return [True] * len(words)


@every_cell
@given(words=st.lists(WORDS, min_size=1, max_size=7))
@settings(max_examples=7)
@torch.no_grad()
def test_the_formula(cell: str, words: list[int]) -> None:
    """e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1], by PyTorch's own layers over one side at a time."""
    model = stirred(EVERY[f"rnn {cell}"])
    assert isinstance(model, BiRNNCloze)
    table = model.embedding.weight

    def last_state(stack: nn.ModuleList | None, side: list[int]) -> Tensor:
        assert stack is not None
        states = table[side][None]
        for layer in stack:
            states, _ = layer(states)
        return states[0, -1]

    ours = scores_of(model, words, everywhere(words))
    for time in range(len(words)):
        left = last_state(model.forwards.forwards, [END, *words[:time]])
        right = last_state(model.backwards.backwards, [END, *words[:time:-1]])
        for word in range(VOCABULARY):
            expected = table[word] @ model.from_left.weight @ left
            expected += table[word] @ model.from_right.weight @ right
            assert_close(ours[time, word], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("body", BODIES)
@torch.no_grad()
def test_mask_hides_only_the_blanks(body: str) -> None:
    model = stirred(EVERY[f"masked {body}"])
    words = [5, 7, 11, 13, 6, 8, 9]
    blanks = [time in (1, 4) for time in range(len(words))]
    before = scores_of(model, words, blanks)
    assert before.shape == (2, VOCABULARY)
    for time in range(len(words)):
        other = [*words[:time], 17, *words[time + 1 :]]
        after = scores_of(model, other, blanks)
        assert (before == after).all(dim=1).tolist() == [blanks[time]] * 2


@torch.no_grad()
def test_masked_model_reads_masks_between_end_symbols() -> None:
    model = stirred(EVERY["masked transformer"])
    assert isinstance(model, MaskedLM)
    read = model.embedding(torch.tensor([[END, 5, MASK, 11, END]]))
    state = model.backbone(read)[0, 2]
    expected = model.embedding.weight @ (model.out.weight @ state)
    ours = scores_of(model, [5, 7, 11], [False, True, False])
    assert_close(ours[0], expected, rtol=0, atol=1e-12)


@every_model
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=LENGTH), min_size=1, max_size=4),
    st.integers(0, 2**31),
    st.integers(0, VOCABULARY - 1),
)
@settings(max_examples=7)
@torch.no_grad()
def test_padding_changes_nothing(name: str, rows: list[list[int]], seed: int, padding: int) -> None:
    model = stirred(EVERY[name])
    generator = torch.Generator().manual_seed(seed)
    longest = max(map(len, rows)) + 1
    tokens = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
    present = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
    blanks = present & (torch.rand(tokens.shape, generator=generator) < 0.5)
    alone = [
        scores_of(model, row, blanks[number, : len(row)].tolist())
        for number, row in enumerate(rows)
    ]
    if longest > LENGTH and EVERY[name].max_length is not None:
        tokens, present, blanks = tokens[:, :-1], present[:, :-1], blanks[:, :-1]
    together = model(tokens, present, blanks)
    assert_close(together, torch.cat(alone), rtol=0, atol=1e-10)


@every_model
def test_input_and_output_share_the_table(name: str) -> None:
    model = stirred(EVERY[name])
    states = torch.randn(5, WIDTH, dtype=torch.float64)
    expected = torch.einsum("nj,vj->nv", states, model.embedding.weight)
    assert_close(model.logits(states), expected, rtol=0, atol=1e-12)
    tables = [parameter for parameter in model.parameters() if VOCABULARY in parameter.shape]
    assert len(tables) == 1


@every_model
def test_every_weight_learns(name: str) -> None:
    model = stirred(EVERY[name])
    scores_of(model, [5, 7, 11, 13, 6], [True] * 5)[:, 5].square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert model.embedding.weight.grad is not None
    assert model.embedding.weight.grad[END].any()


@every_model
def test_dropout_is_active_in_training_only(name: str) -> None:
    config = EVERY[name]
    model, words = stirred(replace(config, dropout=0.5)), [5, 7, 11]
    first, second = (scores_of(model, words, everywhere(words)) for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    assert not torch.equal(scores_of(model, words, everywhere(words)), first)


def test_max_length_in_words() -> None:
    assert EVERY["masked transformer"].max_length == LENGTH
    assert MaskedLMConfig(encoder=TransformerEncoderConfig(max_length=3)).max_length == 1
    assert EVERY["masked lstm"].max_length is None
    assert EVERY["rnn lstm"].max_length is None
    assert [EVERY[name].predicts_all_words for name in ("rnn gru", "masked gru")] == [True, False]


FOUR_HEADS = TransformerEncoderConfig(attention=MultiHeadConfig(heads=4))


@pytest.mark.parametrize(
    ("kind", "choices", "message"),
    [
        (BiRNNClozeConfig, {"cell": GRUConfig(direction="backward")}, "adds the backward RNN"),
        (BiRNNClozeConfig, {"cell": GRUConfig(direction="both")}, "adds the backward RNN"),
        (MaskedLMConfig, {"encoder": TransformerEncoderConfig(max_length=2)}, "at least 3"),
        (MaskedLMConfig, {"width": 13, "encoder": FOUR_HEADS}, "does not divide"),
        (MaskedLMConfig, {"encoder": GatedConvolutionConfig(causal=True)}, "expected false"),
    ],
)
def test_incompatible_choices_are_rejected(
    kind: type[ClozeConfig], choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**choices)


@every_model
def test_seed_determines_the_weights(name: str) -> None:
    config = EVERY[name]
    first, again, other = (
        config.build(VOCABULARY, mask=MASK, end=END, seed=seed).state_dict() for seed in (5, 5, 7)
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@every_model
def test_initial_weights_preserve_lengths(name: str) -> None:
    """A word vector is about one long, and so is what a map makes of a state of length one."""
    model = EVERY[name].build(1009, mask=MASK, end=END, seed=0)
    assert model.embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)
    for key in ("from_left", "from_right", "out"):
        if hasattr(model, key):
            weight = getattr(model, key).weight
            assert weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.2)
