"""Pairs of many files: formats, order, samples, held-out pairs, errors."""

import gzip
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats import pairs as pairs_module
from harken.formats import split as split_module
from harken.formats.examples import Pair
from harken.formats.pairs import PairSample, ParallelFiles, find_pairs, hold_out_pairs
from harken.formats.split import hold_out
from harken.formats.text import STDIN
from small_files import error_of, write_bytes


def write_two(folder: Path, source: str | bytes, target: str | bytes) -> tuple[Path, Path]:
    paths = folder / "train.en", folder / "train.de"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def write_one(folder: Path, content: str | bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(*paths: Path, keep_blank: bool = False) -> list[Pair]:
    files = ParallelFiles(source=paths[0], target=paths[1]) if len(paths) == 2 else paths[0]
    return list(find_pairs(files).pairs(keep_blank=keep_blank))


def pairs_error(*paths: Path, keep_blank: bool = False) -> UserError:
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
    assert read(*paths) == pairs


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
    assert read(*paths) == full
    assert read(*paths, keep_blank=True) == expected
    assert read(table) == full
    kept = [pair if (pair.source + pair.target).strip() else Pair("", "") for pair in expected]
    assert read(table, keep_blank=True) == kept


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
    assert read(path) == [Pair("a duck", "eine Ente"), Pair("d", "D")]
    expected = [("a duck", "eine Ente"), ("", ""), ("", "B"), ("c", " "), ("d", "D")]
    assert read(path, keep_blank=True) == [Pair(*pair) for pair in expected]
    path.write_bytes(gzip.compress(b"a\tA"))
    assert read(path) == [Pair("a", "A")]


@pytest.mark.parametrize("content", ["", "\n", "\tB\na\t\n"])
def test_a_file_of_no_pair(tmp_path: Path, content: str) -> None:
    path = write_one(tmp_path, content)
    problem = "no sentence with a translation" if content.strip() else "the table has no rows"
    assert f"{path}: {problem}" in pairs_error(path).message


# --- many files


def write_numbered(folder: Path, count: int) -> tuple[Path, Path]:
    return write_two(
        folder,
        "".join(f"source {number % 83}\n" for number in range(count)),
        "".join(f"ziel {number}\n" for number in range(count)),
    )


def test_sides_are_concatenations_of_files(tmp_path: Path) -> None:
    """The files of the two sides may end at different lines."""
    for name, text in {"1.en": "a\nb", "2.en": "\nd\n", "x.de": "A\n", "y.de": "B\nC\nD"}.items():
        (tmp_path / name).write_text(text)
    files = ParallelFiles(source=tmp_path / "*.en", target=(tmp_path / "x.de", tmp_path / "y.*"))
    corpus = find_pairs(files)
    assert list(corpus.pairs()) == [Pair("a", "A"), Pair("b", "B"), Pair("d", "D")]
    assert corpus.size() == (3, 3, 3)
    assert list(corpus.pairs(keep_blank=True))[2] == Pair("", "C")
    (tmp_path / "3.en").write_text("e\n")
    error = error_of(lambda: list(find_pairs(files).pairs()))
    names = f"{tmp_path / '1.en'} (and 2 more) as in {tmp_path / 'x.de'} (and 1 more)"
    assert f"expected as many lines in {names}, got 5 and 4" in error.message
    for side in ("source", "target"):
        error = error_of(find_pairs, replace(files, **{side: tmp_path / "*.fr"}))
        assert f"{tmp_path / '*.fr'}: no file matches this glob" in error.message


def test_json_lines_and_tables_of_pairs(tmp_path: Path) -> None:
    rows = [("a duck", "eine\r\nEnte"), ("", "leer"), ("b", "B")]
    lines = [json.dumps({"en": source, "de": target, "id": 3}) for source, target in rows]
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "2.tsv").write_text("de\tid\ten\nC\t3\tc\n")
    corpus = find_pairs((tmp_path / "*.gz", tmp_path / "2.tsv"), ("en", "de"))
    expected = [Pair("a duck", "eine\nEnte"), Pair("b", "B"), Pair("c", "C")]
    assert list(corpus.pairs()) == expected
    assert len(list(corpus.pairs(keep_blank=True))) == 4
    error = error_of(lambda: list(find_pairs(tmp_path / "1.jsonl.gz").pairs()))
    assert f"{tmp_path / '1.jsonl.gz'}:1 has no column 'source'" in error.message
    assert "data.columns.source" in error.fix
    error = error_of(read, write_bytes(tmp_path, b"a", "a.txt"), tmp_path / "1.jsonl.gz")
    assert "1.jsonl.gz: expected a side as plain text, got a table" in error.message


def test_parquet_files_of_pairs(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, numbers = tmp_path / "a.parquet", range(3000)
    columns = {
        "target": [*(f"ziel {number}" for number in numbers), None],
        "source": [*(f"source {number}" for number in numbers), "no translation"],
    }
    parquet.write_table(pyarrow.table(columns), path, row_group_size=700)
    assert read(path) == [Pair(f"source {number}", f"ziel {number}") for number in numbers]
    assert read(path, keep_blank=True)[-1] == Pair("no translation", "")
    error = error_of(lambda: list(find_pairs(path, ("source", "de")).pairs()))
    assert f"{path} has no column 'de' (expected one of target, source)" in error.message


def test_a_sample_of_pairs_is_even(tmp_path: Path) -> None:
    sources, targets = write_numbered(tmp_path, 4001)
    corpus = find_pairs(ParallelFiles(source=sources, target=targets))
    assert list(PairSample(corpus, 10**9)) == list(corpus.pairs())
    sample = PairSample(corpus, sum(corpus.size()[1:]) // 10)
    assert sample.size == corpus.size()
    numbers = [int(pair.target.split()[1]) for pair in sample]
    assert len(numbers) == pytest.approx(400, rel=0.03)
    assert {after - number for number, after in pairwise(numbers)} <= {8, 9, 10, 11, 12}


@pytest.mark.parametrize("share", [0.001, 0.02, 0.31, 0.999])
def test_held_out_pairs_are_those_of_memory(tmp_path: Path, share: float) -> None:
    paths = write_numbered(tmp_path, 1009)
    corpus, held_out = hold_out_pairs(
        find_pairs(ParallelFiles(source=paths[0], target=paths[1])), share, seed=5
    )
    expected = hold_out(read(*paths), share, 5, key=lambda pair: pair.source)
    assert (list(corpus.pairs()), held_out) == expected
    assert len({pair.source for pair in held_out}) == max(1, min(82, math.floor(share * 83 + 0.5)))


def test_held_out_pairs_in_constant_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more keys than are ranked, the share is that of the hashes, up to a maximum."""
    path = write_one(tmp_path, "".join(f"{number}\t{number}\n" for number in range(10_007)))
    monkeypatch.setattr(split_module, "MAX_RANKED", 2003)
    monkeypatch.setattr(split_module, "BLOCK", 101)
    monkeypatch.setattr(pairs_module, "MAX_HELD_OUT", 1009)
    corpus, held_out = hold_out_pairs(find_pairs(path), 0.05, seed=5)
    assert len(held_out) == pytest.approx(500, abs=4 * (10_007 * 0.05 * 0.95) ** 0.5)
    assert len(held_out) + corpus.size().pairs == 10_007
    # The same order of hashes as without a limit.
    ranked = hold_out(read(path), len(held_out) / 10_007, 5, key=lambda pair: pair.source)[1]
    assert held_out == ranked
    assert len(hold_out_pairs(find_pairs(path), 0.5, seed=5)[1]) == 1009
