import gzip
import io
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats import text
from harken.formats.text import (
    STDIN,
    Line,
    decompressed,
    iter_lines,
    open_text,
    read_lines,
    read_whole,
    require_file,
)

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


def complaint(path: Path, read: Callable[[Path], object] | None = None) -> UserError:
    with pytest.raises(UserError) as caught:
        if read:
            read(path)
        else:
            list(read_lines(path))
    return caught.value


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_as_a_person_sees_them(tmp_path: Path, end: bytes, mark: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(mark + end.join(["één".encode(), b"", b" \t", b" two ", b"three"]))
    # Blank ones are skipped but counted; spaces at the ends are part of a line.
    assert list(read_lines(path)) == [
        Line(path, 1, "één"),
        Line(path, 4, " two "),
        Line(path, 5, "three"),
    ]
    assert next(read_lines(path)).where == f"{path}:1"


def test_a_byte_order_mark_counts_only_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("one\n\ufefftwo\n".encode())
    assert [line.text for line in read_lines(path)] == ["one", "\ufefftwo"]


@given(st.lists(st.text().filter(lambda text: not {"\n", "\r"} & set(text))))
def test_only_a_line_feed_ends_a_line(lines: list[str]) -> None:
    # Python's own splitlines would also cut at \x1c, \u2028 and others.
    stream = io.BytesIO("".join(f"{line}\n" for line in ["", *lines]).encode())
    found = list(iter_lines(stream, Path("name")))
    assert [line.text for line in found] == ["", *lines]
    assert [line.number for line in found] == list(range(1, len(lines) + 2))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_not_utf8(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(mark + b"one\n\nCaf\xe9 au lait\n")
    assert f"{path}:3: invalid byte 0xe9 at column 4" in str(complaint(path))
    path.write_bytes(mark + b"Caf\xe9 au lait\n")
    assert f"{path}:1: invalid byte 0xe9 at column 4" in str(complaint(path))
    path.write_bytes("text".encode("utf-16"))
    assert f"{path}:1: invalid byte 0xff at column 1" in str(complaint(path))
    assert "iconv" in complaint(path).fix


def test_lines_before_a_wrong_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\n\xff\n")
    assert next(read_lines(path)).text == "one"


def test_a_missing_file_suggests_the_near_name(tmp_path: Path) -> None:
    (tmp_path / "questions.tsv").write_text("x")
    (tmp_path / "questoins.ts").mkdir()  # nearer, but no file
    error = complaint(tmp_path / "questoins.tsv")
    assert str(tmp_path / "questoins.tsv") in error.message
    assert error.fix == "did you mean 'questions.tsv'?"
    assert error.exit_code == 2
    assert "check the name" in complaint(tmp_path / "other.txt").fix
    assert "check the name" in complaint(tmp_path / "nowhere" / "questions.tsv").fix


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert f"{tmp_path}: this is a folder" in str(complaint(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert f"{path}: the file is empty" in str(complaint(path))


# --- archives


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", ["text.gz", "text.zst", "text.txt", "text"])
def test_the_bytes_not_the_name_say_what_is_packed(tmp_path: Path, packer: str, name: str) -> None:
    raw = "één\r\n\ntwo\nשלום".encode()
    path = tmp_path / name
    path.write_bytes(PACKERS[packer](raw))
    assert [line.text for line in read_lines(path)] == ["één", "two", "שלום"]
    assert [line.where for line in read_lines(path)] == [f"{path}:{n}" for n in (1, 3, 4)]
    assert read_whole(path) == "één\n\ntwo\nשלום"
    with open_text(path) as file:
        assert file.read() == raw
    path.write_bytes(raw)  # unpacked on the way, as browsers do, with the name kept
    assert read_whole(path) == "één\n\ntwo\nשלום"


@given(st.binary(max_size=400), st.sampled_from(sorted(PACKERS)), st.integers(1, 50))
def test_whatever_is_packed_comes_out(raw: bytes, packer: str, size: int) -> None:
    file = decompressed(io.BytesIO(PACKERS[packer](raw)), Path("name"))
    pieces = []
    while piece := file.read(size):
        pieces.append(piece)
    assert b"".join(pieces) == raw


@pytest.mark.parametrize("packer", ["gz", "zst", "stream.zst"])
def test_large_archives_come_out_whole(packer: str) -> None:
    # More than any buffer on the way, and hard to pack.
    raw = b"".join(b"%d\n" % (number * 2654435761 % 2**32) for number in range(60_013))
    assert decompressed(io.BytesIO(PACKERS[packer](raw)), Path("name")).read() == raw


@pytest.mark.parametrize("packer", ["gz", "zst", "frames.zst", "stream.zst"])
@pytest.mark.parametrize("read", [lambda path: list(read_lines(path)), read_whole])
def test_an_archive_cut_anywhere_is_named(
    tmp_path: Path, packer: str, read: Callable[[Path], object]
) -> None:
    packed = PACKERS[packer](b"some words, and the end of them\n")
    whole = [0]
    if packer == "frames.zst":
        whole.append(len(zstandard.compress(b"some wo")))
    path = tmp_path / f"text.{packer}"
    for size in range(len(packed)):
        if size in whole:
            continue
        path.write_bytes(packed[:size])
        error = complaint(path, read)
        assert f"{path}: damaged archive" in error.message, size
        assert "again" in error.fix
    path.write_bytes(b"")
    assert "the file is empty" in str(complaint(path, read))
    path.write_bytes(PACKERS[packer](b""))
    assert "the file is empty" in str(complaint(path, read))


@pytest.mark.parametrize("packer", ["gz", "stream.zst"])
def test_a_damaged_archive_is_named(tmp_path: Path, packer: str) -> None:
    packed = PACKERS[packer](b"".join(b"%d " % (7**number) for number in range(50)))
    path = tmp_path / "text"
    for place in range(14, len(packed), 3):  # after the header
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :])
        assert f"{path}: damaged archive" in complaint(path, read_whole).message, place


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_rubbish_behind_an_archive_is_named(tmp_path: Path, packer: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packer](b"words\n") + b"rubbish")
    assert f"{path}: damaged archive" in str(complaint(path))


def test_lines_before_the_damage_are_read(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    lines = b"".join(b"%d\n" % (number * 2654435761 % 2**32) for number in range(100_003))
    path.write_bytes(gzip.compress(lines)[:-100])
    assert next(read_lines(path)).text == "0"


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_a_bomb_is_a_line_too_long(
    tmp_path: Path, packer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_LINE", 2**20)
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packer](b"short\n" + bytes(2**27)))
    tracemalloc.start()
    error = complaint(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "the line is too long" in error.message or "decompress to" in error.message
    assert most < 2**26  # half of what the archive holds, and it could hold far more


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_text_that_unpacks_to_far_more_than_text_does_is_refused(
    tmp_path: Path, packer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"the same line\n" * 100_003
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packer](lines))
    assert sum(1 for _ in read_lines(path)) == 100_003  # small files may have any ratio
    monkeypatch.setattr(text, "FREE_BYTES", 2**16)
    assert "bytes decompress to" in complaint(path).message
    assert "bytes decompress to" in complaint(path, read_whole).message
    monkeypatch.setattr(text, "MAX_RATIO", len(lines))
    assert sum(1 for _ in read_lines(path)) == 100_003
    monkeypatch.setattr(text, "MAX_WHOLE", 2**20)
    assert f"{path}: the text is too large" in complaint(path, read_whole).message


def test_the_longest_line_is_read_and_no_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_LINE", 101)
    path = tmp_path / "text"
    path.write_bytes(b"a\n" + b"b" * 100 + b"\n" + b"c" * 101)
    assert [len(line.text) for line in read_lines(path)] == [1, 100, 101]
    path.write_bytes(b"a\n" + b"b" * 100 + b"\n" + b"c" * 102)
    assert f"{path}:3: the line is too long" in complaint(path).message
    assert len(read_whole(path)) == 205  # a whole text may be one line, as text8 is


def test_memory_does_not_grow_with_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "text"

    def peak(lines: int, packer: str) -> int:
        path.write_bytes(
            PACKERS[packer](b"".join(b"%0100d\n" % (7**60 * number) for number in range(lines)))
        )
        tracemalloc.start()
        count = sum(1 for _ in read_lines(path))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == lines
        return most

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
def test_a_whole_text_keeps_all_but_the_ends_of_lines(
    tmp_path: Path, raw: bytes, expected: str
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(raw)
    assert read_whole(path) == expected


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_wrong_byte_of_a_whole_text_is_placed(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(mark + b"one\r\n\nCaf\xe9 au lait\n")
    assert f"{path}:3: invalid byte 0xe9 at column 4" in str(complaint(path, read_whole))
    path.write_bytes(mark + b"Caf\xe9 au lait\n")
    assert f"{path}:1: invalid byte 0xe9 at column 4" in str(complaint(path, read_whole))
    path.write_bytes(mark + b"x" * 200_003 + b"\n" + b"y" * 11 + "é".encode()[:1])
    assert f"{path}:2: invalid byte 0xc3 at column 12" in str(complaint(path, read_whole))


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf"])
def test_a_whole_text_of_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert f"{path}: the file is empty" in str(complaint(path, read_whole))


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_no_letter_is_changed(tmp_path: Path, form: str) -> None:
    words = unicodedata.normalize(form, "é ǘ שָׁלוֹם مَرْحَبًا ﬁ Å 한글 ½") + "\u200f\u200d\u00a0x"  # type: ignore[arg-type]
    path = tmp_path / "text.txt"
    path.write_bytes(words.encode())
    assert read_whole(path) == words
    assert [line.text for line in read_lines(path)] == [words]


# --- where a text comes from


def test_missing_files_and_folders_are_named_by_every_reader(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("x")
    assert complaint(tmp_path / "corpsu.txt", read_whole).fix == "did you mean 'corpus.txt'?"
    assert f"{tmp_path}: this is a folder" in str(complaint(tmp_path, read_whole))
    # A text given where its file was meant.
    long = tmp_path / ("Where was she born? " * 20)
    assert "the path is too long" in str(complaint(long, require_file))


READ_STDIN = """
import sys
from pathlib import Path
from harken.formats.text import read_lines, read_whole
from harken.errors import UserError
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
        (b"", "<stdin>: the file is empty"),
        (b"one\n\xff", "<stdin>:2: invalid byte 0xff"),
        (gzip.compress(b"one", mtime=0)[:-1], "<stdin>: damaged archive"),
    ],
)
def test_a_dash_is_stdin(raw: bytes, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", READ_STDIN], input=raw, capture_output=True)
    assert done.stdout.decode().startswith(printed), done.stderr


def test_stdin_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "<stdin>: it is closed" in str(complaint(STDIN))


def test_a_dash_in_a_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "-").write_text("here")
    assert read_whole(tmp_path / "-") == "here"
