import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import Tables, assert_equal_hypotheses, best_of, numbered, search_beam

from harken.decode.stepper import TokenHypothesis

penalties = st.sampled_from([0.0, 0.6, 1.0, 2.0])
strengths = st.sampled_from([0.3, 1.5, 5.0])


def search_tables(
    tables: Tables,
    beam: int,
    end: int,
    length_penalty: float,
    nbest: int,
    early_stopping: bool = False,
) -> list[list[TokenHypothesis]]:
    return search_beam(
        tables,
        numbered(len(tables.scores)),
        end,
        tables.max_tokens,
        beam=beam,
        length_penalty=length_penalty,
        nbest=nbest,
        early_stopping=early_stopping,
    )


def reference_beam(
    tables: Tables,
    prompt: int,
    beam: int,
    end: int,
    length_penalty: float,
    nbest: int,
    early_stopping: bool,
) -> list[TokenHypothesis]:
    """Search one row in lists, to the last step unless the beam is filled."""
    live = [TokenHypothesis((), 0.0)]
    finished: list[TokenHypothesis] = []
    for step in range(tables.max_tokens):
        candidates = [
            TokenHypothesis(
                (*hypothesis.tokens, token),
                hypothesis.log_probability + tables.log(prompt, tuple(hypothesis.tokens), token),
            )
            for hypothesis in live
            for token in range(tables.base - 1)
        ]
        candidates = [
            hypothesis for hypothesis in candidates if hypothesis.log_probability > -math.inf
        ]
        candidates.sort(key=lambda hypothesis: -hypothesis.log_probability)
        for hypothesis in candidates[:beam]:
            if hypothesis.tokens[-1] == end:
                finished.append(TokenHypothesis(hypothesis.tokens[:-1], hypothesis.log_probability))
            elif step + 1 == tables.max_tokens:
                finished.append(hypothesis)
        live = [hypothesis for hypothesis in candidates if hypothesis.tokens[-1] != end][:beam]
        if early_stopping and len(finished) >= beam:
            break
    return best_of(finished, tables.max_tokens, length_penalty, nbest)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), penalties, strengths, st.data())
@settings(max_examples=60)
def test_wide_beam_is_an_exhaustive_search(
    seed: int,
    vocabulary: int,
    max_tokens: int,
    length_penalty: float,
    strength: float,
    data: st.DataObject,
) -> None:
    beam = vocabulary**max_tokens
    end = data.draw(st.integers(0, vocabulary - 1), label="end")
    nbest = data.draw(st.integers(1, beam), label="nbest")
    tables = Tables(2, vocabulary, max_tokens, seed=seed, strength=strength)
    for prompt, ours in enumerate(search_tables(tables, beam, end, length_penalty, nbest)):
        every = tables.sequences(prompt, end)
        assert_equal_hypotheses(ours, best_of(every, max_tokens, length_penalty, nbest))


@pytest.mark.parametrize("early_stopping", [False, True])
@given(st.integers(0, 10**6), st.integers(1, 4), penalties, strengths, st.data())
@settings(max_examples=60)
def test_equals_a_reference_beam(
    early_stopping: bool,
    seed: int,
    beam: int,
    length_penalty: float,
    strength: float,
    data: st.DataObject,
) -> None:
    vocabulary = data.draw(st.sampled_from([2, 3, 5, 11]), label="vocabulary")
    max_tokens = data.draw(st.integers(1, 3 if vocabulary > 5 else 5), label="max_tokens")
    nbest = data.draw(st.integers(1, beam), label="nbest")
    tables = Tables(5, vocabulary, max_tokens, seed=seed, strength=strength)
    tables.scores[:, :, 0] += data.draw(st.sampled_from([0.0, 3.0]), label="bias of the end")
    share = data.draw(st.sampled_from([0.0, 0.6]), label="share of impossible tokens")
    generator = torch.Generator().manual_seed(seed)
    impossible = torch.rand(tables.scores.shape, generator=generator) < share
    impossible &= tables.scores != tables.scores.amax(dim=-1, keepdim=True)
    tables.scores[impossible] = -torch.inf
    for prompt, ours in enumerate(
        search_tables(tables, beam, 0, length_penalty, nbest, early_stopping)
    ):
        assert_equal_hypotheses(
            ours, reference_beam(tables, prompt, beam, 0, length_penalty, nbest, early_stopping)
        )


