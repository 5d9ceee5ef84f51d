"""Texts of many files: formats, globs, ranges, samples, errors."""

import gzip
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.corpus import Documents, TextCorpus, find_files

TEXT = "one two\r\n\nthree é\n"


def corpus_of(*files: Path, documents: Documents = "lines", column: str = "text") -> TextCorpus:
    return TextCorpus(files=files, documents=documents, column=column)


def texts(corpus: TextCorpus) -> list[str]:
    """Join the blocks of each text."""
    joined: list[str] = []
    for block in corpus.blocks():
        if block.is_first:
            joined.append("")
        joined[-1] += block.text
    return joined


def error_of(call: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as caught:
        call()
    assert caught.value.exit_code == 2
    return caught.value


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_formats(tmp_path: Path, suffix: str) -> None:
    pack = PACKERS[suffix]
    plain, records = tmp_path / f"a.txt{suffix}", tmp_path / f"b.jsonl{suffix}"
    plain.write_bytes(pack(b"\xef\xbb\xbf" + TEXT.encode()))
    lines = [{"text": "four\r\nfive", "id": 1}, {"text": " "}, {"text": "six"}]
    records.write_bytes(pack("\n".join(map(json.dumps, lines)).encode()))
    corpus = corpus_of(plain, records)
    assert texts(corpus) == ["one two", "three é", "four\nfive", "six"]
    assert corpus.size() == (7 + 7 + 9 + 3, 4)
    corpus = corpus_of(plain, records, documents="file")
    assert texts(corpus) == ["one two\n\nthree é\n", "four\nfive", "six"]
    assert corpus.size() == (17 + 9 + 3, 3)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    rows = [f"text {number}" for number in range(3000)]
    table = pyarrow.table({"body": [*rows, None, ""], "id": range(3002)})
    parquet.write_table(table, path, row_group_size=700)
    assert texts(corpus_of(path, column="body")) == rows
    error = error_of(lambda: texts(corpus_of(path)))
    assert f"{path} has no column 'text' (expected one of body, id)" in error.message
    assert texts(corpus_of(path, column="id"))[:2] == ["0", "1"]
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path}: the file cannot be read" in error_of(lambda: texts(corpus_of(path))).message


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    error = error_of(lambda: texts(corpus_of(tmp_path / "a.parquet")))
    assert "needs the package pyarrow" in error.message and "harken[parquet]" in error.fix


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"body": "x"}', " has no column 'text'"),
        (b'{"text": [3]}', "wrong value of 'text'"),
        (b"{", "invalid JSON"),
        (b'"x"', "expected a JSON object"),
        (b'{"text": "\\ud800"}', "expected Unicode text"),
        (b'{"text": "\xe9"}', "invalid byte 0xe9"),
    ],
)
def test_wrong_json_lines(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "x"}\n' + line)
    message = error_of(lambda: texts(corpus_of(path))).message
    assert f"{path}:2" in message and problem in message


def test_invalid_utf8_after_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("é".encode() * 100_000 + b"\nx\r\n" + "é".encode() * 100_000 + b"\xff")
    error = error_of(lambda: texts(corpus_of(path, documents="file")))
    assert f"{path}:3: invalid byte 0xff, byte 200001" in error.message


def test_globs_and_lists(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    names = ["b.txt", "a.txt", "sub/c.txt", "d.jsonl", "odd[1].txt"]
    for name in names:
        (tmp_path / name).write_text("x")
    plain = [tmp_path / name for name in ("a.txt", "b.txt", "odd[1].txt")]
    assert find_files(tmp_path / "*.txt") == tuple(plain)
    assert find_files(tmp_path / "**" / "c*") == (tmp_path / "sub" / "c.txt",)
    assert find_files(tmp_path / "odd[1].txt") == (plain[2],)
    listed = (tmp_path / "d.jsonl", tmp_path / "[ab].txt")
    assert find_files(listed) == (listed[0], *plain[:2])
    error = error_of(lambda: find_files(tmp_path / "*.zst"))
    assert f"{tmp_path / '*.zst'}: no file matches" in error.message
    assert "file not found" in error_of(lambda: find_files((tmp_path / "none.txt",))).message
    assert "list of files is empty" in error_of(lambda: find_files(())).message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.integers(0, 40), st.integers(0, 40))
def test_ranges(tmp_path: Path, start: int, stop: int) -> None:
    files = tmp_path / "a.txt", tmp_path / "b.txt"
    for path, text in zip(files, ("abcdefghij\nklm", "nopqrstuvw"), strict=True):
        path.write_text(text)
    whole = corpus_of(*files, documents="file")
    assert "".join(texts(whole)) == "abcdefghij\nklmnopqrstuvw"
    part = whole.between(start, stop)
    assert "".join(texts(part)) == "abcdefghij\nklmnopqrstuvw"[start:stop]
    assert len(texts(part)) == (start < min(stop, 14)) + (max(start, 14) < min(stop, 24))
    lines = corpus_of(*files).between(start, stop)
    assert texts(lines) == ["abcdefghij", "klm", "nopqrstuvw"][start:stop]


def test_a_sample_is_even_and_reproducible(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{number:07d}" for number in range(10_000)))
    corpus = corpus_of(path)
    assert list(corpus.sample(1)) == list(corpus.blocks())
    sampled = [int(block.text) for block in corpus.sample(0.1)]
    assert len(sampled) == pytest.approx(1000, abs=2)
    gaps = {after - number for number, after in pairwise(sampled)}
    assert gaps <= {9, 10, 11}
    assert sampled == [int(block.text) for block in corpus.sample(0.1)]
