"""Record the recipe, data, starting weights, versions and threads with which a run was started.

`provenance.json` is written before the first step. A run is resumed only with the same data and the
same recipe, except for `training.runtime.reduction`, and uses the recorded number of threads unless
the recipe sets one. Another reduction, or other versions of Harken or PyTorch, cause a warning,
since they may change the last bits of the weights.
"""

import dataclasses
import difflib
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harken.config import as_plain, dumps
from harken.errors import Failure, UserError
from harken.files import sha256
from harken.formats.corpus import is_glob, matching_files
from harken.inputs import is_file, read_json
from harken.recipe import Recipe
from harken.run_folder import PROVENANCE
from harken.start import starting_files
from harken.version import __version__

MAX_BYTES = 2**26  # a corpus may have 100,000 files
SOFTWARE = {"harken": "Harken", "torch": "PyTorch"}


def provenance(recipe: Recipe, splits: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
    """Return the recipe, digests of data and starting weights, versions, the number of threads."""
    return {
        "harken": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "recipe": dumps(recipe),
        "data": {
            key: f"{path.stat().st_size} bytes, sha256 {sha256(path)}"
            for key, path in (
                *_data_files(as_plain(recipe)["data"], "data"),
                *starting_files(recipe),
            )
        },
        "referenced": {name: _referenced(examples) for name, examples in splits.items()},
    }


def recorded_threads(folder: Path) -> int:
    """Return the number of CPU threads that a run was started with."""
    return int(_read(folder)["threads"])


def recorded_version(folder: Path) -> str | None:
    """Return the version of Harken that a run was started with, if it is recorded."""
    return str(_read(folder)["harken"]) if is_file(folder / PROVENANCE) else None


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """Raise `UserError` if the recipe changed; warn if only `training.runtime.reduction` did."""
    started, now = _read(folder)["recipe"].splitlines(), dumps(recipe).splitlines()
    if started == now:
        return
    changes = list(difflib.ndiff(started, now))
    removed, added = ([line[2:] for line in changes if line.startswith(sign)] for sign in "-+")
    if all(line.startswith("reduction = ") for line in (*removed, *added)):
        warnings.warn(
            f"{folder}: training.runtime.{added[0]}, but the run was started with {removed[0]}; "
            "the weights may differ in the last bits from those of an uninterrupted run",
            stacklevel=2,
        )
        return
    raise UserError(
        f"{folder}: the recipe differs from the one that the run was started with "
        f"(expected {_quoted(removed)}, got {_quoted(added)})",
        fix=f"undo the change and run `harken train {folder / 'recipe.toml'} --resume`, "
        "or train in a new run folder",
    )


def check_data(folder: Path, now: Mapping[str, Any]) -> None:
    """Raise `UserError` if the data changed; warn if versions differ."""
    started = _read(folder)
    changed = [
        f"the file of {key}"
        for key in sorted(started["data"].keys() | now["data"].keys())
        if started["data"].get(key) != now["data"].get(key)
    ]
    changed += [
        f"files that the {name} data refer to"
        for name, digest in now["referenced"].items()
        if started["referenced"].get(name) != digest
    ]
    if changed:
        message = f"{folder}: {changed[0]} changed after the run was started"
        raise UserError(message, fix="restore the data, or train in a new run folder")
    for key, title in SOFTWARE.items():
        if started[key] != now[key]:
            warnings.warn(
                f"{folder}: {title} is {now[key]}, but the run was started with {started[key]}; "
                "the weights may differ in the last bits from those of an uninterrupted run",
                stacklevel=2,
            )


def _read(folder: Path) -> dict[str, Any]:
    path = folder / PROVENANCE
    try:
        stored = read_json(path, "the provenance of a run", max_bytes=MAX_BYTES)
        kinds = {"recipe": str, "data": dict, "referenced": dict, "threads": int}
        for key, kind in kinds.items():
            if not isinstance(stored[key], kind):
                raise TypeError(f"{key!r} is {type(stored[key]).__name__}")
        return {key: stored[key] for key in (*SOFTWARE, *kinds)}
    except (UserError, KeyError, TypeError) as error:
        fix = "restore it from a copy, or train in a new run folder"
        reason = f"no key {error}" if isinstance(error, KeyError) else error
        unreadable = f"{path}: cannot be read ({reason})"
        problem = error.message if isinstance(error, UserError) else unreadable
        raise Failure(problem, fix=fix) from None


def _data_files(value: Any, key: str) -> Iterator[tuple[str, Path]]:
    """Yield the files in the data table of a recipe, and arrays next to them with the same stem."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _data_files(entry, f"{key}.{name}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _data_files(entry, f"{key}[{index}]")
    elif isinstance(value, str) and is_glob(path := Path(value)):
        yield from ((f"{key} ({match})", match) for match in matching_files(path))
    elif isinstance(value, str) and path.is_absolute() and is_file(path):
        yield key, path
        for suffix in (".npz", ".npy"):
            if is_file(path.with_suffix(suffix)) and path.suffix != suffix:
                yield f"{key} ({path.stem}{suffix})", path.with_suffix(suffix)


def _referenced(examples: Iterable[Any]) -> str | None:
    """Return a digest of the sizes, not the contents, of the files that examples refer to."""
    sizes = [
        value.stat().st_size
        for example in examples
        if dataclasses.is_dataclass(example)
        for field in dataclasses.fields(example)
        if isinstance(value := getattr(example, field.name), Path) and is_file(value)
    ]
    return hashlib.sha256(str(sizes).encode()).hexdigest() if sizes else None


def _quoted(lines: list[str]) -> str:
    if not lines:
        return "no such line"
    return repr(lines[0]) + (f" and {len(lines) - 1} more" if len(lines) > 1 else "")
