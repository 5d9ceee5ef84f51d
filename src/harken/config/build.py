"""Build a config from a parsed document; raise `UserError` for unknown keys and wrong values."""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from harken.config.lines import DottedKey
from harken.config.schema import (
    KeySpec,
    Types,
    choices,
    config_types,
    convert,
    describe_types,
    find_class,
    item_types,
    key_specs,
    tagged_classes,
)
from harken.config.source import KeyPath, describe_value, toml_value
from harken.config.spelling import nearest, nearest_first
from harken.config.write import toml_literal
from harken.errors import UserError


def build(types: Types, value: Any, at: KeyPath, default: Any = MISSING) -> Any:
    """Return a parsed value as one of the types; `default` is the value of an absent key."""
    if isinstance(value, dict) and (union := config_types(types)):
        return _build_table(union, value, at, default)
    if isinstance(value, list) and (inner := item_types(types)):
        return tuple(build(inner, item, at.child(index)) for index, item in enumerate(value))
    converted = convert(types, value)
    if converted is MISSING and at.text is not None:
        converted = convert(types, at.text)  # for a string, --set name=123 means "123"
    if converted is MISSING:
        raise _wrong_type(types, value, at)
    return at.resolve(converted) if isinstance(converted, Path) else converted


def _build_table(union: tuple[type, ...], tree: dict[str, Any], at: KeyPath, default: Any) -> Any:
    config_class = _select_class(union, tree, at, default)
    defaults = default if type(default) is config_class else None
    specs = key_specs(config_class)
    for key in tree:
        if key not in specs:
            raise _unknown_key(key, at, config_class, union)
    # A key replaces the keys that it excludes if they have a lower precedence.
    precedence = {name: 2 if at.child(name).override else 1 for name in tree}  # 0 for defaults
    excluded = {
        other
        for name in tree
        for other in specs[name].excludes
        if precedence.get(other, 0) < precedence[name]
    }
    values = {}
    for name, spec in specs.items():
        child = at.child(name)
        default_value = spec.default_value(None if name in excluded else defaults)
        if name in tree and name not in excluded:
            values[name] = build(spec.types, tree[name], child, default_value)
            _check_bounds(spec, values[name], child)
        elif default_value is MISSING:
            table_name = f"to {at.header}" if at.path else "above the first table"
            fix = f"add {name!r}, {describe_types(spec.types)}, {table_name}"
            fix = _table_fix(spec.types, child) or fix
            raise at.error(f"missing required key {name!r} {at.inside}", fix)
        else:
            values[name] = default_value
    try:
        return config_class(**values)
    except ValueError as error:
        raise _invalid_table(error, at) from error


def _select_class(union: tuple[type, ...], tree: dict[str, Any], at: KeyPath, default: Any) -> type:
    if len(union) == 1:
        return union[0]
    tag, by_value = tagged_classes(union)
    if tag not in tree:
        if type(default) in union:
            return type(default)
        fix = f"add {tag} = {' or '.join(map(toml_literal, by_value))}"
        raise at.error(f"missing required key {tag!r} {at.inside}", fix)
    value, child = tree[tag], at.child(tag)
    config_class = find_class(value, union) or find_class(child.text, union)
    if config_class is None:
        shown = repr(value) if isinstance(value, str) else describe_value(value)
        fix = f"choose one of {_quoted_list(nearest_first(value, by_value))}"
        raise child.error(f"unknown {tag} {shown} {at.inside}", fix)
    return config_class


def _check_bounds(spec: KeySpec, value: Any, at: KeyPath) -> None:
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_bounds(spec, item, at.child(index))
    elif not spec.is_within(value):
        default = spec.field.default
        example = f", such as the default {default}" if isinstance(default, int | float) else ""
        problem = f"{at.dotted}: expected a number {spec.describe_bounds()}, got {value}"
        raise at.error(problem, f"choose a number in this range{example}")


