"""`harken predict`: lines of stdin as they arrive."""

import gzip
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.inputs import BATCH_SIZE, stream_lines
from harken.errors import UserError


@pytest.fixture
def process(small_run: Path) -> Iterator[subprocess.Popen[str]]:
    """`harken predict` in another process with open pipes, which the test ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "harken", "predict", str(small_run), "--confidence"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as started:
        yield started
        started.kill()


def test_lines_of_a_pipe_are_answered_at_once(process: subprocess.Popen[str]) -> None:
    """Answers arrive while stdin is open; SIGINT ends the process."""
    assert process.stdin and process.stdout and process.stderr
    for text in ("Where was Ada born?\n", "Where was Bob born?\n"):
        process.stdin.write(text)
        answer = process.stdout.readline()  # or the test times out
        assert 0 <= float(answer.split("\t")[1]) <= 1
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == "harken: interrupted\n"


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"))))
def test_no_line_of_a_stream_is_lost(lines: list[str]) -> None:
    contents = "".join(f"{line}\n" for line in lines)
    chunks = list(stream_lines(io.BytesIO(contents.encode())))
    assert [line for chunk in chunks for line in chunk] == lines
    assert all(1 <= len(chunk) <= BATCH_SIZE for chunk in chunks)


def test_waiting_lines_are_batched() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        chunks = stream_lines(reader)
        writer.write(b"first\n")
        assert next(chunks) == ["first"]
        writer.write(b"".join(b"%d\n" % number for number in range(1000)))
        writer.close()
        sizes = [len(chunk) for chunk in chunks]
        assert sum(sizes) == 1000
        assert len(sizes) < 500  # most of them in batches
        assert max(sizes) <= BATCH_SIZE


def test_lines_before_a_bad_byte_are_predicted() -> None:
    chunks = stream_lines(io.BytesIO(b"fine\nalso\nWh\xff\nnever"))
    answered: list[str] = []
    with pytest.raises(UserError, match="<stdin>:3: invalid byte 0xff, byte 3"):
        for chunk in chunks:
            answered += chunk
    assert answered == ["fine", "also"]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_compressed_streams(compress: Callable[[bytes], bytes]) -> None:
    (chunk,) = stream_lines(io.BytesIO(compress("größe\n\n".encode())))
    assert chunk == ["größe", ""]
