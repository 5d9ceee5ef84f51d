import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from simulations import simulation

from harken.measure import paired
from harken.measure.interval import LOGIT, Sample, Unit, clustered_share, ratio, share
from harken.measure.paired import EXCHANGES, Difference, comparable, difference
from harken.measure.translations import translation_samples

coverage = simulation("coverage")
COUNTED = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=23
)  # right of five words, by each of two systems


def chance_of(exact: float) -> float:
    """Return the tolerance of p: four standard deviations of the draws."""
    return 4 * math.sqrt(exact * (1 - exact) / EXCHANGES) + 2 / EXCHANGES


def of_words(right: list[int], unit: Unit = "share") -> Sample:
    counts = np.stack((np.array(right), np.full(len(right), 5)), axis=1).astype(float)
    return Sample(counts=counts, unit=unit, link=LOGIT)


@pytest.mark.parametrize(
    ("both", "first_only", "second_only", "neither"),
    [(11, 2, 9, 7), (0, 0, 6, 1), (31, 5, 5, 3), (17, 13, 29, 19), (3, 1, 0, 0)],
)
def test_p_of_shares_is_that_of_mcnemars_exact_test(
    both: int, first_only: int, second_only: int, neither: int
) -> None:
    outcomes = [
        *[(True, True)] * both,
        *[(True, False)] * first_only,
        *[(False, True)] * second_only,
        *[(False, False)] * neither,
    ]
    result = difference(
        share([first for first, _ in outcomes]), share([second for _, second in outcomes])
    )
    unlike = first_only + second_only
    apart = abs(second_only - first_only)
    exact = sum(
        math.comb(unlike, wins) for wins in range(unlike + 1) if abs(2 * wins - unlike) >= apart
    ) / (2**unlike)
    assert result.value == pytest.approx((second_only - first_only) / len(outcomes))
    assert result.p == pytest.approx(exact, abs=chance_of(exact))


@pytest.mark.parametrize("better", [0.0, 0.02, 0.05])
def test_agrees_with_sacrebleu(better: float) -> None:
    random = np.random.default_rng(5)
    words = np.array(["der", "Hund", "und", "die", "Katze", "spielen", "im", "Schnee"])

    def spoilt(line: list[str], rate: float) -> str:
        return " ".join("x" if random.random() < rate else word for word in line)

    lines = [list(words[random.integers(0, 8, size=13)]) for _ in range(151)]
    references = [" ".join(line) for line in lines]
    systems = [[spoilt(line, rate) for line in lines] for rate in (0.2, 0.2 - better)]
    first, second = (translation_samples(system, references, "de")[0]["bleu"] for system in systems)
    named = [("first", systems[0]), ("second", systems[1])]
    _, theirs = PairedTest(named, {"BLEU": BLEU()}, [references], "ar", n_samples=EXCHANGES)()
    baseline, other = theirs["BLEU"]
    ours = difference(first, second)
    assert ours.value == pytest.approx(other.score - baseline.score, abs=1e-9)
    assert ours.p == pytest.approx(other.p_value, abs=1.5 * chance_of(other.p_value))


def test_equal_systems() -> None:
    """Of five examples none differs: by Clopper and Pearson, up to 52.2 % of all may."""
    sample = of_words([3, 1, 4, 1, 5])
    far = pytest.approx(1 - 0.025 ** (1 / 5))
    result = difference(sample, of_words([3, 1, 4, 1, 5]))
    assert (result.value, -result.low, result.high, result.p) == (0, far, far, 1.0)
    nats = Sample(counts=sample.counts, unit="nats")  # which have no largest value
    assert difference(nats, nats) == Difference(0, None, None, 1.0, "nats")
    single = difference(of_words([0]), of_words([3]))  # one example has no interval
    assert single == Difference(0.6, None, None, 1.0, "share")


def test_exchanges_without_a_value_count_against_a_difference() -> None:
    """Each system is measured on the example that it chose; an exchange may leave none."""
    first, second = (
        Sample(counts=np.array(counts), unit="seconds", selective=True)
        for counts in ([[3.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]])
    )
    result = difference(first, second)
    assert (result.value, result.p) == (-2.0, 1.0)
    nothing = Sample(counts=np.zeros((2, 2)), unit="seconds", selective=True)
    assert not comparable(first, nothing)


