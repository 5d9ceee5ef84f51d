"""Readers of labeled texts, sounds and images."""

from pathlib import Path

import numpy as np
import pytest

from harken.formats.examples import LabeledExample
from harken.formats.labels import LabelFormat, detect_kind, read_labeled
from harken.synthetic.recordings import write_wav
from small_files import error_of, write_empty, write_lines

TEXTS = LabelFormat("text", {"text": "text", "label": "label"}, multiple=False)
SOUNDS = LabelFormat("sound", {"audio": "audio", "label": "label"}, multiple=False)
IMAGES = LabelFormat("image", {"image": "image", "label": "label"}, multiple=False)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.tsv", ["an atom ?\tDESC", "who ?\tHUM"]),
        ("a.tsv", ["label\ttext", "DESC\tan atom ?", "HUM\twho ?"]),
        ("a.csv", ["text;label", "an atom ?;DESC", '"who ?";"HUM"']),
        ("a.jsonl", [{"text": "an atom ?", "label": "DESC"}, {"label": " HUM", "text": "who ?"}]),
    ],
)
def test_texts_in_every_format(tmp_path: Path, name: str, lines: list[object]) -> None:
    path = write_lines(tmp_path, *lines, name=name)
    expected = [LabeledExample("an atom ?", ("DESC",)), LabeledExample("who ?", ("HUM",))]
    assert read_labeled(path, TEXTS) == expected
    assert detect_kind(path) == "text"


def test_several_labels(tmp_path: Path) -> None:
    several = TEXTS._replace(multiple=True)
    table = write_lines(tmp_path, "text,label", 'a film,"war , love"', "nothing,", name="a.csv")
    lines = [
        {"text": "a film", "labels": ["war", "love", "war"]},
        {"text": "nothing", "labels": []},
    ]
    for path in (table, write_lines(tmp_path, *lines)):
        examples = read_labeled(path, several)
        assert [example.labels for example in examples] == [("love", "war"), ()]
    error = error_of(read_labeled, write_lines(tmp_path, *lines), TEXTS)
    assert "expected one label, got 3" in error.message and "multiple" in error.fix
    comma = write_lines(tmp_path, {"text": "a", "labels": ["war, love"]})
    assert "labels without commas" in error_of(read_labeled, comma, several).message


def test_columns_have_names(tmp_path: Path) -> None:
    named = TEXTS._replace(columns={"text": "review", "label": "stars"})
    for path in (
        write_lines(tmp_path, "stars,id,review", "4,7,good", name="a.csv"),
        write_lines(tmp_path, {"review": "good", "stars": 4, "id": 7}),
    ):
        assert read_labeled(path, named) == [LabeledExample("good", ("4",))]


def test_sounds_and_segments(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.zeros(800, dtype=np.float32), 8000)
    path = write_lines(
        tmp_path,
        {"audio": "a.wav", "label": "yes", "speaker": "ann"},
        {"audio": "a.wav", "label": "no", "start": 0.05, "end": 0.1},
    )
    file = tmp_path / "a.wav"
    assert detect_kind(path) == "sound"
    assert read_labeled(path, SOUNDS) == [
        LabeledExample(str(file), ("yes",), file),
        LabeledExample(f"{file}#t=0.05,0.1", ("no",), file),
    ]


def test_images_and_rows_of_an_array(tmp_path: Path) -> None:
    write_empty(tmp_path, "cats/1.png", "train.npz")
    file, array = tmp_path / "cats" / "1.png", tmp_path / "train.npz"
    path = write_lines(tmp_path, {"image": "cats/1.png", "label": "cat"})
    assert read_labeled(path, IMAGES) == [LabeledExample(str(file), ("cat",), file)]
    path = write_lines(tmp_path, {"index": 7, "label": "cat"})
    assert detect_kind(path) == "image"
    assert read_labeled(path, IMAGES) == [LabeledExample(f"{array}#7", ("cat",), array)]
    table = write_lines(tmp_path, "image\tlabel", "cats/1.png\tcat", name="a.tsv")
    assert read_labeled(table, IMAGES) == [LabeledExample(str(file), ("cat",), file)]


def test_tables_of_sounds_in_every_format(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.zeros(800, dtype=np.float32), 8000)
    file, row = tmp_path / "a.wav", {"audio": "a.wav", "label": "yes", "text": "a transcript"}
    tables = [
        write_lines(tmp_path, mark.join(row), mark.join(row.values()), name=name)
        for mark, name in ((",", "a.csv"), (";", "b.csv"), ("\t", "a.tsv"))
    ]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table.from_pylist([row])
    parquet.write_table(table, tmp_path / "a.parquet")
    for path in (*tables, tmp_path / "a.parquet"):
        assert detect_kind(path) == "sound"
        assert read_labeled(path, SOUNDS) == [LabeledExample(str(file), ("yes",), file)]


def test_a_folder_per_label(tmp_path: Path) -> None:
    write_empty(tmp_path, "dog/2.PNG", "dog/1.jpg", "cat/1.gif", "cat/.hidden.png", "cat/notes.txt")
    assert detect_kind(tmp_path) == "image"
    names = [
        (Path(example.input).name, example.labels) for example in read_labeled(tmp_path, IMAGES)
    ]
    assert names == [("1.gif", ("cat",)), ("1.jpg", ("dog",)), ("2.PNG", ("dog",))]
    assert "this is a folder" in error_of(read_labeled, tmp_path, TEXTS).message


@pytest.mark.parametrize(
    ("line", "contents", "message"),
    [
        ({"text": "a"}, TEXTS, "missing key 'label'"),
        ({"text": "a", "label": " "}, TEXTS, "empty label"),
        ({"text": " ", "label": "b"}, TEXTS, "the text is empty"),
        ({"text": 3, "label": "b"}, TEXTS, "wrong value of 'text'"),
        ({"text": "a", "label": {}}, TEXTS, "wrong value of 'label'"),
        ({"audio": "none.wav", "label": "b"}, SOUNDS, "audio file not found"),
        ({"audio": "a.wav", "label": "b", "start": 2, "end": 1}, SOUNDS, "0 <= start < end"),
        ({"audio": "a.wav", "label": "b", "start": "x"}, SOUNDS, "wrong value of 'start'"),
        ({"index": -1, "label": "b"}, IMAGES, "wrong value of 'index'"),
        ({"label": "b"}, IMAGES, "missing key 'image'"),
    ],
)
def test_wrong_lines(tmp_path: Path, line: object, contents: LabelFormat, message: str) -> None:
    error = error_of(read_labeled, write_lines(tmp_path, line), contents)
    assert message in error.message and "train.jsonl:1" in error.message and error.fix
