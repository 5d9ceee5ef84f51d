from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from harken.cost.formula import LOGARITHMS, Axis, fit_formulas

AXES = [Axis("B", (2, 3, 5)), Axis("T", (4, 8, 12, 16)), Axis("J", (16, 32, 48, 64))]
NUMBERS = st.integers(-9, 9)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.integers(1, 60), st.integers(1, 60))
def test_a_polynomial_is_found_exactly(
    numbers: tuple[int, int, int, int], time: int, width: int
) -> None:
    first, second, third, fourth = numbers

    def count(sizes: Mapping[str, int]) -> dict[str, int]:
        rows, tokens, wide = sizes["B"], sizes["T"], sizes["J"]
        polynomial = first * rows * tokens * wide**2 + second * rows * tokens**2
        return {"count": polynomial + third * wide + fourth, "maximum": max(rows * tokens, wide)}

    formulas = fit_formulas(count, AXES, ["count"])
    sizes = {"B": 7, "T": time, "J": width}
    formula = formulas["count"]
    assert formula is not None and formula.value(sizes) == count(sizes)["count"]
    assert formulas["maximum"] is None


def test_few_values_are_needed() -> None:
    calls = []

    def count(sizes: Mapping[str, int]) -> dict[str, int]:
        calls.append(sizes)
        return {"count": 2 * sizes["B"] * sizes["T"] + sizes["J"]}

    assert str(fit_formulas(count, AXES, ["count"])["count"]) == "2 B T + J"
    assert len(calls) < 12  # of 2 * 3 * 3 nodes


def test_logarithms() -> None:
    def count(sizes: Mapping[str, int]) -> dict[str, int]:
        steps = (sizes["T"] - 1).bit_length()
        return {"depth": sizes["L"] * (3 * steps + 7) + sizes["T"] // 2 - 2}

    axes = [Axis("T", (4, 8, 16, 32), LOGARITHMS), Axis("L", (1, 2, 3))]
    formula = fit_formulas(count, axes, ["depth"])["depth"]
    assert formula is not None
    assert str(formula) == "3 L log₂ T + 7 L + T/2 - 2"
    assert formula.growth("TL") == "O(T + L ln T)"
    assert formula.growth("L") == "O(L)" and formula.growth("") == "O(1)"