@settings(max_examples=40)
@given(COUNTED, st.integers(0, 2**32))
def test_exchanged_systems_get_the_mirrored_answer(right: list[tuple[int, int]], seed: int) -> None:
    first, second = of_words([a for a, _ in right]), of_words([b for _, b in right])
    there, back = difference(first, second, seed), difference(second, first, seed)
    assert back.value == -there.value
    assert back.p == there.p
    assert there == difference(first, second, seed)
    assert 0 < there.p <= 1
    if len(right) > 1:
        assert (back.low, back.high) == (-there.high, -there.low)
        assert -1 <= there.low <= there.value <= there.high <= 1
        assert there.low < there.high


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("exact match, equal", 50),
        ("exact match, +0.1", 10),
        ("tag accuracy, +0.05", 10),
        ("WER, equal", 10),
        ("BLEU, equal", 50),
        ("perplexity of text, correlation 0.8", 300),
    ],
)
def test_the_interval_holds_the_truth_and_p_the_error_rate(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short form of `benchmarks/coverage.py`."""
    monkeypatch.setattr(paired, "EXCHANGES", 999)  # enough to tell 5 %
    monkeypatch.setattr(coverage, "MANY", 10_000)
    (draw,) = [draw for title, draw, _ in coverage.PAIRS if title == name]
    (row,) = coverage.measure_pairs(name, draw, (n,), rounds=200, seed=3)
    chance = 2 * math.sqrt(0.05 * 0.95 / 200)
    assert row.coverage >= 0.935 - chance
    if row.truth == 0:
        assert row.called <= 0.05 + chance


def test_pairing_removes_common_difficulty() -> None:
    """Two systems on 47 sentences of varying difficulty."""
    random, gain = np.random.default_rng(2), 0.07
    ease, words = random.beta(2, 2, size=47) * (1 - gain), random.integers(1, 20, size=47)
    first, second = (
        clustered_share(list(random.binomial(words, ease + extra)), list(words))
        for extra in (0.0, gain)
    )
    together = difference(first, second)
    widths = [high - low for low, high in (first.interval(), second.interval())]  # type: ignore
    # Less than if the two had been measured on different examples.
    assert 0.2 < (together.high - together.low) / math.hypot(*widths) < 0.7


@pytest.mark.parametrize(
    ("unit", "value", "p", "improves"),
    [
        ("share", 0.1, 0.049, True),
        ("share", -0.1, 0.049, False),
        ("error", -0.1, 0.049, True),
        ("error", 0.1, 0.01, False),
        ("points", 3.0, 0.05, None),
        ("nats", -0.1, 0.01, True),
        ("bits", 0.1, 0.01, False),
        ("perplexity", -0.1, 0.5, None),
    ],
)
def test_what_is_better(unit: Unit, value: float, p: float, improves: bool | None) -> None:
    assert Difference(value, value - 1, value + 1, p, unit).improves is improves


def test_what_was_counted_must_be_the_same_in_each_example() -> None:
    """Known words of two vocabularies; but of BLEU, lengths are the outputs' own."""
    five = of_words([1, 2, 3, 4, 5])
    for other in (of_words([1, 2, 3, 4]), of_words([1, 2, 3, 4, 5], "nats")):
        assert not comparable(five, other)
        with pytest.raises(AssertionError):
            difference(five, other)
    known = clustered_share([1, 2, 3], [5, 5, 4])
    assert comparable(known, clustered_share([2, 2, 2], [5, 5, 4]))
    assert not comparable(known, clustered_share([1, 2, 3], [5, 4, 5]))
    own = [
        Sample(counts=np.array(counts), metric=ratio, selective=True)
        for counts in ([[1.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]])
    ]
    assert comparable(*own)  # what each chose to answer
    references = ["der Hund läuft über das Gras", "eine Katze schläft"]
    short, long = (
        translation_samples([output, references[1]], references, "de")[0]["bleu"]
        for output in ("der Hund läuft über", "der Hund läuft über das Gras und bellt")
    )
    assert comparable(short, long)
