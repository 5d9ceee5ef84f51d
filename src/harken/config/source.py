"""A file and the `--set`s on top of it -> one tree, which remembers where each value came from."""

import codecs
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from harken.config.lines import Key, key_parts, lines_of
from harken.config.schema import Types
from harken.config.write import absolute, inline
from harken.errors import UserError
from harken.inputs import is_folder, read_input, shown

MAX_BYTES = 2**16  # a recipe has about 2,000
MAX_DEPTH = 32  # of tables and arrays
# In one line. Time and memory of tomllib grow with the square of the number of parts of a key.
MAX_DOTS = 500
MAX_KEY = 1000  # characters of the key of a `--set`


@dataclass(frozen=True)
class Override:
    """One `--set a.b=v`: as typed, and what it means."""

    assignment: str
    path: tuple[str, ...]
    text: str
    value: Any

    @property
    def where(self) -> str:
        return f"override {self.assignment}"


@dataclass(frozen=True)
class Source:
    """A parsed document: its tree with the overrides applied, and the records it may hold."""

    name: str
    text: str
    base: Path
    kinds: Types
    tree: dict[str, Any]
    overrides: Mapping[Key, Override]  # by the path of each value and table that one has made

    @cached_property
    def lines(self) -> dict[Key, int]:
        return lines_of(self.text)


@dataclass(frozen=True)
class Place:
    """A key of a document, there or not."""

    source: Source
    path: Key = ()

    def child(self, part: str | int) -> "Place":
        return replace(self, path=(*self.path, part))

    @property
    def override(self) -> Override | None:
        """The one that made the value here, or the table around it."""
        made = self.source.overrides
        return next((made[path] for path in _upwards(self.path) if path in made), None)

    @property
    def where(self) -> str:
        if self.override:
            return self.override.where
        lines = self.source.lines
        line = next((lines[path] for path in _upwards(self.path) if path in lines), 1)
        return f"{self.source.name}:{line}"

    @property
    def text(self) -> str | None:
        """What was typed for just this key in a `--set`, before TOML made 123 of it."""
        override = self.override
        return override.text if override and override.path == self.path else None

    @property
    def dotted(self) -> str:
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).removeprefix(".")

    @property
    def header(self) -> str:
        names = ".".join(part for part in self.path if isinstance(part, str))
        return f"[[{names}]]" if isinstance(self.path[-1], int) else f"[{names}]"

    @property
    def inside(self) -> str:
        return f"in {self.header}" if self.path else "at the top level"

    def spelled(self, value: Any) -> str:
        """How to write a value for this key."""
        if self.text is not None:
            return shlex.quote(f"{self.dotted}={inline(value)}")
        key = f"{self.path[-1]} = " if isinstance(self.path[-1], str) else ""
        return key + inline(value)

    def seen_from_here(self, path: Path) -> Path:
        return absolute(path, "" if self.override else self.source.base)


def read(path: Path) -> str:
    """Read the text of a recipe."""
    if is_folder(path):
        inside = sorted(path.glob("*.toml"))
        fix = f"did you mean {inside[0]}?" if inside else "name a file inside it"
        raise UserError(f"{shown(path)}: this is a folder (expected a TOML file)", fix=fix)
    data = read_input(path, "a TOML file", max_bytes=MAX_BYTES)
    data = data.removeprefix(codecs.BOM_UTF8)  # which some editors of Windows write
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, byte = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
        raise UserError(
            f"{path}:{line}: found 0x{data[error.start]:02x} as byte {byte}, wanted UTF-8",
            fix="save the file as UTF-8",
        ) from error


def parse(text: str, *, name: str, base: Path, kinds: Types, overrides: Sequence[str]) -> Source:
    """The tree of a text, overridden from left to right."""
    tree = _parse_toml(text, name)
    made: dict[Key, Override] = {}
    for assignment in overrides:
        override = _parse_override(assignment)
        _apply(override, tree, made)
    return Source(name=name, text=text, base=base, kinds=kinds, tree=tree, overrides=made)


