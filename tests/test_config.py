from __future__ import annotations

import json
import math
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.config import as_plain, bounded, dumps, load_config, loads
from harken.config.lines import Key, lines_of
from harken.config.source import MAX_BYTES
from harken.errors import UserError
from harken.models.seq2seq import EncoderDecoderConfig

BASE = Path("/recipes")


@dataclass(frozen=True, kw_only=True)
class Scaled:
    kind: Literal["scaled"] = "scaled"
    heads: int = bounded(4, at_least=1, at_most=64)
    dropout: float = bounded(0.0, at_least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Dense:
    kind: Literal["dense"] = "dense"
    hidden: int


@dataclass(frozen=True, kw_only=True)
class Random:
    kind: Literal["random"] = "random"
    length: int = 5
    hidden: int = 7


@dataclass(frozen=True, kw_only=True)
class Plain:
    kind: Literal["plain"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Layer:
    width: int
    score: Scaled | Dense | Plain | None


@dataclass(frozen=True, kw_only=True)
class Model:
    layers: int = bounded(2, at_least=1)
    width: int = 64
    norm: Literal["layer", "rms", "none"] = "layer"
    bits: Literal[8, 16] = 8
    bias: bool = True
    attention: Scaled | Dense | Random | Plain = Scaled(heads=8, dropout=0.25)
    stack: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd")
        if self.width == 666:
            raise UserError("an error of the config", fix="its fix")


@dataclass(frozen=True, kw_only=True)
class Data:
    train: Path
    dev: Path | float = field(default=0.1, metadata={"above": 0, "below": 1})
    test: Optional[Path] = None  # noqa: UP045 (the old spelling works too)
    cache: Path = Path("cache")
    words: tuple[str, ...] = ("one", "two")
    grid: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = bounded((), at_least=0)


@dataclass(frozen=True, kw_only=True)
class Tag:
    task: Literal["tag"] = "tag"
    name: str = "nameless"
    seed: int = 0
    rate: float = 1e-5
    minutes: float | None = None
    data: Data
    model: Model = field(default_factory=lambda: Model(layers=6))


@dataclass(frozen=True, kw_only=True)
class Answer:
    task: Literal["answer"] = "answer"
    read: Path


@dataclass(frozen=True, kw_only=True)
class First:
    version: Literal["1"] = "1"
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Second:
    version: Literal["2"] = "2"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: First = First(size=3)
    data: Data = Data(train=Path("t"))
    files: tuple[Path, ...] = (Path("a"), Path("/b"))

    def __post_init__(self) -> None:
        if self.data.dev == 0.5:
            raise ValueError("half is not enough")


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str = ""
    children: tuple[Tree, ...] = ()


DATA = '[data]\ntrain = "t.txt"\n'


def tag(text: str = DATA, *overrides: str) -> Tag:
    return loads(Tag, dedent(text), name="recipe.toml", base=BASE, overrides=overrides)


def error_of(text: str, *overrides: str, kind: Any = Tag) -> str:
    """Return the message and the fix."""
    with pytest.raises(UserError) as caught:
        loads(kind, dedent(text), name="recipe.toml", base=BASE, overrides=overrides)
    return f"{caught.value.message}; {caught.value.fix}"


# Values


def test_every_type_is_read() -> None:
    recipe = tag("""
        name = "é"
        seed = -3
        rate = 2
        minutes = 1.5
        data.train = "a/../t.txt"
        data.test = "/abs/test"
        data.words = ["x", "y"]
        data.grid = [[1, 2.5], []]
        [model]
        norm = "rms"
        bits = 16
        bias = false
        [model.attention]
        kind = "dense"
        hidden = 3
        [[model.stack]]
        width = 3
        [[model.stack]]
        width = 5
        [model.stack.score]
        kind = "plain"
    """)
    data = Data(
        train=BASE / "t.txt",
        test=Path("/abs/test"),
        cache=BASE / "cache",
        words=("x", "y"),
        grid=((1.0, 2.5), ()),
    )
    stack = (Layer(width=3, score=None), Layer(width=5, score=Plain()))
    model = Model(layers=6, norm="rms", bits=16, bias=False, attention=Dense(hidden=3), stack=stack)
    assert recipe == Tag(name="é", seed=-3, rate=2.0, minutes=1.5, data=data, model=model)
    assert type(recipe.rate) is float and type(recipe.data.grid[0][0]) is float


CWD = Path.cwd()
ATTENTION = Scaled(heads=3, dropout=0.25)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("", "minutes", None),
        ("", "model", Model(layers=6)),
        ("", "data.test", None),
        ("", "data.dev", 0.1),
        ("dev = 0.5", "data.dev", 0.5),
        ('dev = "dev.txt"', "data.dev", BASE / "dev.txt"),
        ('dev = "0.5"', "data.dev", BASE / "0.5"),
        ("[model.attention]\nheads = 3", "model", Model(layers=6, attention=ATTENTION)),
        ('[model.attention]\nkind = "random"\nlength = 2', "model.attention", Random(length=2)),
        ("[[model.stack]]\nwidth = 2", "model.stack", (Layer(width=2, score=None),)),
    ],
)
def test_value_of_a_key(text: str, path: str, value: object) -> None:
    recipe: Any = tag(DATA + text)
    for name in path.split("."):
        recipe = getattr(recipe, name)
    assert recipe == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '1: missing required key \'task\' at the top level; add task = "tag" or "answer"'),
        (
            'seed = 1\ntask = "anser"',
            "2: unknown task 'anser' at the top level; choose one of 'answer', 'tag'",
        ),
        (
            'task = "answer"\nread = "w"\nseed = 3',
            "3: 'seed' belongs to task 'tag', this is task 'answer'; remove 'seed', or write "
            'task = "tag"',
        ),
        (  # keys of the other task are not suggested
            'task = "answer"\nread = "w"\nbits = 8',
            "3: unknown key 'bits' at the top level; the known keys are 'task', 'read'",
        ),
    ],
)
def test_root_union(text: str, message: str) -> None:
    either = Tag | Answer
    assert loads(either, 'task = "answer"\nread = "w"', base=BASE) == Answer(read=BASE / "w")
    old: Any = Union[Tag, Answer]  # noqa: UP007 (the old spelling works too)
    assert loads(old, 'task = "tag"\n' + DATA, base=BASE) == tag()
    assert error_of(text, kind=either) == f"recipe.toml:{message}"


