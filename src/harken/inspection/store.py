"""A recording on disk: each call is written as it happens and let go, so that memory stays bounded.

    with storing(model, folder):
        model(tokens)
    recording = open_recording(folder)
    recording.calls[0].read()           # B k T S, from the disk only now

    folder/index.json                   what was recorded, in order
    folder/00000000.safetensors         tensors of the first call

A folder is whole or not there: it gets its name when the block ends well. One that holds anything
but a recording is never touched. What an index says is checked before anything is read; it can name
no file but those that stand beside it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from harken.errors import Failure, UserError
from harken.files import replacing, replacing_folder, write_tensors
from harken.inputs import exists, is_file, is_folder, read_json, safetensors_header
from harken.inspection.record import ALL, Choice, Recorded, attentions, watch
from harken.strict_json import is_whole, text_of, wrong

FORMAT = "harken recording 2"  # 1 counted layers and heads from 0
INDEX = "index.json"
MAX_INDEX = 2**28  # bytes; a call takes about 200
FILE = re.compile(r"[0-9]{8}\.safetensors")
PARTS = ("weights", "queries", "keys", "values")
AXES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredCall:
    """One call of one attention; its tensors are still on the disk."""

    path: Path
    name: str
    layer: int
    heads: Sequence[int]
    steps: Sequence[int]
    shapes: dict[str, tuple[int, ...]]  # of the parts that were recorded

    def read(self, part: str = "weights") -> Float[Tensor, "B k first second"]:
        """Weights, queries, keys or values."""
        if part not in self.shapes:
            raise UserError(
                f"{self.path}: found no {part}, wanted one of {', '.join(self.shapes)}",
                fix=f"record again with Choice({part}=True)",
            )
        if self.path.is_symlink() or not is_file(self.path):
            raise _damaged(self.path, "no file of its own")
        try:
            safetensors_header(self.path)
            with safe_open(self.path, framework="pt") as file:
                shape = tuple(file.get_slice(part).get_shape())
                if shape != self.shapes[part]:
                    raise _damaged(self.path, f"{part} of shape {list(shape)}")
                tensor: Tensor = file.get_tensor(part)
        except (Failure, SafetensorError, OSError) as error:
            raise _damaged(self.path, str(error)) from error
        return tensor


@dataclass(frozen=True, slots=True)
class Recording:
    """Calls in the order in which they ran, and what the model was told where that was said."""

    calls: tuple[StoredCall, ...]
    tokens: tuple[tuple[str, ...], ...] = ()


@contextmanager
def storing(
    model: nn.Module,
    folder: str | PathLike[str],
    choice: Choice = ALL,
    tokens: Sequence[Sequence[str]] = (),
) -> Iterator[None]:
    """Record to a folder for the length of the block; `tokens` are texts, row by row."""
    folder = Path(folder)
    chosen = attentions(model, choice)
    _check_free(folder)
    calls: list[dict[str, Any]] = []
    with replacing_folder(folder) as unfinished:

        def tell(one: Recorded) -> None:
            name = f"{len(calls):08d}.safetensors"
            parts = {part: getattr(one, part) for part in PARTS}
            tensors = {part: tensor for part, tensor in parts.items() if tensor is not None}
            write_tensors(unfinished / name, tensors)
            calls.append(
                {
                    "file": name,
                    "name": one.name,
                    "layer": one.layer,
                    "heads": list(one.heads),
                    "steps": list(one.steps),
                    "shapes": {part: list(tensor.shape) for part, tensor in tensors.items()},
                }
            )

        with watch(chosen, choice, tell):
            yield
        index = {"format": FORMAT, "tokens": [list(row) for row in tokens], "calls": calls}
        (unfinished / INDEX).write_text(dumps(index, ensure_ascii=False) + "\n", encoding="utf-8")


def open_recording(folder: str | PathLike[str]) -> Recording:
    """What is in a folder, checked; tensors are read when they are asked for."""
    folder = Path(folder)
    path = folder / INDEX
    index = read_json(path, "the index of a recording", max_bytes=MAX_INDEX)
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(path, f"no {FORMAT!r}")
    tokens = index.get("tokens", [])
    if not isinstance(tokens, list) or not all(_texts(row) for row in tokens):
        raise wrong(str(path), "tokens", tokens, "lists of texts")
    calls = index.get("calls")
    if not isinstance(calls, list):
        raise wrong(str(path), "calls", calls, "a list")
    stored = tuple(_call(folder, f"{path}: call {at}", one) for at, one in enumerate(calls))
    return Recording(stored, tuple(map(tuple, tokens)))


def write_npz(recording: Recording, path: str | PathLike[str]) -> None:
    """The same as one file of NumPy: `00000000/stack.blocks.0.attention/weights`, and so on."""
    with replacing(Path(path)) as unfinished, ZipFile(unfinished, "w") as archive:
        for number, call in enumerate(recording.calls):
            for part in call.shapes:
                tensor = call.read(part)
                array = tensor.numpy() if tensor.dtype.itemsize > 2 else tensor.float().numpy()
                name = f"{number:08d}/{call.name}/{part}.npy"
                with archive.open(name, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)


def _call(folder: Path, where: str, one: Any) -> StoredCall:
    if not isinstance(one, dict):
        raise wrong(where, "calls", one, "an object")
    file = text_of(where, "file", one.get("file"))
    if not FILE.fullmatch(file):
        raise wrong(where, "file", file, "a name such as 00000000.safetensors")
    layer, shapes = one.get("layer"), one.get("shapes")
    if not isinstance(layer, int) or not is_whole(layer):
        raise wrong(where, "layer", layer, "a whole number")
    for key in ("heads", "steps"):
        if not _wholes(one.get(key)):
            raise wrong(where, key, one.get(key), "whole numbers")
    if not isinstance(shapes, dict) or "weights" not in shapes or not set(shapes) <= set(PARTS):
        raise wrong(where, "shapes", shapes, f"weights, and others of {', '.join(PARTS)}")
    for part, shape in shapes.items():
        if not _wholes(shape) or len(shape) != AXES:
            raise wrong(where, part, shape, "the lengths of four axes")
    if shapes["weights"][1:3] != [len(one["heads"]), len(one["steps"])]:
        raise wrong(where, "weights", shapes["weights"], "as many heads and steps as are named")
    return StoredCall(
        path=folder / file,
        name=text_of(where, "name", one.get("name")),
        layer=layer,
        heads=tuple(one["heads"]),
        steps=tuple(one["steps"]),
        shapes={part: tuple(shape) for part, shape in shapes.items()},
    )


def _check_free(folder: Path) -> None:
    """A folder that is not there or is empty, or a recording with nothing beside it."""
    if not exists(folder):
        return
    fix = "choose a new folder, or empty this one"
    if not is_folder(folder):
        raise UserError(f"{folder}: found a file, wanted a folder to record to", fix=fix)
    there = {path.name for path in folder.iterdir()}
    if there and INDEX in there:
        there -= {INDEX, *(call.path.name for call in open_recording(folder).calls)}
    if there:
        raise UserError(f"{folder}: found {min(there)!r}, wanted nothing but a recording", fix=fix)


def _wholes(value: object) -> bool:
    return isinstance(value, list) and all(is_whole(one) and one >= 0 for one in value)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _damaged(path: Path, found: str) -> UserError:
    return UserError(f"{path}: found {found}, wanted a whole recording", fix="record it again")
