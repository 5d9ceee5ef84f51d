"""Fit formulas for counts, such as operations and bytes, from traces of a model at a few sizes.

A count is a sum of products of the sizes, such as 2 B T J². The depth, the longest chain of
dependent operations, also has rounded-up logarithms, such as 3 L ⌈log₂ T⌉. `fit_formulas`
interpolates on a sparse grid (Smolyak 1963) in rational arithmetic, and refines it only where a
trace changed the formula. One more trace, in which all sizes are new, checks the result. A count
that is not such a sum has no formula.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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

Product = tuple[tuple[str, Factor], ...]  # letters in order, each with a factor other than 1


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of products with rational coefficients."""

    terms: Mapping[Product, Fraction]

    def value(self, sizes: Mapping[str, int]) -> Fraction:
        values = (
            coefficient * math.prod(factor.value(sizes[letter]) for letter, factor in product)
            for product, coefficient in self.terms.items()
        )
        return sum(values, start=Fraction(0))

    def plus(self, other: "Formula", weight: Fraction) -> "Formula":
        """Return self + weight · other."""
        terms = dict(self.terms)
        for product, coefficient in other.terms.items():
            terms[product] = terms.get(product, Fraction(0)) + weight * coefficient
        return Formula({product: value for product, value in terms.items() if value})

    def times(self, other: "Formula") -> "Formula":
        """Return the product with a formula in other letters."""
        pairs = itertools.product(self.terms.items(), other.terms.items())
        return Formula({left + right: a * b for (left, a), (right, b) in pairs})

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
            if not any(grows_no_faster(product, other) for other in products - {product})
        ]
        # In O(), the base of the logarithm does not matter.
        texts = [product_text(product).replace("log₂", "ln") for product in largest]
        ordered = sorted(filter(None, texts), key=lambda text: (text.count("ln"), text))
        return f"O({' + '.join(ordered) or '1'})"


def product_text(product: Product) -> str:
    """Format powers, then logarithms."""
    powers = [letter + SUPERSCRIPTS[f.power] for letter, f in product if f.power]
    return " ".join([*powers, *(f"log₂ {letter}" for letter, f in product if f.logs)])


def term_text(product: Product, coefficient: Fraction) -> str:
    """Format a product with its coefficient."""
    number, divisor = coefficient.as_integer_ratio()
    factor = {1: "", -1: "-"}.get(number, f"{number} ") if product else str(number)
    return f"{factor}{product_text(product)}" + (f"/{divisor}" if divisor != 1 else "")


def grows_no_faster(small: Product, large: Product) -> bool:
    """Return whether no letter has a larger factor in the first product."""
    factors = dict(large)
    return all(factor <= factors.get(letter, CONSTANT) for letter, factor in small)


class Axis(NamedTuple):
    """A letter, the sizes at which it is traced, and the factors that it may have in a product."""

    letter: str
    nodes: Sequence[int]  # the last one is only for the check
    factors: Sequence[Factor] = POWERS

    def basis(self) -> list[Formula]:
        """Return one formula per factor; formula i is 1 at node i and 0 at earlier nodes."""
        basis: list[Formula] = []
        for factor, node in zip(self.factors, self.nodes[:-1], strict=False):
            product = () if factor == CONSTANT else ((self.letter, factor),)
            formula = Formula({product: Fraction(1)})
            for earlier, other in zip(self.nodes, basis, strict=False):
                formula = formula.plus(other, -formula.value({self.letter: earlier}))
            value = formula.value({self.letter: node})
            assert value, f"{factor} of {self.letter} is not determined by {self.nodes}"
            basis.append(ZERO.plus(formula, 1 / value))
        return basis


ZERO, ONE = Formula({}), Formula({(): Fraction(1)})


def fit_formulas(
    count: Callable[[Mapping[str, int]], Mapping[str, int]],
    axes: Sequence[Axis],
    leading: Collection[str],
) -> dict[str, Formula | None]:
    """Return a formula for each count by name, or None if its check fails.

    Only the counts named in `leading` decide where the grid is refined.
    """
    bases = [axis.basis() for axis in axes]
    formulas: dict[str, Formula] = {}
    changing: set[tuple[int, ...]] = set()  # grid points that changed a leading formula
    points = [(0,) * len(axes)]
    for point in points:  # the loop appends to `points`
        sizes = {axis.letter: axis.nodes[i] for axis, i in zip(axes, point, strict=True)}
        factors = (basis[i] for basis, i in zip(bases, point, strict=True))
        product = functools.reduce(Formula.times, factors, ONE)  # 1 here, 0 at all earlier points
        for name, number in count(sizes).items():
            formula = formulas.get(name, ZERO)
            surplus = number - formula.value(sizes)
            formulas[name] = formula.plus(product, surplus)
            if surplus and name in leading:
                changing.add(point)
        for neighbor in neighbors(point, 1) if point in changing else ():
            is_inside = all(i < len(basis) for i, basis in zip(neighbor, bases, strict=True))
            is_refined = changing.issuperset(neighbors(neighbor, -1))
            if is_inside and is_refined and neighbor not in points:
                points.append(neighbor)
    check_sizes = {axis.letter: axis.nodes[-1] for axis in axes}
    expected = count(check_sizes)
    return {
        name: formula if formula.value(check_sizes) == expected[name] else None
        for name, formula in formulas.items()
    }


def neighbors(point: tuple[int, ...], change: int) -> Iterator[tuple[int, ...]]:
    """Yield the points of the grid that differ by `change` in one coordinate."""
    for axis, value in enumerate(point):
        if value + change >= 0:
            yield (*point[:axis], value + change, *point[axis + 1 :])
