"""On which line each key of a TOML text stands; tomllib does not tell.

The text has been through tomllib, so it is valid, and the scanner only needs to know where keys
and values end. It sees the same paths as the parsed tree: names, and numbers within arrays.
"""

import re
import tomllib
from bisect import bisect_left

Key = tuple[str | int, ...]

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[\w\-. \t])+""", re.ASCII)
# A multi-line string may end in five quotes, of which two are its own. What is neither a string
# nor an array nor an inline table (a number, a date with a space) ends at punctuation.
_SCALAR = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'|[^,\]}#\n]+''',
    re.DOTALL,
)


def lines_of(text: str) -> dict[Key, int]:
    """The line (from 1) of every key, table and array item of a valid TOML text."""
    scan = _Scan(text)
    table: Key = ()
    while following := scan.peek():
        if following == "[":
            table = scan.header()
        else:
            scan.pair(table)
    return scan.found


def key_parts(dotted: str) -> list[str]:
    """The names in a TOML key, `a."b c".d`; ValueError if it is none."""
    parts: list[str] = []
    node: object = tomllib.loads(f"{dotted} = 0")
    while isinstance(node, dict):
        [(part, node)] = node.items()
        parts.append(part)
    return parts


class _Scan:
    """A cursor over the text, and what it has found so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.found: dict[Key, int] = {}
        self.last: dict[Key, int] = {}  # of each [[array]], the index that is being filled

    @property
    def line(self) -> int:
        return bisect_left(self.newlines, self.at) + 1

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match, f"tomllib took what the scanner cannot read at line {self.line}"
        self.at = match.end()
        return match.group()

    def peek(self) -> str:
        self.skip(_BLANK)
        return self.text[self.at : self.at + 1]

    def header(self) -> Key:
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        line = self.line
        self.at += brackets
        path = self.key(())
        self.at += brackets
        if brackets == 2:
            self.last[path] = self.last.get(path, -1) + 1
            path = (*path, self.last[path])
        self.found[path] = line  # [a] itself says more than an [a.b] before it
        return path

    def key(self, path: Key) -> Key:
        line = self.line
        for part in key_parts(self.skip(_KEY)):
            if path in self.last:
                path = (*path, self.last[path])
            path = (*path, part)
            self.found.setdefault(path, line)
        return path

    def pair(self, table: Key) -> None:
        path = self.key(table)
        self.at += len("=")
        self.value(path)

    def value(self, path: Key) -> None:
        opening = self.peek()
        if opening not in "[{":
            self.skip(_SCALAR)
            return
        self.at += 1
        items = 0
        while (following := self.peek()) not in "]}":
            if following == ",":
                self.at += 1
            elif opening == "{":
                self.pair(path)
            else:
                self.found[(*path, items)] = self.line
                self.value((*path, items))
                items += 1
        self.at += 1
