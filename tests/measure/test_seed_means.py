"""Means over seeds and differences of groups, against loops, closed forms and simulations."""

import math

import numpy as np
import pytest

from harken.measure.interval import (
    LOG,
    Sample,
    clustered_share,
    jackknife_error,
    ratio,
    share,
)
from harken.measure.paired import difference, holm
from harken.measure.quantiles import t_quantile, t_tail
from harken.measure.seed_means import group_comparable, group_difference, mean_estimate

RNG = np.random.default_rng(7)


def nats(totals: np.ndarray) -> Sample:
    """Return the sample of a mean over examples of 1, 2 or 3 tokens."""
    tokens = 1.0 + np.arange(len(totals)) % 3
    return Sample(counts=np.stack((totals * tokens, tokens), axis=1), metric=ratio, unit="nats")


def jackknife_variance(replicates: list[float]) -> float:
    mean, count = sum(replicates) / len(replicates), len(replicates)
    return (count - 1) / count * sum((value - mean) ** 2 for value in replicates)


def test_the_interval_is_that_of_two_jackknives() -> None:
    totals = RNG.gamma(2.0, size=(3, 11))
    samples = [nats(row) for row in totals]
    estimate = mean_estimate(samples)
    values = [sample.value for sample in samples]
    assert estimate.values == values
    assert estimate.value == pytest.approx(sum(values) / 3)
    variance = sum((value - estimate.value) ** 2 for value in values) / 2
    assert estimate.std == pytest.approx(math.sqrt(variance))

    seeds = [math.log((sum(values) - value) / 2) for value in values]
    examples = [
        math.log(
            sum(
                np.delete(sample.counts, index, axis=0)[:, 0].sum()
                / np.delete(sample.counts, index, axis=0)[:, 1].sum()
                for sample in samples
            )
            / 3
        )
        for index in range(11)
    ]
    terms = [jackknife_variance(seeds), jackknife_variance(examples)]
    error, df = jackknife_error(np.array(examples), samples[0].counts[:, -1:])
    assert error == pytest.approx(math.sqrt(terms[1]))
    df = sum(terms) ** 2 / (terms[0] ** 2 / 2 + terms[1] ** 2 / df)
    half_width = t_quantile(df) * math.sqrt(sum(terms))
    ends = [estimate.value * math.exp(sign * half_width) for sign in (-1, 1)]
    assert (estimate.low, estimate.high) == pytest.approx(ends)


def test_equal_seeds_have_the_interval_of_one() -> None:
    sample = nats(RNG.gamma(2.0, size=17))
    mean = mean_estimate([sample] * 4)
    assert (mean.std, mean.value) == (0.0, pytest.approx(sample.value))
    assert (mean.low, mean.high) == pytest.approx(sample.interval())
    perfect = mean_estimate([share([True] * 9)] * 2)
    assert (perfect.low, perfect.high) == (pytest.approx(0.025 ** (1 / 9)), 1.0)


def test_seeds_with_examples_of_their_own() -> None:
    """The t interval of the mean of the logs, linearized, of three values."""
    samples = [nats(RNG.gamma(2.0, size=size)) for size in (5, 5, 7)]
    own = mean_estimate(samples, same_examples=False)
    values = np.array(own.values)
    error = jackknife_variance([math.log(np.delete(values, at).mean()) for at in range(3)]) ** 0.5
    assert own.high == pytest.approx(own.value * math.exp(4.302653 * error), rel=1e-6)
    undefined = Sample(counts=np.zeros((5, 2)), link=LOG)
    assert mean_estimate([samples[0], undefined]).value is None


@pytest.mark.parametrize("t", [0.0, 0.3, 2.0, 17.0])
def test_tail_of_t_in_closed_form(t: float) -> None:
    assert t_tail(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t))
    assert t_tail(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t))


def test_holm_by_hand() -> None:
    """0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1, which is raised to the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def group(rng: np.random.Generator, seeds: int, easiness: np.ndarray, gain: float) -> list[Sample]:
    """Return shares of right words whose log-odds vary by seed, by example and by both."""
    logits = easiness + gain + rng.normal(0, 0.3, size=(seeds, 1))
    logits = logits + rng.normal(0, 0.5, size=(seeds, len(easiness)))
    right = rng.binomial(7, 1 / (1 + np.exp(-logits)))
    return [clustered_share(list(row), [7] * len(row)) for row in right]


@pytest.mark.parametrize("seeds", [(2, 2), (3, 5), (1, 4)])
def test_groups_mirror_and_single_runs_are_tested_as_before(seeds: tuple[int, int]) -> None:
    easiness = RNG.normal(0, 1, size=23)
    first, second = (
        group(RNG, count, easiness, gain) for count, gain in zip(seeds, (0, 0.4), strict=True)
    )
    there, back = group_difference(first, second), group_difference(second, first)
    assert (back.value, back.p) == (-there.value, pytest.approx(there.p))
    assert (back.low, back.high) == (pytest.approx(-there.high), pytest.approx(-there.low))
    assert (there.p < 0.05) == (not there.low <= 0 <= there.high)
    means = [np.mean([sample.value for sample in samples]) for samples in (first, second)]
    assert there.value == pytest.approx(means[1] - means[0])
    assert group_difference(first[:1], second[:1]) == difference(first[0], second[0])
    assert not group_comparable(first, [*second, clustered_share([1], [7])])
    same = group_difference([first[0]] * 2, [first[0]] * 3)
    assert (same.value, same.p) == (pytest.approx(0), pytest.approx(1))


def test_coverage_over_seeds_and_examples() -> None:
    """Of 400 simulated studies with three seeds, 95 % contain the truth, within 2.5 errors."""
    rng, rounds, covered, found = np.random.default_rng(3), 400, 0, 0
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)  # the logits are normal
    logits = 0.5 + math.sqrt(1 + 0.3**2 + 0.5**2) * nodes
    truth = np.average(1 / (1 + np.exp(-logits)), weights=weights)
    for _ in range(rounds):
        easiness = rng.normal(0, 1, size=41)
        first, second = (group(rng, 3, easiness, 0.5) for _ in range(2))
        estimate = mean_estimate(first)
        covered += estimate.low <= truth <= estimate.high
        found += group_difference(first, second).p < 0.05
    chance = 2.5 * math.sqrt(0.05 * 0.95 / rounds)
    assert covered / rounds >= 0.95 - chance
    assert found / rounds <= 0.05 + chance