def test_recursive_class() -> None:
    text = "[[children]]\n[[children.children]]\nname = 'leaf'\n"
    leaf = Tree(name="leaf")
    assert loads(Tree, text, base=BASE) == Tree(children=(Tree(children=(leaf,)),))
    assert error_of(text + "zzz = 1", kind=Tree) == (
        "recipe.toml:4: unknown key 'zzz' in [[children.children]]; "
        "the known keys are 'name', 'children'"
    )


def test_types_that_toml_cannot_tell_apart_are_refused() -> None:
    @dataclass(frozen=True)
    class Bag:
        field: dict  # type: ignore[type-arg]

    @dataclass(frozen=True)
    class Either:
        field: str | Path

    @dataclass(frozen=True)
    class Twins:
        field: Tag | Layer

    for kind, part in ((Bag, "dict"), (Either, "str from a Path"), (Twins, "Tag, Layer apart")):
        with pytest.raises(TypeError, match=part):
            loads(kind, "field = {}", base=BASE)


# Paths


def test_paths_are_relative_to_the_file_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "recipes")
    (tmp_path / "recipes" / "r.toml").write_text('[data]\ntrain = "t"\ntest = "~/x"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    path = Path("link/r.toml")
    data = load_config(Tag, path, ["data.dev=d/../e"]).data
    assert data.train == tmp_path / "link" / "t"
    assert data.cache == tmp_path / "link" / "cache"
    assert data.test == Path("/home/me/x")
    assert data.dev == tmp_path / "e"
    assert load_config(Tag, path, ["data.test=~/y"]).data.test == Path("/home/me/y")
    inside_table = load_config(Tag, path, ['data={train="t"}']).data
    assert inside_table.train == tmp_path / "t"
    assert inside_table.cache == tmp_path / "link" / "cache"
    defaults = loads(Outer, "", base=BASE)
    assert (defaults.data.train, defaults.files) == (BASE / "t", (BASE / "a", Path("/b")))


# --set


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("seed=7", "seed", 7),
        (" seed = 7 ", "seed", 7),
        ("name=123", "name", "123"),
        ("name=1_0", "name", "1_0"),
        ("name=[1]", "name", "[1]"),
        ("name= a ", "name", "a"),
        ("name=", "name", ""),
        ("name=a=b", "name", "a=b"),
        ('name="quoted"', "name", "quoted"),
        ("data.train=true", "data.train", CWD / "true"),
        ("data.dev=0.5", "data.dev", 0.5),
        ("data.dev=true", "data.dev", CWD / "true"),
        ("data.words=['a', \"b\"]", "data.words", ("a", "b")),
        ("model.norm=rms", "model.norm", "rms"),
        ("model.bias=false", "model.bias", False),
        ("model.attention.heads=3", "model.attention.heads", 3),
        ("model.attention.kind=plain", "model.attention", Plain()),
        ("model={width=2}", "model", Model(layers=6, width=2)),
    ],
)
def test_override(assignment: str, path: str, value: object) -> None:
    recipe: Any = tag(DATA, assignment)
    for name in path.split("."):
        recipe = getattr(recipe, name)
    assert recipe == value and type(recipe) is type(value)


