"""Record attention to disk, one file per call, so that memory use stays bounded.

    folder/index.json                   names, heads, steps and shapes of all calls, in order
    folder/00000000.safetensors         tensors of the first call

The folder is created when the `with` block ends without an error. A folder that contains anything
but a recording is never replaced, and an index cannot refer to files outside its folder.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from os import PathLike
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from harken.errors import Failure, UserError
from harken.files import replacing_folder, write_tensors
from harken.inputs import exists, is_file, is_folder, read_json, safetensors_header
from harken.inspection.activations import check_module
from harken.inspection.record import (
    ALL,
    AttentionRecord,
    Selection,
    attention_layers,
    has_multihead,
    on_attention,
)

FORMAT = "harken recording 2"  # version 1 counted layers and heads from 0
INDEX = "index.json"
MAX_INDEX = 2**28  # bytes; a call takes about 200
FILE = re.compile(r"[0-9]{8}\.safetensors")
KINDS = ("weights", "queries", "keys", "values")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredCall:
    """One call of an attention layer, with its tensors on disk."""

    path: Path  # of the file with the tensors
    name: str  # path of the attention layer in the model
    layer: int  # counted from 1
    heads: Sequence[int]  # counted from 1
    steps: Sequence[int]  # indices of queries, counted from 0
    shapes: dict[str, tuple[int, ...]]  # "weights", "queries", "keys" or "values" -> shape

    def read(self, kind: str = "weights") -> Float[Tensor, "B k time size"]:
        """Read weights (B k T S), queries (B k T U), keys (B k S U) or values (B k S I)."""
        if kind not in self.shapes:
            raise UserError(
                f"{self.path}: {kind!r} not recorded (expected one of {', '.join(self.shapes)})",
                fix="choose one of these, or record with queries, keys or values in the Selection",
            )
        if self.path.is_symlink() or not is_file(self.path):
            raise _damaged(self.path, "not a regular file")
        try:
            safetensors_header(self.path)
            with safe_open(self.path, framework="pt") as file:
                shape = tuple(file.get_slice(kind).get_shape())
                if shape != self.shapes[kind]:
                    raise _damaged(self.path, f"{kind} have an unexpected shape {list(shape)}")
                tensor: Tensor = file.get_tensor(kind)
        except (Failure, SafetensorError, OSError) as error:
            raise _damaged(self.path, str(error)) from error
        return tensor


@dataclass(frozen=True, slots=True)
class StoredRecording:
    """Calls in the order in which they ran, and the texts of each row's tokens if given."""

    calls: tuple[StoredCall, ...]
    tokens: tuple[tuple[str, ...], ...] = ()


@contextmanager
def record_to_disk(
    model: nn.Module,
    folder: str | PathLike[str],
    selection: Selection = ALL,
    tokens: Sequence[Sequence[str]] = (),
) -> Iterator[None]:
    """Record attention to a folder inside the `with` block.

    Arguments:
        model: as for `harken.record`.
        folder: a new or empty folder, or a recording to replace.
        selection: which layers, heads and steps; all by default.
        tokens: texts of the tokens of each row, stored with the recording.

        with torch.inference_mode(), harken.record_to_disk(model, "recording"):
            model(torch.tensor([[3, 1, 4]]))
    """
    check_module(model)
    folder = Path(folder)
    if has_multihead(model):
        attention_layers(model, selection)  # raises early if the selection matches nothing
    _check_replaceable(folder)
    calls: list[dict[str, Any]] = []
    with replacing_folder(folder) as unfinished:

        def save(record: AttentionRecord) -> None:
            name = f"{len(calls):08d}.safetensors"
            recorded = {kind: getattr(record, kind) for kind in KINDS}
            tensors = {kind: tensor for kind, tensor in recorded.items() if tensor is not None}
            write_tensors(unfinished / name, tensors)
            calls.append(
                {
                    "file": name,
                    "name": record.name,
                    "layer": record.layer,
                    "heads": list(record.heads),
                    "steps": list(record.steps),
                    "shapes": {kind: list(tensor.shape) for kind, tensor in tensors.items()},
                }
            )

        with on_attention(model, selection, save):
            yield
        index = {"format": FORMAT, "tokens": [list(row) for row in tokens], "calls": calls}
        (unfinished / INDEX).write_text(dumps(index, ensure_ascii=False) + "\n", encoding="utf-8")


def open_recording(folder: str | PathLike[str]) -> StoredRecording:
    """Open a recording of `harken.record_to_disk`.

    Arguments:
        folder: the folder of the recording.

    Returns a `StoredRecording` with `tokens` and `calls` in the order in which they ran. A call has
    `name`, `layer`, `heads`, `steps` and `shapes`; `call.read("weights")` reads a tensor (batch,
    heads, queries, keys) from disk.

        recording = harken.open_recording("recording")
        recording.calls[0].name, recording.calls[0].read("weights").shape
    """
    folder = Path(folder)
    path = folder / INDEX
    index = read_json(path, "the index of a recording", max_bytes=MAX_INDEX)
    match index:
        case {"format": str(version), "tokens": list(tokens), "calls": list(calls)}:
            if version == FORMAT and all(_is_list_of(row, str) for row in tokens):
                stored = tuple(_parse_call(folder, call) for call in calls)
                return StoredRecording(stored, tuple(map(tuple, tokens)))
            if version != FORMAT:
                problem = f"{path}: expected the format {FORMAT!r}, got {version[:60]!r}"
                raise UserError(problem, fix="record it again with this version of Harken")
    raise _damaged(path, "invalid index")


def _parse_call(folder: Path, call: Any) -> StoredCall:
    match call:
        case {
            "file": str(file),
            "name": str(name),
            "layer": int(layer),
            "heads": list(heads),
            "steps": list(steps),
            "shapes": {"weights": _} as shapes,
        } if (
            FILE.fullmatch(file)
            and shapes.keys() <= {*KINDS}
            and all(_is_list_of(numbers, int) for numbers in (heads, steps, *shapes.values()))
        ):
            return StoredCall(
                path=folder / file,
                name=name,
                layer=layer,
                heads=tuple(heads),
                steps=tuple(steps),
                shapes={kind: tuple(shape) for kind, shape in shapes.items()},
            )
    raise _damaged(folder / INDEX, f"invalid call {str(call)[:60]}")


def _check_replaceable(folder: Path) -> None:
    """Raise unless the folder is new, empty, or contains only a recording."""
    if not exists(folder):
        return
    fix = "choose a new folder, or empty this one"
    if not is_folder(folder):
        raise UserError(f"{folder}: expected a folder to record to, got a file", fix=fix)
    names = {path.name for path in folder.iterdir()}
    if INDEX in names:
        names -= {INDEX, *(call.path.name for call in open_recording(folder).calls)}
    if names:
        problem = f"{folder}: contains {min(names)!r}, which is not part of a recording"
        raise UserError(problem, fix=fix)


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def _damaged(path: Path, defect: str) -> UserError:
    return UserError(f"{path}: damaged recording ({defect})", fix="record it again")
