import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harken.formats import text
from harken.formats.text import (
    STDIN,
    Line,
    decompressed,
    iter_lines,
    open_text,
    read_lines,
    read_whole,
)
from small_files import error_of, peak_memory

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    # `pigz` and `cat` write several members, `pzstd` begins with a frame to skip.
    "members.gz": lambda raw: gzip.compress(raw[:7]) + gzip.compress(raw[7:]),
    "frames.zst": lambda raw: zstandard.compress(raw[:7]) + zstandard.compress(raw[7:]),
    "pzstd.zst": lambda raw: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(raw),
    "stream.zst": lambda raw: streamed(raw),
}


def streamed(raw: bytes) -> bytes:
    """As `zstd` writes from a pipe: the size is not told, the sum of the bytes is."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(raw) + packer.flush()


Reader = Callable[[Path], object]


def all_lines(path: Path) -> list[Line]:
    return list(read_lines(path))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_blank_lines_are_skipped_but_counted(tmp_path: Path, end: bytes, mark: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(
        mark + end.join(["één".encode(), b"", b" \t", "\ufeff two ".encode(), b"three"])
    )
    # Spaces, and byte order marks after the start of the file, are part of a line.
    assert list(read_lines(path)) == [
        Line(path, 1, "één"),
        Line(path, 4, "\ufeff two "),
        Line(path, 5, "three"),
    ]
    assert next(read_lines(path)).where == f"{path}:1"


@given(st.lists(st.text().filter(lambda text: not {"\n", "\r"} & set(text))))
def test_only_a_line_feed_ends_a_line(lines: list[str]) -> None:
    # Python's own splitlines would also cut at \x1c, \u2028 and others.
    stream = io.BytesIO("".join(f"{line}\n" for line in ["", *lines]).encode())
    found = list(iter_lines(stream, Path("name")))
    assert [line.text for line in found] == ["", *lines]
    assert [line.number for line in found] == list(range(1, len(lines) + 2))


def test_a_missing_file_suggests_the_near_name(tmp_path: Path) -> None:
    (tmp_path / "questions.tsv").write_text("x")
    (tmp_path / "questoins.ts").mkdir()  # nearer, but no file
    error = error_of(all_lines, tmp_path / "questoins.tsv")
    assert str(tmp_path / "questoins.tsv") in error.message
    assert error.fix == "did you mean 'questions.tsv'?"
    assert error.exit_code == 2
    assert "check the name" in error_of(all_lines, tmp_path / "other.txt").fix
    assert "check the name" in error_of(all_lines, tmp_path / "nowhere" / "questions.tsv").fix


@pytest.mark.parametrize("read", [all_lines, read_whole])
@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_text(tmp_path: Path, content: bytes, read: Reader) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert f"{path}: the file has no text" in str(error_of(read, path))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("read", [all_lines, read_whole])
def test_invalid_utf8_is_an_error_with_line_and_byte(
    tmp_path: Path, mark: bytes, read: Reader
) -> None:
    path = tmp_path / "text.txt"
    for content, where in (
        (b"one\r\n\nCaf\xe9 au lait\n", "3: invalid byte 0xe9, byte 4"),
        (b"Caf\xe9 au lait\n", "1: invalid byte 0xe9, byte 4"),
        (b"x" * 200_003 + b"\n" + b"y" * 11 + b"\xc3", "2: invalid byte 0xc3, byte 12"),
    ):
        path.write_bytes(mark + content)
        error = error_of(read, path)
        assert f"{path}:{where}" in error.message and "iconv" in error.fix
    path.write_bytes("text".encode("utf-16"))
    assert f"{path}:1: invalid byte 0xff, byte 1" in error_of(read, path).message
    path.write_bytes(b"one\n\xff\n")
    assert next(read_lines(path)).text == "one"  # lines before the error are read


# --- archives


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", ["text.gz", "text.zst", "text.txt", "text"])
def test_compression_is_detected_by_the_first_bytes(tmp_path: Path, packer: str, name: str) -> None:
    # Unicode is not normalized: NFC, NFD and NFKC would each change the last line.
    last = "é e\u0301 שָׁלוֹם ﬁ Å 한글 ½\u200f\u200d\u00a0x"
    raw = f"één\r\n\ntwo\n{last}".encode()
    path = tmp_path / name
    path.write_bytes(PACKERS[packer](raw))
    assert [line.text for line in read_lines(path)] == ["één", "two", last]
    assert [line.where for line in read_lines(path)] == [f"{path}:{n}" for n in (1, 3, 4)]
    assert read_whole(path) == f"één\n\ntwo\n{last}"
    with open_text(path) as file:
        assert file.read() == raw
    path.write_bytes(raw)  # unpacked on the way, as browsers do, with the name kept
    assert read_whole(path) == f"één\n\ntwo\n{last}"


@given(st.binary(max_size=400), st.sampled_from(sorted(PACKERS)), st.integers(1, 50))
def test_decompressed_bytes_equal_the_original(raw: bytes, packer: str, size: int) -> None:
    file = decompressed(io.BytesIO(PACKERS[packer](raw)), Path("name"))
    assert b"".join(iter(lambda: file.read(size), b"")) == raw


@pytest.mark.parametrize("packer", ["gz", "zst", "stream.zst"])
def test_large_archives_are_decompressed(packer: str) -> None:
    # More than any buffer on the way, and hard to pack.
    raw = b"".join(b"%d\n" % (number * 2654435761 % 2**32) for number in range(60_013))
    assert decompressed(io.BytesIO(PACKERS[packer](raw)), Path("name")).read() == raw


@pytest.mark.parametrize("packer", ["gz", "zst", "frames.zst", "stream.zst"])
@pytest.mark.parametrize("read", [all_lines, read_whole])
def test_truncated_and_longer_archives_are_errors(
    tmp_path: Path, packer: str, read: Reader
) -> None:
    packed = PACKERS[packer](b"some words, and the end of them\n")
    first_frame = len(zstandard.compress(b"some wo"))
    path = tmp_path / f"text.{packer}"
    sizes = set(range(1, len(packed))) - ({first_frame} if packer == "frames.zst" else set())
    for content in (*(packed[:size] for size in sizes), packed + b"more"):
        path.write_bytes(content)
        error = error_of(read, path)
        assert f"{path}: damaged archive" in error.message, len(content)
        assert "again" in error.fix
    for content in (b"", PACKERS[packer](b"")):
        path.write_bytes(content)
        assert "the file has no text" in str(error_of(read, path))


@pytest.mark.parametrize("packer", ["gz", "stream.zst"])
def test_a_damaged_archive_is_an_error(tmp_path: Path, packer: str) -> None:
    packed = PACKERS[packer](b"".join(b"%d " % (7**number) for number in range(50)))
    path = tmp_path / "text"
    for place in range(14, len(packed), 3):  # after the header
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :])
        assert f"{path}: damaged archive" in error_of(read_whole, path).message, place


def test_lines_before_the_damage_are_read(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    lines = b"".join(b"%d\n" % (number * 2654435761 % 2**32) for number in range(100_003))
    path.write_bytes(gzip.compress(lines)[:-100])
    assert next(read_lines(path)).text == "0"


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_a_decompression_bomb_is_an_error(
    tmp_path: Path, packer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_LINE", 2**20)
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packer](b"short\n" + bytes(2**27)))
    error = error_of(all_lines, path)
    assert "the line is too long" in error.message or "decompress to" in error.message
    assert (
        peak_memory(error_of, all_lines, path) < 2**26
    )  # half of what the archive holds, and it could hold far more


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_the_decompression_ratio_is_limited(
    tmp_path: Path, packer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"the same line\n" * 100_003
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packer](lines))
    assert sum(1 for _ in read_lines(path)) == 100_003  # small files may have any ratio
    monkeypatch.setattr(text, "FREE_BYTES", 2**16)
    assert "bytes decompress to" in error_of(all_lines, path).message
    assert "bytes decompress to" in error_of(read_whole, path).message
    monkeypatch.setattr(text, "MAX_RATIO", len(lines))
    assert sum(1 for _ in read_lines(path)) == 100_003
    monkeypatch.setattr(text, "MAX_WHOLE", 2**20)
    assert f"{path}: the text is too large" in error_of(read_whole, path).message


def test_the_length_of_a_line_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINE", 101)
    path = tmp_path / "text"
    path.write_bytes(b"a\n" + b"b" * 100 + b"\n" + b"c" * 101)
    assert [len(line.text) for line in read_lines(path)] == [1, 100, 101]
    path.write_bytes(b"a\n" + b"b" * 100 + b"\n" + b"c" * 102)
    assert f"{path}:3: the line is too long" in error_of(all_lines, path).message
    assert len(read_whole(path)) == 205  # a whole text may be one line, as text8 is


def test_memory_does_not_grow_with_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "text"

    def peak(lines: int, packer: str) -> int:
        path.write_bytes(
            PACKERS[packer](b"".join(b"%0100d\n" % (7**60 * number) for number in range(lines)))
        )
        return peak_memory(lambda: sum(1 for _ in read_lines(path)))

    for packer in ("gz", "zst"):
        assert peak(20_000, packer) < peak(2000, packer) + 2**19  # of 2 MiB of text


# --- a whole text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"one\r\ntwo\n\nthree", "one\ntwo\n\nthree"),
        (b"one\r\ntwo\nthree\r\n", "one\ntwo\nthree\n"),
        (b"\xef\xbb\xbf one \n", " one \n"),
        (b"one\rtwo\x0bthree\xc2\x85\r\r\n", "one\rtwo\x0bthree\x85\r\n"),
        ("\ufeffone\ufeff".encode(), "one\ufeff"),
    ],
)
def test_a_whole_text_changes_only_line_ends(tmp_path: Path, raw: bytes, expected: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(raw)
    assert read_whole(path) == expected


# --- stdin


READ_STDIN = """
import sys
from pathlib import Path
from harken.errors import UserError
from harken.formats.text import read_lines
try:
    print([line.text for line in read_lines(Path("-"))], sys.stdin.closed)
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("raw", "printed"),
    [
        (b"one\n\ntwo", "['one', 'two'] False"),
        (gzip.compress(b"one\n\ntwo", mtime=0), "['one', 'two'] False"),
        (zstandard.compress(b"one\n\ntwo"), "['one', 'two'] False"),
        (b"", "<stdin>: the file has no text"),
        (b"one\n\xff", "<stdin>:2: invalid byte 0xff"),
        (gzip.compress(b"one", mtime=0)[:-1], "<stdin>: damaged archive"),
    ],
)
def test_a_dash_is_stdin(raw: bytes, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", READ_STDIN], input=raw, capture_output=True)
    assert done.stdout.decode().startswith(printed), done.stderr


def test_stdin_is_closed_or_a_file_is_named_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "<stdin>: it is closed" in str(error_of(all_lines, STDIN))
    (tmp_path / "-").write_text("here")
    assert read_whole(tmp_path / "-") == "here"
