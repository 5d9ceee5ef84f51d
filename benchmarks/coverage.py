"""Measure how often a 95 % confidence interval contains the true value, on simulated test sets.

    python benchmarks/coverage.py --rounds 2000 --seed 0

Each setting simulates the counts of a metric (words, errors, n-gram matches) for test sets of n
examples, computes the interval as `harken evaluate` does, and compares it with the true value,
which is the metric of very many examples. For proportions the true value is known, and the coverage
is summed over all outcomes without simulation. The first table has a row per metric and n:

    truth      the true value
    coverage   share of intervals that contain it; should be 95 %
    n/a        share of test sets without an interval, which do not count for the coverage
    width      median width of the intervals (for proportions, the mean)

The second table does the same for the difference of two systems on the same examples, as in
`harken compare`; `p < 0.05` is the share of test sets on which they are called different. The last
line is the lowest coverage.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harken.measure.abstention import accuracy_at
from harken.measure.alignment import alignment_samples
from harken.measure.bleu import bleu, chrf, corpus_sample
from harken.measure.calibration import calibration_error
from harken.measure.captions import mean_points
from harken.measure.edit_distance import EditCounts, error_rate
from harken.measure.interval import Sample, clustered_share, share
from harken.measure.paired import difference
from harken.measure.perplexity import loss_sample
from harken.measure.scored_answers import ScoredAnswers

Draw = Callable[[np.random.Generator, int], Sample]
DrawTwo = Callable[[np.random.Generator, int], tuple[Sample, Sample]]
MANY = 200_000  # examples from which the true value is computed


class Setting(NamedTuple):
    """A simulated metric."""

    name: str
    draw: Draw
    sizes: tuple[int, ...] = (10, 50, 300)  # examples per test set
    many: int = MANY


class Row(NamedTuple):
    """Results of one metric and test set size."""

    name: str
    n: int
    truth: float
    coverage: float
    undefined: float  # share of rounds without an interval
    width: float  # median


# Examples


def lengths(random: np.random.Generator, n: int, mean: float = 2.3) -> np.ndarray:
    """Return numbers of words per sentence: most between 5 and 20, few above 40."""
    return np.maximum(1, random.lognormal(mean, 0.6, n).astype(np.int64))


def difficulty(random: np.random.Generator, mean: float, concentration: float, n: int):
    """Return a rate per sentence; the lower the concentration, the more sentences differ."""
    return random.beta(mean * concentration, (1 - mean) * concentration, n)


def tags(accuracy: float, concentration: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        words = lengths(random, n, 2.7)
        correct = random.binomial(words, difficulty(random, accuracy, concentration, n))
        return clustered_share(correct.tolist(), words.tolist())

    return draw


def word_error_rate(words: np.ndarray, substituted: np.ndarray, inserted: np.ndarray) -> Sample:
    rows = np.stack((words - substituted, substituted, 0 * words, inserted), axis=1).tolist()
    return error_rate([EditCounts(*row) for row in rows])


def word_errors(rate: float, concentration: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        words, rates = lengths(random, n), difficulty(random, rate, concentration, n)
        substituted = random.binomial(words, rates)
        inserted = random.poisson(0.2 * rates * words)
        return word_error_rate(words, substituted, inserted)

    return draw


def ngram_counts(random: np.random.Generator, quality: float, n: int, orders: int) -> np.ndarray:
    """Return a row of counts per sentence, as BLEU and chrF need them.

    The columns are the lengths of hypothesis and reference, then for each order the matching
    n-grams, those of the hypothesis and those of the reference. Correct words come in runs.
    """
    reference = np.maximum(orders, random.lognormal(2.5, 0.5, n).astype(np.int64))
    hypothesis = np.maximum(orders, np.round(reference * random.normal(1, 0.1, n)).astype(np.int64))
    rates = difficulty(random, quality, 5, n)[:, None]
    longest = int(hypothesis.max())
    correct = random.random((n, longest)) < rates
    repeats = random.random((n, longest)) < 0.5  # a word is as correct as the one before it
    for word in range(1, longest):
        correct[:, word] = np.where(repeats[:, word], correct[:, word - 1], correct[:, word])
    correct &= np.arange(longest) < hypothesis[:, None]
    matches, run = [], correct
    for order in range(orders):
        matches.append(run.sum(axis=1))
        run = run[:, : longest - order - 1] & correct[:, order + 1 :]
    hypothesis_ngrams = [hypothesis - order for order in range(orders)]
    reference_ngrams = [reference - order for order in range(orders)]
    columns = (hypothesis, reference, *matches, *hypothesis_ngrams, *reference_ngrams)
    return np.stack(columns, axis=1).astype(np.float64)


def translations(quality: float) -> Draw:
    return lambda random, n: corpus_sample(ngram_counts(random, quality, n, 4)[:, :10], bleu)


def characters(quality: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        counts = ngram_counts(random, quality, n, 6)
        first_columns = (2, 8, 14)
        matches, hypothesis, reference = (counts[:, first : first + 6] for first in first_columns)
        columns = np.stack((hypothesis, reference, np.minimum(matches, reference)), axis=2)
        return corpus_sample(columns.reshape(n, 18), chrf)

    return draw


def blanks(spread: float) -> Draw:
    """Perplexity of blanks; words and lines differ in how predictable they are."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        words = lengths(random, n).astype(np.float64)
        mean = 3 * np.exp(random.normal(0, spread, n))
        nats = random.gamma(0.5 * words, mean / 0.5)
        return loss_sample(nats, words, "perplexity", ordered=False)

    return draw