def test_a_kind_that_looks_like_a_number_can_be_set() -> None:
    assert loads(First | Second, "", base=BASE, overrides=["version=2"]) == Second()


def test_later_values_replace_earlier_ones() -> None:
    assert tag("seed = 1\n" + DATA, "seed=2").seed == 2
    assert tag(DATA + "[model]\nwidth = 2\nlayers = 3", "model={width=4}").model.layers == 6
    assert tag(DATA, "seed=1", "seed=2").seed == 2
    recipe = tag(DATA, "name=1", "model.width=2", "model={layers=3}", "model.bits=16")
    assert recipe.model == Model(layers=3, bits=16)
    assert error_of(DATA, "model.width=2", 'model={width="x"}').startswith(
        """override model={width="x"}: model.width: expected a whole number, got the string 'x'"""
    )


def test_setting_another_kind_drops_the_file_keys_of_the_old_one(tmp_path: Path) -> None:
    text = '[encoder]\nkind = "transformer"\nlayers = 7\nfeedforward.bias = false\n'

    def encoder(*overrides: str) -> dict[str, Any]:
        config = loads(EncoderDecoderConfig, text, base=tmp_path, overrides=overrides)
        return as_plain(config.encoder)

    gated = {"kind": "gated", "layers": 4, "kernel": 5, "causal": False, "dropout": 0.25}
    assert encoder("encoder.dropout=0.25", "encoder.kind=gated", "encoder.kernel=5") == gated
    assert encoder("encoder.kind=transformer")["layers"] == 7


