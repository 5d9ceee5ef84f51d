"""Build a config from a parsed document; raise `UserError` for unknown keys and wrong values."""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from harken.config.lines import TreePath
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


def build(types: Types, value: Any, path: KeyPath, default: Any = MISSING) -> Any:
    """Convert a parsed value to one of the types.

    Keys that a table leaves out have their values in `default`, if it is of the same class.
    """
    if isinstance(value, dict) and (union := config_types(types)):
        return _build_table(union, value, path, default)
    if isinstance(value, list) and (inner := item_types(types)):
        return tuple(build(inner, item, path.child(index)) for index, item in enumerate(value))
    converted = convert(types, value)
    if converted is MISSING and path.override_text is not None:
        converted = convert(types, path.override_text)  # for a string, --set name=123 means "123"
    if converted is MISSING:
        raise _wrong_type(types, value, path)
    return path.resolve(converted) if isinstance(converted, Path) else converted


def _build_table(union: tuple[type, ...], tree: dict[str, Any], path: KeyPath, default: Any) -> Any:
    config_class = _select_class(union, tree, path, default)
    defaults = default if type(default) is config_class else None
    specs = key_specs(config_class)
    for key in tree:
        if key not in specs:
            raise _unknown_key(key, path, config_class, union)
    # A key resets the keys that it excludes if those come from a source of lower precedence:
    # default (0), recipe (1), `--set` (2).
    precedence = {name: 2 if path.child(name).override else 1 for name in tree}
    excluded = {
        other
        for name in tree
        for other in specs[name].excludes
        if precedence.get(other, 0) < precedence[name]
    }
    values = {}
    for name, spec in specs.items():
        child = path.child(name)
        default_value = spec.default_value(None if name in excluded else defaults)
        if name in tree and name not in excluded:
            values[name] = build(spec.types, tree[name], child, default_value)
            _check_bounds(spec, values[name], child)
        elif default_value is MISSING:
            place = f"to {path.header}" if path.parts else "above the first table"
            fix = f"add {name!r}, {describe_types(spec.types)}, {place}"
            fix = _table_fix(spec.types, child) or fix
            raise path.error(f"missing required key {name!r} {path.table_phrase}", fix)
        else:
            values[name] = default_value
    try:
        return config_class(**values)
    except ValueError as error:
        raise _invalid_table(error, path) from error


def _select_class(
    union: tuple[type, ...], tree: dict[str, Any], path: KeyPath, default: Any
) -> type:
    if len(union) == 1:
        return union[0]
    tag, by_value = tagged_classes(union)
    if tag not in tree:
        if type(default) in union:
            return type(default)
        fix = f"add {tag} = {' or '.join(map(toml_literal, by_value))}"
        raise path.error(f"missing required key {tag!r} {path.table_phrase}", fix)
    value, child = tree[tag], path.child(tag)
    config_class = find_class(value, union) or find_class(child.override_text, union)
    if config_class is None:
        shown = repr(value) if isinstance(value, str) else describe_value(value)
        fix = f"choose one of {_quoted_list(nearest_first(value, by_value))}"
        raise child.error(f"unknown {tag} {shown} {path.table_phrase}", fix)
    return config_class


def _check_bounds(spec: KeySpec, value: Any, path: KeyPath) -> None:
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_bounds(spec, item, path.child(index))
    elif not spec.is_within(value):
        default = spec.field.default
        example = f", such as the default {default}" if isinstance(default, int | float) else ""
        problem = f"{path.dotted}: expected a number {spec.describe_bounds()}, got {value}"
        raise path.error(problem, f"choose a number in this range{example}")


def _unknown_key(key: str, path: KeyPath, config_class: type, union: tuple[type, ...]) -> UserError:
    child, specs = path.child(key), key_specs(config_class)
    if any(key in key_specs(other) for other in union):
        tag, by_value = tagged_classes(union)
        owners = [value for value, other in by_value.items() if key in key_specs(other)]
        current = next(value for value, other in by_value.items() if other is config_class)
        return child.error(
            f"{key!r} belongs to {tag} {_quoted_list(owners)}, but this is {tag} {current!r}",
            f"remove {key!r}, or write {path.child(tag).assignment(owners[0])}",
        )
    near = nearest(key, specs)
    fixes = [f"did you mean {near!r}?"] if near else []
    source = path.source
    tables = dict.fromkeys(
        KeyPath(source, parts).table_phrase
        for parts, other in _tables(source.types, source.tree)
        if key in key_specs(other)
    )
    if tables:
        fixes.append(f"{key!r} belongs {' or '.join(tables)}")
    known = f"the known keys are {_quoted_list(specs)}" if specs else "remove it"
    return child.error(f"unknown key {key!r} {path.table_phrase}", " ".join(fixes) or known)


def _wrong_type(types: Types, value: Any, path: KeyPath) -> UserError:
    expected = describe_types(types)
    if (corrected := _corrected(types, value)) is not MISSING:
        fix = f"write {path.assignment(corrected)}"
    elif isinstance(value, str) and (near := nearest(value, choices(types))):
        fix = f"did you mean {near!r}?"
    else:
        fix = _table_fix(types, path) or f"replace it by {expected}"
    return path.error(f"{path.dotted}: expected {expected}, got {describe_value(value)}", fix)


def _invalid_table(error: ValueError, path: KeyPath) -> UserError:
    """Return the error for a `ValueError` that the `__post_init__` of a config raised."""
    depth = len(path.parts)
    overrides = [
        override.where
        for parts, override in path.source.overrides.items()
        if parts[:depth] == path.parts != parts
    ]
    problem = f"{path.dotted}: {error}" if path.parts else str(error)
    table = path.header if path.parts else "the recipe"
    return path.error(problem, " or the ".join([f"change {table}", *dict.fromkeys(overrides)]))


def _corrected(types: Types, value: Any) -> Any:
    """Return the value in a form that has one of the types, or MISSING.

    The forms are: without quotes, as an integer, with quotes, in an array.
    """
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


def _table_fix(types: Types, path: KeyPath) -> str:
    """Return the fix for a missing table; empty if no table is expected."""
    union = config_types(types) or config_types(item_types(types))
    if not union:
        return ""
    header = path.header if config_types(types) else path.child(0).header
    if len(union) > 1:
        keys = [tagged_classes(union)[0]]
    else:
        specs = key_specs(union[0]).items()
        keys = [name for name, spec in specs if spec.default_value(None) is MISSING]
    return f"write {header}" + (f" and below it {_quoted_list(keys)}" if keys else "")


def _tables(types: Types, tree: Any, path: TreePath = ()) -> Iterator[tuple[TreePath, type]]:
    """Yield the path and class of every table that the document may have, given its tags."""
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
