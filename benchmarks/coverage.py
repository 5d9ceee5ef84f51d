"""Measure how often a 95 % interval holds the true value, on simulated examples.

    python benchmarks/coverage.py --rounds 2000 --seed 0

Every setting draws examples of one kind of metric, asks for its interval as `harken evaluate` does,
and compares with the true value, which is that of very many examples. Of proportions it is known,
and the coverage is summed over all outcomes without simulation. Rounds without an interval ("n/a")
count neither way and are shown. The second table is about differences of two systems on the same
examples, as in `harken compare`, and about how often p < 0.05.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harken.measure.abstention import accuracy_at
from harken.measure.alignment import alignment_samples
from harken.measure.bleu import bleu, chrf, corpus_score
from harken.measure.calibration import calibration_error
from harken.measure.captions import mean_points
from harken.measure.edit_distance import EditCounts, rate_of
from harken.measure.interval import LOG_LOG, Sample, ratio, share, share_within
from harken.measure.paired import difference
from harken.measure.perplexity import perplexity
from harken.measure.scored_answers import score_answers

Draw = Callable[[np.random.Generator, int], Sample]
DrawTwo = Callable[[np.random.Generator, int], tuple[Sample, Sample]]
MANY = 200_000  # examples, for the true value


class Setting(NamedTuple):
    name: str
    draw: Draw
    sizes: tuple[int, ...] = (10, 50, 300)
    many: int = MANY


class Row(NamedTuple):
    name: str
    n: int
    truth: float
    coverage: float
    undefined: float  # share of rounds without an interval
    width: float  # median


# Examples


def lengths(random: np.random.Generator, n: int, mean: float = 2.3) -> np.ndarray:
    """Words of sentences: most have 5 to 20, few have 40."""
    return np.maximum(1, random.lognormal(mean, 0.6, n).astype(np.int64))


def difficulty(random: np.random.Generator, mean: float, concentration: float, n: int):
    """A rate of each sentence; the lower the concentration, the more sentences differ."""
    return random.beta(mean * concentration, (1 - mean) * concentration, n)


def tags(accuracy: float, concentration: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        words = lengths(random, n, 2.7)
        right = random.binomial(words, difficulty(random, accuracy, concentration, n))
        return share_within(right.tolist(), words.tolist())

    return draw


def word_errors(rate: float, concentration: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        said, rates = lengths(random, n), difficulty(random, rate, concentration, n)
        wrong = random.binomial(said, rates)
        inserted = random.poisson(0.2 * rates * said)
        edits = [EditCounts(int(s - w), int(w)) for s, w in zip(said, wrong, strict=True)]
        return rate_of((wrong + inserted).tolist(), edits)

    return draw


def ngram_counts(random: np.random.Generator, quality: float, n: int, orders: int) -> np.ndarray:
    """Written, expected and matched n-grams of sentences whose right words come in runs."""
    expected = np.maximum(orders, random.lognormal(2.5, 0.5, n).astype(np.int64))
    written = np.maximum(orders, np.round(expected * random.normal(1, 0.1, n)).astype(np.int64))
    rates = difficulty(random, quality, 5, n)[:, None]
    longest = int(written.max())
    right = random.random((n, longest)) < rates
    again = random.random((n, longest)) < 0.5
    for place in range(1, longest):
        right[:, place] = np.where(again[:, place], right[:, place - 1], right[:, place])
    right &= np.arange(longest) < written[:, None]
    matches, run = [], right
    for order in range(orders):
        matches.append(run.sum(axis=1))
        run = run[:, : longest - order - 1] & right[:, order + 1 :]
    totals = [written - order for order in range(orders)]
    wanted = [expected - order for order in range(orders)]
    return np.stack((written, expected, *matches, *totals, *wanted), axis=1).astype(np.float64)


def translations(quality: float) -> Draw:
    return lambda random, n: corpus_score(ngram_counts(random, quality, n, 4)[:, :10], bleu)


def characters(quality: float) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        counts = ngram_counts(random, quality, n, 6)
        matches, written, expected = (counts[:, 2 + 6 * at : 8 + 6 * at] for at in range(3))
        parts = np.stack((written, expected, np.minimum(matches, expected)), axis=2)
        return corpus_score(parts.reshape(n, 18), chrf)

    return draw


def blanks(spread: float) -> Draw:
    """Perplexity of words that differ in how predictable they are, as do their lines."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        words = lengths(random, n).astype(np.float64)
        mean = 3 * np.exp(random.normal(0, spread, n))
        counts = np.stack((random.gamma(0.5 * words, mean / 0.5), words), axis=1)
        return Sample(
            counts=counts,
            figure=lambda sums: np.exp(ratio(sums)),
            unit="perplexity",
            link=LOG_LOG,
        )

    return draw


