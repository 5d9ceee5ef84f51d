"""Tree -> record: every key known, every value of its type, or a UserError."""

import dataclasses
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from harken.config import complaints
from harken.config.schema import Slot, Types, fit, items, kind_named, kinds_of, records, slots
from harken.config.source import Place


def build(types: Types, value: Any, place: Place, default: Any = MISSING) -> Any:
    """A value of the tree as one of the types; `default` is what its absence would have meant."""
    if isinstance(value, dict) and (union := records(types)):
        return _record(union, value, place, default)
    if isinstance(value, list) and (inner := items(types)):
        return tuple(build(inner, item, place.child(at)) for at, item in enumerate(value))
    fitted = fit(types, value)
    if fitted is MISSING and place.text is not None:
        fitted = fit(types, place.text)  # for a string, --set name=123 means "123"
    if fitted is MISSING:
        raise complaints.misfit(types, value, place)
    return place.seen_from_here(fitted) if isinstance(fitted, Path) else fitted


def _record(union: tuple[type, ...], tree: dict[str, Any], place: Place, default: Any) -> Any:
    record = _choose(union, tree, place, default)
    table = default if type(default) is record else None
    for key in tree:
        if key not in slots(record):
            raise complaints.unknown_key(key, place, record, union)
    values = {}
    excluded = _excluded(record, tree, place)
    for name, slot in slots(record).items():
        here = place.child(name)
        absent = slot.absent(None if name in excluded else table)
        if name in tree and name not in excluded:
            values[name] = build(slot.types, tree[name], here, absent)
            _check_bounds(slot, values[name], here)
        elif absent is MISSING:
            raise complaints.missing_key(slot, place)
        else:
            values[name] = _anchored(absent, place)
    try:
        return record(**values)
    except ValueError as error:
        raise complaints.invalid(error, place) from error


def _excluded(record: type, tree: dict[str, Any], place: Place) -> set[str]:
    """Keys that a key given later excludes: defaults come first, then the file, then `--set`."""
    given = {name: 2 if place.child(name).override else 1 for name in tree}
    return {
        other
        for name, layer in given.items()
        for other in slots(record)[name].excludes
        if given.get(other, 0) < layer
    }


def _choose(union: tuple[type, ...], tree: dict[str, Any], place: Place, default: Any) -> type:
    if len(union) == 1:
        return union[0]
    tag, _ = kinds_of(union)
    if tag not in tree:
        if type(default) in union:
            return type(default)
        raise complaints.missing_kind(place, union)
    record = kind_named(tree[tag], union) or kind_named(place.child(tag).text, union)
    if record is None:
        raise complaints.unknown_kind(tree[tag], place, union)
    return record


def _check_bounds(slot: Slot, value: Any, place: Place) -> None:
    if isinstance(value, tuple):
        for at, item in enumerate(value):
            _check_bounds(slot, item, place.child(at))
    elif not slot.within(value):
        raise complaints.out_of_range(slot, value, place)


def _anchored(default: Any, place: Place) -> Any:
    """A default as if the recipe had said it, so that its paths are absolute too."""
    if isinstance(default, Path):
        return Place(place.source).seen_from_here(default)
    if isinstance(default, tuple):
        return tuple(_anchored(item, place) for item in default)
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        values = {name: _anchored(getattr(default, name), place) for name in slots(type(default))}
        return dataclasses.replace(default, **values)
    return default
