import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from small_steppers import Tables, numbered

from harken.decode.sampling import greedy_search, sample_tokens, truncated_probs, uniform_numbers
from harken.decode.search import SearchConfig, sample
from harken.decode.stepper import TokenHypothesis

END = 1
ALMOST_ONE = 1 - 2**-53
parts = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9)


def drawn(
    tables: Tables,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    nbest: int = 1,
    rows: Sequence[int] | None = None,
) -> list[list[TokenHypothesis]]:
    numbers = list(range(len(tables.scores)) if rows is None else rows)
    return sample(
        tables,
        torch.tensor(numbers)[:, None],
        torch.ones(len(numbers), 1).bool(),
        SearchConfig(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        sample_keys=[(number, 3) for number in numbers],
        end=END,
        max_tokens=tables.max_tokens,
        nbest=nbest,
    )


def probabilities(
    logs: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> list[float]:
    """Return the probability of every token, in plain loops."""
    raised = [math.exp(log / temperature) for log in logs]
    ranked = sorted(range(len(logs)), key=lambda token: -raised[token])[:top_k]
    whole = math.fsum(raised[token] for token in ranked)
    allowed: list[int] = []
    for token in ranked:
        if top_p is None or math.fsum(raised[other] for other in allowed) / whole < top_p:
            allowed.append(token)
    whole = math.fsum(raised[token] for token in allowed)
    return [raised[token] / whole if token in allowed else 0.0 for token in range(len(logs))]


CUTS = [
    (1.0, None, None),
    (0.6, None, None),
    (1.7, None, None),
    (1.0, 2, None),
    (1.0, None, 0.7),
    (1.3, 3, 0.8),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), CUTS)
@pytest.mark.parametrize("samples_of", ["single row", "many rows"])
def test_frequencies_match_probabilities(
    temperature: float, top_k: int | None, top_p: float | None, samples_of: str
) -> None:
    count = 3000
    tables = Tables(1, 4, 2, seed=6, strength=1.0)
    if samples_of == "many rows":
        tables.scores = tables.scores.expand(count, -1, -1)
    nbest = count if samples_of == "single row" else 1
    samples = drawn(tables, temperature=temperature, top_k=top_k, top_p=top_p, nbest=nbest)
    counts = Counter(tuple(hypothesis.tokens) for row in samples for hypothesis in row)

    def probability(prefix: tuple[int, ...], token: int) -> float:
        logs = [tables.log(0, prefix, other) for other in range(4)]
        return probabilities(logs, temperature, top_k, top_p)[token]

    expected = {
        tuple(hypothesis.tokens): count
        * math.prod(
            probability(tuple(hypothesis.tokens[:at]), token)
            for at, token in enumerate([*hypothesis.tokens, END][: tables.max_tokens])
        )
        for hypothesis in tables.sequences(0, END)
    }
    assert sum(expected.values()) == pytest.approx(count)
    possible = {tokens for tokens, mean in expected.items() if mean > 0}
    assert set(counts) <= possible and len(possible) > 2
    squares = sum((counts[text] - expected[text]) ** 2 / expected[text] for text in possible)
    freedom = len(possible) - 1
    assert squares < freedom + 3.5 * math.sqrt(2 * freedom)  # chi-square, about 1 in 1000


@given(
    st.lists(st.integers(-6, 6), min_size=1, max_size=7, unique=True),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.none() | st.integers(1, 9),
    st.none() | st.sampled_from([1e-300, 0.2, 0.55, 0.9, 1.0]),
)
def test_truncation_by_plain_loops(
    scores: list[int], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    logs = torch.tensor([scores, scores[::-1]], dtype=torch.float64).log_softmax(dim=-1)
    ours = truncated_probs(logs, temperature, top_k, top_p)
    ours = ours / ours.sum(dim=1, keepdim=True)
    for row, own in zip(logs.tolist(), ours.tolist(), strict=True):
        assert own == pytest.approx(probabilities(row, temperature, top_k, top_p), abs=1e-12)


def test_ties_keep_the_first_tokens() -> None:
    logs = torch.tensor([[0.1, 0.3, 0.3, 0.3]], dtype=torch.float64).log()
    assert truncated_probs(logs, 1.0, 2, None).bool().tolist() == [[False, True, True, False]]
    assert truncated_probs(logs, 1.0, None, 0.2).bool().tolist() == [[False, True, False, False]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-9])
def test_tiny_temperatures_do_not_underflow(temperature: float) -> None:
    logs = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).log()
    assert truncated_probs(logs, temperature, None, None).tolist() == [[0.0, 1.0, 0.0]]


