"""Parse a recipe and its `--set` overrides into one tree, with the origin of each value."""

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

from harken.config.lines import TreePath, key_parts, lines_of
from harken.config.schema import Types
from harken.config.write import absolute, toml_literal
from harken.errors import UserError
from harken.inputs import is_folder, read_input, short_path

MAX_BYTES = 2**16  # a typical recipe has 2,000
MAX_DEPTH = 32  # of tables and arrays
MAX_DOTS = 500  # per line: time and memory of tomllib are quadratic in the parts of a key
MAX_KEY = 1000  # characters of the key of a `--set`
SYNTAX_FIXES = {  # by the beginning of tomllib's message
    "Invalid value": 'put text in quotes ("text"); write true and false in lower case',
    "Unescaped": "put it in single quotes, as in 'C:\\data'",
    "Cannot": "give each key and each table once",
}


@dataclass(frozen=True)
class Override:
    """A `--set a.b=v`."""

    assignment: str  # as typed
    path: tuple[str, ...]
    text: str  # the value as typed, without surrounding spaces
    value: Any

    @property
    def where(self) -> str:
        return f"override {self.assignment}"


@dataclass(frozen=True)
class Source:
    """A parsed document with its overrides applied."""

    name: str
    text: str
    base: Path  # folder of relative paths in the document
    types: Types  # config classes that the document may describe
    tree: dict[str, Any]
    overrides: Mapping[TreePath, Override]  # path of a value or table -> the override that set it

    @cached_property
    def lines(self) -> dict[TreePath, int]:
        return lines_of(self.text)

    def path_at(self, *keys: str) -> Path | None:
        """Return the path that these keys lead to; None without a string."""
        value: Any = self.tree
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return KeyPath(self, keys).resolve(Path(value)) if isinstance(value, str) else None


@dataclass(frozen=True)
class KeyPath:
    """The path of a key, whether or not the document has this key."""

    source: Source
    parts: TreePath = ()

    def child(self, part: str | int) -> "KeyPath":
        return replace(self, parts=(*self.parts, part))

    @property
    def override(self) -> Override | None:
        """The override that set this value or a table that contains it."""
        overrides = self.source.overrides
        paths = (parts for parts in _prefixes(self.parts) if parts in overrides)
        return next((overrides[parts] for parts in paths), None)

    @property
    def where(self) -> str:
        if self.override:
            return self.override.where
        lines = self.source.lines
        line = next((lines[parts] for parts in _prefixes(self.parts) if parts in lines), 1)
        return f"{self.source.name}:{line}"

    @property
    def override_text(self) -> str | None:
        """The value of a `--set` of exactly this key, as typed."""
        override = self.override
        return override.text if override and override.path == self.parts else None

    @property
    def dotted(self) -> str:
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts)
        return "".join(parts).removeprefix(".")

    @property
    def header(self) -> str:
        names = ".".join(part for part in self.parts if isinstance(part, str))
        return f"[[{names}]]" if isinstance(self.parts[-1], int) else f"[{names}]"

    @property
    def table_phrase(self) -> str:
        """The table at this path as words of an error message, such as `in [model]`."""
        return f"in {self.header}" if self.parts else "at the top level"

    def error(self, problem: str, fix: str) -> UserError:
        return UserError(f"{self.where}: {problem}", fix=fix)

    def assignment(self, value: Any) -> str:
        """Return the TOML line or the `--set` argument that assigns a value to this key."""
        if self.override_text is not None:
            return shlex.quote(f"{self.dotted}={toml_literal(value)}")
        key = f"{self.parts[-1]} = " if isinstance(self.parts[-1], str) else ""
        return key + toml_literal(value)

    def resolve(self, path: Path) -> Path:
        return absolute(path, "" if self.override else self.source.base)


def read(path: Path) -> str:
    """Read the text of a recipe."""
    if is_folder(path):
        recipes = sorted(path.glob("*.toml"))
        fix = f"did you mean {recipes[0]}?" if recipes else "name a file inside it"
        raise UserError(f"{short_path(path)}: this is a folder (expected a TOML file)", fix=fix)
    data = read_input(path, "a TOML file", max_bytes=MAX_BYTES).removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, byte = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
        raise UserError(
            f"{path}:{line}: invalid byte 0x{data[error.start]:02x}, byte {byte} of the line "
            "(expected UTF-8)",
            fix="save the file as UTF-8",
        ) from error


