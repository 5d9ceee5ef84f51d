import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harken.decode.greedy import Decoded, decode_greedily
from harken.decode.step import LanguageModelSteps
from harken.models.language_model import LanguageModel
from small_models import LENGTH, VOCABULARY, small_model

END = 2
prompts = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5), min_size=1, max_size=4
)


def decoded(model: LanguageModel, rows: list[list[int]], end: int, most: int) -> Decoded:
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [7] * (longest - len(row)) for row in rows])
    present = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
    return decode_greedily(LanguageModelSteps(model), tokens, present, end=end, most=most)


@torch.no_grad()
def slowly(model: LanguageModel, row: list[int], end: int, most: int) -> list[int]:
    """The whole row anew for every token."""
    written: list[int] = []
    for _ in range(most):
        best = model.scores(model(torch.tensor([row + written])))[0, -1].argmax().item()
        if best == end:
            break
        written.append(int(best))
    return written


@torch.no_grad()
def log_probability(model: LanguageModel, row: list[int], written: list[int]) -> float:
    """Of the tokens written after a row, by one forward of them all."""
    scores = model.scores(model(torch.tensor([row + written])))[0]
    logs = scores.log_softmax(dim=-1)
    return math.fsum(logs[len(row) - 1 + at, one].item() for at, one in enumerate(written))


@pytest.mark.parametrize("position", ["learned", "rotary"])
@given(prompts, st.integers(0, 20), st.integers(1, 6), st.booleans())
@settings(max_examples=15)
def test_equals_whole_forwards_row_by_row(
    position: str, rows: list[list[int]], seed: int, most: int, soon: bool
) -> None:
    model = small_model(position=position, seed=seed)
    # A symbol that the first row does come to say, or any.
    end = (slowly(model, rows[0], -1, most)[-1]) if soon else END
    together = decoded(model, rows, end, most)
    assert together.log_probability.shape == (len(rows),)
    for number, row in enumerate(rows):
        written = slowly(model, row, end, most)
        assert together.tokens[number] == written
        told = written if len(written) == most else [*written, end]
        expected = log_probability(model, row, told)
        assert together.log_probability[number].item() == pytest.approx(expected, abs=1e-10)
        alone = decoded(model, [row], end, most)
        assert alone.tokens == [written]
        assert alone.log_probability.item() == pytest.approx(expected, abs=1e-10)


def test_padding_may_stand_on_the_left() -> None:
    model, rows = small_model(), [[3, 5, 8], [4]]
    right = decoded(model, rows, END, 4)
    tokens = torch.tensor([[3, 5, 8], [7, 7, 4]])
    present = torch.tensor([[True, True, True], [False, False, True]])
    left = decode_greedily(LanguageModelSteps(model), tokens, present, end=END, most=4)
    assert left.tokens == right.tokens
    assert left.log_probability.tolist() == pytest.approx(right.log_probability.tolist())


class Script:
    """A stepper that says what is written, whatever it is told; its state counts the steps."""

    def __init__(self, lines: list[list[int]], sure: float) -> None:
        self.lines, self.sure = torch.tensor(lines), sure
        self.told: list[list[int]] = []

    def scores(self, step: int) -> Tensor:
        others = (1 - self.sure) / (VOCABULARY - 1)
        shares = torch.full((len(self.lines), VOCABULARY), others, dtype=torch.float64)
        return shares.scatter(1, self.lines[:, step : step + 1], self.sure).log() + 5.0

    def prompt(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, int]:
        return self.scores(0), 0

    def step(self, tokens: Tensor, state: int) -> tuple[Tensor, int]:
        self.told.append(tokens.tolist())
        return self.scores(state + 1), state + 1

    def select(self, state: int, rows: Tensor, *, same_prompts: bool) -> int:
        return state


def read_out(script: Script, most: int) -> Decoded:
    rows = len(script.lines)
    tokens, present = torch.ones(rows, 1).long(), torch.ones(rows, 1).bool()
    return decode_greedily(script, tokens, present, end=END, most=most)


def test_ends_and_cuts_by_hand() -> None:
    script = Script([[END, 9, 9, 9], [4, END, 9, 9], [4, 5, 6, END], [4, 5, 6, 8]], sure=0.9)
    ours = read_out(script, most=4)
    assert ours.tokens == [[], [4], [4, 5, 6], [4, 5, 6, 8]]
    counted = [1, 2, 4, 4]  # with `end` where a row came to it, and nothing after
    expected = [steps * math.log(0.9) for steps in counted]
    assert ours.log_probability.tolist() == pytest.approx(expected, abs=1e-12)


def test_most_cuts_before_the_end_is_said() -> None:
    ours = read_out(Script([[4, 5, END], [END, 9, 9]], sure=0.5), most=2)
    assert ours.tokens == [[4, 5], []]
    assert ours.log_probability.exp().tolist() == pytest.approx([0.25, 0.5], abs=1e-12)


@pytest.mark.parametrize(("first", "written"), [(4, [4]), (END, [])])
def test_one_token_at_most_asks_for_no_step(first: int, written: list[int]) -> None:
    script = Script([[first]], sure=0.5)
    ours = read_out(script, most=1)
    assert ours.tokens == [written] and script.told == []
    assert ours.log_probability.item() == pytest.approx(math.log(0.5), abs=1e-12)


def test_no_step_is_asked_for_once_every_row_has_ended() -> None:
    script = Script([[4, END, 9], [END, 9, 9]], sure=0.5)
    assert read_out(script, most=3).tokens == [[4], []]
    assert len(script.told) == 1 and script.told[0][0] == 4


def test_a_model_is_used_to_its_last_place() -> None:
    """The last token needs no place of its own: nothing is read after it."""
    model = small_model(position="learned")
    (written,) = decoded(model, [[3] * 5], end=-1, most=LENGTH - 4).tokens
    assert len(written) == LENGTH - 4
