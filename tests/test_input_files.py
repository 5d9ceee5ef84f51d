"""Every reader accepts regular files alone, and checks sizes before it reads."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from harken.config import load_config
from harken.encode.vocabulary import Vocabulary
from harken.encode.words import WordVocabulary
from harken.errors import HarkenError
from harken.foreign import load_huggingface
from harken.formats.arrays import read_feature_maps, read_image_array
from harken.formats.captions import read_captions
from harken.formats.conllu import read_conllu
from harken.formats.image_file import image_size, read_image
from harken.formats.manifest import read_utterances
from harken.formats.sound import load_signal, read_sound, sound_seconds
from harken.formats.speech_folders import read_speech_folder
from harken.formats.text import read_lines, read_whole
from harken.inspection.store import open_recording
from harken.models.huggingface_files import stored_tensors
from harken.recipe import recipe_type
from harken.training.checkpoint import check_digests, load_weights

READERS: dict[str, Callable[[Path], object]] = {
    "recipe": lambda path: load_config(recipe_type(), path),
    "lines": lambda path: list(read_lines(path)),
    "whole text": read_whole,
    "CoNLL-U": read_conllu,
    "manifest": read_utterances,
    "captions": read_captions,
    "sound": lambda path: read_sound(path, rate=16_000),
    "seconds": sound_seconds,
    "named sound": lambda path: load_signal(str(path), 16_000, 600.0),
    "picture": lambda path: read_image(path, channels=3),
    "size of a picture": image_size,
    "pictures": read_image_array,
    "maps": read_feature_maps,
    "tokenizer": Vocabulary.load,
    "words": WordVocabulary.load,
    "weights": load_weights,
}
# Files inside a folder that a reader is given.
FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "Kaldi": ("text", read_speech_folder),
    "Hugging Face config": ("config.json", load_huggingface),
    "Hugging Face weights": ("model.safetensors", stored_tensors),
    "recording": ("index.json", open_recording),
    "manifest of a run": ("manifest.json", lambda folder: check_digests(folder, ["a"])),
}
THINGS = ["pipe", "device", "loop", "long name", "null character", "folder", "missing"]


def make(thing: str, path: Path) -> Path:
    match thing:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "long name":
            return path.with_name("a" * 5000)
        case "null character":
            return path.with_name("a\0b")
        case "folder":
            path.mkdir()
    return path


def refusal(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(HarkenError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000 and caught.value.fix
    return message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_regular_file_is_refused_by_every_reader(tmp_path: Path, thing: str) -> None:
    path = make(thing, tmp_path / "file")
    for read in READERS.values():
        refusal(read, path)
    for name, (file, read) in FOLDERS.items():
        if thing not in ("long name", "null character"):
            folder = tmp_path / name
            folder.mkdir()
            make(thing, folder / file)
            refusal(read, folder)


def tensors(count: int) -> bytes:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"{number:x}": empty for number in range(count)}).encode()
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (struct.pack("<Q", 2**62) + b"{}", "a header of 4,611,686,018,427,387,904 bytes"),
        (struct.pack("<Q", 10**8) + bytes(10**8), "a header of 100,000,000 bytes"),
        (tensors(2**16 + 1), "65,537 tensors"),
        (b"\x80\x02}q\x00.", "a header of 0 bytes"),  # a pickle
        (struct.pack("<Q", 9000) + b"[" * 9000, "recursion"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (
            struct.pack("<Q", 65)
            + b'{"a":{"dtype":"F32","shape":[1e9,-5],"data_offsets":[0,400000]}}\n',
            "'a' has the shape",
        ),
    ],
)
def test_safetensors_headers_are_checked_before_the_library_reads_them(
    tmp_path: Path, content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harken.training import checkpoint

    monkeypatch.setattr(checkpoint, "load_file", None)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert reason in refusal(load_weights, path)
    assert reason in refusal(stored_tensors, tmp_path)


def test_json_of_too_many_values_or_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content, reason in (
        ("[" + "[]," * 2**22 + "[]]", "more than 8,388,608 values"),
        ('{"model": ' + "9" * 5000 + "}", "an integer of more than 19 digits"),
        ("[" * 100_000, "recursion"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
    ):
        path.write_text(content)
        assert reason in refusal(Vocabulary.load, path)