WHOLE = "expected a whole number, got"
SIZE = "expected a number at least 1 and at most 1048576, got"
FORM = "expected the form key.key=value; write for example model.width=64"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", FORM),
        ("=3", FORM),
        ("#a=3", FORM),
        ("a..b=3", FORM),
        (
            "data.train.source=x",
            "data.train is the string 't.txt', not a table; set data.train as a whole",
        ),
        ("sede=1", "unknown key 'sede' at the top level; did you mean 'seed'?"),
        ("modl.width=1", "unknown key 'modl' at the top level; did you mean 'model'?"),
        ("model.widht=1", "unknown key 'widht' in [model]; did you mean 'width'?"),
        (
            "model.layers=six",
            f"model.layers: {WHOLE} the string 'six'; replace it by a whole number",
        ),
        ("model.layers=6.0", f"model.layers: {WHOLE} the number 6.0; write model.layers=6"),
        (
            "data.words=one",
            "data.words: expected an array, each a string, got the string 'one'; "
            "write 'data.words=[\"one\"]'",
        ),
        (
            "seed=1\nname=2",
            f"seed: {WHOLE} the string '1\\nname=2'; replace it by a whole number",
        ),
        ("name.x=3", "name: expected a string, got a table; replace it by a string"),
        (
            "model.layers=0",
            f"model.layers: {SIZE} 0; choose a number in this range, such as the default 2",
        ),
        (
            "model.attention.kind=dens",
            "unknown kind 'dens' in [model.attention]; "
            "choose one of 'dense', 'plain', 'scaled', 'random'",
        ),
        (
            "model.attention.hidden=3",
            "'hidden' belongs to kind 'dense', 'random', this is kind 'scaled'; "
            "remove 'hidden', or write kind = \"dense\"",
        ),
        ("model={width=5}", "model: width 5 is odd; change [model]"),
    ],
)
def test_wrong_override(assignment: str, message: str) -> None:
    shown = assignment.replace("\n", "\\n")  # a message is one line
    assert error_of(DATA, assignment) == f"override {shown}: {message}"


# Wrong values in the file


NORMS = "one of 'layer', 'rms', 'none'"


@pytest.mark.parametrize(
    ("text", "expected", "value", "fix"),
    [
        ('model.layers = "6"', "a whole number", "the string '6'", "write layers = 6"),
        ("model.layers = true", "a whole number", "true", ""),
        ("model.layers = 2024-01-02", "a whole number", "the date or time 2024-01-02", ""),
        (f"model.layers = 0x{'f' * 99}", "a whole number", "a number beyond 64 bits", ""),
        ("model.bias = 1", "true or false", "the number 1", ""),
        (f'model.bias = "{"x" * 99}"', "true or false", f"the string '{'x' * 40}'…", ""),
        ("data.words = 3", "an array, each a string", "the number 3", ""),
        ("data.dev = true", "a path or a number", "true", 'write dev = "true"'),
        ("data.dev = []", "a path or a number", "an array", ""),
        ('data.test = ""', "a path", "the string ''", ""),
        ('data.test = "a\\u0000b"', "a path", "the string 'a\\x00b'", ""),
        (
            "model.attention = 3",
            "a table",
            "the number 3",
            "write [model.attention] and below it 'kind'",
        ),
        (
            "model.stack = {width = 3}",
            "an array of tables",
            "a table",
            "write [[model.stack]] and below it 'width'",
        ),
        ('model.norm = "RMZ"', NORMS, "the string 'RMZ'", "did you mean 'rms'?"),
        ('model.norm = "batch"', NORMS, "the string 'batch'", ""),
        ('model.bits = "16"', "one of 8, 16", "the string '16'", "write bits = 16"),
        ("model.bits = 8.0", "one of 8, 16", "the number 8.0", "write bits = 8"),
        ("model.bits = 9", "one of 8, 16", "the number 9", ""),
    ],
)
def test_wrong_type(text: str, expected: str, value: str, fix: str) -> None:
    key = text.split(" ")[0]
    assert error_of(f'\ndata.train = "t"\n{text}') == (
        f"recipe.toml:3: {key}: expected {expected}, got {value}; "
        + (fix or f"replace it by {expected}")
    )