def found(value: Any) -> str:
    """A value of TOML in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > 64:
            return "a number beyond 64 bits"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {value!r}" if len(value) <= 40 else f"the string {value[:40]!r}…"
        case dict():
            return "a table"
        case list():
            return "an array"
    return f"the date or time {value}"


def toml_value(text: str) -> Any:
    """The TOML value that a text spells, or the text itself."""
    if len(text) > MAX_BYTES or text.count(".") > MAX_DOTS:
        return text
    with suppress(ValueError, RecursionError):
        tree = tomllib.loads(f"value = {text}")
        if len(tree) == 1:  # a line break could smuggle in a second key
            return tree["value"]
    return text


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    if max(line.count(".") for line in text.split("\n")) > MAX_DOTS:
        raise _too_deep(name)
    try:
        tree = tomllib.loads(text)
    except RecursionError as error:
        raise _too_deep(name) from error
    except ValueError as error:
        said = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|.*)\)", str(error), re.DOTALL)
        what, line, column = said.groups() if said else (str(error), None, None)
        line = line or text.rstrip().count("\n") + 1
        at = f" at column {column}" if column else ""
        raise UserError(
            f"{name}:{line}: invalid TOML{at}: {what[:200]}", fix=_syntax_fix(what)
        ) from error
    if not _is_shallow(tree):
        raise _too_deep(name)
    return tree


def _is_shallow(tree: Any) -> bool:
    """Whether tables and arrays are nested at most `MAX_DEPTH` times, without recursion."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        inside = (
            value.values() if isinstance(value, dict) else value
            for value in level
            if isinstance(value, dict | list)
        )
        level = list(chain.from_iterable(inside))
    return not level


def _too_deep(name: str) -> UserError:
    return UserError(
        f"{name}: tables or arrays are nested too deeply (expected at most {MAX_DEPTH} levels)",
        fix="check that this is a recipe",
    )


def _syntax_fix(what: str) -> str:
    if what.startswith("Invalid value"):
        return 'put text in quotes ("text"); write true and false in small letters'
    if what.startswith("Unescaped"):
        return "put it in single quotes, as in 'C:\\data'"
    if what.startswith("Cannot"):
        return "give each key and each table once"
    return "see https://toml.io"


def _parse_override(assignment: str) -> Override:
    name, equals, text = assignment.partition("=")
    try:
        path = tuple(key_parts(name)) if equals and len(name) <= MAX_KEY else ()
    except (ValueError, RecursionError):
        path = ()
    if not path:
        raise UserError(
            f"override {assignment[:MAX_KEY]}: wanted the form key.key=value",
            fix="write for example model.width=64",
        )
    text = text.strip()
    return Override(assignment, path, text, toml_value(text))


def _apply(override: Override, tree: dict[str, Any], made: dict[Key, Override]) -> None:
    *above, last = override.path
    for depth, part in enumerate(above, start=1):
        if part not in tree:
            tree[part] = {}
            made[override.path[:depth]] = override
        tree = tree[part]
        if not isinstance(tree, dict):
            scalar = ".".join(override.path[:depth])
            raise UserError(
                f"{override.where}: {scalar} is {found(tree)}, not a table",
                fix=f"set {scalar} as a whole",
            )
    if last == "kind" and tree.get(last, override.value) != override.value:
        _start_afresh(tree, above, made)
    tree[last] = override.value
    # A table set as a whole forgets what was set in it before.
    for path in [path for path in made if path[: len(override.path)] == override.path]:
        del made[path]
    made[override.path] = override


def _start_afresh(table: dict[str, Any], at: Sequence[str], made: dict[Key, Override]) -> None:
    """Forget what the file says of a table whose kind is another now; what was set stays."""
    depth = len(at)
    kept = {path[depth] for path in made if path[:depth] == tuple(at) and len(path) > depth}
    for key in [key for key in table if key not in kept]:
        del table[key]


def _upwards(path: Key) -> Iterable[Key]:
    return (path[:length] for length in range(len(path), 0, -1))