def autoregressive(random: np.random.Generator, correlation: float, n: int) -> np.ndarray:
    """Return a standard normal AR(1) series."""
    series, noise = np.empty(n), random.normal(size=n)
    series[0] = noise[0]
    for index in range(1, n):
        scaled_noise = math.sqrt(1 - correlation**2) * noise[index]
        series[index] = correlation * series[index - 1] + scaled_noise
    return series


def text(correlation: float) -> Draw:
    """Perplexity of consecutive blocks of a text whose difficulty drifts."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        drift = autoregressive(random, correlation, n)
        tokens = random.integers(40, 80, n).astype(np.float64)
        nats = random.gamma(tokens / 2, 6 * np.exp(0.2 * drift))
        return loss_sample(nats, tokens, "perplexity")

    return draw


def captions(random: np.random.Generator, n: int) -> Sample:
    """CIDEr: most captions have little in common with their references, few have much."""
    return mean_points(random.gamma(0.7, 1.0, n).tolist())


def alignments(metric: str) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        predicted, sure = lengths(random, n), lengths(random, n, 2.0)
        in_possible = random.binomial(predicted, difficulty(random, 0.8, 5, n))
        in_sure = np.minimum(random.binomial(sure, difficulty(random, 0.7, 5, n)), in_possible)
        counts = np.stack((in_sure, in_possible, predicted, sure), axis=1).astype(float)
        return alignment_samples(counts)[metric]

    return draw


def confidences(power: float) -> Draw:
    """Calibration error if the accuracy is a power of the confidence; power 1 is calibrated."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        confidence = random.beta(3, 1, n)
        correct = random.random(n) < confidence**power
        return calibration_error(ScoredAnswers(confidence.tolist(), correct.tolist()))

    return draw


def most_confident(random: np.random.Generator, n: int) -> Sample:
    confidence = random.random(n)
    correct = random.random(n) < 0.6 + 0.4 * confidence
    return accuracy_at(ScoredAnswers(confidence.tolist(), correct.tolist()), 50)


