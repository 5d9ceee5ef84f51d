import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import Tables, numbered
from torch import Tensor

from harken.decode.beam import beam_search
from harken.decode.stepper import TokenHypothesis

penalties = st.sampled_from([0.0, 0.6, 1.0, 2.0])
strengths = st.sampled_from([0.3, 1.5, 5.0])


def rank(found: TokenHypothesis, most: int, length_penalty: float) -> float:
    """By the formula: `end` is counted where there was room for it."""
    return found.log_probability / min(len(found.tokens) + 1, most) ** length_penalty


def searched(
    tables: Tables,
    beam: int,
    end: int,
    length_penalty: float,
    nbest: int,
    early_stopping: bool = False,
) -> list[list[TokenHypothesis]]:
    return beam_search(
        tables,
        *numbered(len(tables.scores)),
        beam=beam,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        end=end,
        max_tokens=tables.most,
        nbest=nbest,
    )


def exhaustive(
    tables: Tables, prompt: int, end: int, length_penalty: float, nbest: int
) -> list[TokenHypothesis]:
    every = tables.sequences(prompt, end)
    return sorted(every, key=lambda one: -rank(one, tables.most, length_penalty))[:nbest]


def slow_beam(
    tables: Tables,
    prompt: int,
    beam: int,
    end: int,
    length_penalty: float,
    nbest: int,
    early_stopping: bool,
) -> list[TokenHypothesis]:
    """One row in lists; unless it is filled, to the last step: it never stops early."""
    live = [TokenHypothesis((), 0.0)]
    finished: list[TokenHypothesis] = []
    for step in range(tables.most):
        tries = [
            TokenHypothesis(
                (*one.tokens, token),
                one.log_probability + tables.log(prompt, tuple(one.tokens), token),
            )
            for one in live
            for token in range(tables.base - 1)
        ]
        tries = [one for one in tries if one.log_probability > -math.inf]
        tries.sort(key=lambda one: -one.log_probability)
        for one in tries[:beam]:
            if one.tokens[-1] == end:
                finished.append(TokenHypothesis(one.tokens[:-1], one.log_probability))
            elif step + 1 == tables.most:
                finished.append(one)
        live = [one for one in tries if one.tokens[-1] != end][:beam]
        if early_stopping and len(finished) >= beam:
            break
    return sorted(finished, key=lambda one: -rank(one, tables.most, length_penalty))[:nbest]


def assert_same(ours: list[TokenHypothesis], theirs: list[TokenHypothesis]) -> None:
    assert [tuple(one.tokens) for one in ours] == [tuple(one.tokens) for one in theirs]
    logs = [one.log_probability for one in theirs]
    assert [one.log_probability for one in ours] == pytest.approx(logs, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), penalties, strengths, st.data())
@settings(max_examples=60)
def test_a_beam_that_holds_everything_is_an_exhaustive_search(
    seed: int,
    vocabulary: int,
    most: int,
    length_penalty: float,
    strength: float,
    data: st.DataObject,
) -> None:
    beam = vocabulary**most
    end = data.draw(st.integers(0, vocabulary - 1), label="end")
    nbest = data.draw(st.integers(1, beam), label="nbest")
    tables = Tables(2, vocabulary, most, seed=seed, strength=strength)
    for prompt, ours in enumerate(searched(tables, beam, end, length_penalty, nbest)):
        assert_same(ours, exhaustive(tables, prompt, end, length_penalty, nbest))


# The beginnings alive at a time, and the tries that may end: never more than five.
FIVE_SUFFICE = [(1, 3), (2, 5), (3, 1), (3, 2), (5, 1)]


@pytest.mark.parametrize(("vocabulary", "most"), FIVE_SUFFICE)
@given(st.integers(0, 10**6), penalties, st.data())
@settings(max_examples=15)
def test_five_are_enough_for_few_beginnings(
    vocabulary: int, most: int, seed: int, length_penalty: float, data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, vocabulary - 1), label="end")
    tables = Tables(3, vocabulary, most, seed=seed)
    for prompt, ours in enumerate(searched(tables, 5, end, length_penalty, 5)):
        assert_same(ours, exhaustive(tables, prompt, end, length_penalty, 5))


@pytest.mark.parametrize("early_stopping", [False, True])
@given(st.integers(0, 10**6), st.integers(1, 4), penalties, strengths, st.data())
@settings(max_examples=60)
def test_equals_a_slow_beam(
    early_stopping: bool,
    seed: int,
    beam: int,
    length_penalty: float,
    strength: float,
    data: st.DataObject,
) -> None:
    vocabulary = data.draw(st.sampled_from([2, 3, 5, 11]), label="vocabulary")
    most = data.draw(st.integers(1, 3 if vocabulary > 5 else 5), label="most")
    nbest = data.draw(st.integers(1, beam), label="nbest")
    tables = Tables(5, vocabulary, most, seed=seed, strength=strength)
    tables.scores[:, :, 0] += data.draw(st.sampled_from([0.0, 3.0]), label="eager to end")
    share = data.draw(st.sampled_from([0.0, 0.6]), label="share of impossible tokens")
    generator = torch.Generator().manual_seed(seed)
    impossible = torch.rand(tables.scores.shape, generator=generator) < share
    impossible &= tables.scores != tables.scores.amax(dim=-1, keepdim=True)
    tables.scores[impossible] = -torch.inf
    for prompt, ours in enumerate(searched(tables, beam, 0, length_penalty, nbest, early_stopping)):
        assert_same(ours, slow_beam(tables, prompt, beam, 0, length_penalty, nbest, early_stopping))


