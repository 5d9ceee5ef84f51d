"""A figure with its 95 % interval, by resampling the examples that it was measured on.

Where all outcomes are equal, resampling cannot tell that others were possible and would give an
interval of no width; there, and only there, Wilson's interval for a proportion is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
Z = 1.959964  # of the normal distribution at 97.5 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def estimate_share(outcomes: Sequence[bool], seed: int = 0) -> Estimate:
    """The share of true outcomes."""
    right = np.asarray(outcomes, dtype=np.float64)
    assert right.size > 0, "a share of nothing has no value"
    share = float(right.mean())
    if share in (0.0, 1.0):
        return _wilson(share, right.size)
    # A resample of n outcomes has a binomial number of true ones: no need to draw them singly.
    draws = np.random.default_rng(seed).binomial(right.size, share, RESAMPLES) / right.size
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(share, float(low), float(high))


def _wilson(share: float, count: int) -> Estimate:
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    spread = Z / (1 + Z**2 / count) * (share * (1 - share) / count + Z**2 / (4 * count**2)) ** 0.5
    # At the ends of the scale the formula is exact but for rounding.
    low = 0.0 if share == 0.0 else centre - spread
    high = 1.0 if share == 1.0 else centre + spread
    return Estimate(share, low, high)
