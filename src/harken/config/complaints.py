"""The sentences for what is wrong in a recipe: where, what was found, what was wanted, the fix."""

from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from harken.config.schema import (
    Slot,
    Types,
    choices,
    fit,
    items,
    kind_named,
    kinds_of,
    records,
    slots,
    wanted,
)
from harken.config.source import Place, found, toml_value
from harken.config.spelling import nearest, nearest_first
from harken.config.write import inline
from harken.errors import UserError


def unknown_key(key: str, place: Place, record: type, union: tuple[type, ...]) -> UserError:
    """A key that the record of this table does not have."""
    where = place.child(key).where
    if any(key in slots(other) for other in union):
        tag, by_value = kinds_of(union)
        owners = [value for value, other in by_value.items() if key in slots(other)]
        mine = next(value for value, other in by_value.items() if other is record)
        return UserError(
            f"{where}: {key!r} belongs to {tag} {_listed(owners)}, this is {tag} {mine!r}",
            fix=f"remove {key!r}, or write {place.child(tag).spelled(owners[0])}",
        )
    fixes = []
    if near := nearest(key, slots(record)):
        fixes.append(f"did you mean {near!r}?")
    root = place.source
    homes = dict.fromkeys(
        Place(root, path).inside
        for path, other in _tables(root.kinds, root.tree)
        if key in slots(other)
    )
    if homes:
        fixes.append(f"{key!r} belongs {' or '.join(homes)}")
    known = f"the known keys are {_listed(slots(record))}" if slots(record) else "remove it"
    return UserError(f"{where}: unknown key {key!r} {place.inside}", fix=" ".join(fixes) or known)


def unknown_kind(value: Any, place: Place, union: tuple[type, ...]) -> UserError:
    """A table whose kind is none of the union."""
    tag, by_value = kinds_of(union)
    said = repr(value) if isinstance(value, str) else found(value)
    return UserError(
        f"{place.child(tag).where}: unknown {tag} {said} {place.inside}",
        fix=f"choose one of {_listed(nearest_first(value, by_value))}",
    )


def missing_kind(place: Place, union: tuple[type, ...]) -> UserError:
    """A table that does not say which of the union it is."""
    tag, by_value = kinds_of(union)
    return UserError(
        f"{place.where}: missing required key {tag!r} {place.inside}",
        fix=f"add {tag} = {' or '.join(map(inline, by_value))}",
    )


def missing_key(slot: Slot, place: Place) -> UserError:
    """A key that has no default and is not there."""
    here = place.child(slot.field.name)
    at = f"to {place.header}" if place.path else "above the first table"
    return UserError(
        f"{place.where}: missing required key {slot.field.name!r} {place.inside}",
        fix=_table_fix(slot.types, here) or f"add {slot.field.name!r}, {wanted(slot.types)}, {at}",
    )


def misfit(types: Types, value: Any, place: Place) -> UserError:
    """A value of a type, or a Literal, that the key does not take."""
    if (better := _mended(types, value)) is not MISSING:
        fix = f"write {place.spelled(better)}"
    elif isinstance(value, str) and (near := nearest(value, choices(types))):
        fix = f"did you mean {near!r}?"
    else:
        fix = _table_fix(types, place) or f"replace it by {wanted(types)}"
    return UserError(
        f"{place.where}: {place.dotted}: found {found(value)}, wanted {wanted(types)}", fix=fix
    )


def out_of_range(slot: Slot, value: float, place: Place) -> UserError:
    """A number beyond the bounds of its key."""
    default = slot.field.default
    such = f", such as the default {default}" if isinstance(default, int | float) else ""
    return UserError(
        f"{place.where}: {place.dotted}: found {value}, wanted {slot.bounds}",
        fix=f"choose a number {slot.bounds}{such}",
    )


def invalid(error: ValueError, place: Place) -> UserError:
    """What the record itself refused, in `__post_init__`."""
    depth = len(place.path)
    made = place.source.overrides.items()
    inside = [over.where for path, over in made if path[:depth] == place.path != path]
    what = f"{place.dotted}: {error}" if place.path else str(error)
    table = place.header if place.path else "the recipe"
    return UserError(
        f"{place.where}: {what}",
        fix=" or ".join([f"change {table}", *dict.fromkeys(inside)]),
    )


def _mended(types: Types, value: Any) -> Any:
    """The value as it was probably meant: without quotes, with quotes, whole, in an array."""
    candidates: list[Any] = []
    if isinstance(value, str):
        candidates.append(toml_value(value))
    if isinstance(value, float) and value.is_integer():
        candidates.append(int(value))
    if fit((bool, int, float), value) is not MISSING:
        candidates.append(inline(value))
    better = next((each for each in candidates if fit(types, each) is not MISSING), MISSING)
    if better is MISSING and fit(items(types), value) is not MISSING:
        return [value]
    return better


def _table_fix(types: Types, place: Place) -> str:
    """How to write a table here; nothing if none is wanted."""
    union = records(types) or records(items(types))
    if not union:
        return ""
    header = place.header if records(types) else place.child(0).header
    if len(union) > 1:
        keys = [kinds_of(union)[0]]
    else:
        keys = [name for name, slot in slots(union[0]).items() if slot.absent(None) is MISSING]
    return f"write {header}" + (f" and below it {_listed(keys)}" if keys else "")


def _tables(
    types: Types, tree: Any, path: tuple[str | int, ...] = (), outer: tuple[type, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], type]]:
    """Every table that a document may have, where it has chosen a kind only of that kind."""
    union = records(types)
    tree = tree if isinstance(tree, dict) else {}
    if len(union) > 1 and (chosen := kind_named(tree.get(kinds_of(union)[0]), union)):
        union = (chosen,)
    for record in union:
        if record in outer:
            continue  # a record that holds its own kind has no end
        yield path, record
        for name, slot in slots(record).items():
            below = (*path, name)
            yield from _tables(slot.types, tree.get(name), below, (*outer, record))
            yield from _tables(items(slot.types), None, (*below, 0), (*outer, record))


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