@pytest.mark.parametrize("early_stopping", [False, True])
def test_impossible_endings_do_not_fill_the_beam(early_stopping: bool) -> None:
    """Token 0, the end, has probability zero except at the last step."""
    tables = Tables(3, 2, 4, seed=0)
    tables.scores[:, :, 0] = -torch.inf
    for hypotheses in search_tables(tables, 3, 0, 1.0, 2, early_stopping):
        assert hypotheses == [TokenHypothesis([1, 1, 1, 1], 0.0)]


def test_impossible_sequences_give_an_empty_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(2, 3, 4, seed=0)
    monkeypatch.setattr(tables, "log_probs", lambda scores: torch.full_like(scores, -torch.inf))
    assert search_tables(tables, 3, 0, 1.0, 2) == [[TokenHypothesis([], -math.inf)]] * 2


def table_of(max_tokens: int, **shares: list[float]) -> Tables:
    """Return a table with tokens 0 (`end`), 1, 2; `shares` are P of the next token by prefix."""
    tables = Tables(1, 3, max_tokens, seed=0)
    tables.scores[:] = torch.tensor([1 / 3, 1 / 3, 1 / 3]).log()
    for prefix, row in shares.items():
        code = 0
        for digit in prefix.removeprefix("after"):
            code = code * tables.base + int(digit) + 1
        tables.scores[0, code] = torch.tensor(row, dtype=torch.float64).log()
    return tables


SHARES = {"after": [0.30, 0.60, 0.10], "after1": [0.25, 0.45, 0.30], "after11": [0.7, 0.2, 0.1]}


@pytest.mark.parametrize(
    ("length_penalty", "first", "steps"),
    [
        (0.0, [0.5, 0.4, 0.1], 0),  # no live hypothesis is more probable than .5
        (0.0, [0.3, 0.6, 0.1], 1),  # .6 is, but not .6 * .45
        (1.0, [0.9, 0.09, 0.01], 0),  # .09 < .9 ** 4: four certain tokens would not suffice
        (1.0, [0.5, 0.4, 0.1], 2),  # .4 and .4 * .45 are above .5 ** 4, later ones are not
    ],
)
def test_stops_when_nothing_can_outrank_the_finished(
    length_penalty: float, first: list[float], steps: int
) -> None:
    tables = table_of(4, **{**SHARES, "after": first})
    search_tables(tables, 2, 0, length_penalty, 1)
    assert len(tables.batch_sizes) == steps


def test_finished_rows_leave_the_batch() -> None:
    tables = Tables(8, 5, 6, seed=3)
    tables.scores[:6, 0, 0] += 30.0  # these end at once
    tables.scores[6:, :, 0] -= 30.0  # these never end
    hypotheses = search_tables(tables, 2, 0, 0.0, 1)
    assert tables.batch_sizes == [2 * 2] * 5
    assert [len(row[0].tokens) for row in hypotheses] == [0] * 6 + [6] * 2
    for prompt in (0, 6, 7):
        assert_equal_hypotheses(
            hypotheses[prompt], reference_beam(tables, prompt, 2, 0, 0.0, 1, False)
        )


def test_ties_are_ordered_deterministically() -> None:
    tables = Tables(13, 7, 3, seed=0, strength=0.0)
    rows = search_tables(tables, 4, 2, 1.0, 4)
    assert all(row == rows[0] for row in rows)
    assert len({tuple(hypothesis.tokens) for hypothesis in rows[0]}) == 4


def test_nan_logits_give_an_answer() -> None:
    tables = Tables(2, 3, 3, seed=0)
    tables.scores[:] = torch.nan
    assert all(len(row) == 2 for row in search_tables(tables, 2, 0, 1.0, 2))


def test_nbest_above_the_beam_is_rejected() -> None:
    with pytest.raises(ValueError, match="at most the beam size 3, got 4"):
        search_tables(Tables(1, 5, 2, seed=0), 3, 0, 1.0, 4)


def test_reorder_within_a_prompt_is_announced() -> None:
    """If no prompt is done, `same_prompts` is set, so a memory need not be copied."""
    moves: list[tuple[int, int, bool]] = []

    class Recording(Tables):
        def reorder(self, state, rows, *, beam, same_prompts):  # type: ignore[no-untyped-def]
            moves.append((len(rows), beam, same_prompts))
            return super().reorder(state, rows, beam=beam, same_prompts=same_prompts)

    tables = Recording(3, 11, 4, seed=1)
    tables.scores[:, :, 0] -= 30.0
    search_tables(tables, 5, 0, 1.0, 1)
    assert moves == [(15, 5, True)] * 3
    assert list(itertools.accumulate(tables.batch_sizes)) == [15, 30, 45]
