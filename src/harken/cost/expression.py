"""Sizes as formulas: sums of products of T, J, k, L …, of their logarithms, and of the larger.

    log2(n)          ⌈log2 n⌉, the steps in which n numbers are summed two by two
    larger(a, b)     what waits for both is ready with the later
    quotient(n, d)   ⌈n / d⌉, what a stride leaves of a length

A formula can be shown, given its numbers, or reduced to how it grows (`growth`). Only what counting
needs is here: powers are whole, coefficients fractions, and nothing is solved.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True, slots=True)
class Symbol:
    """A letter; with a value where the model fixes it, without where an input does."""

    name: str
    known: int | None = None

    def value(self, lengths: Mapping[str, int]) -> Fraction:
        return Fraction(lengths[self.name] if self.known is None else self.known)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """One of the three functions above, of expressions that are not yet numbers."""

    name: Literal["log2", "larger", "quotient"]
    arguments: tuple["Expression", ...]

    def value(self, lengths: Mapping[str, int]) -> Fraction:
        found = [one.value(lengths) for one in self.arguments]
        if self.name == "log2":
            return steps_of_sum(found[0])
        return max(found) if self.name == "larger" else Fraction(math.ceil(found[0] / found[1]))

    def __str__(self) -> str:
        if self.name == "log2":
            inside = str(self.arguments[0])
            return f"log₂({inside})" if " " in inside else f"log₂ {inside}"
        if self.name == "larger":
            return f"max({', '.join(str(one) for one in self.arguments)})"
        return f"⌈{self.arguments[0]} / {self.arguments[1]}⌉"


def steps_of_sum(count: Fraction) -> Fraction:
    """⌈log2 count⌉, exactly; none where there is one number or less."""
    return Fraction(max(math.ceil(count) - 1, 0).bit_length())


Atom = Symbol | Call
Product = frozenset[tuple[Atom, int]]
Number = int | Fraction
ONE: Product = frozenset()


@dataclass(frozen=True, slots=True)
class Expression:
    """A sum of products, each with its coefficient; none is zero."""

    terms: frozenset[tuple[Product, Fraction]]

    def __add__(self, other: "Size") -> "Expression":
        return collected([*self.terms, *of(other).terms])

    def __sub__(self, other: "Size") -> "Expression":
        return self + of(other) * -1

    def __mul__(self, other: "Size") -> "Expression":
        return collected(
            (multiplied(left, right), first * second)
            for left, first in self.terms
            for right, second in of(other).terms
        )

    __radd__, __rmul__ = __add__, __mul__

    def over(self, other: "Size") -> "Expression":
        """Divided by a single product, such as k."""
        ((product, coefficient),) = of(other).terms
        inverse = frozenset((atom, -power) for atom, power in product)
        return self * Expression(frozenset({(inverse, 1 / coefficient)}))

    def value(self, lengths: Mapping[str, int]) -> Fraction:
        """The number, for these lengths of inputs."""
        total = Fraction(0)
        for product, coefficient in self.terms:
            for atom, power in product:
                coefficient *= atom.value(lengths) ** power
            total += coefficient
        return total

    def symbols(self) -> set[Symbol]:
        """Every letter in it."""
        found: set[Symbol] = set()
        for product, _ in self.terms:
            for atom, _ in product:
                if isinstance(atom, Symbol):
                    found.add(atom)
                else:
                    found.update(*(one.symbols() for one in atom.arguments))
        return found

    def __str__(self) -> str:
        written = sorted(
            (-sum(power for _, power in product), shown(product, coefficient))
            for product, coefficient in self.terms
        )
        return " + ".join(text for _, text in written).replace("+ -", "- ") or "0"


Size = Expression | int


def symbol(name: str, known: int | None = None) -> Expression:
    """A letter as an expression."""
    return Expression(frozenset({(frozenset({(Symbol(name, known), 1)}), Fraction(1))}))


def of(size: Size | Fraction) -> Expression:
    """A number as an expression; an expression as it is."""
    if isinstance(size, Expression):
        return size
    return Expression(frozenset({(ONE, Fraction(size))}) if size else frozenset())


def collected(terms: Iterable[tuple[Product, Fraction]]) -> Expression:
    """Equal products added up."""
    sums: dict[Product, Fraction] = defaultdict(Fraction)
    for product, coefficient in terms:
        sums[product] += coefficient
    return Expression(frozenset((one, number) for one, number in sums.items() if number))


def multiplied(left: Product, right: Product) -> Product:
    """Powers of equal atoms added up."""
    powers: dict[Atom, int] = defaultdict(int)
    for atom, power in (*left, *right):
        powers[atom] += power
    return frozenset((atom, power) for atom, power in powers.items() if power)


def called(name: Literal["log2", "larger", "quotient"], *arguments: Expression) -> Expression:
    """A function of expressions, or its number where they are numbers."""
    call = Call(name, arguments)
    if not any(one.symbols() for one in arguments):
        return of(call.value({}))
    return Expression(frozenset({(frozenset({(call, 1)}), Fraction(1))}))


def log2(size: Size) -> Expression:
    """⌈log2 n⌉."""
    return called("log2", of(size))


def quotient(size: Size, divisor: int) -> Expression:
    """⌈n / d⌉."""
    return of(size) if divisor == 1 else called("quotient", of(size), of(divisor))


def larger(*sizes: Size) -> Expression:
    """The largest; those that can be seen never to be it are left out."""
    kept: list[Expression] = []
    for size in map(of, sizes):
        if not any(covers(one, size) for one in kept):
            kept = [*(one for one in kept if not covers(size, one)), size]
    return kept[0] if len(kept) == 1 else called("larger", *kept)


def smaller(one: Size, other: Size) -> Expression:
    """Of two."""
    return of(one) + other - larger(one, other)


def covers(large: Expression, small: Expression) -> bool:
    """Whether the first is seen to be no smaller, whatever the lengths; False where it is not."""
    fixed, free = Fraction(0), True
    for product, coefficient in (large - small).terms:
        alone = Expression(frozenset({(product, coefficient)}))
        if all(one.known is not None for one in alone.symbols()):
            fixed += alone.value({})
        else:
            free = free and coefficient >= 0
    if free and fixed >= 0:
        return True
    for product, coefficient in large.terms:
        for atom, power in product:
            single = len(product) == power == coefficient == 1
            if single and isinstance(atom, Call) and atom.name == "larger":
                rest = large - Expression(frozenset({(product, coefficient)}))
                return any(covers(rest + one, small) for one in atom.arguments)
    return False


def shown(product: Product, coefficient: Fraction) -> str:
    """One term as a person writes it, letters in their order."""
    raised = {1: "", 2: "²", 3: "³"}
    above = [(str(a), n) for a, n in product if n > 0]
    below = [(str(a), -n) for a, n in product if n < 0]
    top = [text + raised.get(power, f"^{power}") for text, power in sorted(above)]
    bottom = [text + raised.get(power, f"^{power}") for text, power in sorted(below)]
    if abs(coefficient.numerator) != 1 or not top:
        top.insert(0, str(coefficient.numerator))
    elif coefficient < 0:
        top[0] = "-" + top[0]
    if coefficient.denominator != 1:
        bottom.insert(0, str(coefficient.denominator))
    return " ".join(top) + "".join(f"/{one}" for one in bottom)


Growth = frozenset[tuple[str, int, int]]
"""A product as (letter, power, power of its logarithm)."""


def growth(expression: Expression, letters: Iterable[str]) -> str:
    """How it grows with these letters, all else constant: `O(T + L)`."""
    wanted = frozenset(letters)
    kept = grown(expression, wanted)
    largest = [one for one in kept if not any(slower(one, two) for two in kept if two != one)]
    texts = sorted((growth_text(one) for one in largest), key=lambda text: (text.count("ln"), text))
    return f"O({' + '.join(texts) or '1'})"


def grown(expression: Expression, letters: frozenset[str]) -> set[Growth]:
    """The products that may decide how an expression grows."""
    found: set[Growth] = set()
    for product, coefficient in expression.terms:
        if coefficient < 0:
            continue  # what is taken away never decides
        parts: set[Growth] = {frozenset()}
        for atom, power in product:
            if power > 0:
                factors = atom_growth(atom, letters)
                for _ in range(power):
                    parts = {joined(one, two) for one in parts for two in factors}
        found |= parts
    return found


def atom_growth(atom: Atom, letters: frozenset[str]) -> set[Growth]:
    """Of one factor; the logarithm of a product is the sum of theirs."""
    if isinstance(atom, Symbol):
        return {frozenset({(atom.name, 1, 0)}) if atom.name in letters else frozenset()}
    if atom.name == "quotient":
        return grown(atom.arguments[0], letters)
    inside = set().union(*(grown(one, letters) for one in atom.arguments))
    if atom.name == "larger":
        return inside
    names = {name for product in inside for name, _, _ in product}
    return {frozenset({(name, 0, 1)}) for name in names} | {frozenset()}


def joined(left: Growth, right: Growth) -> Growth:
    """The product of two."""
    names = {name for name, _, _ in (*left, *right)}
    return frozenset((name, *power_in(left, name, right)) for name in names)


def power_in(left: Growth, name: str, right: Growth = frozenset()) -> tuple[int, int]:
    """Powers of a letter and of its logarithm."""
    found = [(power, logs) for one, power, logs in (*left, *right) if one == name]
    return sum(power for power, _ in found), sum(logs for _, logs in found)


def slower(small: Growth, large: Growth) -> bool:
    """Whether one never outgrows the other, letter by letter."""
    names = {name for name, _, _ in (*small, *large)}
    return all(power_in(small, name) <= power_in(large, name) for name in names)


def growth_text(product: Growth) -> str:
    """Powers before logarithms."""
    parts = []
    for name, power, logs in sorted(product):
        if power:
            parts.append(name + {1: "", 2: "²", 3: "³"}.get(power, f"^{power}"))
        if logs:
            parts.append(f"ln {name}" if logs == 1 else f"ln{'²³'[logs - 2]} {name}")
    return " ".join(sorted(parts, key=lambda text: text.startswith("ln"))) or "1"