@given(parts.filter(any), st.floats(0.0, ALMOST_ONE) | st.sampled_from([0.0, ALMOST_ONE]))
@example([0.0, 0.5], 0.0)
def test_picks_by_cumulative_probability(given_parts: list[float], uniform: float) -> None:
    rows = torch.tensor([given_parts], dtype=torch.float64)
    chosen = int(sample_tokens(rows, torch.tensor([uniform], dtype=torch.float64)))
    assert given_parts[chosen] > 0, "a token of probability 0 was picked"
    whole = math.fsum(given_parts)
    assert math.fsum(given_parts[:chosen]) <= uniform * whole * (1 + 1e-12)
    assert math.fsum(given_parts[: chosen + 1]) >= uniform * whole * (1 - 1e-12)


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}])
def test_truncation_to_one_token_is_greedy(cut: dict[str, float]) -> None:
    tables = Tables(23, 7, 3, seed=1)
    greedy = greedy_search(tables, *numbered(23), end=END, max_tokens=3)
    for row, best in zip(drawn(tables, nbest=2, **cut), greedy, strict=True):  # type: ignore[arg-type]
        assert row == [best, best]


def test_log_probabilities_are_those_of_the_model() -> None:
    tables = Tables(7, 3, 3, seed=4)
    samples = drawn(tables, temperature=2.0, top_k=2, nbest=5)
    for prompt, row in enumerate(samples):
        every = {
            tuple(hypothesis.tokens): hypothesis.log_probability
            for hypothesis in tables.sequences(prompt, END)
        }
        ours = [hypothesis.log_probability for hypothesis in row]
        assert ours == pytest.approx(
            [every[tuple(hypothesis.tokens)] for hypothesis in row], abs=1e-12
        )
        assert ours == sorted(ours, reverse=True)


def test_samples_do_not_depend_on_the_batch() -> None:
    tables = Tables(29, 5, 4, seed=8)
    whole = drawn(tables, nbest=2)
    assert drawn(tables, nbest=2, rows=range(11)) == whole[:11]
    some = [23, 5, 17]
    assert drawn(tables, nbest=2, rows=some) == [whole[row] for row in some]
    changed = Tables(29, 5, 4, seed=9)
    changed.scores[13] = tables.scores[13]
    assert drawn(changed, nbest=2)[13] == whole[13]


def test_rows_samples_and_seeds_have_independent_streams() -> None:
    keys = [(row, place) for row in range(3) for place in range(2)]
    numbers = uniform_numbers(3, keys, 2, 7)
    assert numbers.unique().numel() == numbers.numel() and 0 <= numbers.min() < numbers.max() < 1
    assert not set(numbers.flatten().tolist()) & set(
        uniform_numbers(4, keys, 2, 7).flatten().tolist()
    )
    # More keys, samples or steps do not change the first numbers.
    more = uniform_numbers(3, [*keys, (5, 0)], 3, 11).view(7, 3, 11)
    torch.testing.assert_close(numbers.view(6, 2, 7), more[:6, :2, :7], rtol=0, atol=0)


def test_nan_logits_give_an_answer() -> None:
    tables = Tables(2, 3, 3, seed=0)
    tables.scores[:] = torch.nan
    assert all(len(row) == 2 for row in drawn(tables, nbest=2, top_p=0.5))