# DATA is lines 1 and 2.
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nlayrs = 3", "4: unknown key 'layrs' in [model]; did you mean 'layers'?"),
        (
            "[model.attention]\nwidth = 3",
            "4: unknown key 'width' in [model.attention]; "
            "'width' belongs in [model] or in [[model.stack]]",
        ),
        ("wurds = []\nheads = 1", "3: unknown key 'wurds' in [data]; did you mean 'words'?"),
        ("seed = 1", "3: unknown key 'seed' in [data]; 'seed' belongs at the top level"),
        ("bits = 1\n", "3: unknown key 'bits' in [data]; 'bits' belongs in [model]"),
        (
            "[model.attention]\nzzz = 1",
            "4: unknown key 'zzz' in [model.attention]; "
            "the known keys are 'kind', 'heads', 'dropout'",
        ),
        (
            "[[model.stack]]\nwidth = 1\n[[model.stack]]\nwidht = 1",
            "6: unknown key 'widht' in [[model.stack]]; did you mean 'width'?",
        ),
        (
            'words = [\n  "a",\n  3,\n]',
            '5: data.words[1]: expected a string, got the number 3; write "3"',
        ),
        (
            '[model.attention]\nkind = "scald"',
            "4: unknown kind 'scald' in [model.attention]; "
            "choose one of 'scaled', 'random', 'dense', 'plain'",
        ),
        (
            "[model.attention]\nkind = 3",
            "4: unknown kind the number 3 in [model.attention]; "
            "choose one of 'scaled', 'dense', 'random', 'plain'",
        ),
        (
            '[model.attention]\nkind = "random"\nheads = 3',
            "5: 'heads' belongs to kind 'scaled', this is kind 'random'; "
            "remove 'heads', or write kind = \"scaled\"",
        ),
        (
            '[model.attention]\nkind = "dense"',
            "3: missing required key 'hidden' in [model.attention]; "
            "add 'hidden', a whole number, to [model.attention]",
        ),
        (
            "[[model.stack]]\nwidth = 2\n[model.stack.score]\nheads = 2",
            "5: missing required key 'kind' in [model.stack.score]; "
            'add kind = "scaled" or "dense" or "plain"',
        ),
        (
            "dev = 1.0",
            "3: data.dev: expected a number above 0 and below 1, got 1.0; "
            "choose a number in this range, such as the default 0.1",
        ),
        (
            "dev = nan",
            "3: data.dev: expected a number above 0 and below 1, got nan; "
            "choose a number in this range, such as the default 0.1",
        ),
        (
            "weights = [1,\n-2]",
            "4: data.weights[1]: expected a number at least 0, got -2.0; "
            "choose a number in this range",
        ),
        (
            "[model.attention]\nheads = 65",
            "4: model.attention.heads: expected a number at least 1 and at most 64, got 65; "
            "choose a number in this range, such as the default 4",
        ),
        (
            f"[model]\nlayers = {2**20 + 1}",
            f"4: model.layers: {SIZE} 1048577; "
            "choose a number in this range, such as the default 2",
        ),
        ("[model]\nwidth = 3", "3: model: width 3 is odd; change [model]"),
    ],
)
def test_wrong_value(text: str, message: str) -> None:
    assert error_of(DATA + text) == f"recipe.toml:{message}"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "",
            Tag,
            "1: missing required key 'data' at the top level; write [data] and below it 'train'",
        ),
        (
            "\n\n[data]\ndev = 0.5",
            Tag,
            "3: missing required key 'train' in [data]; add 'train', a path, to [data]",
        ),
        (
            "",
            Answer,
            "1: missing required key 'read' at the top level; "
            "add 'read', a path, above the first table",
        ),
    ],
)
def test_missing_key(text: str, kind: type, message: str) -> None:
    assert error_of(text, kind=kind) == f"recipe.toml:{message}"


