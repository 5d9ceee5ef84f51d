import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulations import simulation

from harken.measure.edit_distance import EditCounts, error_rate, transcription_samples
from harken.measure.interval import (
    LOGIT,
    Estimate,
    Sample,
    autocorrelation_time,
    block_sums,
    clustered_share,
    format_difference,
    format_difference_interval,
    format_interval,
    format_value,
    share,
)
from harken.measure.perplexity import loss_sample
from harken.measure.translations import translation_samples

coverage = simulation("coverage")


def ends(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None and estimate.high is not None
    return estimate.low, estimate.high


@given(st.lists(st.booleans(), min_size=2, max_size=97))
def test_the_value_lies_in_its_interval(right: list[bool]) -> None:
    estimate = share(right).estimate()
    assert estimate.value == pytest.approx(sum(right) / len(right))
    low, high = ends(estimate)
    assert 0 <= low <= sum(right) / len(right) <= high <= 1
    assert low < high


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("tag accuracy 0.97", 10),
        ("tag accuracy 0.97", 50),
        ("WER 0.24, unequal sentences", 10),
        ("WER 1.14", 50),
        ("BLEU 8", 10),
        ("BLEU 46", 10),
        ("perplexity of blanks", 10),
        ("perplexity of text, correlation 0.8", 300),
        ("calibration error, calibrated", 50),
    ],
)
def test_coverage(name: str, n: int) -> None:
    """Shortened `benchmarks/coverage.py`: 93.5 % within the error of 300 rounds."""
    (setting,) = [item for item in coverage.SETTINGS if item.name == name]
    short = setting._replace(sizes=(n,), many=setting.many // 10)
    (row,) = coverage.measure(short, rounds=300, seed=1)
    assert row.coverage >= 0.935 - 2 * math.sqrt(0.05 * 0.95 / 300)
    assert row.undefined == 0


def test_an_error_rate_around_1() -> None:
    """A word error rate can exceed 1, so 1 is not the end of the scale."""
    words, errors = [5, 7, 3, 9, 4, 8], [2, 11, 1, 13, 3, 6]

    def interval(more: int) -> tuple[float, float]:
        insertions = [errors[0] + more, *errors[1:]]
        pairs = zip(words, insertions, strict=True)
        sample = error_rate([EditCounts(count, 0, 0, inserted) for count, inserted in pairs])
        assert sample.value == pytest.approx(1 + more / 36)
        return ends(sample.estimate())

    assert interval(0) == pytest.approx(interval(1), abs=0.1)
    assert interval(0) == pytest.approx(interval(-1), abs=0.1)
    assert interval(0)[1] > 1.3


def test_no_error_at_all() -> None:
    """With 0 of 20 sentences wrong, up to 16.8 % of all may be."""
    samples, _ = transcription_samples(["a b c"] * 20, ["a b c"] * 20)
    for name in ("wer", "cer", "deletions"):
        assert ends(samples[name].estimate()) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))


ONE = {
    "share": share([True]),
    "share within": clustered_share([3], [5]),
    "word error rate": error_rate([EditCounts(3, 2)]),
    "BLEU": translation_samples(["der Hund läuft"], ["der Hund läuft weg"], "de")[0]["bleu"],
    "perplexity": loss_sample(np.array([31.0]), np.array([7.0]), "perplexity"),
    "only one that counts": clustered_share([3, 0], [5, 0]),
}


@pytest.mark.parametrize("name", ONE)
def test_one_example_has_no_interval(name: str) -> None:
    estimate = ONE[name].estimate()
    assert estimate.value is not None
    assert (estimate.low, estimate.high) == (None, None)
    assert format_interval(estimate) == "n/a"


def test_nothing_counted_is_undefined() -> None:
    assert clustered_share([0, 0, 0], [0, 0, 0]).estimate() == Estimate(
        None, None, None, "share", 0
    )
    assert format_value(None, "share") == "n/a"


def test_examples_that_do_not_differ_have_no_interval() -> None:
    estimate = Sample(counts=np.tile((6.0, 2.0), (17, 1)), unit="nats").estimate()
    assert (estimate.value, estimate.low, estimate.high) == (3.0, None, None)