def text(correlation: float) -> Draw:
    """Perplexity of consecutive pieces of a text whose difficulty drifts (AR(1))."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        drift, steps = np.empty(n), random.normal(size=n)
        drift[0] = steps[0]
        for at in range(1, n):
            drift[at] = correlation * drift[at - 1] + math.sqrt(1 - correlation**2) * steps[at]
        tokens = random.integers(40, 80, n).astype(np.float64)
        return perplexity(random.gamma(tokens / 2, 6 * np.exp(0.2 * drift)), tokens)

    return draw


def captions(random: np.random.Generator, n: int) -> Sample:
    """CIDEr of pictures: most captions share little with their references, few share much."""
    return mean_points(random.gamma(0.7, 1.0, n).tolist())


def alignments(metric: str) -> Draw:
    def draw(random: np.random.Generator, n: int) -> Sample:
        found, sure = lengths(random, n), lengths(random, n, 2.0)
        possible = random.binomial(found, difficulty(random, 0.8, 5, n))
        hit = np.minimum(random.binomial(sure, difficulty(random, 0.7, 5, n)), possible)
        return alignment_samples(np.stack((hit, possible, found, sure), axis=1).astype(float))[
            metric
        ]

    return draw


def confidences(power: float) -> Draw:
    """Calibration error where the truth is a power of the confidence; 1 is calibrated."""

    def draw(random: np.random.Generator, n: int) -> Sample:
        confidence = random.beta(3, 1, n)
        right = random.random(n) < confidence**power
        return calibration_error(score_answers(confidence.tolist(), right.tolist()))

    return draw


def most_confident(random: np.random.Generator, n: int) -> Sample:
    confidence = random.random(n)
    right = random.random(n) < 0.6 + 0.4 * confidence
    return accuracy_at(score_answers(confidence.tolist(), right.tolist()), 50)


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
    """Exact: the probability of every number of right answers, times whether it is covered."""
    for n in (10, 50, 324, 1000):
        for truth in (0.5, 0.9, 0.99):
            held, widths, chances = 0.0, [], []
            for right in range(n + 1):
                low, high = share([True] * right + [False] * (n - right)).interval()
                assert low is not None and high is not None
                chance = math.exp(
                    math.lgamma(n + 1)
                    - math.lgamma(right + 1)
                    - math.lgamma(n - right + 1)
                    + right * math.log(truth)
                    + (n - right) * math.log1p(-truth)
                )
                held += chance * (low <= truth <= high)
                widths.append(high - low)
                chances.append(chance)
            yield Row(f"proportion {truth}", n, truth, held, 0.0, float(np.dot(widths, chances)))


def measure(setting: Setting, rounds: int, seed: int) -> Iterator[Row]:
    random = np.random.default_rng(seed)
    truth = setting.draw(random, setting.many).value
    for n in setting.sizes:
        ends = [setting.draw(random, n).interval() for _ in range(rounds)]
        known = [(low, high) for low, high in ends if low is not None and high is not None]
        held = [low <= truth <= high for low, high in known]
        width = float(np.median([high - low for low, high in known])) if known else math.nan
        coverage = float(np.mean(held)) if held else math.nan
        yield Row(setting.name, n, truth, coverage, 1 - len(known) / rounds, width)


# Differences


def two_answers(gain: float) -> DrawTwo:
    """Right or wrong; what is hard for one system is hard for the other."""

    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        ease = random.beta(9, 1, n) * (1 - gain)
        right = [random.random(n) < ease + extra for extra in (0.0, gain)]
        return share(right[0].tolist()), share(right[1].tolist())

    return draw


def two_taggers(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        words, ease = lengths(random, n, 2.7), random.beta(9, 1, n) * (1 - gain)
        right = [random.binomial(words, ease + extra).tolist() for extra in (0.0, gain)]
        return share_within(right[0], words.tolist()), share_within(right[1], words.tolist())

    return draw


def two_recognizers(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        said, rates = lengths(random, n), difficulty(random, 0.3, 3, n)
        edits = [EditCounts(int(count)) for count in said]
        wrong = [random.poisson(rates * said * (1 - less)) for less in (0.0, gain)]
        return rate_of(wrong[0].tolist(), edits), rate_of(wrong[1].tolist(), edits)

    return draw


def two_translators(gain: float) -> DrawTwo:
    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        first, second = (
            corpus_score(ngram_counts(random, 0.5 + extra, n, 4)[:, :10], bleu)
            for extra in (0.0, gain)
        )
        return first, second

    return draw


def two_language_models(correlation: float) -> DrawTwo:
    """Equal on average; which one is better drifts along the text."""

    def draw(random: np.random.Generator, n: int) -> tuple[Sample, Sample]:
        drift, steps = np.empty(n), random.normal(size=n)
        drift[0] = steps[0]
        for at in range(1, n):
            drift[at] = correlation * drift[at - 1] + math.sqrt(1 - correlation**2) * steps[at]
        tokens = np.full(n, 60.0)
        nats = random.gamma(tokens / 2, 6.0)
        return perplexity(nats, tokens), perplexity(nats + 9 * drift, tokens)

    return draw


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
    name: str
    n: int
    truth: float
    coverage: float
    undefined: float
    called: float  # share of rounds with p < 0.05


def measure_pairs(
    name: str, draw: DrawTwo, sizes: tuple[int, ...], rounds: int, seed: int
) -> Iterator[PairedRow]:
    random = np.random.default_rng(seed)
    first, second = draw(random, 5 * MANY)
    equal = "equal" in name or "correlation" in name
    truth = 0.0 if equal else second.value - first.value
    for n in sizes:
        found = [difference(*draw(random, n), seed=at) for at in range(rounds)]
        known = [(one.low, one.high) for one in found if one.low is not None]
        held = [low <= truth <= high for low, high in known]
        called = float(np.mean([one.p < 0.05 for one in found]))
        coverage = float(np.mean(held)) if held else math.nan
        yield PairedRow(name, n, truth, coverage, 1 - len(known) / rounds, called)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="simulated test sets per row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'metric':38}{'n':>6}{'truth':>9}{'coverage':>10}{'n/a':>8}{'width':>10}")
    worst = 1.0
    singles = (row for one in SETTINGS for row in measure(one, options.rounds, options.seed))
    for rows in (proportion_rows(), singles):
        for row in rows:
            worst = min(worst, row.coverage)
            print(
                f"{row.name:38}{row.n:6}{row.truth:9.3f}{row.coverage:10.1%}"
                f"{row.undefined:8.1%}{row.width:10.3f}",
                flush=True,
            )
    print(f"\n{'difference':38}{'n':>6}{'truth':>9}{'coverage':>10}{'n/a':>8}{'p < 0.05':>10}")
    for name, draw, sizes in PAIRS:
        for pair in measure_pairs(name, draw, sizes, options.rounds // 4, options.seed):
            worst = min(worst, pair.coverage)
            print(
                f"{pair.name:38}{pair.n:6}{pair.truth:9.3f}{pair.coverage:10.1%}"
                f"{pair.undefined:8.1%}{pair.called:10.1%}",
                flush=True,
            )
    print(f"\nlowest coverage: {worst:.1%}")


if __name__ == "__main__":
    main()