def _unknown_key(key: str, at: KeyPath, config_class: type, union: tuple[type, ...]) -> UserError:
    child, specs = at.child(key), key_specs(config_class)
    if any(key in key_specs(other) for other in union):
        tag, by_value = tagged_classes(union)
        owners = [value for value, other in by_value.items() if key in key_specs(other)]
        current = next(value for value, other in by_value.items() if other is config_class)
        return child.error(
            f"{key!r} belongs to {tag} {_quoted_list(owners)}, but this is {tag} {current!r}",
            f"remove {key!r}, or write {at.child(tag).assignment(owners[0])}",
        )
    near = nearest(key, specs)
    fixes = [f"did you mean {near!r}?"] if near else []
    source = at.source
    tables = dict.fromkeys(
        KeyPath(source, path).inside
        for path, other in _tables(source.types, source.tree)
        if key in key_specs(other)
    )
    if tables:
        fixes.append(f"{key!r} belongs {' or '.join(tables)}")
    known = f"the known keys are {_quoted_list(specs)}" if specs else "remove it"
    return child.error(f"unknown key {key!r} {at.inside}", " ".join(fixes) or known)


def _wrong_type(types: Types, value: Any, at: KeyPath) -> UserError:
    expected = describe_types(types)
    if (corrected := _corrected(types, value)) is not MISSING:
        fix = f"write {at.assignment(corrected)}"
    elif isinstance(value, str) and (near := nearest(value, choices(types))):
        fix = f"did you mean {near!r}?"
    else:
        fix = _table_fix(types, at) or f"replace it by {expected}"
    return at.error(f"{at.dotted}: expected {expected}, got {describe_value(value)}", fix)


def _invalid_table(error: ValueError, at: KeyPath) -> UserError:
    """Return the error for a ValueError of the config's `__post_init__`."""
    depth = len(at.path)
    overrides = [
        override.where
        for path, override in at.source.overrides.items()
        if path[:depth] == at.path != path
    ]
    problem = f"{at.dotted}: {error}" if at.path else str(error)
    table = at.header if at.path else "the recipe"
    return at.error(problem, " or ".join([f"change {table}", *dict.fromkeys(overrides)]))


def _corrected(types: Types, value: Any) -> Any:
    """Return the value without quotes, with quotes, as an integer or in an array, if that fits."""
    candidates: list[Any] = []
    if isinstance(value, str):
        candidates.append(toml_value(value))
    if isinstance(value, float) and value.is_integer():
        candidates.append(int(value))
    if convert((bool, int, float), value) is not MISSING:
        candidates.append(toml_literal(value))
    for candidate in candidates:
        if convert(types, candidate) is not MISSING:
            return candidate
    return MISSING if convert(item_types(types), value) is MISSING else [value]


def _table_fix(types: Types, at: KeyPath) -> str:
    """Return how to write a table here; empty if no table is expected."""
    union = config_types(types) or config_types(item_types(types))
    if not union:
        return ""
    header = at.header if config_types(types) else at.child(0).header
    if len(union) > 1:
        keys = [tagged_classes(union)[0]]
    else:
        keys = [n for n, spec in key_specs(union[0]).items() if spec.default_value(None) is MISSING]
    return f"write {header}" + (f" and below it {_quoted_list(keys)}" if keys else "")


def _tables(types: Types, tree: Any, path: DottedKey = ()) -> Iterator[tuple[DottedKey, type]]:
    """Yield every table that a document may have, given the kinds that it has chosen."""
    union = config_types(types)
    tree = tree if isinstance(tree, dict) else {}
    if len(union) > 1 and (chosen := find_class(tree.get(tagged_classes(union)[0]), union)):
        union = (chosen,)
    for config_class in union:
        yield path, config_class
        for name, spec in key_specs(config_class).items():
            yield from _tables(spec.types, tree.get(name), (*path, name))
            yield from _tables(item_types(spec.types), None, (*path, name, 0))


def _quoted_list(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names))
