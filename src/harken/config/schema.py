"""What the dataclasses say: the keys of a table, their types and bounds, what an absent one means.

Nothing here has seen a file. A type that is not supported is a TypeError: the mistake of whoever
wrote the dataclass, not of whoever wrote the recipe.
"""

import dataclasses
import operator
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Types = tuple[Any, ...]  # the members of a union, None apart

_SCALARS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
}
MAX_SIZE = 2**20  # of a whole number that has no bound of its own, such as the width of a layer
MAX_LAYERS = 1000
MAX_KERNEL = 1001  # of a convolution
MAX_STEPS = 10**9
MAX_BATCH = 2**24  # tokens, frames or examples
MAX_SEED = 2**63 - 1
_BOUNDS = {
    "at_least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "at_most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def bounded(
    default: Any = MISSING,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    excludes: tuple[str, ...] = (),
) -> Any:
    """A field whose number, or each number of whose array, is bounded: `bounded(64, at_least=1)`.

    `excludes` names keys that contradict this one. Where this key is given, a value that they have
    from a default of the table gives way to their own default; a `--set` wins over the file alike.

    The bounds hold for what a recipe says, not for a record made in Python: a dataclass has no
    hook for one field that would cost less than a line in its `__post_init__`.
    """
    bounds = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return dataclasses.field(default=default, metadata={**given, "excludes": excludes})


@dataclass(frozen=True)
class Slot:
    """One key of a table."""

    field: dataclasses.Field[Any]
    types: Types
    optional: bool

    def absent(self, table: object) -> Any:
        """What leaving the key out means, MISSING if it must be there.

        `table` is the default of the whole table, or None where it has no default of this kind.
        """
        if table is not None:
            return getattr(table, self.field.name)
        if self.field.default_factory is not MISSING:
            return self.field.default_factory()
        if self.field.default is MISSING and self.optional:
            return None
        return self.field.default

    @property
    def excludes(self) -> tuple[str, ...]:
        excluded: tuple[str, ...] = self.field.metadata.get("excludes", ())
        return excluded

    @property
    def limits(self) -> dict[str, float]:
        """The bounds of the field; a whole number without an upper one has `MAX_SIZE`."""
        limits = {
            name: self.field.metadata[name] for name in _BOUNDS if name in self.field.metadata
        }
        if int in (*self.types, *items(self.types)) and not limits.keys() & {"at_most", "below"}:
            limits["at_most"] = MAX_SIZE
        return limits

    @property
    def bounds(self) -> str:
        limits = self.limits
        return " and ".join(
            f"{_BOUNDS[name][0]} {limits[name]}" for name in _BOUNDS if name in limits
        )

    def within(self, value: object) -> bool:
        if not isinstance(value, int | float):
            return True  # the path of a `Path | float` has no size
        limits = self.limits
        return all(_BOUNDS[name][1](value, limits[name]) for name in _BOUNDS if name in limits)


@cache
def slots(record: type) -> dict[str, Slot]:
    """The keys of the table of a record, in their order."""
    hints = get_type_hints(record)
    return {
        field.name: Slot(
            field=field,
            types=types_of(hints[field.name]),
            optional=NoneType in get_args(hints[field.name]),
        )
        for field in dataclasses.fields(record)
        if field.init
    }


def types_of(hint: Any) -> Types:
    """The members of a union, None left out; of any other type, itself."""
    members = get_args(hint) if _origin(hint) in (Union, UnionType) else (hint,)
    types = tuple(member for member in members if member is not NoneType)
    for kind in types:
        many = _origin(kind) is tuple and get_args(kind)[1:] == (...,)
        if not (kind in _SCALARS or is_record(kind) or _origin(kind) is Literal or many):
            raise TypeError(f"a recipe cannot hold {kind}; see harken.config.schema")
    if str in types and Path in types:
        raise TypeError(f"{hint}: nothing in a recipe tells a str from a Path")
    return types


def is_record(kind: object) -> bool:
    """Whether this is a dataclass, rather than a record made from one."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def records(types: Types) -> tuple[type, ...]:
    """Those types that a table can become."""
    return tuple(kind for kind in types if is_record(kind))


def items(types: Types) -> Types:
    """What an array may hold; nothing if no array is wanted."""
    return next((types_of(get_args(kind)[0]) for kind in types if _origin(kind) is tuple), ())


def choices(types: Types) -> tuple[str | int, ...]:
    """The values that the Literals among the types allow."""
    return tuple(choice for kind in types if _origin(kind) is Literal for choice in get_args(kind))


@cache
def kinds_of(union: tuple[type, ...]) -> tuple[str, dict[str | int, type]]:
    """The key that tells the records of a union apart, and the record for each of its values."""
    for name in slots(union[0]):
        values = [choices(slots(record)[name].types) for record in union if name in slots(record)]
        single = {value[0] for value in values if len(value) == 1}
        if len(single) == len(union):
            return name, {value[0]: record for value, record in zip(values, union, strict=True)}
    names = ", ".join(record.__name__ for record in union)
    raise TypeError(f"no field with one Literal value each tells {names} apart")


def kind_named(value: object, union: tuple[type, ...]) -> type | None:
    """The record of the union that has this value; True is not 1."""
    by_value = kinds_of(union)[1].items()
    return next((record for own, record in by_value if same(own, value)), None)


def same(choice: object, value: object) -> bool:
    """Equal and of one type, since to Python True == 1 == 1.0."""
    return type(choice) is type(value) and choice == value


def fit(types: Types, value: Any) -> Any:
    """A scalar of TOML as one of the types, MISSING if it is none of them."""
    if type(value) is int and value.bit_length() > 64:
        return MISSING  # no float and no tensor holds it, and Python refuses to print the longest
    if any(same(choice, value) for choice in choices(types)):
        return value
    if type(value) in types:
        return value
    if type(value) is int and float in types:
        return float(value)
    if type(value) is str and Path in types and value and "\0" not in value:
        return Path(value)
    return MISSING


def wanted(types: Types) -> str:
    """The types in words, for a person who writes TOML."""
    words = [_SCALARS[kind] for kind in types if kind in _SCALARS]
    if allowed := choices(types):
        words.insert(0, ("one of " if len(allowed) > 1 else "") + ", ".join(map(repr, allowed)))
    if inner := items(types):
        words.append("an array of tables" if records(inner) else f"an array, each {wanted(inner)}")
    if records(types):
        words.append("a table")
    return " or ".join(words)


def _origin(kind: Any) -> Any:
    return get_origin(kind)  # which the stubs take for a ParamSpec where the type is not known
