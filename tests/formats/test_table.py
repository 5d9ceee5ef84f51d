"""Tables: difficult spreadsheets, headers, number of rows, Parquet and JSON lines."""

import csv
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.formats.table import Row, read_table
from small_files import error_of, peak_memory, write_bytes

REVIEW = {"text": "review", "label": "stars"}
PLAIN = {"text": "text", "label": "label"}


def read(path: Path, columns: Mapping[str, str] = REVIEW) -> list[tuple[int, str, str]]:
    return [(number, *texts.values()) for number, texts in read_table(path, columns)]


# Name of the file, its bytes, and the rows or parts of the error message and its fix.
SPREADSHEETS = {
    "semicolons": (
        "a.csv",
        "\nstars;a, b, c;review\n5;;good, very good\n;;\n1;x;bad\n",
        [(3, "good, very good", "5"), (5, "bad", "1")],
    ),
    "tabs in a .csv file": ("a.csv", "review\tstars\ngood, good\t5\n", [(2, "good, good", "5")]),
    "quoted newlines": (
        "a.csv",
        'review,stars\r\n"good\r\n\r\n""very"", good",5\r\n\r\nbad,1',
        [(2, 'good\n\n"very", good', "5"), (6, "bad", "1")],
    ),
    "quotes in TSV": ("a.tsv", 'stars\treview\n5\t"a\tb"\n', [(2, "a\tb", "5")]),
    "an unclosed quote": (
        "a.csv",
        'review,stars\ngood,5\n"bad,1\nbad,1\n',
        (":3: the row cannot be read", "double the quotes"),
    ),
    "old Mac line ends": (
        "a.csv",
        "review,stars\rgood,5\r",
        (":1: the row cannot be read (new-line character seen in unquoted field;", "line breaks"),
    ),
    "a byte order mark": ("a.csv", "\ufeffreview,stars\ngood,5\n", [(2, "good", "5")]),
    "Latin-1": (
        "a.csv",
        "review,stars\ntrès bon,5\n".encode("latin-1"),
        (":2: invalid byte 0xe8, byte 3 of the line (expected UTF-8)", "-f WINDOWS-1252 -t UTF-8"),
    ),
    "UTF-16": (
        "a.csv",
        "review,stars\ngood,5\n".encode("utf-16"),
        (":1: invalid byte 0xff", "-f UTF-16"),
    ),
    "a missing column": (
        "a.csv",
        "Review,stars\ngood,5\n",
        (
            ":1: the header has no column 'review' (expected one of Review, stars)",
            "did you mean 'Review'? Rename the column, or set data.columns.text",
        ),
    ),
    "no header": (
        "a.csv",
        "good,5\nbad,1\n",
        (":1: the header has no column 'review'", "set data.columns"),
    ),
    "an empty label": (
        "a.csv",
        "review,stars\ngood,5\nbad, \n",
        (":3: empty value in column 'stars'", "remove all rows without one"),
    ),
    "numeric labels": (
        "a.csv",
        "review,stars\ngood,5.0\n7,1\n",
        [(2, "good", "5.0"), (3, "7", "1")],
    ),
    "one column": (
        "a.csv",
        "review\ngood\n",
        (":1: the header has no column 'stars'", "set data.columns"),
    ),
    "duplicate headers": (
        "a.csv",
        "review,stars,review\ngood,5,x\n",
        (":1: the header has 2 columns 'review' (expected one)", "rename or remove"),
    ),
    "other duplicate headers": ("a.csv", "review,stars,,\ngood,5,,x\n", [(2, "good", "5")]),
    "too many fields": (
        "a.csv",
        "review,stars\n\ngood, very good,5\n",
        (":3: expected 2 fields as in the header, got 3 in 'good, very good,5'", "double quotes"),
    ),
    "no rows": ("a.csv", "review,stars\n", (": the table has no rows", "completely")),
    "an empty file": ("a.csv", "", (": the table has no rows", "completely")),
}


@pytest.mark.parametrize("name", SPREADSHEETS)
def test_difficult_spreadsheets(name: str, tmp_path: Path) -> None:
    file, content, expected = SPREADSHEETS[name]
    data = content if isinstance(content, bytes) else content.encode()
    path = write_bytes(tmp_path, data, file)
    if isinstance(expected, list):
        assert read(path) == expected
    else:
        error = error_of(read, path)
        assert f"{path}{expected[0]}" in error.message
        assert expected[1] in error.fix


