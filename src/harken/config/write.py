"""Records -> TOML and plain dicts: the effective config, every default written out."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harken.config.schema import slots
from harken.errors import UserError


def dumps(record: object) -> str:
    """The record as TOML that loads as an equal record.

    TOML has no null, so a None is left out; ValueError if leaving it out would mean a value.
    """
    _refuse_lost(record, default=None)
    return "\n".join(_block(as_plain(record), ())).lstrip("\n") + "\n"


def as_plain(record: object) -> dict[str, Any]:
    """The record as nested dicts and lists of what JSON knows; paths are absolute strings."""
    kind: type = type(record)
    return {name: _plain(getattr(record, name)) for name in slots(kind)}


def absolute(path: str | Path, folder: str | Path = "") -> Path:
    """The path as seen from a folder; links stay what they are, since a user named them."""
    # Of pathlib, expanduser raises for the home of nobody, and absolute leaves the dots in.
    return Path(os.path.abspath(Path(folder, os.path.expanduser(path))))  # noqa: PTH100, PTH111


def inline(value: Any) -> str:
    """One TOML value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float.__repr__(value)  # numpy's float64 is a float that prints its type
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(inline, value))}]"
        case dict():
            pairs = (f"{_key(key)} = {inline(item)}" for key, item in _given(value))
            return f"{{ {', '.join(pairs)} }}"
    raise TypeError(f"TOML cannot hold {value!r}")


def _refuse_lost(record: object, default: object) -> None:
    kind: type = type(record)
    table = default if type(default) is kind else None
    own = slots(kind)
    given = [slot for name, slot in own.items() if getattr(record, name) is not None]
    excluded = {name for slot in given for name in slot.excludes}
    for name, slot in own.items():
        value, absent = getattr(record, name), slot.absent(None if name in excluded else table)
        if value is None and absent is not None:
            raise ValueError(
                f"{kind.__name__}.{name} is None where leaving it out means {absent!r}"
            )
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                _refuse_lost(part, absent)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return as_plain(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(absolute(value)) if isinstance(value, Path) else value


def _block(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: its values first, for what follows a header belongs to the header."""
    for key, value in _given(table):
        if not _is_table(value) and not _are_tables(value):
            yield f"{_key(key)} = {inline(value)}"
    for key, value in _given(table):
        header = ".".join((*path, _key(key)))
        if _is_table(value):
            yield from ("", f"[{header}]", *_block(value, (*path, _key(key))))
        elif _are_tables(value):
            for item in value:
                yield from ("", f"[[{header}]]", *_block(item, (*path, _key(key))))


def _given(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in table.items() if value is not None)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{text!r} is not valid Unicode, which a recipe must be", fix="rename it"
        ) from error
    # JSON escapes as TOML does, but for DEL, which TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
