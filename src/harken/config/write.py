"""Write configs as TOML or plain dicts; keys that have their default are included."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harken.config.schema import key_specs
from harken.errors import UserError


def dumps(config: object) -> str:
    """Return TOML from which `loads` builds an equal config. Keys with None are left out."""
    _check_none(config, default=None)
    return "\n".join(_table_lines(as_plain(config), ())).lstrip("\n") + "\n"


def as_plain(value: Any) -> Any:
    """Return a config as nested dicts and lists of JSON values; paths are absolute strings."""
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {name: as_plain(getattr(value, name)) for name in key_specs(kind)}
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in value]
    return str(absolute(value)) if isinstance(value, Path) else value


def absolute(path: str | Path, folder: str | Path = "") -> Path:
    """Return an absolute path, without resolving links so that users recognize it."""
    # Path.expanduser raises for an unknown user, and Path.absolute does not remove "..".
    return Path(os.path.abspath(Path(folder, os.path.expanduser(path))))  # noqa: PTH100, PTH111


def toml_literal(value: Any) -> str:
    """Return a value as TOML on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float.__repr__(value)  # the repr of numpy's float64 contains its type
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(toml_literal, value))}]"
        case dict():
            pairs = (f"{_toml_key(key)} = {toml_literal(item)}" for key, item in _not_none(value))
            return f"{{ {', '.join(pairs)} }}"
    raise TypeError(f"TOML cannot hold {value!r}")


def _check_none(config: object, default: object) -> None:
    """Raise ValueError for a None that cannot be written, because an absent key has a default.

    `default` is the config from which `loads` starts if it reads this table, or None. As in
    `loads`, its values are the defaults of the keys unless another key excludes them.
    """
    config_class: type = type(config)
    defaults = default if type(default) is config_class else None
    specs = key_specs(config_class)
    given = [spec for name, spec in specs.items() if getattr(config, name) is not None]
    excluded = {name for spec in given for name in spec.excludes}
    for name, spec in specs.items():
        value = getattr(config, name)
        default_value = spec.default_value(None if name in excluded else defaults)
        if value is None and default_value is not None:
            where = f"{config_class.__name__}.{name}"
            raise ValueError(f"{where} is None, but an absent key means {default_value!r}")
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                _check_none(part, default_value)


def _table_lines(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table; values must precede the headers of its tables."""
    tables: list[tuple[str, str, dict[str, Any]]] = []
    for name, value in _not_none(table):
        key = _toml_key(name)
        if isinstance(value, dict):
            tables.append((f"[{'.'.join((*path, key))}]", key, value))
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            header = f"[[{'.'.join((*path, key))}]]"
            tables += [(header, key, item) for item in value]
        else:
            yield f"{key} = {toml_literal(value)}"
    for header, key, subtable in tables:
        yield from ("", header, *_table_lines(subtable, (*path, key)))


def _not_none(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in table.items() if value is not None)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{text!r} is not valid Unicode (expected UTF-8)",
            fix="rename the file or correct the text",
        ) from error
    # JSON and TOML escape the same characters, except for DEL, which only TOML escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
