"""Find the line of each key of a TOML text, which tomllib does not report.

tomllib has already parsed the text, so it is valid TOML. The scanner only finds where keys and
values end.
"""

import re
import tomllib

TreePath = tuple[str | int, ...]  # keys and array indices from the root of the document to a value

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[\w\-. \t])+""", re.ASCII)
# A multi-line string may end in five quotes, of which two are content. A number or a date, which
# may contain a space, ends at punctuation.
_SCALAR = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'|[^,\]}#\n]+''',
    re.DOTALL,
)


def lines_of(text: str) -> dict[TreePath, int]:
    """Return the line (from 1) of every key, table and array item of a valid TOML text."""
    scanner = _Scanner(text)
    table: TreePath = ()
    while character := scanner.peek():
        if character == "[":
            table = scanner.read_header()
        else:
            scanner.read_pair(table)
    return scanner.lines


def key_parts(dotted: str) -> list[str]:
    """Return the names in a TOML key such as `a."b c".d`; raise ValueError for an invalid key."""
    parts: list[str] = []
    node: object = tomllib.loads(f"{dotted} = 0")
    while isinstance(node, dict):
        [(part, node)] = node.items()
        parts.append(part)
    return parts


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0
        self.lines: dict[TreePath, int] = {}
        self.last_index: dict[TreePath, int] = {}  # of the latest table of each [[array]]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    def consume(self, pattern: re.Pattern[str]) -> str:
        """Advance past a match of the pattern and return its text."""
        match = pattern.match(self.text, self.position)
        assert match, f"line {self.line}: tomllib accepts this line, the scanner does not"
        self.position = match.end()
        return match.group()

    def peek(self) -> str:
        """Skip blanks and comments, and return the next character; empty at the end."""
        self.consume(_BLANK)
        return self.text[self.position : self.position + 1]

    def read_header(self) -> TreePath:
        line = self.line
        brackets = 2 if self.text.startswith("[[", self.position) else 1
        self.position += brackets
        path = self.read_key(())
        self.position += brackets
        if brackets == 2:
            self.last_index[path] = self.last_index.get(path, -1) + 1
            path = (*path, self.last_index[path])
        self.lines[path] = line  # the line of [a] replaces that of an earlier [a.b]
        return path

    def read_key(self, path: TreePath) -> TreePath:
        line = self.line
        for part in key_parts(self.consume(_KEY)):
            if path in self.last_index:
                path = (*path, self.last_index[path])
            path = (*path, part)
            self.lines.setdefault(path, line)
        return path

    def read_pair(self, table: TreePath) -> None:
        path = self.read_key(table)
        self.position += len("=")
        self.read_value(path)

    def read_value(self, path: TreePath) -> None:
        opening = self.peek()
        if opening not in "[{":
            self.consume(_SCALAR)
            return
        self.position += 1
        index = 0
        while (character := self.peek()) not in "]}":
            if character == ",":
                self.position += 1
            elif opening == "{":
                self.read_pair(path)
            else:
                self.lines[(*path, index)] = self.line
                self.read_value((*path, index))
                index += 1
        self.position += 1
