"""Formulas against numbers."""

import math

from hypothesis import given
from hypothesis import strategies as st

from harken.cost.expression import growth, larger, log2, of, quotient, symbol

T, J, k, L = symbol("T"), symbol("J", 12), symbol("k", 3), symbol("L", 5)
SMALL = st.integers(1, 60)


@given(SMALL, st.integers(-9, 9), st.integers(-9, 9))
def test_is_the_number_it_stands_for(time: int, first: int, second: int) -> None:
    formula = (T * first + J) * (T + second) - T.over(k) * 6
    assert formula.value({"T": time}) == (time * first + 12) * (time + second) - time * 2


@given(SMALL, st.integers(1, 9))
def test_functions(time: int, divisor: int) -> None:
    numbers = {"T": time}
    assert log2(T * divisor).value(numbers) == math.ceil(math.log2(time * divisor))
    assert quotient(T, divisor).value(numbers) == math.ceil(time / divisor)
    assert larger(T, J + divisor).value(numbers) == max(time, 12 + divisor)


@given(SMALL, SMALL)
def test_larger_leaves_out_only_what_is_never_the_largest(time: int, extra: int) -> None:
    waits = larger(T, log2(T) * extra)
    both = larger(waits + extra, log2(T) * extra, T)
    assert both == waits + extra
    assert both.value({"T": time}) == max(time, math.ceil(math.log2(time)) * extra) + extra


def test_equal_formulas_are_equal() -> None:
    assert J.over(k) * k == J
    assert (T + 1) * (T - 1) == T * T - 1
    assert log2(8) == of(3)


def test_reads_like_a_formula() -> None:
    assert str(T * T * 2 + log2(J.over(k)) * 3 - 1) == "2 T² + 3 log₂ J/k - 1"
    assert str(of(0)) == "0"


def test_grows_by_its_largest_parts() -> None:
    steps = L * (log2(T) * 3 + log2(J * 4) + 7) + 2
    assert growth(steps, "TJL") == "O(L ln J + L ln T)"
    assert growth(steps, "T") == "O(ln T)"
    assert growth(steps, "") == "O(1)"
    assert growth(T * log2(J) + log2(T) * 9 + L, "TJL") == "O(L + T ln J)"
    assert growth(larger(quotient(T, 2), J * 3), "TJ") == "O(J + T)"
