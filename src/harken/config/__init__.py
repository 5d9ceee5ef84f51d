"""Recipes: strict conversion between TOML and frozen dataclasses.

    recipe = load_config(Recipe, Path("recipe.toml"), ["model.width=64"])
    assert loads(Recipe, dumps(recipe), base=Path()) == recipe

`schema` reads the dataclasses, `lines` and `source` read TOML and `--set`, `determined` adds keys
that another file determines, `build` constructs the config, and `write` converts it to TOML. Each
config class is defined next to what it configures.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harken.config.build import build
from harken.config.determined import Determined
from harken.config.schema import (
    MAX_BATCH,
    MAX_KERNEL,
    MAX_LAYERS,
    MAX_SEED,
    MAX_STEPS,
    bounded,
    types_of,
)
from harken.config.source import KeyPath, Source, parse, read
from harken.config.write import as_plain, dumps

__all__ = [
    "MAX_BATCH",
    "MAX_KERNEL",
    "MAX_LAYERS",
    "MAX_SEED",
    "MAX_STEPS",
    "Determined",
    "as_plain",
    "bounded",
    "dumps",
    "load_config",
    "load_source",
    "loads",
]


def load_config(
    config_type: Any,
    path: Path,
    overrides: Sequence[str] = (),
    determined: Determined | None = None,
) -> Any:
    """Load a config from a TOML file; `config_type` is a class or a union of classes.

    Paths in the file are relative to its folder, those in overrides to the working directory.
    """
    options: dict[str, Any] = {"overrides": overrides, "determined": determined}
    return loads(config_type, read(path), name=str(path), base=path.parent, **options)


def load_source(path: Path, overrides: Sequence[str] = ()) -> Source:
    """Return the unchecked values of a TOML file, changed by the overrides."""
    return parse(read(path), name=str(path), base=path.parent, types=(), overrides=overrides)


def loads(
    config_type: Any,
    text: str,
    *,
    name: str = "<text>",
    base: Path,
    overrides: Sequence[str] = (),
    determined: Determined | None = None,
) -> Any:
    """Load a config from TOML text. `name` appears in errors; paths are relative to `base`.

    A table with a default starts from that default: a key in the file changes this key and resets
    the keys that it excludes (see `bounded`). If the table changes its `kind`, it starts from the
    defaults of the new kind.
    """
    types = types_of(config_type)
    source = parse(text, name=name, base=base, types=types, overrides=overrides)
    if determined is not None:
        determined.insert(source.tree, KeyPath(source))
    return build(types, source.tree, KeyPath(source))