@pytest.mark.parametrize(
    ("limit", "accepted"),
    [("at_least", [3, 4]), ("at_most", [2, 3]), ("above", [4]), ("below", [2])],
)
def test_bounds_at_the_edge(limit: str, accepted: list[float]) -> None:
    @dataclass(frozen=True)
    class Sized:
        size: float = bounded(**{limit: 3})

    for size in (2.0, 3.0, 4.0):
        if size in accepted:
            assert loads(Sized, f"size = {size}", base=BASE).size == size
        else:
            assert f"{limit.replace('_', ' ')} 3, got" in error_of(f"size = {size}", kind=Sized)


def test_errors_of_a_config_name_the_overrides_in_its_table() -> None:
    assert error_of(DATA + "\n[model]\nlayers = 2", "seed=1", "model.width=5") == (
        "recipe.toml:4: model: width 5 is odd; change [model] or override model.width=5"
    )
    assert error_of("", "data.dev=0.5", kind=Outer) == (
        "recipe.toml:1: half is not enough; change the recipe or override data.dev=0.5"
    )
    assert error_of(DATA, "model.width=666") == "an error of the config; its fix"


# Files


def file_error(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_config(Tag, path)
    return str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.tml"
    missing = f"{path}: file not found (expected a TOML file); "
    assert file_error(path) == missing + "check the name and the folder"
    (tmp_path / "recipe.toml").touch()
    assert file_error(path) == missing + "did you mean 'recipe.toml'?"


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    message = f"{tmp_path}: this is a folder (expected a TOML file); "
    assert file_error(tmp_path) == message + "name a file inside it"
    (tmp_path / "r.toml").touch()
    assert file_error(tmp_path) == message + f"did you mean {tmp_path / 'r.toml'}?"


def test_encoding_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"seed = 1\nname = \xe9\n")
    assert file_error(path) == f"{path}:2: byte 8 is 0xe9 (expected UTF-8); save the file as UTF-8"
    path.write_bytes(b'\xef\xbb\xbfseed = 1\r\ndata.train = "t"\r\n')
    assert load_config(Tag, path).seed == 1
    path.write_bytes(b"seed = 1\r\n\r\nsede = 1\r\n")
    assert f"{path}:3: unknown key 'sede' at the top level" in file_error(path)


def test_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    comment = DATA + "#"
    path.write_text(comment + "x" * (MAX_BYTES - len(comment)))
    assert load_config(Tag, path).data.train == tmp_path / "t.txt"
    path.write_text("#" * (MAX_BYTES + 1))
    assert "(expected a TOML file of at most 65,536)" in file_error(path)


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("seed = 1\nname = foo", "2: invalid TOML at column 8: Invalid value", "in quotes"),
        ("seed = 1\nseed = 2\n", "2: invalid TOML at column 9: Cannot overwrite", "once"),
        ("[a]\n[a]\n", "2: invalid TOML at column 3: Cannot declare", "once"),
        ('name = "C:\\data"', "1: invalid TOML at column 13: Unescaped", "'C:\\data'"),
        ("seed 1", "1: invalid TOML at column 6: Expected '='", "https://toml.io"),
        ('\nname = """a\n\n', "2: invalid TOML: Unterminated string", "https://toml.io"),
        (f"seed = {'1' * 5000}", "1: invalid TOML: Exceeds the limit", "https://toml.io"),
    ],
)
def test_syntax_error(text: str, message: str, fix: str) -> None:
    error = error_of(text)
    assert error.startswith(f"recipe.toml:{message}") and fix in error


DEEP = ".".join("a" * 30_000)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 9999,
        DEEP + " = 1",
        f"[{DEEP}]",
        f"x = {{ {DEEP} = 1 }}",
        "\n".join(".".join("a" * 400) + f"{number} = 1" for number in range(80)),
        "x = " + "{ a = " * 40 + "1" + " }" * 40,
    ],
)
def test_deep_nesting_is_refused_before_it_costs_time(text: str) -> None:
    assert "recipe.toml: tables or arrays are nested too deeply" in error_of(text)