SETTINGS = (
    Setting("tag accuracy 0.99", tags(0.99, 20)),
    Setting("tag accuracy 0.97", tags(0.97, 5)),
    Setting("tag accuracy 0.9", tags(0.9, 10)),
    Setting("tag accuracy 0.9, unequal sentences", tags(0.9, 2)),
    Setting("WER 0.06", word_errors(0.05, 5)),
    Setting("WER 0.24, unequal sentences", word_errors(0.2, 2)),
    Setting("WER 0.6", word_errors(0.5, 4)),
    Setting("WER 1.14", word_errors(0.95, 8)),
    Setting("BLEU 8", translations(0.15)),
    Setting("BLEU 18", translations(0.3)),
    Setting("BLEU 46", translations(0.6)),
    Setting("BLEU 85", translations(0.9)),
    Setting("chrF", characters(0.4)),
    Setting("CIDEr", captions),
    Setting("perplexity of blanks", blanks(0.3)),
    Setting("perplexity of text, correlation 0", text(0.0), (100, 300, 1000)),
    Setting("perplexity of text, correlation 0.5", text(0.5), (100, 300, 1000), 10 * MANY),
    Setting("perplexity of text, correlation 0.8", text(0.8), (300, 1000), 10 * MANY),
    Setting("perplexity of text, correlation 0.9", text(0.9), (300, 1000), 10 * MANY),
    Setting("AER", alignments("aer")),
    Setting("precision of links", alignments("precision")),
    Setting("calibration error, calibrated", confidences(1.0)),
    Setting("calibration error, overconfident", confidences(3.0)),
    Setting("accuracy of the most confident half", most_confident),
)


# Coverage


def proportion_rows() -> Iterator[Row]:
    """Yield exact coverages: the total probability of the outcomes whose interval is right."""
    for n in (10, 50, 324, 1000):
        for truth in (0.5, 0.9, 0.99):
            coverage, widths, probabilities = 0.0, [], []
            for correct in range(n + 1):
                low, high = share([True] * correct + [False] * (n - correct)).interval()
                assert low is not None and high is not None
                probability = math.exp(
                    math.lgamma(n + 1)
                    - math.lgamma(correct + 1)
                    - math.lgamma(n - correct + 1)
                    + correct * math.log(truth)
                    + (n - correct) * math.log1p(-truth)
                )
                coverage += probability * (low <= truth <= high)
                widths.append(high - low)
                probabilities.append(probability)
            width = float(np.dot(widths, probabilities))
            yield Row(f"proportion {truth}", n, truth, coverage, 0.0, width)


def measure(setting: Setting, rounds: int, seed: int) -> Iterator[Row]:
    """Simulate `rounds` test sets of each size; yield a row per size."""
    random = np.random.default_rng(seed)
    truth = setting.draw(random, setting.many).value
    for n in setting.sizes:
        intervals = [setting.draw(random, n).interval() for _ in range(rounds)]
        defined = [(low, high) for low, high in intervals if low is not None and high is not None]
        covered = [low <= truth <= high for low, high in defined]
        width = float(np.median([high - low for low, high in defined])) if defined else math.nan
        coverage = float(np.mean(covered)) if covered else math.nan
        yield Row(setting.name, n, truth, coverage, 1 - len(defined) / rounds, width)


# Differences


def two_answers(gain: float) -> DrawTwo:
    """Correct or wrong; questions that are hard for one system are hard for the other."""

    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        ease = random.beta(9, 1, n) * (1 - gain)
        correct = [random.random(n) < ease + extra for extra in (0.0, gain)]
        return share(correct[0].tolist()), share(correct[1].tolist())

    return draw