@pytest.mark.parametrize("early_stopping", [False, True])
def test_impossible_endings_do_not_fill_the_beam(early_stopping: bool) -> None:
    """Token 0 ends with probability zero, but for the last step."""
    tables = Tables(3, 2, 4, seed=0)
    tables.scores[:, :, 0] = -torch.inf
    for found in searched(tables, 3, 0, 1.0, 2, early_stopping):
        assert found == [TokenHypothesis([1, 1, 1, 1], 0.0)]


def test_where_nothing_is_possible_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(2, 3, 4, seed=0)
    monkeypatch.setattr(tables, "log_probs", lambda scores: torch.full_like(scores, -torch.inf))
    assert searched(tables, 3, 0, 1.0, 2) == [[TokenHypothesis([], -math.inf)]] * 2


def in_shares(most: int, **shares: list[float]) -> Tables:
    """One row and tokens 0 (`end`), 1, 2; the shares of the next one after "", "1", "12", …"""
    tables = Tables(1, 3, most, seed=0)
    tables.scores[:] = torch.tensor([1 / 3, 1 / 3, 1 / 3]).log()
    for written, row in shares.items():
        code = 0
        for one in written.removeprefix("after"):
            code = code * tables.base + int(one) + 1
        tables.scores[0, code] = torch.tensor(row, dtype=torch.float64).log()
    return tables


SHARES = {"after": [0.30, 0.60, 0.10], "after1": [0.25, 0.45, 0.30], "after11": [0.7, 0.2, 0.1]}


@pytest.mark.parametrize(
    ("length_penalty", "best", "probability"),
    [(0.0, [], 0.30), (1.0, [1, 1], 0.6 * 0.45 * 0.7)],
)
def test_the_penalty_decides_between_short_and_long_by_hand(
    length_penalty: float, best: list[int], probability: float
) -> None:
    """log .3 / 1 = -1.20 against log .189 / 3 = -0.56; unpenalized -1.20 against -1.67."""
    ((found,),) = searched(in_shares(3, **SHARES), 2, 0, length_penalty, 1)
    assert found.tokens == best
    assert math.exp(found.log_probability) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(
    ("length_penalty", "first", "steps"),
    [
        (0.0, [0.5, 0.4, 0.1], 0),  # nothing that goes on is likelier than .5
        (0.0, [0.3, 0.6, 0.1], 1),  # .6 is, but not .6 * .45
        (1.0, [0.9, 0.09, 0.01], 0),  # .09 < .9 ** 4: four sure tokens would not mend it
        (1.0, [0.5, 0.4, 0.1], 2),  # .4 and .4 * .45 are above .5 ** 4, what follows is not
    ],
)
def test_stops_when_nothing_can_outrank_what_is_kept(
    length_penalty: float, first: list[float], steps: int
) -> None:
    tables = in_shares(4, **{**SHARES, "after": first})
    searched(tables, 2, 0, length_penalty, 1)
    assert len(tables.asked) == steps


def test_rows_that_are_done_leave_the_batch() -> None:
    tables = Tables(8, 5, 6, seed=3)
    tables.scores[:6, 0, 0] += 30.0  # these end at once, beyond doubt
    tables.scores[6:, :, 0] -= 30.0  # those never
    found = searched(tables, 2, 0, 0.0, 1)
    assert tables.asked == [2 * 2] * 5
    assert [len(row[0].tokens) for row in found] == [0] * 6 + [6] * 2
    for prompt in (0, 6, 7):
        assert_same(found[prompt], slow_beam(tables, prompt, 2, 0, 0.0, 1, False))


def test_finds_fewer_where_there_are_no_more() -> None:
    tables = Tables(2, 2, 3, seed=5)
    found = searched(tables, 7, 1, 1.0, 7)
    assert [sorted(len(one.tokens) for one in row) for row in found] == [[0, 1, 2, 3]] * 2


def test_what_cannot_be_said_is_not_found() -> None:
    tables = Tables(1, 3, 2, seed=5)
    tables.scores[:, :, 2] = -torch.inf
    ((*found,),) = searched(tables, 9, 0, 1.0, 9)
    assert {tuple(one.tokens) for one in found} == {(), (1,), (1, 1)}


def test_equal_scores_are_found_in_the_same_order_every_time() -> None:
    tables = Tables(13, 7, 3, seed=0, strength=0.0)
    rows = searched(tables, 4, 2, 1.0, 4)
    assert all(row == rows[0] for row in rows)
    assert len({tuple(one.tokens) for one in rows[0]}) == 4


def test_a_model_that_has_lost_its_mind_still_gives_an_answer() -> None:
    tables = Tables(2, 3, 3, seed=0)
    tables.scores[:] = torch.nan
    assert all(len(row) == 2 for row in searched(tables, 2, 0, 1.0, 2))


def test_more_than_the_beam_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="at most the beam of 3, got 4"):
        searched(Tables(1, 5, 2, seed=0), 3, 0, 1.0, 4)


def test_hypotheses_change_places_within_their_prompt() -> None:
    """After the first widening every choice says so: a memory need not be copied."""
    moves: list[tuple[int, bool]] = []

    class Watched(Tables):
        def reorder(self, state, rows: Tensor, *, same_prompts: bool):  # type: ignore[no-untyped-def]
            moves.append((len(rows), same_prompts))
            return super().reorder(state, rows, same_prompts=same_prompts)

    tables = Watched(3, 11, 4, seed=1)
    tables.scores[:, :, 0] -= 30.0
    searched(tables, 5, 0, 1.0, 1)
    assert moves == [(15, False), (15, True), (15, True)]
    assert list(itertools.accumulate(tables.asked)) == [15, 30, 45]