def test_deep_overrides() -> None:
    assert FORM in error_of(DATA, DEEP + "=1")
    assert tag(DATA, "name=" + "[" * 9999).name == "[" * 9999


# Writing


def test_dumps_is_readable() -> None:
    recipe = tag(
        DATA + '[[model.stack]]\nwidth = 3\nscore = {kind = "plain"}\n', "name=a\"'\\\n\x7f"
    )
    assert dumps(recipe) == dedent(r"""
        task = "tag"
        name = "a\"'\\\n\u007f"
        seed = 0
        rate = 1e-05

        [data]
        train = "/recipes/t.txt"
        dev = 0.1
        cache = "/recipes/cache"
        words = ["one", "two"]
        grid = []
        weights = []

        [model]
        layers = 6
        width = 64
        norm = "layer"
        bits = 8
        bias = true

        [model.attention]
        kind = "scaled"
        heads = 8
        dropout = 0.25

        [[model.stack]]
        width = 3

        [model.stack.score]
        kind = "plain"
    """).lstrip("\n")


def test_dumps_makes_paths_absolute() -> None:
    assert tomllib.loads(dumps(Answer(read=Path("x/../y"))))["read"] == str(CWD / "y")


def test_dumps_refuses_what_would_not_load_again() -> None:
    @dataclass(frozen=True)
    class Held:
        size: int | None = 3

    for config, name in ((Held(size=None), "Held"), (Outer(inner=First(size=None)), "First")):
        with pytest.raises(ValueError, match=rf"{name}\.size is None, but an absent key means 3"):
            dumps(config)
    with pytest.raises(UserError, match=r"'/\\udcff' is not valid Unicode"):
        dumps(Answer(read=Path(os.fsdecode(b"/\xff"))))


