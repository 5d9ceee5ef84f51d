from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Union

import pytest

from harken.config import as_plain, load_config, loads
from harken.models.seq2seq import EncoderDecoderConfig
from small_config import (
    BASE,
    DATA,
    Answer,
    Data,
    Dense,
    First,
    Layer,
    Model,
    Plain,
    Random,
    Scaled,
    Second,
    Tag,
    error_of,
    load_tag,
)


def test_every_type_is_read() -> None:
    recipe = load_tag("""
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
    grid = ((1.0, 2.5), ())
    data = Data(train=BASE / "t.txt", test=Path("/abs/test"), words=("x", "y"), grid=grid)
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
    assert attrgetter(path)(load_tag(DATA + text)) == value


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
            "3: 'seed' belongs to task 'tag', but this is task 'answer'; remove 'seed', or write "
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
    assert loads(old, 'task = "tag"\n' + DATA, base=BASE) == load_tag()
    assert error_of(text, kind=either) == f"recipe.toml:{message}"


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

    for kind, part in (
        (Bag, "dict"),
        (Either, "str from a Path"),
        (Twins, "Tag, Layer: expected a field"),
    ):
        with pytest.raises(TypeError, match=part):
            loads(kind, "field = {}", base=BASE)


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
    assert data.test == Path("/home/me/x")
    assert data.dev == tmp_path / "e"
    assert load_config(Tag, path, ["data.test=~/y"]).data.test == Path("/home/me/y")
    assert load_config(Tag, path, ['data={train="t"}']).data.train == tmp_path / "t"


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
    result = attrgetter(path)(load_tag(DATA, assignment))
    assert result == value and type(result) is type(value)


def test_a_kind_that_looks_like_a_number_can_be_set() -> None:
    assert loads(First | Second, "", base=BASE, overrides=["version=2"]) == Second()


def test_later_values_replace_earlier_ones() -> None:
    assert load_tag("seed = 1\n" + DATA, "seed=2").seed == 2
    assert load_tag(DATA + "[model]\nwidth = 2\nlayers = 3", "model={width=4}").model.layers == 6
    assert load_tag(DATA, "seed=1", "seed=2").seed == 2
    recipe = load_tag(DATA, "name=1", "model.width=2", "model={layers=3}", "model.bits=16")
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
