"""Measure how often the error rate that `harken predict --max-error` guarantees is exceeded.

    python benchmarks/abstention.py --rounds 2000 --seed 0

`harken predict --max-error 0.1` answers only if the confidence is above a threshold that is chosen
on the dev set, such that with probability 90 % over dev sets at most 10 % of answers are wrong.
This simulation draws many dev sets of n answers with known confidences and correctness, chooses the
threshold of each as `predict` does, and computes the true error rate above it from a million
answers. It prints a row per distribution of confidences and n:

    supported   share of dev sets that support the error rate, so that a threshold exists
    exceeded    share of dev sets with a true error rate above the limit; should be at most 10 %
    answered    share of questions that are answered (0 without a threshold), mean over dev sets

The last line is the largest value of `exceeded`.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harken.measure.abstention import threshold_for
from harken.measure.scored_answers import ScoredAnswers

MANY = 1_000_000  # simulated answers from which the true error rate is computed
# Confidences of n answers, and whether each answer is correct.
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def informative(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated: an answer with confidence p is correct with probability p; 86 % on average."""
    confidence = random.beta(3, 0.5, n)
    return confidence, random.random(n) < confidence


def two_kinds(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The model knows 60 % of the answers (2 % errors); these mostly have a higher confidence."""
    known = random.random(n) < 0.6
    confidence = np.where(known, random.beta(8, 1, n), random.beta(2, 3, n))
    return confidence, random.random(n) < np.where(known, 0.98, 0.3)


def overconfident(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The confidence is far above the probability that the answer is correct."""
    accuracy = random.beta(2, 1, n)
    return accuracy**0.3, random.random(n) < accuracy


def uninformative(error: float) -> Draw:
    """The confidence is independent of correctness."""
    return lambda random, n: (random.random(n), random.random(n) < 1 - error)


def inverted(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The most confident tenth of the answers has more errors than the half below it."""
    confidence = random.random(n)
    accuracy = np.where(confidence > 0.9, 0.8, np.where(confidence > 0.4, 0.95, 0.6))
    return confidence, random.random(n) < accuracy


def tied(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The confidence has only four values."""
    level = random.integers(0, 4, n)
    accuracy = np.array([0.5, 0.85, 0.9, 0.93])[level]
    return np.array([0.2, 0.6, 0.9, 1.0])[level], random.random(n) < accuracy


SETTINGS: dict[str, Draw] = {
    "informative, calibrated": informative,
    "informative, two kinds": two_kinds,
    "miscalibrated, overconfident": overconfident,
    "miscalibrated, inverted at the top": inverted,
    "uninformative, errors 12 %": uninformative(0.12),
    "uninformative, errors 10.1 %": uninformative(0.101),
    "uninformative, errors 7 %": uninformative(0.07),
    "tied confidences": tied,
}


class Row(NamedTuple):
    """Results of one distribution and dev set size; the shares are explained above."""

    name: str
    n: int  # answers per dev set
    max_error: float
    supported: float
    exceeded: float
    answered: float


def measure(
    name: str, sizes: tuple[int, ...], max_error: float, rounds: int, seed: int, many: int = MANY
) -> Iterator[Row]:
    """Simulate `rounds` dev sets of each size; yield a row per size."""
    draw, random = SETTINGS[name], np.random.default_rng(seed)
    confidences, correct = draw(random, many)
    order = np.argsort(-confidences)
    confidences, errors = confidences[order], np.cumsum(~correct[order])
    for n in sizes:
        supported = exceeded = 0
        answered = 0.0
        for _ in range(rounds):
            dev_confidences, dev_correct = draw(random, n)
            dev_answers = ScoredAnswers(dev_confidences.tolist(), dev_correct.tolist())
            threshold = threshold_for(dev_answers, max_error)
            if threshold is None:
                continue
            above = int(np.searchsorted(-confidences, -threshold, side="right"))
            supported += 1
            answered += above / many
            exceeded += bool(above and errors[above - 1] / above > max_error)
        yield Row(name, n, max_error, supported / rounds, exceeded / rounds, answered / rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="dev sets per row (2000)")
    parser.add_argument("--max-error", type=float, default=0.1, help="guaranteed rate (0.1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (0)")
    options = parser.parse_args()
    print(f"{'confidence':36}{'n':>6}{'supported':>11}{'exceeded':>10}{'answered':>10}")
    largest = 0.0
    for name in SETTINGS:
        sizes = (60, 162, 324, 1000)
        for row in measure(name, sizes, options.max_error, options.rounds, options.seed):
            largest = max(largest, row.exceeded)
            print(
                f"{row.name:36}{row.n:6}{row.supported:11.1%}{row.exceeded:10.1%}"
                f"{row.answered:10.1%}",
                flush=True,
            )
    print(f"\nlargest exceeded: {largest:.1%}")


if __name__ == "__main__":
    main()
