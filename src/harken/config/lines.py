"""Find the line of each key of a TOML text, which tomllib does not report.

The text was parsed by tomllib, so it is valid: only the ends of keys and values are searched.
"""

import re
import tomllib

DottedKey = tuple[str | int, ...]  # path in the parsed tree: names, and indices in arrays

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[\w\-. \t])+""", re.ASCII)
# A multi-line string may end in five quotes, of which two are content. A number or a date, which
# may contain a space, ends at punctuation.
_SCALAR = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'|[^,\]}#\n]+''',
    re.DOTALL,
)


def lines_of(text: str) -> dict[DottedKey, int]:
    """Return the line (from 1) of every key, table and array item of a valid TOML text."""
    scanner = _Scanner(text)
    table: DottedKey = ()
    while following := scanner.peek():
        if following == "[":
            table = scanner.header()
        else:
            scanner.pair(table)
    return scanner.lines


def key_parts(dotted: str) -> list[str]:
    """Return the names in a TOML key such as `a."b c".d`; ValueError if it is not a key."""
    parts: list[str] = []
    node: object = tomllib.loads(f"{dotted} = 0")
    while isinstance(node, dict):
        [(part, node)] = node.items()
        parts.append(part)
    return parts


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lines: dict[DottedKey, int] = {}
        self.last: dict[DottedKey, int] = {}  # index of the last item of each [[array]]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match, f"tomllib accepts line {self.line}, the scanner does not"
        self.at = match.end()
        return match.group()

    def peek(self) -> str:
        self.skip(_BLANK)
        return self.text[self.at : self.at + 1]

    def header(self) -> DottedKey:
        brackets, line = 2 if self.text.startswith("[[", self.at) else 1, self.line
        self.at += brackets
        path = self.key(())
        self.at += brackets
        if brackets == 2:
            self.last[path] = self.last.get(path, -1) + 1
            path = (*path, self.last[path])
        self.lines[path] = line  # the line of [a] replaces that of an earlier [a.b]
        return path

    def key(self, path: DottedKey) -> DottedKey:
        line = self.line
        for part in key_parts(self.skip(_KEY)):
            if path in self.last:
                path = (*path, self.last[path])
            path = (*path, part)
            self.lines.setdefault(path, line)
        return path

    def pair(self, table: DottedKey) -> None:
        path = self.key(table)
        self.at += len("=")
        self.value(path)

    def value(self, path: DottedKey) -> None:
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
                self.lines[(*path, items)] = self.line
                self.value((*path, items))
                items += 1
        self.at += 1
