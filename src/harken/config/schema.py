"""Read config classes: the keys of a table, their types, bounds and defaults."""

import dataclasses
import operator
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Types = tuple[Any, ...]  # the types of a union, without None

_SCALARS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
}
MAX_SIZE = 2**20  # default upper bound of integers, such as the width of a layer
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
    """Return a dataclass field with bounds for its number, or for each number of its array.

    `excludes` names keys that contradict this one. A recipe that sets this key resets the excluded
    keys to the defaults of their class. Excluded keys that the recipe file also sets are reset only
    by a `--set` of this key. Bounds are checked in recipes, not in configs that are constructed in
    Python.
    """
    bounds = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return dataclasses.field(default=default, metadata={**given, "excludes": excludes})


@dataclass(frozen=True)
class KeySpec:
    """The type, the default and the bounds of a key of a table."""

    field: dataclasses.Field[Any]
    types: Types
    optional: bool
    excludes: tuple[str, ...]

    def default_value(self, defaults: object) -> Any:
        """Return the value in `defaults`, or else the default of the class; MISSING if required."""
        if defaults is not None:
            return getattr(defaults, self.field.name)
        if self.field.default_factory is not MISSING:
            return self.field.default_factory()
        if self.field.default is MISSING and self.optional:
            return None
        return self.field.default

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds by their names in `bounded`."""
        metadata = self.field.metadata
        bounds = {name: metadata[name] for name in _BOUNDS if name in metadata}
        has_integers = int in (*self.types, *item_types(self.types))
        if has_integers and not bounds.keys() & {"at_most", "below"}:
            bounds["at_most"] = MAX_SIZE
        return bounds

    def describe_bounds(self) -> str:
        return " and ".join(f"{_BOUNDS[name][0]} {bound}" for name, bound in self.bounds.items())

    def is_within(self, value: object) -> bool:
        """Return whether a value is within the bounds; true if it is not a number."""
        return not isinstance(value, int | float) or all(
            _BOUNDS[name][1](value, bound) for name, bound in self.bounds.items()
        )


@cache
def key_specs(config_class: type) -> dict[str, KeySpec]:
    """Return the keys of a config class, in the order of its fields."""
    hints = get_type_hints(config_class)
    return {
        field.name: KeySpec(
            field=field,
            types=types_of(hints[field.name]),
            optional=NoneType in get_args(hints[field.name]),
            excludes=field.metadata.get("excludes", ()),
        )
        for field in dataclasses.fields(config_class)
        if field.init
    }


def types_of(hint: Any) -> Types:
    """Return the types of a union without None; raise TypeError for an unsupported type."""
    members = get_args(hint) if _origin(hint) in (Union, UnionType) else (hint,)
    types = tuple(member for member in members if member is not NoneType)
    for member in types:
        is_array = _origin(member) is tuple and get_args(member)[1:] == (...,)
        is_literal = _origin(member) is Literal
        if not (member in _SCALARS or config_types((member,)) or is_literal or is_array):
            raise TypeError(f"a recipe cannot hold {member}; see harken.config.schema")
    if str in types and Path in types:
        raise TypeError(f"{hint}: a recipe cannot tell a str from a Path")
    return types


def config_types(types: Types) -> tuple[type, ...]:
    """Return the config classes among the types."""
    return tuple(hint for hint in types if isinstance(hint, type) and is_dataclass(hint))


def item_types(types: Types) -> Types:
    """Return the types of the items of an array; empty if none of the types is an array."""
    return next((types_of(get_args(hint)[0]) for hint in types if _origin(hint) is tuple), ())


def choices(types: Types) -> tuple[str | int, ...]:
    """Return the values that the Literals among the types allow."""
    return tuple(choice for hint in types if _origin(hint) is Literal for choice in get_args(hint))


@cache
def tagged_classes(union: tuple[type, ...]) -> tuple[str, dict[str | int, type]]:
    """Return the tag (the key whose value selects the class), and the class of each value."""
    for name in key_specs(union[0]):
        specs = [key_specs(cls)[name] for cls in union if name in key_specs(cls)]
        values = [choices(spec.types) for spec in specs]
        if len({value[0] for value in values if len(value) == 1}) == len(union):
            return name, {value[0]: cls for value, cls in zip(values, union, strict=True)}
    names = ", ".join(cls.__name__ for cls in union)
    raise TypeError(f"{names}: expected a field with a different Literal in each class")


def find_class(value: object, union: tuple[type, ...]) -> type | None:
    """Return the class of the union whose tag has this value."""
    by_value = tagged_classes(union)[1].items()
    return next((cls for tag, cls in by_value if _equals(tag, value)), None)


def _equals(choice: object, value: object) -> bool:
    return type(choice) is type(value) and choice == value  # in Python, True == 1 == 1.0


def convert(types: Types, value: Any) -> Any:
    """Convert a TOML scalar to one of the types; return MISSING if none of them accepts it."""
    if type(value) is int and value.bit_length() > 64:
        return MISSING  # too large for tensors; very long integers cannot even be printed
    if type(value) in types or any(_equals(choice, value) for choice in choices(types)):
        return value
    if type(value) is int and float in types:
        return float(value)
    if type(value) is str and Path in types and value and "\0" not in value:
        return Path(value)
    return MISSING


def describe_types(types: Types) -> str:
    """Return the types in the terms of TOML, such as "a whole number or a path"."""
    words = [_SCALARS[hint] for hint in types if hint in _SCALARS]
    if allowed := choices(types):
        words.insert(0, ("one of " if len(allowed) > 1 else "") + ", ".join(map(repr, allowed)))
    if inner := item_types(types):
        is_table = bool(config_types(inner))
        words.append(
            "an array of tables" if is_table else f"an array (each item {describe_types(inner)})"
        )
    return " or ".join([*words, "a table"] if config_types(types) else words)


def _origin(hint: Any) -> Any:
    return get_origin(hint)  # mypy infers a ParamSpec for hints of type Any; this returns Any
