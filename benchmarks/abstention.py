"""Measure how often the error rate that `harken predict --max-error` guarantees is exceeded.

    python benchmarks/abstention.py --rounds 2000 --seed 0

Every round draws a dev set, chooses the threshold as `predict` does, and looks up the true error
rate above it among very many questions. `exceeded` is the share of dev sets with a true error rate
above the target; the guarantee says at most 10 %. `answered` is the share of all questions that are
answered, none where the dev set does not support the target.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harken.measure.abstention import threshold_for
from harken.measure.scored_answers import score_answers

MANY = 1_000_000
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def informative(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated: right as often as confidence says, 86 % over all."""
    confidence = random.beta(3, 0.5, n)
    return confidence, random.random(n) < confidence


def two_kinds(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """60 % of the questions are known (2 % errors) and mostly get a higher confidence."""
    known = random.random(n) < 0.6
    confidence = np.where(known, random.beta(8, 1, n), random.beta(2, 3, n))
    return confidence, random.random(n) < np.where(known, 0.98, 0.3)


def overconfident(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Right far less often than confidence says."""
    truth = random.beta(2, 1, n)
    return truth**0.3, random.random(n) < truth


def uninformative(error: float) -> Draw:
    """Confidence says nothing about the error rate."""
    return lambda random, n: (random.random(n), random.random(n) < 1 - error)


def inverted(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The most confident tenth is wrong more often than the half below it."""
    confidence = random.random(n)
    truth = np.where(confidence > 0.9, 0.8, np.where(confidence > 0.4, 0.95, 0.6))
    return confidence, random.random(n) < truth


def tied(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Four values of confidence."""
    kind = random.integers(0, 4, n)
    truth = np.array([0.5, 0.85, 0.9, 0.93])[kind]
    return np.array([0.2, 0.6, 0.9, 1.0])[kind], random.random(n) < truth


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
    name: str
    n: int
    max_error: float
    supported: float  # share of dev sets with a threshold
    exceeded: float
    answered: float


def measure(
    name: str, sizes: tuple[int, ...], max_error: float, rounds: int, seed: int, many: int = MANY
) -> Iterator[Row]:
    draw, random = SETTINGS[name], np.random.default_rng(seed)
    confidence, right = draw(random, many)
    order = np.argsort(-confidence)
    confidence, wrong = confidence[order], np.cumsum(~right[order])
    for n in sizes:
        supported = exceeded = 0
        answered = 0.0
        for _ in range(rounds):
            own, outcomes = draw(random, n)
            threshold = threshold_for(score_answers(own.tolist(), outcomes.tolist()), max_error)
            if threshold is None:
                continue
            above = int(np.searchsorted(-confidence, -threshold, side="right"))
            supported += 1
            answered += above / many
            exceeded += bool(above and wrong[above - 1] / above > max_error)
        yield Row(name, n, max_error, supported / rounds, exceeded / rounds, answered / rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, help="dev sets per row")
    parser.add_argument("--max-error", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'confidence':36}{'n':>6}{'supported':>11}{'exceeded':>10}{'answered':>10}")
    worst = 0.0
    for name in SETTINGS:
        sizes = (60, 162, 324, 1000)
        for row in measure(name, sizes, options.max_error, options.rounds, options.seed):
            worst = max(worst, row.exceeded)
            print(
                f"{row.name:36}{row.n:6}{row.supported:11.1%}{row.exceeded:10.1%}"
                f"{row.answered:10.1%}",
                flush=True,
            )
    print(f"\nexceeded at most: {worst:.1%}")


if __name__ == "__main__":
    main()
