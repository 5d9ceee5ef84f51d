"""A small data file for every task, and the overrides that make its model small."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harken.errors import UserError
from harken.synthetic.recordings import write_wav

WORDS = ("they", "duck", "and", "swim", "here")
TAGS = ("PRON", "VERB", "CCONJ", "VERB", "ADV")


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> UserError:
    """Return the `UserError` that a call raises."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **options)
    return caught.value


def peak_memory(call: Callable[..., object], *arguments: Any, **options: Any) -> int:
    """Return the bytes that Python and numpy allocate at once during a call."""
    tracemalloc.start()
    try:
        call(*arguments, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_lines(folder: Path, *lines: object, name: str = "train.jsonl") -> Path:
    """Write texts, and other objects as JSON, one per line."""
    path = folder / name
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def write_bytes(folder: Path, content: bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def write_empty(folder: Path, *names: str) -> Path:
    """Create empty files, for readers that only check that a file exists."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def sentence(number: int) -> str:
    """Return a different sentence for each number."""
    return f"{' '.join(WORDS)} {number} times"


def conllu(numbers: range) -> str:
    rows = [
        f"{at}\t{word}\t_\t{tag}\t{tag[:2]}\t_\t_\t_\t_\t_\n"
        for at, (word, tag) in enumerate(zip(WORDS, TAGS, strict=True), start=1)
    ]
    last = len(rows) + 1
    return "".join(
        "".join(rows) + f"{last}\t{number}\t_\tNUM\tCD\t_\t_\t_\t_\t_\n\n" for number in numbers
    )


CAPTIONED = {"": 19, "dev-": 7, "test-": 3}
FILES = {
    "texts.txt": "".join(f"{sentence(n)}.\n" for n in range(23)),
    "text.txt": "".join(f"{sentence(n)}.\n" for n in range(29)),
    "train.txt": "".join(f"{sentence(n)}.\n" for n in range(29)),
    "dev.txt": "".join(f"{sentence(n)}.\n" for n in range(30, 37)),
    "test.txt": "".join(f"{sentence(n)}.\n" for n in range(40, 43)),
    "questions.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20)),
    "train.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20)),
    "dev.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(20, 27)),
    "test.tsv": "".join(f"who is {n}?\t{n}\n" for n in range(30, 33)),
    "pairs.tsv": "".join(f"{sentence(n)}\t{sentence(n)[::-1]}\n" for n in range(31)),
    "train.en": "".join(f"{sentence(n)}\n" for n in range(31)),
    "train.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(31)),
    "dev.en": "".join(f"{sentence(n)}\n" for n in range(40, 47)),
    "dev.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(40, 47)),
    "test.en": "".join(f"{sentence(n)}\n" for n in range(50, 53)),
    "test.de": "".join(f"{sentence(n)[::-1]}\n" for n in range(50, 53)),
    "train.conllu": conllu(range(19)),
    "dev.conllu": conllu(range(20, 27)),
    "test.conllu": conllu(range(30, 33)),
    **{
        f"{part}.jsonl": "".join(
            f'{{"audio": "tone.wav", "text": "{sentence(n)}", "start": 0.{n:02}}}\n'
            for n in numbers
        )
        for part, numbers in (("train", range(19)), ("dev", range(20, 27)), ("test", range(30, 33)))
    },
    **{
        f"{part}captions.jsonl": "".join(f'{{"caption": "{sentence(n)}"}}\n' for n in range(count))
        for part, count in CAPTIONED.items()
    },
}
"""Each file that a call of `harken new --help` names."""


def write_files(folder: Path) -> None:
    """Write all of them into a folder."""
    for name, contents in FILES.items():
        (folder / name).write_text(contents, encoding="utf-8")
    write_wav(folder / "tone.wav", np.sin(np.arange(8000) / 5, dtype=np.float32) / 2, 8000)
    for part, count in CAPTIONED.items():
        scenes = np.zeros((count, 10, 14), dtype=np.uint8)
        np.savez_compressed(folder / f"{part}captions.npz", images=scenes)


SMALL_TEXT = {
    "answer": (
        "encode.vocab_size=300 model.width=16 model.layers=1 model.max_length=64 "
        "model.attention.heads=2 training.pretrain.steps=2 "
        "training.pretrain.batch_tokens=256 search.max_tokens=7"
    ),
    "classify": (
        "model.width=24 model.characters.width=8 model.characters.embedding_width=6 "
        "model.encoder.channels=8 training.labels.steps=4 training.labels.batch_size=8"
    ),
    "tag": (
        "model.width=24 model.characters.width=8 model.characters.embedding_width=6 "
        "model.encoder.hidden=12 training.tags.steps=4 training.tags.batch_tokens=64"
    ),
    "fill": "model.width=16 training.steps=4 training.batch_tokens=64",
    "lm": (
        "model.width=16 model.layers=1 model.max_length=32 model.attention.heads=2 "
        "training.steps=4 training.batch_tokens=64 search.max_tokens=7"
    ),
    "caption": (
        "model.width=16 model.frontend.channels=[4] model.decoder.width=16 model.decoder.hidden=16 "
        "training.captions.steps=2 training.captions.batch_captions=8 search.max_tokens=7"
    ),
    "transcribe": (
        "encode.tokenizer.kind=words model.width=16 model.frontend.channels=4 "
        "model.encoder.layers=1 model.encoder.attention.heads=2 "
        "training.speech.steps=2 training.speech.batch_frames=800"
    ),
    "translate": (
        "encode.vocab_size=300 model.decoder.width=16 model.decoder.layers=1 "
        "model.decoder.max_length=31 model.encoder.layers=1 model.encoder.attention.heads=2 "
        "model.decoder.attention.heads=2 training.pairs.steps=4 "
        "training.pairs.batch_tokens=512 search.max_tokens=7"
    ),
}
SMALL = {task: overrides.split() for task, overrides in SMALL_TEXT.items()}
"""Overrides by task."""