def test_headers_of_tsv(tmp_path: Path) -> None:
    """Without a header, the columns are the fields, quotes are kept and blank lines are skipped."""
    path = write_bytes(tmp_path, b'\n"good\t5\n\nbad\t1\n', "a.txt")
    assert read(path, PLAIN) == [(2, '"good', "5"), (4, "bad", "1")]
    assert len(list(read_table(path, PLAIN, keep_empty=True))) == 4
    path = write_bytes(tmp_path, b"label\tText\tid\n5\tgood\t3\n", "b.tsv")
    message = error_of(read, path, PLAIN).message
    assert "no column 'text' (expected one of label, Text, id)" in message
    assert read(path, PLAIN | {"text": "Text"}) == [(2, "good", "5")]
    path = write_bytes(tmp_path, b"good\t5\tx\n", "c.tsv")
    assert "no column 'review' (expected one of good, 5, x)" in error_of(read, path).message


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        ("a duck", "expected text<TAB>label, got no tab in 'a duck'", "tables.md#formats"),
        ("a duck    eine Ente", "got no tab", "replace the run of spaces by one tab"),
        ("Go.\tGeh.\tCC-BY 2.0", "got 3 columns", "`cut -f1,2`"),
        ("a\tA\t", "got 3 columns", "`cut -f1,2`"),
        ("Where?\t", "empty value in column 'label'", "add the value"),
        (" \tLondon", "empty value in column 'text'", "add the value"),
    ],
)
def test_wrong_lines_without_header(tmp_path: Path, line: str, problem: str, fix: str) -> None:
    path = write_bytes(tmp_path, f"x\tX\n\n{line}\n".encode(), "a.tsv")
    error = error_of(read, path, PLAIN)
    assert f"{path}:3: " in error.message and problem in error.message
    assert fix in error.fix


def count_rows(path: Path) -> int:
    return sum(1 for _ in read_table(path, REVIEW))


def write_rows(path: Path, count: int) -> Path:
    with path.open("w") as file:
        file.write("review,stars\n")
        file.writelines(f'"review {number}, long",{number % 5}\n' for number in range(count))
    return path


def test_rows_are_read_in_constant_memory(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.csv", 20_011)
    assert peak_memory(count_rows, path) < 2**17 < path.stat().st_size / 2


@pytest.mark.slow
def test_a_million_rows_take_linear_time(tmp_path: Path) -> None:
    paths = [write_rows(tmp_path / f"{count}.csv", count) for count in (10**5, 10**6)]
    times = [time.perf_counter()]
    for path in paths:
        count_rows(path)
        times.append(time.perf_counter())
    assert times[2] - times[1] < 30 * (times[1] - times[0])


def test_json_lines_and_parquet_agree(tmp_path: Path) -> None:
    """Numbers, also missing ones, are read as text in both."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    rows = [
        {"stars": 5, "score": 0.5, "new": True, "review": "a\r\nb"},
        {"stars": 4, "score": 4.0, "new": False, "review": "c"},
    ]
    path = write_bytes(tmp_path, "\n".join(map(json.dumps, rows)).encode(), "a.jsonl")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    named = {"text": "review", "label": "stars", "score": "score", "new": "new"}
    texts = [{"text": "a\nb", "label": "5", "score": "0.5", "new": "true"}]
    texts += [{"text": "c", "label": "4", "score": "4.0", "new": "false"}]
    for read_path in (path, tmp_path / "a.parquet"):
        assert list(read_table(read_path, named)) == [Row(1, texts[0]), Row(2, texts[1])]
    twice = {"text": "review", "label": "review"}
    assert read(tmp_path / "a.parquet", twice) == [(1, "a\nb", "a\nb"), (2, "c", "c")]
    lists = pyarrow.table({"review": ["a"], "stars": [[1]]})
    parquet.write_table(lists, tmp_path / "b.parquet")
    message = error_of(read, tmp_path / "b.parquet").message
    assert "b.parquet:1: wrong value of 'stars' (expected a text or a number, got [1])" in message
    missing = pyarrow.table({"review": ["a", None], "stars": [1.0, float("nan")], "x": [1, 2]})
    parquet.write_table(missing, tmp_path / "c.parquet")
    assert read(tmp_path / "c.parquet") == [(1, "a", "1.0")]
    kept = list(read_table(tmp_path / "c.parquet", REVIEW, keep_empty=True))
    assert kept[1] == Row(2, {"text": "", "label": ""})
    path = write_bytes(tmp_path, b'{"review": "a", "stars": null}', "d.jsonl")
    assert "d.jsonl:1: empty value in column 'stars'" in error_of(read, path).message
    path = write_bytes(tmp_path, b'{"review": "a", "star": 1}', "d.jsonl")
    error = error_of(read, path)
    assert f"{path}:1 has no column 'stars' (expected one of review, star)" in error.message
    assert "did you mean 'star'?" in error.fix


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), st.sampled_from(",;\t"))
def test_what_the_csv_module_writes(
    tmp_path: Path, rows: list[tuple[str, str]], delimiter: str
) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([("review", "stars"), *rows])
    found = [tuple(texts.values()) for _, texts in read_table(path, REVIEW, keep_empty=True)]
    assert found == rows
