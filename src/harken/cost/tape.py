"""A forward pass on sizes alone: what would be computed, kept for the backward pass, waited for.

A `Value` stands for a tensor: its shape, and when it is ready. Item t of its time axis is ready
after `first + pace t` steps, so that recurrent layers one above the other take O(T + L) and not
O(T L): the second begins when the first has said its first word. An operation is ready when what it
reads is, and its own steps are done.

What autograd keeps is counted once a storage. Which kinds of operations there are, what each keeps
and how many steps it takes is said in `operations.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from harken.cost.expression import Expression, Size, larger, log2, of

FLOAT, LONG, BOOL = 4, 8, 1  # bytes of a number

Kind = Literal[
    "linear",
    "product",
    "attention",
    "convolution",
    "tanh",
    "gru",
    "lstm",
    "cell",
    "bend",
    "move",
    "norm",
    "draw",
    "gather",
    "loss",
    "alignments",
]
"""What a machine has a speed of its own for."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Value:
    """A tensor that is not there; `storage` is shared by views of one."""

    shape: tuple[Expression, ...]
    first: Expression = of(0)  # steps until its first item is ready
    pace: Expression = of(0)  # steps from one item to the next
    learned: bool = False  # whether a gradient flows to it
    width: int = FLOAT  # bytes of one number
    count: Expression = of(1)  # how many such tensors there are, where it is made in a loop
    storage: object = field(default_factory=object)

    @property
    def numbers(self) -> Expression:
        total = of(1)
        for size in self.shape:
            total = total * size
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One kernel, run `times` over: how much it multiplies, and how much memory it touches."""

    kind: Kind
    products: Expression  # floating-point operations of products, two for each multiply-and-add
    others: Expression  # all other operations, one a number written
    moved: Expression  # bytes read and written
    sides: tuple[
        Expression, ...
    ]  # of a product with a learned matrix: its rows, what it reads, writes
    gradients: int  # of its operands that get one; each costs the forward products once more
    times: Expression


class Tape:
    """What a forward pass left behind. `serial` sums inner products one term after the other."""

    def __init__(self, *, serial: bool = False) -> None:
        self.serial = serial
        self.operations: list[Operation] = []
        self.kept: dict[object, Expression] = {}  # bytes by storage
        self.passing: list[Expression] = []  # bytes that a kernel of the backward pass needs anew
        self.weights: dict[int, Expression] = {}  # numbers by parameter
        self._times = of(1)  # that each operation is run
        self._layers = of(1)  # that have weights of their own

    def inner(self, terms: Size) -> Expression:
        """Steps of one inner product: a multiplication and a sum over features."""
        return of(terms) if self.serial else log2(terms) + 1

    def new(
        self, *shape: Size, like: Sequence[Value] = (), learned: bool = False, width: int = FLOAT
    ) -> Value:
        """A value that is ready when all of `like` are."""
        return Value(
            shape=tuple(of(size) for size in shape),
            first=larger(*(one.first for one in like)) if like else of(0),
            pace=larger(*(one.pace for one in like)) if like else of(0),
            learned=learned or any(one.learned for one in like),
            width=width,
            count=self._times,
        )

    def weight(self, parameter: Tensor, *shape: Size) -> None:
        """A parameter by its sizes; one that two layers share counts once."""
        numbers = of(1)
        for size in shape:
            numbers = numbers * size
        self.weights.setdefault(id(parameter), numbers * self._layers)

    def keep(self, *values: Value) -> None:
        """For the backward pass."""
        for one in values:
            self.kept.setdefault(one.storage, one.numbers * one.count * one.width)

    def run(
        self,
        kind: Kind,
        reads: Sequence[Value],
        *shape: Size,
        steps: Size = 1,
        products: Size = 0,
        sides: Sequence[Size] = (),
        gradients: int = 1,
        learned: bool = False,
        moved: Size = 0,
    ) -> Value:
        """One operation and what it writes; `moved` are bytes besides those read and written."""
        written = self.new(*shape, like=reads, learned=learned)
        bytes_moved = written.numbers * written.width + moved
        for one in reads:
            bytes_moved = bytes_moved + one.numbers * one.width
        self.operations.append(
            Operation(
                kind=kind,
                products=of(products),
                sides=tuple(map(of, sides)),
                others=of(0) if products else written.numbers,
                moved=bytes_moved,
                gradients=gradients if written.learned else 0,
                times=self._times,
            )
        )
        return replace(written, first=written.first + steps)

    @contextmanager
    def repeated(self, times: Size, *, layers: bool = False) -> Iterator[None]:
        """What is run inside is run so many times; by as many layers, or by one over and over."""
        before = self._times, self._layers
        self._times = self._times * times
        self._layers = self._layers * times if layers else self._layers
        yield
        self._times, self._layers = before

    def stacked(self, layers: Size, layer: Callable[[Value], Value], value: Value) -> Value:
        """Equal layers one above the other, of which one is followed."""
        with self.repeated(layers, layers=True):
            entered = replace(
                self.new(*value.shape, learned=value.learned), first=value.first, pace=value.pace
            )
            left = layer(entered)
        return replace(
            self.new(*left.shape, learned=left.learned),
            first=value.first + (left.first - value.first) * layers,
            pace=left.pace,
        )


def view(value: Value, *shape: Size) -> Value:
    """The same storage in another shape."""
    return replace(value, shape=tuple(of(size) for size in shape))


def whole(value: Value) -> Value:
    """The same for a reader that waits for all of its time axis, the second."""
    last = value.first + value.pace * (value.shape[1] - 1)
    return replace(value, first=last, pace=of(0))
