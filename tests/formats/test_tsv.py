import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.examples import Pair, Question
from harken.formats.text import STDIN
from harken.formats.tsv import read_pairs_tsv, read_parallel, read_questions
from small_files import error_of


def write_two(folder: Path, source: str | bytes, target: str | bytes) -> tuple[Path, Path]:
    paths = folder / "train.en", folder / "train.de"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def write_one(folder: Path, content: str | bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs_error(*paths: Path, keep_blank: bool = False) -> UserError:
    read = read_parallel if len(paths) == 2 else read_pairs_tsv
    return error_of(read, *paths, keep_blank=keep_blank)


# --- two files


@pytest.mark.parametrize("end", [("\n", "\r\n"), ("\r\n", "\n")])
def test_two_files_are_read_line_by_line(tmp_path: Path, end: tuple[str, str]) -> None:
    paths = write_two(
        tmp_path,
        "\ufeff" + end[0].join(["a duck", " two\tcells ", "three"]),
        end[1].join(["eine Ente", "zwei", "drei", ""]),
    )
    pairs = [Pair("a duck", "eine Ente"), Pair(" two\tcells ", "zwei"), Pair("three", "drei")]
    assert read_parallel(*paths) == pairs


# Only a line feed ends a line: Python's own splitlines would also cut at these.
@given(st.lists(st.tuples(st.text("ab \x1c\u2028"), st.text("AB \u3000\x85")), max_size=7))
def test_pairs_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    pairs = [("first", "FIRST"), *pairs]
    folder = tmp_path_factory.getbasetemp()
    paths = write_two(
        folder, *("".join(f"{line}\n" for line in side) for side in zip(*pairs, strict=True))
    )
    table = write_one(folder, "".join(f"{source}\t{target}\n" for source, target in pairs))
    expected = [Pair(*pair) for pair in pairs]
    full = [pair for pair in expected if pair.source.strip() and pair.target.strip()]
    assert read_parallel(*paths) == full
    assert read_parallel(*paths, keep_blank=True) == expected
    assert read_pairs_tsv(table) == full
    kept = [pair if (pair.source + pair.target).strip() else Pair("", "") for pair in expected]
    assert read_pairs_tsv(table, keep_blank=True) == kept


@pytest.mark.parametrize("keep_blank", [False, True])
@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [
        ("a\nb\nc\n", "A\nB\n", (3, 2)),
        ("a\nb", "A\nB\nC\nD\nE", (2, 5)),
        ("a\nb\n", "A\nB\n\n", (2, 3)),
        ("", "A\n", (0, 1)),
    ],
)
def test_files_of_different_length(
    tmp_path: Path, source: str, target: str, counts: tuple[int, int], keep_blank: bool
) -> None:
    paths = write_two(tmp_path, source, target)
    error = pairs_error(*paths, keep_blank=keep_blank)
    assert f"as many lines in {paths[0]} as in {paths[1]}, got" in error.message
    assert f"got {counts[0]} and {counts[1]}" in error.message


@pytest.mark.parametrize("keep_blank", [False, True])
@pytest.mark.parametrize(("source", "target"), [("", ""), ("\n\n", "\n\n"), ("a\n\n", "\nB\n")])
def test_files_of_no_pair(tmp_path: Path, source: str, target: str, keep_blank: bool) -> None:
    paths = write_two(tmp_path, source, target)
    error = pairs_error(*paths, keep_blank=keep_blank)
    assert f"{paths[0]} and {paths[1]}: no sentence with a translation" in error.message


@pytest.mark.parametrize("side", [0, 1])
def test_errors_name_the_wrong_file(tmp_path: Path, side: int) -> None:
    paths = write_two(tmp_path, "a\nb\n", "A\nB\n")
    paths[side].write_bytes(b"a\nb\xff\n")
    assert f"{paths[side]}:2: invalid byte 0xff" in pairs_error(*paths).message
    paths[side].write_bytes(gzip.compress(b"a\nb\n")[:-3])
    assert f"{paths[side]}: damaged archive" in pairs_error(*paths).message
    paths[side].unlink()
    assert f"{paths[side]}: file not found" in pairs_error(*paths).message
    paths[side].mkdir()
    assert f"{paths[side]}: this is a folder" in pairs_error(*paths).message


def test_stdin_cannot_be_both(tmp_path: Path) -> None:
    assert "<stdin>: expected two texts" in pairs_error(STDIN, STDIN).message


# --- one file


def test_a_file_of_pairs(tmp_path: Path) -> None:
    path = write_one(tmp_path, "\ufeffa duck\teine Ente\r\n\n\tB\nc\t \nd\tD")
    assert read_pairs_tsv(path) == [Pair("a duck", "eine Ente"), Pair("d", "D")]
    expected = [("a duck", "eine Ente"), ("", ""), ("", "B"), ("c", " "), ("d", "D")]
    assert read_pairs_tsv(path, keep_blank=True) == [Pair(*pair) for pair in expected]
    path.write_bytes(gzip.compress(b"a\tA"))
    assert read_pairs_tsv(path) == [Pair("a", "A")]


@pytest.mark.parametrize("content", ["", "\n", "\tB\na\t\n"])
def test_a_file_of_no_pair(tmp_path: Path, content: str) -> None:
    path = write_one(tmp_path, content)
    assert f"{path}: no sentence with a translation" in pairs_error(path).message


PAIR, QUESTION = "source<TAB>target", "question<TAB>answer"


@pytest.mark.parametrize(
    ("expected", "line", "got", "fix"),
    [
        (PAIR, "a duck", "0 tabs", "formats.md#parallel-text"),
        (PAIR, "a duck    eine Ente", "0 tabs", "replace the run of spaces by one tab"),
        (PAIR, "Go.\tGeh.\tCC-BY 2.0", "2 tabs", "`cut -f1,2`"),
        (PAIR, "a\tA\t", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where was Ada born?", "0 tabs", "formats.md#questions"),
        (QUESTION, "Where was Ada born?    London", "0 tabs", "replace the run of spaces"),
        (QUESTION, "Where  was?\tLondon\tEngland", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where?\tLondon\t", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where?\t", "an empty column", "formats.md"),
        (QUESTION, " \tLondon", "an empty column", "formats.md"),
    ],
)
def test_lines_that_are_not_pairs(
    tmp_path: Path, expected: str, line: str, got: str, fix: str
) -> None:
    path = write_one(tmp_path, f"x\tX\n\n{line}\n")
    error = error_of(read_pairs_tsv if expected == PAIR else read_questions, path)
    assert f"{path}:3: expected {expected}, got {got} in {line.strip()!r}" in error.message
    assert fix in error.fix


def test_questions(tmp_path: Path) -> None:
    path = write_one(tmp_path, "\ufeffWho was  Ada?\t a poet \r\n\n Where?\tŁódź\n")
    assert read_questions(path) == [Question("Who was  Ada?", "a poet"), Question("Where?", "Łódź")]
