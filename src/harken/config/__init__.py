"""Recipes: strict conversion between TOML and frozen dataclasses.

    recipe = load_config(Recipe, Path("recipe.toml"), ["model.width=64"])
    assert loads(Recipe, dumps(recipe), base=Path()) == recipe

`schema` reads the dataclasses, `lines` and `source` read TOML and `--set`, `build` makes the config
from both, and `write` converts it back. Each config class is defined next to what it configures.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from harken.config.source import KeyPath, parse, read
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
    "load_config",
    "loads",
]


def load_config(kind: Any, path: Path, overrides: Sequence[str] = ()) -> Any:
    """Load a config of a class, or of a union of classes, from a TOML file.

    Paths in the file are relative to its folder, those in overrides to the working directory.
    """
    return loads(kind, read(path), name=str(path), base=path.parent, overrides=overrides)


def loads(
    kind: Any, text: str, *, name: str = "<text>", base: Path, overrides: Sequence[str] = ()
) -> Any:
    """Load a config from a text; `name` is its name in errors, `base` the folder of its paths.

    A table with a default starts from that default, so writing a key changes only that key. A table
    of another kind starts from the defaults of that kind.
    """
    types = types_of(kind)
    source = parse(text, name=name, base=base, types=types, overrides=overrides)
    return build(types, source.tree, KeyPath(source))
