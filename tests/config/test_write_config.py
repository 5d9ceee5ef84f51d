import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.config import as_plain, dumps, loads
from harken.errors import UserError
from small_config import (
    BASE,
    DATA,
    Answer,
    Data,
    Dense,
    First,
    Layer,
    Model,
    Outer,
    Plain,
    Random,
    Scaled,
    Tag,
    load_tag,
)

CWD = Path.cwd()


def test_dumps_is_readable() -> None:
    recipe = load_tag(
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
    plain = as_plain(load_tag(DATA + "[[model.stack]]\nwidth = 3"))
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
    assert load_tag(DATA, quoted).name == text


class Loud(float):
    def __repr__(self) -> str:
        return f"Loud({float(self)})"


def test_subclasses_of_float_are_written_as_numbers() -> None:
    assert "rate = 0.5\n" in dumps(Tag(rate=Loud(0.5), data=Data(train=Path("/t"))))
