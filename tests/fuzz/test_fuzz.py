"""Damaged inputs of every kind end in success or in one message, quickly and in little memory.

The mutants run in worker processes (`fuzz/__main__.py`) that import everything once and whose
memory and time are limited, so that a crash, a hang or a decompression bomb fails the test and not
the suite. Audio, images and arrays have 1,000 mutants per format. `HARKEN_FUZZ=2000` runs more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.media import IMAGES, SOUNDS

COUNT = int(os.environ.get("HARKEN_FUZZ", "500"))
WORKERS = {
    "media": (*SOUNDS, *IMAGES, "npz"),
    "tables": ("conllu", "tsv", "table", "jsonl", "recipe"),
    "models": ("tokenizer", "huggingface"),
    "runs": ("run",),
}
MAX_MEDIA_GROWTH = 64 * 2**20  # bytes of memory that damaged sounds and images may take
MAX_PEAK = 2**31


def results(count: int, kinds: tuple[str, ...], progress: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", str(count), *kinds, "--progress", str(progress)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    running = progress.read_text() if progress.exists() else "no mutant"
    assert done.returncode == 0, f"{running} crashed or took too long: {done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(result: dict[str, Any]) -> None:
    assert not result["failures"], "\n\n".join(result["failures"].values())
    assert result["peak"] < MAX_PEAK
    if result["kind"] in WORKERS["media"]:
        assert result["growth"] < MAX_MEDIA_GROWTH


def test_few_mutants_of_each_kind(tmp_path: Path) -> None:
    kinds = tuple(kind for group in WORKERS.values() for kind in group)
    found = results(10, kinds, tmp_path / "progress.txt")
    assert [result["kind"] for result in found] == list(kinds)
    for result in found:
        check(result)


@pytest.mark.slow
@pytest.mark.timeout(max(300, COUNT))
@pytest.mark.parametrize("worker", WORKERS)
def test_many_mutants(worker: str, tmp_path: Path) -> None:
    count = max(COUNT, 1000) if worker == "media" else COUNT
    for result in results(count, WORKERS[worker], tmp_path / "progress.txt"):
        check(result)
        # Both must happen, or the mutations are too mild or too wild to show anything.
        assert min(result["accepted"], result["refused"]) > count / 50, result
