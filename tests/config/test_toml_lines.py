import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harken.config.lines import TreePath, lines_of
from small_config import error_of


def test_a_table_below_another_can_come_first() -> None:
    assert lines_of("[a.b]\n\n[a]\n") == {("a",): 3, ("a", "b"): 1}


def test_errors_name_the_line_of_the_nearest_table() -> None:
    assert error_of('\n\ndata = {train = "t", dev = {}}\n').startswith("recipe.toml:3: data.dev")
    assert error_of("\n[data]\n").startswith("recipe.toml:2: missing required key 'train'")


SCALARS = [
    '"""\nk1 = 1\n[k2]\n\\""" # no end\n"""""',
    "'''\n# k1 = '' [[k2]]\n'''''",
    '""""""',
    "''",
    '"# k1 = \\" [k2] \\\\"',
    "'#[{\\'",
    "1979-05-27 07:32:00",
    "-1_000",
    "+inf",
    "true # k1 = 3",
]
GAPS = ["", " ", "\n", " # ]} k1 = '''\n\t", "\n\n"]


class Writer:
    """Writes a random document, and notes where each key went."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[TreePath, int] = {}
        self.arrays: dict[tuple[str, ...], int] = {}
        self.keys = 0

    def choose(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def mark(self, path: TreePath) -> TreePath:
        self.lines.setdefault(path, self.text.count("\n") + 1)
        return path

    def key(self, path: TreePath) -> TreePath:
        self.keys += 1
        name = self.choose(["k", "k-", "é #", "a.b = [", "it's ", 'say "k1"\t']) + str(self.keys)
        spellings = [json.dumps(name)]
        if "'" not in name:
            spellings.append(f"'{name}'")
        if name[:-1].rstrip("0123456789-") == "k":
            spellings += [name, name, name]
        path = self.mark((*path, name))
        self.text += self.choose(spellings)
        return path

    def dotted(self, path: TreePath) -> TreePath:
        path = self.key(path)
        for _ in range(self.choose([0, 0, 1, 2])):
            self.text += self.choose([".", " . "])
            path = self.key(path)
        return path

    def value(self, path: TreePath, depth: int, one_line: bool) -> None:
        kind = self.choose(["scalar", "array", "table"] if depth else ["scalar"])
        options = [text for text in SCALARS if not ("#" in text and text.startswith("true"))]
        if kind == "scalar":
            top = depth == 3 and not one_line
            self.text += self.choose(SCALARS if top else options)
        elif kind == "array":
            self.text += "["
            for item in range(self.choose(range(4))):
                self.text += "," * (item > 0) + self.choose(GAPS)
                self.mark((*path, item))
                self.value((*path, item), depth - 1, one_line)
                self.text += self.choose(GAPS)
            self.text += self.choose(GAPS) + "]"
        else:
            self.text += "{ "
            for item in range(self.choose(range(3))):
                self.text += ", " * (item > 0)
                self.pair(path, depth - 1, one_line=True)
            self.text += " }"

    def pair(self, path: TreePath, depth: int = 3, one_line: bool = False) -> None:
        path = self.dotted(path)
        self.text += self.choose(["=", " = "])
        self.value(path, depth, one_line)

    def header(self) -> TreePath:
        spellings = self.choose([*self.arrays, ()])
        again = bool(spellings) and self.choose([True, False])
        double = again or self.choose([True, False])
        self.text += "[[" if double else "["
        path: TreePath = ()
        if spellings:
            (name,) = spellings
            path = (name,) if again else (name, self.arrays[spellings])
            self.text += json.dumps(name) + ("" if again else ".")
        if not again:
            path = self.dotted(path)
        if double:
            array = tuple(part for part in path if isinstance(part, str))
            item = self.arrays.get(array, -1) + 1
            if len(path) == 1:
                self.arrays[array] = item
            path = self.mark((*path, item))
        self.text += "]]" if double else "]"
        return path


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[TreePath, int]]:
    writer = Writer(draw)
    table: TreePath = ()
    for _ in range(writer.choose(range(9))):
        if writer.choose(["pair", "pair", "header"]) == "header":
            table = writer.header()
        else:
            writer.pair(table)
        writer.text += writer.choose(["\n", "\r\n", " # [k1]\n", "\n\n# '''\n  "])
    return writer.text, writer.lines


def keys_of(tree: Any, path: TreePath = ()) -> set[TreePath]:
    if isinstance(tree, dict | list):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {path}.union(*(keys_of(value, (*path, key)) for key, value in pairs))
    return {path}


@given(documents())
def test_every_key_is_found_on_its_line(document: tuple[str, dict[TreePath, int]]) -> None:
    text, lines = document
    assert keys_of(tomllib.loads(text)) == {*lines, ()}  # the writer itself is right
    assert lines_of(text) == lines