def two_taggers(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        words, ease = lengths(random, n, 2.7), random.beta(9, 1, n) * (1 - gain)
        correct = [random.binomial(words, ease + extra).tolist() for extra in (0.0, gain)]
        return clustered_share(correct[0], words.tolist()), clustered_share(
            correct[1], words.tolist()
        )

    return draw


def two_recognizers(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        words, rates = lengths(random, n), difficulty(random, 0.3, 3, n)
        errors = [random.poisson(rates * words * (1 - reduction)) for reduction in (0.0, gain)]
        first, second = (word_error_rate(words, 0 * words, inserted) for inserted in errors)
        return first, second

    return draw


def two_translators(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        counts = [ngram_counts(random, 0.5 + extra, n, 4)[:, :10] for extra in (0.0, gain)]
        return corpus_sample(counts[0], bleu), corpus_sample(counts[1], bleu)

    return draw


def two_language_models(correlation: float) -> DrawTwo:
    """Equal on average; which model is better drifts along the text."""

    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        drift = autoregressive(random, correlation, n)
        tokens = np.full(n, 60.0)
        nats = random.gamma(tokens / 2, 6.0)
        pair = (nats, nats + 9 * drift)
        first, second = (loss_sample(values, tokens, "perplexity") for values in pair)
        return first, second

    return draw


# Name, simulation, sizes of the test sets.
PAIRS: tuple[tuple[str, DrawTwo, tuple[int, ...]], ...] = (
    ("exact match, equal", two_answers(0.0), (10, 50, 300)),
    ("exact match, +0.1", two_answers(0.1), (10, 50, 300)),
    ("tag accuracy, equal", two_taggers(0.0), (10, 50, 300)),
    ("tag accuracy, +0.05", two_taggers(0.05), (10, 50, 300)),
    ("WER, equal", two_recognizers(0.0), (10, 50, 300)),
    ("WER, a fifth less", two_recognizers(0.2), (10, 50, 300)),
    ("BLEU, equal", two_translators(0.0), (10, 50, 300)),
    ("BLEU, +10", two_translators(0.1), (10, 50, 300)),
    ("perplexity of text, correlation 0.8", two_language_models(0.8), (300, 1000)),
)


class PairedRow(NamedTuple):
    """Results of one pair of systems and test set size."""

    name: str
    n: int
    truth: float
    coverage: float
    undefined: float
    called: float  # share of rounds with p < 0.05


def measure_pairs(
    name: str, draw: DrawTwo, sizes: tuple[int, ...], rounds: int, seed: int
) -> Iterator[PairedRow]:
    """Simulate `rounds` test sets of each size; yield a row per size."""
    random = np.random.default_rng(seed)
    first, second = draw(random, 5 * MANY)
    equal = "equal" in name or "correlation" in name
    truth = 0.0 if equal else second.value - first.value
    for n in sizes:
        results = [difference(*draw(random, n), seed=index) for index in range(rounds)]
        defined = [(result.low, result.high) for result in results if result.low is not None]
        covered = [low <= truth <= high for low, high in defined]
        called = float(np.mean([result.p < 0.05 for result in results]))
        coverage = float(np.mean(covered)) if covered else math.nan
        yield PairedRow(name, n, truth, coverage, 1 - len(defined) / rounds, called)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="test sets per row (2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (0)")
    options = parser.parse_args()
    print(f"{'metric':38}{'n':>6}{'truth':>9}{'coverage':>10}{'n/a':>8}{'width':>10}")
    lowest = 1.0
    simulated = (row for case in SETTINGS for row in measure(case, options.rounds, options.seed))
    for row in itertools.chain(proportion_rows(), simulated):
        lowest = min(lowest, row.coverage)
        print(
            f"{row.name:38}{row.n:6}{row.truth:9.3f}{row.coverage:10.1%}"
            f"{row.undefined:8.1%}{row.width:10.3f}",
            flush=True,
        )
    print(f"\n{'difference':38}{'n':>6}{'truth':>9}{'coverage':>10}{'n/a':>8}{'p < 0.05':>10}")
    for name, draw, sizes in PAIRS:
        for pair in measure_pairs(name, draw, sizes, options.rounds // 4, options.seed):
            lowest = min(lowest, pair.coverage)
            print(
                f"{pair.name:38}{pair.n:6}{pair.truth:9.3f}{pair.coverage:10.1%}"
                f"{pair.undefined:8.1%}{pair.called:10.1%}",
                flush=True,
            )
    print(f"\nlowest coverage: {lowest:.1%}")


if __name__ == "__main__":
    main()
