"""Strict recipes: TOML <-> frozen dataclasses.

    recipe = load(Recipe, Path("recipe.toml"), ["model.width=64"])
    assert loads(Recipe, dumps(recipe), base=Path()) == recipe

The rooms, in the order in which they import each other:

    lines.py       on which line each key of a TOML text stands
    spelling.py    the word that was probably meant
    schema.py      what the dataclasses say: keys, types, bounds, defaults, kinds
    write.py       record -> TOML and plain dicts
    source.py      file and `--set` -> one tree that remembers where each value came from
    complaints.py  the sentences for what is wrong
    build.py       tree -> record

Not here: any record of Harken's own. Each stands beside what it builds.
"""

from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, overload

from harken.config.build import build
from harken.config.schema import (
    MAX_BATCH,
    MAX_KERNEL,
    MAX_LAYERS,
    MAX_SEED,
    MAX_STEPS,
    bounded,
    types_of,
)
from harken.config.source import Place, parse, read
from harken.config.write import as_plain, dumps

__all__ = [
    "MAX_BATCH",
    "MAX_KERNEL",
    "MAX_LAYERS",
    "MAX_SEED",
    "MAX_STEPS",
    "as_plain",
    "bounded",
    "dumps",
    "load",
    "loads",
]

T = TypeVar("T")


@overload
def load(kind: type[T], path: Path, overrides: Sequence[str] = ()) -> T: ...
@overload
def load(kind: UnionType, path: Path, overrides: Sequence[str] = ()) -> Any: ...
def load(kind: Any, path: Path, overrides: Sequence[str] = ()) -> Any:
    """The record in a file, each override being the `a.b=v` of a `--set`.

    Paths in the file are relative to its folder, those in overrides to the working directory.
    """
    return loads(kind, read(path), name=str(path), base=path.parent, overrides=overrides)


@overload
def loads(
    kind: type[T], text: str, *, name: str = "<text>", base: Path, overrides: Sequence[str] = ()
) -> T: ...
@overload
def loads(
    kind: UnionType, text: str, *, name: str = "<text>", base: Path, overrides: Sequence[str] = ()
) -> Any: ...
def loads(
    kind: Any, text: str, *, name: str = "<text>", base: Path, overrides: Sequence[str] = ()
) -> Any:
    """The record in a text; `name` is what errors call it, `base` what its paths are relative to.

    A table that a record has a default for starts from that default: one key written changes one
    value. A table of another kind starts from the defaults of that kind.
    """
    kinds = types_of(kind)
    source = parse(text, name=name, base=base, kinds=kinds, overrides=overrides)
    return build(kinds, source.tree, Place(source))