def test_n_is_what_a_metric_is_an_average_over() -> None:
    assert share([True, False, True]).estimate().n == 3
    assert clustered_share([1, 4, 0], [2, 5, 0]).estimate().n == 7  # words, of three sentences
    samples, _ = transcription_samples(["a b", "c"], ["a b d", "c"])
    assert [samples[name].estimate().n for name in ("wer", "cer")] == [4, 6]
    translated, _ = translation_samples(["ein Hund", "zwei"], ["ein Hund", "drei"], "de")
    assert [translated[name].estimate().n for name in ("bleu", "chrf")] == [2, 2]  # sentences


def test_the_error_is_that_of_the_delta_method() -> None:
    """Of a ratio of 1009 sentences: sqrt(sum of (x - r y)^2) / sum of y."""
    random = np.random.default_rng(1)
    words = random.integers(3, 20, 1009)
    right = random.binomial(words, random.beta(4, 2, 1009))
    sample = clustered_share(right.tolist(), words.tolist())
    r = right.sum() / words.sum()
    error = math.sqrt(((right - r * words) ** 2).sum()) / words.sum()
    low, high = ends(sample.estimate())
    assert (high - low) / 2 == pytest.approx(1.97 * error, rel=0.02)


def test_nats_bits_and_perplexity_have_the_same_interval() -> None:
    nats = np.random.default_rng(3).gamma(4.0, 25.0, size=211)
    tokens = np.full(211, 100.0)
    low, high = ends(loss_sample(nats, tokens, "nats").estimate())
    in_bits, exponential = (
        ends(loss_sample(nats, tokens, unit).estimate()) for unit in ("bits", "perplexity")
    )
    assert in_bits == pytest.approx((low / math.log(2), high / math.log(2)))
    assert exponential == pytest.approx((math.exp(low), math.exp(high)))


def test_neighboring_pieces_of_a_text_are_not_independent() -> None:
    """Repeating each piece ten times adds no information."""
    nats, tokens = np.random.default_rng(4).gamma(4.0, 25.0, size=300), np.full(300, 100.0)
    low, high = ends(loss_sample(nats, tokens, "nats").estimate())
    repeated = loss_sample(np.repeat(nats, 10), np.repeat(tokens, 10), "nats")
    again_low, again_high = ends(repeated.estimate())
    assert again_high - again_low == pytest.approx(high - low, rel=0.3)
    independent = Sample(counts=repeated.counts, unit="nats")
    short = ends(independent.estimate())
    assert short[1] - short[0] < 0.45 * (high - low)


def test_blocks_by_hand() -> None:
    counts = np.stack((np.arange(240.0), np.ones(240)), axis=1)
    noise = np.random.default_rng(5).normal(size=240)
    assert autocorrelation_time(noise) < 1.5
    joined = block_sums(counts, noise)
    assert joined.sum(axis=0).tolist() == counts.sum(axis=0).tolist()
    assert set(joined[:, 1]) <= {240 // len(joined), 240 // len(joined) + 1}
    drift = np.repeat(np.random.default_rng(6).normal(size=24), 10)
    assert autocorrelation_time(drift) == pytest.approx(10, abs=5)
    assert len(block_sums(counts, drift)) == 6
    assert len(block_sums(counts[:99], noise[:99])) == 1  # too short


def test_a_metric_of_unequal_parts_stays_within_its_scale() -> None:
    """Without the only sentence with right words, the logarithm is infinite."""
    counts = np.array([[3.0, 40.0], *([[0.0, 5.0]] * 30)])
    low, high = ends(Sample(counts=counts, link=LOGIT).estimate())
    assert 0 < low < 3 / 190 < high < 1


def test_values_as_text() -> None:
    assert format_value(0.125, "error") == "12.5 %"
    assert format_difference(-0.125, "error") == "-12.5"
    assert format_interval(Estimate(0.5, 0.25, 0.75)) == "25.0 % - 75.0 %"
    assert format_difference_interval(-0.01, 0.02, "share") == "-1.0 to +2.0"
    assert format_difference_interval(None, None, "nats") == "n/a"
