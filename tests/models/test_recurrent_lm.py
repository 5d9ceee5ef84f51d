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
from harken.decode.sampling import greedy_search
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
    model = MODELS[kind].build(VOCABULARY, seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.6 * torch.empty_like(parameter).normal_(generator=generator))
    return model


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


@pytest.mark.parametrize("kind", ["causal", "gated"])
@torch.no_grad()
def test_convolutions_are_those_of_the_formula(kind: str) -> None:
    model = small(kind)
    tokens = some_tokens(1, LENGTH)
    rows = [model.embedding.weight[token] for token in tokens[0]]
    for depth, layer in enumerate(model.backbone.kernels):
        dilation = 2**depth if kind == "causal" else 1
        written = []
        for time, row in enumerate(rows):
            read = layer.bias.clone()
            for back in range(KERNEL):
                if time - back * dilation >= 0:
                    read += layer.weight[:, :, KERNEL - 1 - back] @ rows[time - back * dilation]
            if kind == "causal":
                written.append(row + read.relu())
            else:
                written.append((row + read[:WIDTH] * read[WIDTH:].sigmoid()) * 0.5**0.5)
        rows = written
    expected = torch.stack(rows) @ model.lm_head.weight.T
    assert_close(model(tokens)[0], expected, rtol=0, atol=1e-12)


@every_kind
@torch.no_grad()
def test_ragged_chunks_equal_each_row_alone(kind: str) -> None:
    check_ragged_chunks(small(kind), VOCABULARY, LENGTH, max_examples=15)


@every_kind
@given(st.integers(0, LENGTH - 1), st.integers(0, 2**31))
@settings(max_examples=10)
@torch.no_grad()
def test_nothing_comes_from_the_future_and_no_state_outlives_its_reach(
    kind: str, changed_at: int, seed: int
) -> None:
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
def test_gradients_do_not_reach_later_tokens(kind: str) -> None:
    model, embedded = small(kind), []
    model.embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    states = model(some_tokens(3, LENGTH))
    for time in range(LENGTH):
        (gradient,) = torch.autograd.grad(
            states[:, time].square().sum(), embedded, retain_graph=True
        )
        assert not gradient[:, time + 1 :].any()
        assert gradient[:, time].any(dim=-1).all()


@every_kind
@torch.no_grad()
def test_a_search_goes_on_from_the_state(kind: str) -> None:
    model, end, max_tokens = small(kind), 3, 6
    rows = [[5, 1, 8, 2], [4], [9, 9]]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    present = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
    actual = greedy_search(LMStepper(model), tokens, present, end=end, max_tokens=max_tokens)
    for row, hypothesis in zip(rows, actual, strict=True):
        written: list[int] = []
        total = 0.0
        while len(written) < max_tokens:
            scores = model(torch.tensor([row + written]))[0, -1].log_softmax(dim=-1)
            total += scores.max().item()
            if scores.argmax() == end:
                break
            written.append(int(scores.argmax()))
        assert list(hypothesis.tokens) == written
        assert hypothesis.log_probability == pytest.approx(total, rel=1e-9)


@every_kind
@torch.no_grad()
def test_the_state_has_one_size_and_rows_that_can_be_chosen(kind: str) -> None:
    model = small(kind)
    steps = LMStepper(model)
    tokens = some_tokens(3, LENGTH)
    _, state = steps.prefill(tokens, torch.ones_like(tokens).bool())
    sizes = [part.shape for part in state if part is not None]
    begun = model.init_state(3, tokens.device)
    assert sizes == [part.shape for part in begun if part is not None]
    chosen = torch.tensor([2, 0, 2, 1])
    next_tokens = torch.tensor([1, 2, 3, 4])
    scores, _ = steps.step(next_tokens, steps.reorder(state, chosen, same_prompts=False))
    whole = model(torch.cat((tokens[chosen], next_tokens[:, None]), dim=1))
    assert_close(scores, whole[:, -1], rtol=0, atol=1e-11)


@every_kind
def test_first_weights_are_a_function_of_the_seed(kind: str) -> None:
    first, again, other = (MODELS[kind].build(VOCABULARY, seed) for seed in (1, 1, 2))
    for left, same, unlike in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(left, same)
        assert not torch.equal(left, unlike) or not left.any()  # but for offsets of zero


@pytest.mark.parametrize(("tied", "spread"), [(True, 256**-0.5), (False, 1.0)])
def test_embeddings_are_large_enough_to_be_felt(tied: bool, spread: float) -> None:
    for config in (RecurrentLMConfig, ConvLMConfig):
        model = config(width=256, tie_embeddings=tied).build(VOCABULARY, seed=0)
        assert model.embedding.weight.std().item() == pytest.approx(spread, rel=0.05)
        scores = model(some_tokens(5, LENGTH))
        assert scores.std() < 2  # and no first guess is sure of itself


def test_a_tied_reader_is_the_table_of_embeddings() -> None:
    for kind, config in MODELS.items():
        model = config.build(VOCABULARY, seed=0)
        assert (model.lm_head.weight is model.embedding.weight) == config.tie_embeddings, kind


@every_kind
def test_packed_rows_are_refused(kind: str) -> None:
    tokens = some_tokens(1, 5)
    with pytest.raises(ValueError, match="packed"):
        small(kind)(tokens, positions=tokens, documents=tokens)


@pytest.mark.parametrize("kind", ["lstm", "gated"])
def test_dropout_acts_in_training_alone(kind: str) -> None:
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
        (
            'model = {kind = "rnn", cell.kind = "gru"}',
            RecurrentLMConfig(cell=GRUConfig()),
        ),
        ('model.kind = "cnn"', ConvLMConfig()),
    ],
)
def test_one_line_chooses_the_model(line: str, told: LanguageModelConfig) -> None:
    assert loads(SomeRecipe, line, base=Path()).model == told


@pytest.mark.parametrize("direction", ["backward", "both"])
def test_reading_from_the_right_is_refused(direction: str) -> None:
    with pytest.raises(ValueError, match="sees later tokens"):
        RecurrentLMConfig(cell=GRUConfig(direction=direction))


def test_a_centered_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="causal = true"):
        ConvLMConfig(convolutions=GatedConvolutionConfig())


def test_embeddings_of_another_width_cannot_read_out() -> None:
    with pytest.raises(ValueError, match="width 11 cannot be multiplied with"):
        RecurrentLMConfig(width=WIDTH, cell=LSTMConfig(hidden=HIDDEN), tie_embeddings=True)
