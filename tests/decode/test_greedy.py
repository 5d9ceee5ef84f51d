import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import Tables, numbered, padded, rescored, told
from torch import Tensor

from harken.decode.sampling import greedy_search
from harken.decode.stepper import LMStepper, TokenHypothesis, log_probabilities
from harken.models.gpt import GPT
from small_models import LENGTH, VOCABULARY, small_model

END = 2
prompts = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5), min_size=1, max_size=4
)


def decoded(model: GPT, rows: list[list[int]], end: int, most: int) -> list[TokenHypothesis]:
    return greedy_search(LMStepper(model), *padded(rows), end=end, max_tokens=most)


@torch.no_grad()
def slowly(model: GPT, row: list[int], end: int, most: int) -> list[int]:
    """The whole row anew for every token."""
    written: list[int] = []
    for _ in range(most):
        best = model(torch.tensor([row + written]))[0, -1].argmax().item()
        if best == end:
            break
        written.append(int(best))
    return written


@pytest.mark.parametrize("position", ["learned", "rotary"])
@given(prompts, st.integers(0, 20), st.integers(1, 6), st.booleans())
@settings(max_examples=15)
def test_equals_whole_forwards_row_by_row(
    position: str, rows: list[list[int]], seed: int, most: int, soon: bool
) -> None:
    model = small_model(position=position, seed=seed)
    # A symbol that the first row does come to say, or any.
    end = (slowly(model, rows[0], -1, most)[-1]) if soon else END
    for row, found in zip(rows, decoded(model, rows, end, most), strict=True):
        assert found.tokens == slowly(model, row, end, most)
        expected = rescored(model, row, told(found, end, most))
        assert found.log_probability == pytest.approx(expected, abs=1e-10)


def test_padding_may_stand_on_the_left() -> None:
    model, rows = small_model(), [[3, 5, 8], [4]]
    right = decoded(model, rows, END, 4)
    tokens = torch.tensor([[3, 5, 8], [7, 7, 4]])
    present = torch.tensor([[True, True, True], [False, False, True]])
    left = greedy_search(LMStepper(model), tokens, present, end=END, max_tokens=4)
    assert [one.tokens for one in left] == [one.tokens for one in right]
    logs = [one.log_probability for one in right]
    assert [one.log_probability for one in left] == pytest.approx(logs, abs=1e-10)


class Script:
    """A stepper that says what is written, whatever it is told; its state is rows and a step."""

    def __init__(self, lines: list[list[int]], sure: float) -> None:
        self.lines, self.sure = torch.tensor(lines), sure
        self.told: list[list[int]] = []

    def scores(self, rows: Tensor, step: int) -> Tensor:
        others = (1 - self.sure) / (VOCABULARY - 1)
        shares = torch.full((len(rows), VOCABULARY), others, dtype=torch.float64)
        return shares.scatter(1, self.lines[rows, step : step + 1], self.sure).log() + 5.0

    def prefill(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, tuple[Tensor, int]]:
        rows = torch.arange(len(self.lines))
        return self.scores(rows, 0), (rows, 0)

    def step(self, tokens: Tensor, state: tuple[Tensor, int]) -> tuple[Tensor, tuple[Tensor, int]]:
        rows, step = state
        self.told.append(tokens.tolist())
        return self.scores(rows, step + 1), (rows, step + 1)

    def log_probs(self, scores: Tensor) -> Tensor:
        return log_probabilities(scores)

    def reorder(
        self, state: tuple[Tensor, int], rows: Tensor, *, same_prompts: bool
    ) -> tuple[Tensor, int]:
        return state[0][rows], state[1]


def read_out(script: Script, most: int) -> tuple[list[list[int]], list[float]]:
    found = greedy_search(script, *numbered(len(script.lines)), end=END, max_tokens=most)
    return [list(one.tokens) for one in found], [math.exp(one.log_probability) for one in found]


def test_ends_and_cuts_by_hand() -> None:
    script = Script([[END, 9, 9, 9], [4, END, 9, 9], [4, 5, 6, END], [4, 5, 6, 8]], sure=0.9)
    tokens, probability = read_out(script, most=4)
    assert tokens == [[], [4], [4, 5, 6], [4, 5, 6, 8]]
    counted = [1, 2, 4, 4]  # with `end` where a row came to it, and nothing after
    assert probability == pytest.approx([0.9**steps for steps in counted], abs=1e-12)


def test_most_cuts_before_the_end_is_said() -> None:
    tokens, probability = read_out(Script([[4, 5, END], [END, 9, 9]], sure=0.5), most=2)
    assert tokens == [[4, 5], []]
    assert probability == pytest.approx([0.25, 0.5], abs=1e-12)


@pytest.mark.parametrize(("first", "written"), [(4, [4]), (END, [])])
def test_one_token_at_most_asks_for_no_step(first: int, written: list[int]) -> None:
    script = Script([[first]], sure=0.5)
    assert read_out(script, most=1) == ([written], [pytest.approx(0.5, abs=1e-12)])
    assert script.told == []


def test_no_step_is_asked_for_once_every_row_has_ended() -> None:
    script = Script([[4, END, 9], [END, 9, 9]], sure=0.5)
    assert read_out(script, most=3)[0] == [[4], []]
    assert script.told == [[4]]


def test_rows_that_have_ended_leave_the_batch() -> None:
    """One of five is too few to copy the state for; two are not."""
    script = Script([[4, 4, END, 9], [END, 9, 9, 9], [5] * 4, [6, END, 9, 9], [7] * 4], sure=0.7)
    tokens, probability = read_out(script, most=4)
    assert tokens == [[4, 4], [], [5] * 4, [6], [7] * 4]
    assert script.told == [[4, END, 5, 6, 7], [4, 5, 7], [5, 7]]
    assert probability == pytest.approx([0.7**n for n in (3, 1, 4, 2, 4)], abs=1e-12)


def test_takes_the_likeliest_of_a_table_step_by_step() -> None:
    tables = Tables(17, 5, 4, seed=2)
    for prompt, found in enumerate(greedy_search(tables, *numbered(17), end=0, max_tokens=4)):
        written: tuple[int, ...] = ()
        while len(written) < 4:
            best = max(range(5), key=lambda one: tables.log(prompt, written, one))
            if best == 0:
                break
            written += (best,)
        assert tuple(found.tokens) == written
    assert tables.asked[-1] < 17


def test_a_model_is_used_to_its_last_place() -> None:
    """The last token needs no place of its own: nothing is read after it."""
    model = small_model(position="learned")
    (found,) = decoded(model, [[3] * 5], end=-1, most=LENGTH - 4)
    assert len(found.tokens) == LENGTH - 4