def test_as_plain_is_json() -> None:
    plain = as_plain(tag(DATA + "[[model.stack]]\nwidth = 3"))
    assert json.loads(json.dumps(plain)) == plain
    assert plain["minutes"] is None
    assert plain["data"]["train"] == "/recipes/t.txt"
    assert plain["model"]["stack"] == [{"width": 3, "score": None}]


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Arrays whose tables cannot have headers, and a key that cannot be bare."""

    größe: int = 1
    parts: tuple[Layer | float, ...] = ()
    nested: tuple[tuple[Plain, ...], ...] = ()


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1)
paths = names.filter(lambda name: name not in (".", "..")).map(lambda name: Path("/r", name))
numbers = st.integers(-(2**63), 2**20)
sizes = st.integers(1, 64)
scores = st.one_of(
    st.builds(Scaled, heads=sizes, dropout=st.floats(0, 0.99)),
    st.builds(Dense, hidden=numbers),
    st.builds(Plain),
)
layers = st.builds(Layer, width=numbers, score=st.none() | scores)
tags = st.builds(
    Tag,
    name=st.text(),
    seed=numbers,
    rate=st.floats(),
    minutes=st.none() | st.floats(),
    data=st.builds(
        Data,
        train=paths,
        dev=paths | st.floats(0.01, 0.99),
        test=st.none() | paths,
        cache=paths,
        words=st.lists(st.text()).map(tuple),
        grid=st.lists(st.lists(st.floats()).map(tuple)).map(tuple),
        weights=st.lists(st.floats(0)).map(tuple),
    ),
    model=st.builds(
        Model,
        layers=sizes,
        width=st.integers(1, 99).map(lambda half: 2 * half),
        norm=st.sampled_from(["layer", "rms", "none"]),
        bits=st.sampled_from([8, 16]),
        bias=st.booleans(),
        attention=scores | st.builds(Random, length=numbers, hidden=numbers),
        stack=st.lists(layers).map(tuple),
    ),
)
mixed = st.builds(
    Mixed,
    größe=numbers,
    parts=st.lists(layers | st.floats()).map(tuple),
    nested=st.lists(st.lists(st.builds(Plain)).map(tuple)).map(tuple),
)


# By repr, for which nan is nan and -0.0 is not 0.0.
@given(tags | st.builds(Answer, read=paths))
def test_round_trip_of_a_root_union(recipe: Tag | Answer) -> None:
    assert repr(loads(Tag | Answer, dumps(recipe), base=BASE)) == repr(recipe)


@given(mixed | layers)
def test_round_trip_of_one_record(record: Mixed | Layer) -> None:
    assert repr(loads(type(record), dumps(record), base=BASE)) == repr(record)


@given(st.text())
def test_a_quoted_override_is_exact(text: str) -> None:
    quoted = dumps(Tag(name=text, data=Data(train=Path("/t")))).split("\n")[1]
    assert quoted.startswith("name = ")
    assert tag(DATA, quoted).name == text


class Loud(float):
    def __repr__(self) -> str:
        return f"Loud({float(self)})"


@pytest.mark.parametrize(
    "rate", [1e-5, 1e16, 1e22, 5e-324, -0.0, math.inf, -math.inf, math.nan, Loud(0.5)]
)
def test_round_trip_of_floats(rate: float) -> None:
    recipe = Tag(rate=rate, data=Data(train=Path("/t")))
    assert repr(loads(Tag, dumps(recipe), base=BASE).rate) == float.__repr__(rate)


# Lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[a.b]\n\n[a]\n", {("a",): 3, ("a", "b"): 1}),
        (  # a table below an array belongs to its last item
            "[[a]]\n[[a]]\n[a.b]\nc = 1\n",
            {("a",): 1, ("a", 0): 1, ("a", 1): 2, ("a", 1, "b"): 3, ("a", 1, "b", "c"): 4},
        ),
    ],
)
def test_lines_of_tables(text: str, lines: dict[Key, int]) -> None:
    assert lines_of(text) == lines


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
        self.lines: dict[Key, int] = {}
        self.arrays: dict[tuple[str, ...], int] = {}
        self.keys = 0

    def choose(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def mark(self, path: Key) -> Key:
        self.lines.setdefault(path, self.text.count("\n") + 1)
        return path

    def key(self, path: Key) -> Key:
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

    def dotted(self, path: Key) -> Key:
        path = self.key(path)
        for _ in range(self.choose([0, 0, 1, 2])):
            self.text += self.choose([".", " . "])
            path = self.key(path)
        return path

    def value(self, path: Key, depth: int, one_line: bool) -> None:
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

    def pair(self, path: Key, depth: int = 3, one_line: bool = False) -> None:
        path = self.dotted(path)
        self.text += self.choose(["=", " = "])
        self.value(path, depth, one_line)

    def header(self) -> Key:
        spellings = self.choose([*self.arrays, ()])
        again = bool(spellings) and self.choose([True, False])
        double = again or self.choose([True, False])
        self.text += "[[" if double else "["
        path: Key = ()
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
def documents(draw: st.DrawFn) -> tuple[str, dict[Key, int]]:
    writer = Writer(draw)
    table: Key = ()
    for _ in range(writer.choose(range(9))):
        if writer.choose(["pair", "pair", "header"]) == "header":
            table = writer.header()
        else:
            writer.pair(table)
        writer.text += writer.choose(["\n", "\r\n", " # [k1]\n", "\n\n# '''\n  "])
    return writer.text, writer.lines


def keys_of(tree: Any, path: Key = ()) -> set[Key]:
    if isinstance(tree, dict | list):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {path}.union(*(keys_of(value, (*path, key)) for key, value in pairs))
    return {path}


@given(documents())
def test_every_key_is_found_on_its_line(document: tuple[str, dict[Key, int]]) -> None:
    text, lines = document
    assert keys_of(tomllib.loads(text)) == {*lines, ()}  # the writer itself is right
    assert lines_of(text) == lines