def parse(text: str, *, name: str, base: Path, types: Types, overrides: Sequence[str]) -> Source:
    """Parse a text and apply the overrides from left to right."""
    tree = _parse_toml(text, name)
    applied: dict[TreePath, Override] = {}
    for assignment in overrides:
        _apply_override(_parse_override(assignment), tree, applied)
    return Source(name=name, text=text, base=base, types=types, tree=tree, overrides=applied)


def describe_value(value: Any) -> str:
    """Describe a parsed value in an error message."""
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
    """Return the value of a TOML expression; the text itself if it is not valid TOML."""
    if len(text) > MAX_BYTES or text.count(".") > MAX_DOTS:
        return text
    with suppress(ValueError, RecursionError):
        tree = tomllib.loads(f"value = {text}")
        if len(tree) == 1:  # a line break could add a second key
            return tree["value"]
    return text


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    too_deep = UserError(
        f"{name}: tables or arrays are nested too deeply (expected at most {MAX_DEPTH} levels)",
        fix="check that this is a recipe",
    )
    for number, toml_line in enumerate(text.split("\n"), start=1):
        if (count := toml_line.count(".")) > MAX_DOTS:
            problem = f"too many dots in a line (expected at most {MAX_DOTS}, got {count:,})"
            raise UserError(f"{name}:{number}: {problem}", fix="check that this is a recipe")
    try:
        tree = tomllib.loads(text)
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:
        match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|.*)\)", str(error), re.DOTALL)
        problem, line, column = match.groups() if match else (str(error), None, None)
        line = line or text.rstrip().count("\n") + 1
        at = f" at column {column}" if column else ""
        fixes = (fix for start, fix in SYNTAX_FIXES.items() if problem.startswith(start))
        raise UserError(
            f"{name}:{line}: invalid TOML{at}: {problem[:200]}",
            fix=next(fixes, "see https://toml.io"),
        ) from error
    nodes: list[Any] = [tree]  # of one level
    for _ in range(MAX_DEPTH):
        containers = (node for node in nodes if isinstance(node, dict | list))
        values = (node.values() if isinstance(node, dict) else node for node in containers)
        nodes = list(chain.from_iterable(values))
    if nodes:
        raise too_deep
    return tree


def _parse_override(assignment: str) -> Override:
    name, equals, text = assignment.partition("=")
    path: tuple[str, ...] = ()
    with suppress(ValueError, RecursionError):
        path = tuple(key_parts(name)) if equals and len(name) <= MAX_KEY else ()
    if not path:
        raise UserError(
            f"override {assignment[:MAX_KEY]}: expected the form key.key=value",
            fix="write for example model.width=64",
        )
    text = text.strip()
    return Override(assignment, path, text, toml_value(text))


def _apply_override(
    override: Override, tree: dict[str, Any], applied: dict[TreePath, Override]
) -> None:
    """Change the tree; add the override to `applied` at each path that it sets."""
    *parents, last = override.path
    for depth, part in enumerate(parents, start=1):
        if part not in tree:
            tree[part] = {}
            applied[override.path[:depth]] = override
        tree = tree[part]
        if not isinstance(tree, dict):
            key = ".".join(override.path[:depth])
            raise UserError(
                f"{override.where}: {key} is {describe_value(tree)}, not a table",
                fix=f"set {key} itself",
            )
    if last == "kind" and tree.get(last, override.value) != override.value:
        # Keys of the old kind are dropped, except those that an earlier `--set` has set.
        depth = len(parents)
        inside = [path for path in applied if path[:depth] == override.path[:depth]]
        overridden = {path[depth] for path in inside if len(path) > depth}
        for key in [key for key in tree if key not in overridden]:
            del tree[key]
    tree[last] = override.value
    # A value for a whole table replaces earlier overrides inside it.
    for path in [path for path in applied if path[: len(override.path)] == override.path]:
        del applied[path]
    applied[override.path] = override


def _prefixes(path: TreePath) -> Iterable[TreePath]:
    """Yield the path, then the paths of the tables and arrays that contain it."""
    return (path[:length] for length in range(len(path), 0, -1))
