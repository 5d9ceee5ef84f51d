"""Quantiles of the beta and t distributions, and the Clopper-Pearson bounds of a proportion."""

import math
from functools import lru_cache

MAX_TERMS = 10_000  # of the continued fraction; about sqrt(max(a, b)) are needed
PRECISION = 1e-13
TINY = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return P(X <= x) of X ~ Beta(a, b), the regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - incomplete_beta(b, a, 1 - x)
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_factor += a * math.log(x) + b * math.log1p(-x)
    # The continued fraction 26.5.8 of Abramowitz and Stegun, by Lentz's method.
    value = c = 1.0
    d = 0.0
    for term in range(1, MAX_TERMS):
        m = term // 2
        if term % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + numerator * d) or TINY)
        c = (1 + numerator / c) or TINY
        value *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return math.exp(log_factor) / (a * value)


@lru_cache(maxsize=4096)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x with P(X <= x) = probability, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:  # until no float lies between them
        if incomplete_beta(a, b, middle) < probability:
            low = middle
        else:
            high = middle
    return middle


def t_quantile(df: float, level: float = 0.95) -> float:
    """Return the t with P(|T| <= t) = level for Student's T with `df` degrees of freedom."""
    # T^2 / (T^2 + df) has the distribution Beta(1/2, df/2); this is its complement.
    complement = beta_quantile(1 - level, df / 2, 0.5)
    return math.sqrt(df * (1 - complement) / complement)


def t_tail(t: float, df: float) -> float:
    """Return P(|T| >= |t|) for Student's T with `df` degrees of freedom."""
    return incomplete_beta(df / 2, 0.5, df / (df + t * t))


def lower_bound(successes: float, trials: float, alpha: float) -> float:
    """Return the lower Clopper-Pearson bound of a proportion; it errs with probability <= alpha."""
    return 0.0 if successes <= 0 else beta_quantile(alpha, successes, trials - successes + 1)


def upper_bound(successes: float, trials: float, alpha: float) -> float:
    """Return the upper Clopper-Pearson bound of a proportion; it errs with probability <= alpha."""
    return 1 - lower_bound(trials - successes, trials, alpha)
