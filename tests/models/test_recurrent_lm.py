"""Language models whose state does not grow: against PyTorch, a slow loop, and themselves."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.config import loads
from harken.decode.stepper import LMStepper
from harken.layers.convolution import CausalConvolutionConfig, GatedConvolutionConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import (
    ConvLMConfig,
    FixedStateLM,
    LanguageModelConfig,
    RecurrentLMConfig,
)
from ragged import check_ragged_chunks
from small_layers import randomized

VOCABULARY, WIDTH, HIDDEN, LAYERS, LENGTH, KERNEL = 17, 7, 11, 2, 13, 3

MODELS: dict[str, RecurrentLMConfig | ConvLMConfig] = {
    "tanh": RecurrentLMConfig(width=WIDTH, cell=TanhConfig(layers=LAYERS), tie_embeddings=True),
    "gru": RecurrentLMConfig(width=WIDTH, cell=GRUConfig(hidden=HIDDEN, layers=LAYERS)),
    "lstm": RecurrentLMConfig(width=WIDTH, cell=LSTMConfig(hidden=HIDDEN, layers=LAYERS)),
    "causal": ConvLMConfig(
        width=WIDTH,
        convolutions=CausalConvolutionConfig(layers=LAYERS, kernel=KERNEL),
        tie_embeddings=True,
    ),
    "gated": ConvLMConfig(
        width=WIDTH,
        convolutions=GatedConvolutionConfig(layers=LAYERS, kernel=KERNEL, causal=True),
    ),
}
REACH = {"causal": 1 + (KERNEL - 1) * 3, "gated": 1 + (KERNEL - 1) * 2}  # dilations 1, 2 and 1, 1
every_kind = pytest.mark.parametrize("kind", MODELS)


def small(kind: str, seed: int = 0) -> FixedStateLM:
    """In float64, with weights large enough for a wrong one to show."""
    torch.manual_seed(seed)
    return randomized(MODELS[kind].build(VOCABULARY, seed), std=0.6)


def some_tokens(rows: int, time: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (rows, time), generator=generator)


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("tanh", nn.RNN(WIDTH, WIDTH, LAYERS, bias=False, batch_first=True)),
        ("gru", nn.GRU(WIDTH, HIDDEN, LAYERS, batch_first=True)),
        ("lstm", nn.LSTM(WIDTH, HIDDEN, LAYERS, batch_first=True)),
    ],
)
@torch.no_grad()
def test_scores_are_those_of_pytorch(kind: str, theirs: nn.RNNBase) -> None:
    model = small(kind)
    layers = theirs.double()
    weights = model.state_dict()
    for name, parameter in layers.named_parameters():
        part, depth = name.rsplit("_l", 1)
        parameter.copy_(weights[f"backbone.forwards.{depth}.{part}_l0"])
    tokens = some_tokens(3, LENGTH)
    outputs, _ = layers(F.embedding(tokens, weights["embedding.weight"]))
    assert_close(model(tokens), outputs @ weights["lm_head.weight"].T, rtol=0, atol=1e-12)


@every_kind
@torch.no_grad()
def test_ragged_chunks_equal_each_row_alone(kind: str) -> None:
    check_ragged_chunks(small(kind), VOCABULARY, LENGTH, max_examples=15)


@every_kind
@given(st.integers(0, LENGTH - 1), st.integers(0, 2**31))
@settings(max_examples=10)
@torch.no_grad()
def test_states_depend_on_the_receptive_field_only(kind: str, changed_at: int, seed: int) -> None:
    model = small(kind)
    tokens = some_tokens(2, LENGTH, seed)
    other = tokens.clone()
    other[:, changed_at] = (other[:, changed_at] + 1) % VOCABULARY
    before, after = model(tokens), model(other)
    assert torch.equal(before[:, :changed_at], after[:, :changed_at])
    assert not torch.equal(before[:, changed_at], after[:, changed_at])
    end = changed_at + REACH.get(kind, LENGTH)
    assert torch.equal(before[:, end:], after[:, end:])


@every_kind
@torch.no_grad()
def test_state_has_constant_size_and_selectable_rows(kind: str) -> None:
    model = small(kind)
    steps = LMStepper(model)
    tokens = some_tokens(3, LENGTH)
    _, state = steps.prefill(tokens, torch.ones_like(tokens).bool())
    sizes = [part.shape for part in state if part is not None]
    begun = model.init_state(3, tokens.device)
    assert sizes == [part.shape for part in begun if part is not None]
    chosen = torch.tensor([2, 0, 2, 1])
    next_tokens = torch.tensor([1, 2, 3, 4])
    scores, _ = steps.step(next_tokens, steps.reorder(state, chosen, beam=1, same_prompts=False))
    whole = model(torch.cat((tokens[chosen], next_tokens[:, None]), dim=1))
    assert_close(scores, whole[:, -1], rtol=0, atol=1e-11)


@pytest.mark.parametrize(("tied", "spread"), [(True, 256**-0.5), (False, 1.0)])
def test_initial_embeddings_are_not_small(tied: bool, spread: float) -> None:
    for config in (RecurrentLMConfig, ConvLMConfig):
        model = config(width=256, tie_embeddings=tied).build(VOCABULARY, seed=0)
        assert model.embedding.weight.std().item() == pytest.approx(spread, rel=0.05)
        scores = model(some_tokens(5, LENGTH))
        assert scores.std() < 2  # and no first guess is sure of itself


def test_tied_head_is_the_embedding_table() -> None:
    for kind, config in MODELS.items():
        model = config.build(VOCABULARY, seed=0)
        assert (model.lm_head.weight is model.embedding.weight) == config.tie_embeddings, kind


@every_kind
def test_packed_rows_are_rejected(kind: str) -> None:
    tokens = some_tokens(1, 5)
    with pytest.raises(ValueError, match="packed"):
        small(kind)(tokens, positions=tokens, documents=tokens)


@pytest.mark.parametrize("kind", ["lstm", "gated"])
def test_dropout_is_active_in_training_only(kind: str) -> None:
    config = MODELS[kind]
    model = type(config)(width=WIDTH, dropout=0.5).build(VOCABULARY, seed=0)
    tokens = some_tokens(2, 5)
    assert not torch.equal(model.train()(tokens), model(tokens))
    assert torch.equal(model.eval()(tokens), model(tokens))


@dataclass(frozen=True, kw_only=True)
class SomeRecipe:
    model: LanguageModelConfig = field(default_factory=GPTConfig)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", GPTConfig()),
        ('model.kind = "rnn"', RecurrentLMConfig()),
        ('model = {kind = "rnn", cell.kind = "gru"}', RecurrentLMConfig(cell=GRUConfig())),
        ('model.kind = "cnn"', ConvLMConfig()),
    ],
)
def test_configs_load_from_toml(line: str, told: LanguageModelConfig) -> None:
    assert loads(SomeRecipe, line, base=Path()).model == told


def test_incompatible_choices_are_rejected() -> None:
    for direction in ("backward", "both"):
        with pytest.raises(ValueError, match="sees later tokens"):
            RecurrentLMConfig(cell=GRUConfig(direction=direction))
    with pytest.raises(ValueError, match="causal = true"):
        ConvLMConfig(convolutions=GatedConvolutionConfig())
    with pytest.raises(ValueError, match="width 11 do not fit embeddings"):
        RecurrentLMConfig(width=WIDTH, cell=LSTMConfig(hidden=HIDDEN), tie_embeddings=True)
