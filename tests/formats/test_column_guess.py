"""Guesses of columns, by name and by content."""

import json
from pathlib import Path

import pytest

from harken.formats.column_guess import guess_columns
from small_files import error_of, write_bytes

REVIEW = ("text", "label")
TEXTS = [f"the film number {number} is long" for number in range(7)]


@pytest.mark.parametrize(
    ("header", "fields", "expected"),
    [
        ("id,label,text", REVIEW, {"text": "text", "label": "label"}),
        ("Id,Stars,Review Text,review_id", REVIEW, {"text": "Review Text", "label": "Stars"}),
        ("a,b,c,d", REVIEW, {"text": "c", "label": "b"}),
        ("n,id,Query,Reply", ("question", "answer"), {"question": "Query", "answer": "Reply"}),
        ("x,y,en,de", ("source", "target"), {"source": "en", "target": "de"}),
        ("x,de,en,y", ("source", "target"), {"source": "en", "target": "y"}),
        ("x,y,tgt,src", ("source", "target"), {"source": "src", "target": "tgt"}),
    ],
)
def test_guesses_of_csv(
    tmp_path: Path, header: str, fields: tuple[str, ...], expected: dict[str, str]
) -> None:
    """Of the columns number, class, long and short text, names count before contents."""
    rows = (f'{n},{n % 2},"{text}, very","{text}"' for n, text in enumerate(TEXTS))
    path = write_bytes(tmp_path, "\n".join((header, *rows)).encode(), "a.csv")
    if header.startswith("id,"):
        path.write_text("\n".join((header, *(f"{n},{n},x" for n in range(3)))))
    assert guess_columns(path, fields, {}) == expected
    first = next(iter(fields))
    chosen = header.split(",")[0]
    assert guess_columns(path, fields, {first: chosen})[first] == chosen


def test_guesses_of_other_tables(tmp_path: Path) -> None:
    rows = [{"words": ["a", "b"], "tags": ["X", "Y"], "body": "a b", "n": n} for n in range(3)]
    path = write_bytes(tmp_path, "\n".join(map(json.dumps, rows)).encode(), "a.jsonl")
    assert guess_columns(path, ("words", "tags"), {}) == {"words": "words", "tags": "tags"}
    assert guess_columns(path, ("text",), {}) == {"text": "body"}
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    renamed = [{"l": row["words"], "ner_tags": row["tags"], "n": 1} for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(renamed), tmp_path / "a.parquet")
    found = guess_columns(tmp_path / "a.parquet", ("words", "tags"), {})
    assert found == {"words": "l", "tags": "ner_tags"}
    path = write_bytes(tmp_path, b"sentence\tlabel\na\tb\n", "a.tsv")
    assert guess_columns(path, REVIEW, {}) == {"text": "sentence", "label": "label"}
    path = write_bytes(tmp_path, b"a duck swims\tnoun\n", "b.tsv")
    assert guess_columns(path, REVIEW, {}) == {}
    path = write_bytes(tmp_path, b"text\na\n", "c.csv")
    message = error_of(guess_columns, path, REVIEW, {}).message
    assert f"{path}: no column for the label (the columns are text)" in message
