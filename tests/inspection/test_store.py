"""Recordings on disk: round trips, damaged files, and folders that must not be overwritten."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from choices import EVERY_SCORE, name
from harken.attention.kernels import fused_attention
from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import MergedConfig
from harken.errors import UserError
from harken.inspection.record import Selection, attention_layers, record
from harken.inspection.store import INDEX, open_recording, record_to_disk
from small_models import LAYERS, small_config, small_model, stirred

TOKENS = torch.arange(1, 15).reshape(2, 7)
SELECTION = Selection(heads=(3, 1), steps=(1, 5, -1), queries=True, keys=True, values=True)
WORDS = [["so"] * 7, ["ä"] * 7]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of two passes."""
    model = small_model()
    with record_to_disk(model, tmp_path / "recording", SELECTION, WORDS):
        model(TOKENS)
        model(TOKENS[:, :6])
    return tmp_path / "recording"


def test_recordings_are_read_back(folder: Path) -> None:
    model, recording = small_model(), open_recording(folder)
    with record(model, SELECTION) as records:
        model(TOKENS)
        model(TOKENS[:, :6])
    assert recording.tokens == tuple(map(tuple, WORDS))
    assert len(recording.calls) == 2 * LAYERS
    for call, expected in zip(recording.calls, records, strict=True):
        assert (call.name, call.layer) == (expected.name, expected.layer)
        assert (call.heads, call.steps) == (tuple(expected.heads), tuple(expected.steps))
        for part in ("weights", "queries", "keys", "values"):
            assert torch.equal(call.read(part), getattr(expected, part))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("v_proj", [False, True])
@pytest.mark.parametrize("score", EVERY_SCORE, ids=name)
def test_tensors_that_share_memory_are_stored(
    score: Any, v_proj: bool, heads: int, tmp_path: Path
) -> None:
    """A merged score without a value matrix uses the inputs themselves as keys and values."""
    attention = MultiHeadConfig(
        heads=heads,
        score=score,
        v_proj=v_proj,
        key_width=None if isinstance(score, MergedConfig) else 4,
        head_width=5 if v_proj else None,
    )
    model = stirred(replace(small_config(), attention=attention))
    selection = Selection(queries=True, keys=True, values=True)
    with (
        record(model, selection) as records,
        record_to_disk(model, tmp_path / "recording", selection),
    ):
        model(TOKENS)
    for call, expected in zip(open_recording(tmp_path / "recording").calls, records, strict=True):
        for part in call.shapes:
            assert torch.equal(call.read(part), getattr(expected, part))


def test_calls_are_written_immediately(tmp_path: Path) -> None:
    model, unfinished = small_model(), tmp_path / ".recording.unfinished"
    counts: list[int] = []
    model.stack.norm.register_forward_hook(
        lambda *_: counts.append(len(list(unfinished.iterdir())))
    )
    with record_to_disk(model, tmp_path / "recording"):
        model(TOKENS)
        model(TOKENS)
    assert counts == [LAYERS, 2 * LAYERS]
    assert len(list((tmp_path / "recording").iterdir())) == 2 * LAYERS + 1


def test_an_error_keeps_the_old_recording(folder: Path) -> None:
    model, before = small_model(), {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ZeroDivisionError), record_to_disk(model, folder):
        model(TOKENS)
        raise ZeroDivisionError
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]
    assert {part.kernel for part in attention_layers(model).values()} == {fused_attention}


def test_a_recording_may_be_recorded_over(folder: Path) -> None:
    model = small_model()
    with record_to_disk(model, folder):
        model(TOKENS)
    assert len(open_recording(folder).calls) == LAYERS
    assert len(list(folder.iterdir())) == LAYERS + 1


def test_a_folder_that_holds_anything_else_is_not_touched(folder: Path, tmp_path: Path) -> None:
    (folder / "thesis.txt").write_text("years of work")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / INDEX).write_text("{}")
    (tmp_path / "file").write_text("")
    model = small_model()
    for path in (folder, tmp_path / "other", tmp_path / "file"):
        with pytest.raises(UserError), record_to_disk(model, path):
            raise AssertionError("the block has begun")
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_parts_that_were_not_recorded(tmp_path: Path) -> None:
    model = small_model()
    with record_to_disk(model, tmp_path / "recording"):
        model(TOKENS)
    with pytest.raises(UserError, match="'keys' not recorded \\(expected one of weights"):
        open_recording(tmp_path / "recording").calls[0].read("keys")


def first(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda index: index["calls"][0].__setitem__(key, value)


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "another format": lambda index: index.update(format="harken recording 1"),
    "a call that is none": lambda index: index.update(calls=[7]),
    "tokens that are none": lambda index: index.update(tokens=[["a", 3]]),
    "a path out": first("file", "../00000000.safetensors"),
    "an absolute path": first("file", "/etc/passwd"),
    "a path with an end": first("file", "00000000.safetensors\n"),
    "steps by words": first("steps", ["1", "5", "6"]),
    "an unknown part": first("shapes", {"weights": [2, 2, 3, 7], "pickle": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_a_manipulated_index_is_refused(folder: Path, damage: Callable[[Any], None]) -> None:
    index = json.loads((folder / INDEX).read_text())
    open_recording(folder)
    damage(index)
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError):
        open_recording(folder)


def test_an_older_format_is_not_called_damaged(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(index | {"format": "harken recording 1"}))
    with pytest.raises(UserError, match="'harken recording 2', got 'harken recording 1'"):
        open_recording(folder)


BAD_BYTES = [b"", b"{", b"[" * 10**5, b'{"format": NaN}', b"\x00", b"3", b"\xff\xfe{}"]


@pytest.mark.parametrize("content", BAD_BYTES)
def test_a_damaged_index_is_refused(folder: Path, content: bytes) -> None:
    (folder / INDEX).write_bytes(content)
    with pytest.raises(UserError):
        open_recording(folder)
    with pytest.raises(UserError, match="file not found"):
        open_recording(folder / "missing")


def test_tensors_that_are_not_those_of_the_index_are_refused(folder: Path) -> None:
    call, later = open_recording(folder).calls[0], open_recording(folder).calls[LAYERS]
    whole = call.path.read_bytes()
    halves = whole[:-1], whole[: len(whole) // 2]
    for damaged in (b"", *halves, b"\xff" * 64, later.path.read_bytes()):
        call.path.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged recording"):
            call.read()
    call.path.unlink()
    with pytest.raises(UserError, match="not a regular file"):
        call.read()
    call.path.symlink_to(later.path)
    with pytest.raises(UserError, match="not a regular file"):
        call.read()


def test_half_precision_is_stored(tmp_path: Path) -> None:
    model = small_model().bfloat16()
    with torch.no_grad(), record_to_disk(model, tmp_path / "recording"):
        model(TOKENS)
    recording = open_recording(tmp_path / "recording")
    assert recording.calls[0].read().dtype == torch.bfloat16
