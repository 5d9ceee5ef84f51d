"""Formulas of counts in the sizes of a model, determined exactly from a few traces.

A count is a sum of products of the sizes, such as 2 B T J². The depth is a sum of products of sizes
and of logarithms, such as 3 L log₂ T. `fit_formulas` adds products one at a time, each with one
trace that determines its coefficient in rational arithmetic, until no further product has a
coefficient. Then it compares every formula with one more trace in which all sizes differ. A count
that is not such a sum has no formula.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


class Factor(NamedTuple):
    """size^power log₂(size)^logs, logarithms rounded up."""

    power: int
    logs: int = 0

    def value(self, size: int) -> int:
        return int(size**self.power * max(size - 1, 0).bit_length() ** self.logs)


POWERS = (Factor(0), Factor(1), Factor(2), Factor(3))
LOGARITHMS = (Factor(0), Factor(0, 1), Factor(1), Factor(1, 1))
CONSTANT = Factor(0)
SUPERSCRIPTS = {1: "", 2: "²", 3: "³"}

Product = tuple[tuple[str, Factor], ...]
"""Letters in order, each with a factor other than 1."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of products with rational coefficients."""

    terms: Mapping[Product, Fraction]

    def value(self, sizes: Mapping[str, int]) -> Fraction:
        """Return the number at given sizes."""
        values = (
            coefficient * math.prod(factor.value(sizes[letter]) for letter, factor in product)
            for product, coefficient in self.terms.items()
        )
        return sum(values, start=Fraction(0))

    def __str__(self) -> str:
        ordered = sorted(
            self.terms.items(),
            key=lambda term: (-sum(f.power + f.logs for _, f in term[0]), product_text(term[0])),
        )
        texts = [term_text(product, coefficient) for product, coefficient in ordered]
        return " + ".join(texts).replace("+ -", "- ") or "0"

    def growth(self, letters: Iterable[str]) -> str:
        """Return the asymptotic growth in some letters, such as `O(T + L ln J)`."""
        products = {
            tuple((letter, factor) for letter, factor in product if letter in set(letters))
            for product, coefficient in self.terms.items()
            if coefficient > 0
        }
        largest = [
            product
            for product in products
            if not any(grows_less(product, other) for other in products - {product})
        ]
        # Natural logarithms differ by a constant.
        texts = [product_text(product).replace("log₂", "ln") for product in largest]
        ordered = sorted(filter(None, texts), key=lambda text: (text.count("ln"), text))
        return f"O({' + '.join(ordered) or '1'})"


def product_text(product: Product) -> str:
    """Format powers, then logarithms."""
    powers = [letter + SUPERSCRIPTS[f.power] for letter, f in product if f.power]
    return " ".join([*powers, *(f"log₂ {letter}" for letter, f in product if f.logs)])


def term_text(product: Product, coefficient: Fraction) -> str:
    """Format a product with its coefficient."""
    text, number = product_text(product), str(coefficient.numerator)
    if text and abs(coefficient.numerator) == 1:
        number = number[:-1]
    divisor = "" if coefficient.denominator == 1 else f"/{coefficient.denominator}"
    return f"{number}{' ' if number not in {'', '-'} and text else ''}{text}{divisor}"


def grows_less(small: Product, large: Product) -> bool:
    """Return whether no letter has a larger factor in the first product."""
    factors = dict(large)
    return all(factor <= factors.get(letter, CONSTANT) for letter, factor in small)


class Axis(NamedTuple):
    """A letter, the sizes at which it is traced, and the factors that it may have in a product."""

    letter: str
    nodes: Sequence[int]  # the last one is only for the check
    factors: Sequence[Factor] = POWERS

    def hierarchy(self) -> list[list[Fraction]]:
        """Return combinations of the factors: number i is 1 at node i and 0 at earlier nodes."""
        rows: list[list[Fraction]] = []
        for index, factor in enumerate(self.factors[: len(self.nodes) - 1]):
            row = [Fraction(0)] * index + [Fraction(1)]
            for earlier, other in enumerate(rows):
                value = self.combine(row, self.nodes[earlier])
                padded = other + [Fraction(0)] * (len(row) - len(other))
                row = [a - value * b for a, b in zip(row, padded, strict=True)]
            scale = self.combine(row, self.nodes[index])
            assert scale, f"{factor} of {self.letter} is not determined by {self.nodes}"
            rows.append([value / scale for value in row])
        return rows

    def combine(self, row: Sequence[Fraction], size: int) -> Fraction:
        """Return the value of a combination at a size."""
        products = (a * f.value(size) for a, f in zip(row, self.factors, strict=False))
        return sum(products, Fraction(0))


Counts = Mapping[str, int]
Index = tuple[int, ...]


def fit_formulas(
    count: Callable[[Mapping[str, int]], Counts], axes: Sequence[Axis], leading: Iterable[str]
) -> dict[str, Formula | None]:
    """Return formulas of all counts; the `leading` ones decide which products are tried."""
    rows = [axis.hierarchy() for axis in axes]
    values = [  # of combination i of an axis at its node j
        [[axis.combine(row, node) for node in axis.nodes] for row in hierarchy]
        for axis, hierarchy in zip(axes, rows, strict=True)
    ]
    surplus: dict[Index, dict[str, Fraction]] = {}
    waiting: list[Index] = [(0,) * len(axes)]
    tried: set[Index] = set(waiting)

    def is_needed(index: Index) -> bool:
        return index in surplus and any(surplus[index][name] for name in leading)

    while waiting:
        index = waiting.pop(0)
        counts = count({axis.letter: axis.nodes[i] for axis, i in zip(axes, index, strict=True)})
        remainder = {name: Fraction(number) for name, number in counts.items()}
        for other, coefficients in surplus.items():
            weight = math.prod(values[a][other[a]][index[a]] for a in range(len(axes)))
            if weight:
                for name in remainder:
                    remainder[name] -= weight * coefficients[name]
        surplus[index] = remainder
        if is_needed(index):
            for neighbor in neighbors(index, 1):
                fits = all(i < len(row) for i, row in zip(neighbor, rows, strict=True))
                if fits and neighbor not in tried and all(map(is_needed, neighbors(neighbor, -1))):
                    tried.add(neighbor)
                    waiting.append(neighbor)
    check = {axis.letter: axis.nodes[-1] for axis in axes}
    expected = count(check)
    formulas = {name: expanded(axes, rows, surplus, name) for name in remainder}
    return {
        name: formula if formula.value(check) == expected[name] else None
        for name, formula in formulas.items()
    }


def neighbors(index: Index, change: int) -> Iterator[Index]:
    """Yield indices with one factor more or less in one letter."""
    for place, value in enumerate(index):
        if value + change >= 0:
            yield (*index[:place], value + change, *index[place + 1 :])


def expanded(
    axes: Sequence[Axis],
    rows: Sequence[Sequence[Sequence[Fraction]]],
    surplus: Mapping[Index, Mapping[str, Fraction]],
    name: str,
) -> Formula:
    """Multiply out the products of combinations."""
    terms: dict[Product, Fraction] = {}
    for index, coefficients in surplus.items():
        partial: dict[Product, Fraction] = {(): coefficients[name]} if coefficients[name] else {}
        for axis, hierarchy, place in zip(axes, rows, index, strict=True):
            partial = {
                (product if factor == CONSTANT else (*product, (axis.letter, factor))): value * part
                for product, value in partial.items()
                for factor, part in zip(axis.factors, hierarchy[place], strict=False)
                if part
            }
        for product, value in partial.items():
            terms[product] = terms.get(product, Fraction(0)) + value
    return Formula({product: value for product, value in terms.items() if value})
