import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.data.text import Line, read_every_line, read_lines
from harken.errors import UserError


def complaint(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
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
    found = list(read_every_line(stream, Path("name")))
    assert [line.text for line in found] == ["", *lines]
    assert [line.number for line in found] == list(range(1, len(lines) + 2))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_not_utf8(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(mark + b"one\n\nCaf\xe9 au lait\n")
    assert f"{path}:3: found byte 0xe9 at place 4" in str(complaint(path))
    path.write_bytes(mark + b"Caf\xe9 au lait\n")
    assert f"{path}:1: found byte 0xe9 at place 4" in str(complaint(path))
    path.write_bytes("text".encode("utf-16"))
    assert f"{path}:1: found byte 0xff at place 1" in str(complaint(path))
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
    assert f"{tmp_path}: found a folder" in str(complaint(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert f"{path}: found an empty file" in str(complaint(path))
