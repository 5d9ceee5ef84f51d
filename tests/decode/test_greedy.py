import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import assert_equal_hypotheses, numbered, padded, rescored, with_end
from torch import Tensor

from harken.decode.sampling import greedy_search
from harken.decode.stepper import LMStepper, TokenHypothesis, log_probabilities
from harken.models.gpt import GPT
from small_models import LENGTH, VOCABULARY, small_model

END = 2
prompts = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5), min_size=1, max_size=4
)


def greedy(model: GPT, rows: list[list[int]], end: int, max_tokens: int) -> list[TokenHypothesis]:
    return greedy_search(LMStepper(model), *padded(rows), end=end, max_tokens=max_tokens)


@torch.no_grad()
def reference(model: GPT, row: list[int], end: int, max_tokens: int) -> list[int]:
    """Decode with a forward pass over the whole sequence for every token."""
    tokens: list[int] = []
    for _ in range(max_tokens):
        best = model(torch.tensor([row + tokens]))[0, -1].argmax().item()
        if best == end:
            break
        tokens.append(int(best))
    return tokens


@pytest.mark.parametrize("position", ["learned", "rotary"])
@given(prompts, st.integers(0, 20), st.integers(1, 6), st.booleans())
@settings(max_examples=8)
def test_equals_whole_forward_passes(
    position: str, rows: list[list[int]], seed: int, max_tokens: int, ends: bool
) -> None:
    model = small_model(position=position, seed=seed)
    # A token that the first row generates, or any.
    end = (reference(model, rows[0], -1, max_tokens)[-1]) if ends else END
    for row, hypothesis in zip(rows, greedy(model, rows, end, max_tokens), strict=True):
        assert hypothesis.tokens == reference(model, row, end, max_tokens)
        expected = rescored(model, row, with_end(hypothesis, end, max_tokens))
        assert hypothesis.log_probability == pytest.approx(expected, abs=1e-10)


def test_left_padding() -> None:
    model, rows = small_model(), [[3, 5, 8], [4]]
    right = greedy(model, rows, END, 4)
    tokens = torch.tensor([[3, 5, 8], [7, 7, 4]])
    present = torch.tensor([[True, True, True], [False, False, True]])
    left = greedy_search(LMStepper(model), tokens, present, end=END, max_tokens=4)
    assert_equal_hypotheses(left, right)


class Script:
    """A stepper that generates given lines, for any inputs; its state has rows and step."""

    def __init__(self, lines: list[list[int]], confidence: float) -> None:
        self.lines, self.confidence = torch.tensor(lines), confidence
        self.inputs: list[list[int]] = []

    def scores(self, rows: Tensor, step: int) -> Tensor:
        others = (1 - self.confidence) / (VOCABULARY - 1)
        shares = torch.full((len(rows), VOCABULARY), others, dtype=torch.float64)
        return shares.scatter(1, self.lines[rows, step : step + 1], self.confidence).log() + 5.0

    def prefill(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, tuple[Tensor, int]]:
        rows = torch.arange(len(self.lines))
        return self.scores(rows, 0), (rows, 0)

    def step(self, tokens: Tensor, state: tuple[Tensor, int]) -> tuple[Tensor, tuple[Tensor, int]]:
        rows, step = state
        self.inputs.append(tokens.tolist())
        return self.scores(rows, step + 1), (rows, step + 1)

    def log_probs(self, scores: Tensor) -> Tensor:
        return log_probabilities(scores)

    def reorder(
        self, state: tuple[Tensor, int], rows: Tensor, *, beam: int, same_prompts: bool
    ) -> tuple[Tensor, int]:
        return state[0][rows], state[1]


@pytest.mark.parametrize(
    ("lines", "max_tokens", "inputs"),
    [
        (
            [[END, 9, 9, 9], [4, END, 9, 9], [4, 5, 6, END], [4, 5, 6, 8]],
            4,
            [[4] * 3, [5] * 2, [6] * 2],
        ),
        ([[4, 5, END], [END, 9, 9]], 2, [[4]]),  # cut before the end
        ([[4]], 1, []),
        ([[END]], 1, []),
        ([[4, END, 9], [END, 9, 9]], 3, [[4]]),  # no step after every row has ended
        # One finished row of five is too few to copy the state, two are enough.
        (
            [[4, 4, END, 9], [END, 9, 9, 9], [5] * 4, [6, END, 9, 9], [7] * 4],
            4,
            [[4, END, 5, 6, 7], [4, 5, 7], [5, 7]],
        ),
    ],
)
def test_ended_and_cut_rows(
    lines: list[list[int]], max_tokens: int, inputs: list[list[int]]
) -> None:
    script = Script(lines, confidence=0.7)
    hypotheses = greedy_search(script, *numbered(len(lines)), end=END, max_tokens=max_tokens)
    for line, hypothesis in zip(lines, hypotheses, strict=True):
        expected = line[: line.index(END)] if END in line[:max_tokens] else line[:max_tokens]
        assert list(hypothesis.tokens) == expected
        steps = len(with_end(hypothesis, END, max_tokens))  # `end` counts if it was generated
        assert math.exp(hypothesis.log_probability) == pytest.approx(0.7**steps, abs=1e-12)
    assert script.inputs == inputs


def test_uses_the_last_position() -> None:
    """The last token needs no position: it is not an input."""
    model = small_model(position="learned")
    (hypothesis,) = greedy(model, [[3] * 5], end=-1, max_tokens=LENGTH - 4)
    assert len(hypothesis.tokens) == LENGTH - 4
