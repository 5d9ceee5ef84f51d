"""A tagger sees rows and spellings, each word's own, and nothing of the padding."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.config import loads
from harken.errors import UserError
from harken.layers.convolution import ConvPyramidConfig, GatedConvolutionConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.models.encoders import EncoderConfig, TransformerEncoderConfig
from harken.models.tagger import (
    CBOWConfig,
    CharacterCNN,
    CharacterCNNConfig,
    CharacterFeaturesConfig,
    CharacterLSTM,
    CharacterLSTMConfig,
    NoCharactersConfig,
    Tagger,
    TaggerConfig,
)
from small_layers import randomized

WORDS, CHARACTERS, TAGS, WIDTH = 19, 23, 5, 14
SIZES = {"words": WORDS, "characters": CHARACTERS, "tags": TAGS}
BODIES: dict[str, EncoderConfig] = {
    "tanh": TanhConfig(),
    "gru": GRUConfig(direction="both"),
    "lstm": LSTMConfig(layers=2, hidden=3, direction="both", dropout=0.5),
    "stride2": ConvPyramidConfig(layers=2),
    "gated": GatedConvolutionConfig(layers=2),
    "transformer": TransformerEncoderConfig(
        layers=2, max_length=11, attention=MultiHeadConfig(heads=2), dropout=0.5
    ),
}
VIEWS: dict[str, CharacterFeaturesConfig] = {
    "cnn": CharacterCNNConfig(width=6, embedding_width=3, kernel=3),
    "lstm": CharacterLSTMConfig(width=6, embedding_width=3),
    "none": NoCharactersConfig(),
}
CONFIG = TaggerConfig(width=WIDTH, characters=VIEWS["cnn"], encoder=BODIES["lstm"])
every_body = pytest.mark.parametrize("body", BODIES)
every_view = pytest.mark.parametrize("view", VIEWS)


def small(body: str = "lstm", view: str = "cnn", seed: int = 0) -> Tagger:
    """In double precision, with weights large enough that a wrong path shows."""
    config = TaggerConfig(width=WIDTH, characters=VIEWS[view], encoder=BODIES[body], dropout=0.5)
    torch.manual_seed(seed)
    return randomized(config.build(**SIZES, seed=seed), std=0.5)


def some(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def spelling(lengths: list[int], letters: int) -> tuple[Tensor, Tensor]:
    spelt = torch.arange(letters) < torch.tensor(lengths)[:, None]
    return some(CHARACTERS, len(lengths), letters), spelt


def batch() -> tuple[Tensor, ...]:
    """Two sentences of 7 and 3 words over three spellings."""
    present = torch.arange(7) < torch.tensor([7, 3])[:, None]
    return some(WORDS, 2, 7), some(3, 2, 7, seed=1), *spelling([4, 1, 6], 6), present


@every_view
@every_body
@torch.no_grad()
def test_padding_changes_nothing(body: str, view: str) -> None:
    model = small(body, view)
    rows, forms, spellings, spelt, present = batch()
    together = model(rows, forms, spellings, spelt, present)
    assert together.shape == (2, 7, TAGS)
    for row, length in enumerate((7, 3)):
        distinct = forms[row, :length].unique()
        index = torch.searchsorted(distinct, forms[row : row + 1, :length])
        longest = int(spelt[distinct].sum(dim=1).max())
        alone = model(
            rows[row : row + 1, :length],
            index,
            spellings[distinct, :longest],
            spelt[distinct, :longest],
            torch.ones(1, length, dtype=torch.bool),
        )
        assert_close(together[row : row + 1, :length], alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("view", ["cnn", "lstm"])
@torch.no_grad()
def test_each_word_has_its_own_spelling(view: str) -> None:
    """The plain RNN reads from left to right: a changed spelling shows from its first word on."""
    model = small("tanh", view)
    rows, _, spellings, spelt, present = batch()
    forms = torch.tensor([[0, 0, 2, 1, 0, 2, 1], [2, 2, 0, 0, 0, 0, 0]])
    before = model(rows, forms, spellings, spelt, present)
    for form, firsts in enumerate(((0, 2), (3, None), (2, 0))):
        changed = spellings.clone()
        changed[form] = (changed[form] + 7) % CHARACTERS
        moved = (model(rows, forms, changed, spelt, present) != before).any(dim=-1) & present
        for row, first in enumerate(firsts):
            assert moved[row].nonzero()[:1].flatten().tolist() == ([] if first is None else [first])
    unread = torch.where(spelt, spellings, (spellings + 5) % CHARACTERS)
    assert_close(model(rows, forms, unread, spelt, present), before, rtol=0, atol=0)


@torch.no_grad()
def test_character_cnn_by_the_formula() -> None:
    """relu(max over places of b + sum over Δ of W[Δ] x[t + Δ]), zeros beyond the word."""
    for kernel in (1, 2, 3, 5):
        config = CharacterCNNConfig(width=7, embedding_width=3, kernel=kernel)
        view = CharacterCNN(config, CHARACTERS).double()
        spellings, spelt = spelling([4, 1, 6], 6)
        weight, bias = view.kernel.weight, view.kernel.bias
        assert bias is not None
        for form, length in enumerate((4, 1, 6)):
            letters = view.embedding(spellings[form, :length])
            places = []
            for at in range(length):
                total = bias.clone()
                for number in range(kernel):
                    other = at + number - (kernel - 1) // 2
                    if 0 <= other < length:
                        total = total + weight[:, :, number] @ letters[other]
                places.append(total)
            expected = torch.stack(places).max(dim=0).values.clamp(min=0)
            assert_close(view(spellings, spelt)[form], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_character_lstm_agrees_with_pytorch() -> None:
    config = CharacterLSTMConfig(width=10, embedding_width=3)
    view = CharacterLSTM(config, CHARACTERS).double()
    oracle = nn.LSTM(3, 5, batch_first=True, bidirectional=True).double()
    forwards, backwards = view.recurrent.forwards, view.recurrent.backwards
    assert forwards is not None and backwards is not None
    for name, own in forwards[0].named_parameters():
        getattr(oracle, name).copy_(own)
    for name, own in backwards[0].named_parameters():
        getattr(oracle, f"{name}_reverse").copy_(own)
    lengths = [4, 1, 6]
    spellings, spelt = spelling(lengths, 6)
    packed = pack_padded_sequence(
        view.embedding(spellings), torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    _, (last, _) = oracle(packed)
    assert_close(view(spellings, spelt), torch.cat((last[0], last[1]), dim=-1))


@torch.no_grad()
def test_the_plain_recurrence_is_that_of_the_lecture() -> None:
    """h_t = tanh(U x_t + V h_{t-1}),  o_t = W h_t."""
    model = small("tanh", "none")
    rows = some(WORDS, 1, 7)
    (layer,) = [module for module in model.modules() if isinstance(module, nn.RNN)]
    state = torch.zeros(WIDTH, dtype=torch.float64)
    expected = []
    for word in rows[0]:
        read = layer.weight_ih_l0 @ model.words.weight[word]
        state = torch.tanh(read + layer.weight_hh_l0 @ state)
        expected.append(model.classifier.weight @ state + model.classifier.bias)
    present = torch.ones(1, 7, dtype=torch.bool)
    actual = model(rows, rows * 0, *spelling([2], 2), present)
    assert_close(actual[0], torch.stack(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("place", ["backbone", "classifier"])
def test_half_is_dropped_before_and_after_the_backbone_in_training(place: str) -> None:
    model, shares = small("tanh", "lstm"), []
    getattr(model, place).register_forward_pre_hook(
        lambda module, inputs: shares.append((inputs[0][0] == 0).double().mean().item())
    )
    for training in (True, False):
        model.train(training)
        model(*batch())
    assert 0.3 < shares[0] < 0.7  # of 98 numbers
    assert shares[1] == 0.0


@every_view
@every_body
def test_every_weight_learns(body: str, view: str) -> None:
    model = small(body, view)
    model(*batch())[batch()[-1]].square().sum().backward()
    silent = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert silent == []


def test_weights_are_a_function_of_the_seed() -> None:
    first, again, other = (CONFIG.build(**SIZES, seed=seed) for seed in (3, 3, 4))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    assert not torch.equal(first.words.weight, other.words.weight)


def test_neighbors_are_there_only_when_asked_for() -> None:
    assert small().neighbors is None
    model = CONFIG.build(**SIZES, seed=0, cbow=CBOWConfig(window=1))
    assert model.neighbors is not None
    assert model.neighbors.lm_head.weight.shape == (WORDS, model.words.embedding_dim)


def test_length_is_that_of_the_body() -> None:
    for name, body in BODIES.items():
        max_length = 11 if name == "transformer" else None
        assert replace(CONFIG, encoder=body).max_length == small(name).max_length == max_length


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"characters": CharacterCNNConfig(width=WIDTH)}, "expected more than characters.width"),
        ({"encoder": TransformerEncoderConfig(attention=MultiHeadConfig(heads=3))}, "heads"),
        ({"encoder": GatedConvolutionConfig(causal=True)}, "causal"),
        ({"width": 15, "encoder": GRUConfig(direction="both")}, "even"),
    ],
)
def test_incompatible_choices_are_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)  # type: ignore[arg-type]


def test_an_odd_view_of_two_directions_is_refused() -> None:
    with pytest.raises(UserError, match="expected an even number"):
        loads(TaggerConfig, '[characters]\nkind = "lstm"\nwidth = 7', base=Path())
