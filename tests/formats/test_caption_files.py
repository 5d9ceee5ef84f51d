import gzip
import json
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats import captions as module
from harken.formats.arrays import read_feature_maps
from harken.formats.captions import KEYS, read_captions
from harken.formats.examples import Box, CaptionedImage
from harken.formats.image_source import load_image
from small_files import error_of, write_empty, write_lines

caption_error = partial(error_of, read_captions)
IMAGE = {"image": "a.png"}
CAPTIONED = {"image": "a.png", "caption": "x"}

# --- JSON lines


def test_json_lines_with_files(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.png", "b/ö.jpg")
    path = write_lines(
        tmp_path,
        "\ufeff" + json.dumps({"image": "a.png", "caption": " Grüße, 你好 "}, ensure_ascii=False),
        "",
        {"captions": ["two ducks", "a pair"], "image": "b/ö.jpg", "boxes_xywh": None},
        {
            "image": str(tmp_path / "a.png"),
            "captions": ["duck"],
            "boxes_xywh": [[1, -8.5, 28, 1e3]],
        },
    )
    assert read_captions(path) == [
        CaptionedImage(tmp_path / "a.png", (" Grüße, 你好 ",)),
        CaptionedImage(tmp_path / "b/ö.jpg", ("two ducks", "a pair")),
        CaptionedImage(tmp_path / "a.png", ("duck",), (Box(1, -8.5, 28, 1000),)),
    ]


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ([{"index": 5, "caption": "x"}, {"index": 0, "caption": "y"}], [5, 0]),
        ([{"caption": "x"}, "", {"caption": "y"}], [0, 2]),  # a blank line is a line
    ],
)
def test_json_lines_with_rows(tmp_path: Path, lines: list[object], rows: list[int]) -> None:
    path = write_lines(tmp_path, *lines)
    for count in (None, max(rows) + 1):
        assert [example.image for example in read_captions(path, rows=count)] == rows
    error = caption_error(path, rows=max(rows))
    assert f"no row {max(rows)} in the array (expected 0 to {max(rows) - 1})" in error.message


@pytest.mark.parametrize(
    ("line", "found", "fix"),
    [
        ('{"image": "a.png", "caption"', "invalid JSON (", ".json; see docs"),
        ("[" * 100_000, "'[[[", "formats.md#captions"),
        ('["a.png", "x"]', "expected a JSON object", "formats.md#captions"),
        ('{"image": "a.png", "caption": "x", "caption": "y"}', '\'{"image"', "formats.md"),
        (IMAGE | {"capton": "x"}, "unknown key 'capton' (expected image", "mean 'caption'?"),
        (CAPTIONED | {"license": 1}, "unknown key 'license'", "remove it"),
        (
            IMAGE | {"index": 3, "caption": "x"},
            "expected 'image' or 'index', got both",
            "remove one",
        ),
        (
            CAPTIONED | {"captions": ["y"]},
            "expected 'caption' or 'captions', got both",
            "remove one",
        ),
        ({"image": "a.png"}, "expected a caption, got none", "write it"),
        (IMAGE | {"caption": None}, "expected a caption, got none", "write it"),
        (IMAGE | {"caption": " \t"}, "expected a caption, got none", "write it"),
        (IMAGE | {"captions": []}, "expected a caption, got none", "write it"),
        (IMAGE | {"captions": ["x", ""]}, "expected a caption, got none", "write it"),
        (IMAGE | {"caption": 7}, "'caption' (expected a text", "correct"),
        (IMAGE | {"captions": "x"}, "'captions' (expected a list", "correct"),
        (IMAGE | {"captions": ["x", 7]}, "'captions' (expected a text", "correct"),
        ({"image": 7, "caption": "x"}, "'image' (expected a text", "correct"),
        (IMAGE | {"caption": "\ud800"}, "expected Unicode text", "correct"),
        ({"image": "\udc80", "caption": "x"}, "", "rename the file"),
        (
            {"index": 3, "caption": "x"},
            "this line has 'index', but the first line has 'image'",
            "two files",
        ),
        ({"caption": "x"}, "this line has neither 'image' nor 'index', but the first", "two files"),
        (CAPTIONED | {"boxes_xywh": 3}, "'boxes_xywh' (expected", "correct"),
        ('{"caption": "x", "index": ' + "9" * 5000 + "}", "an integer of more than 19 digits", ""),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_wrong_json_lines(tmp_path: Path, line: object, found: str, fix: str) -> None:
    write_empty(tmp_path, "a.png")
    path = write_lines(tmp_path, CAPTIONED, "", line)
    error = caption_error(path)
    assert error.message.startswith(f"{path}:3: ") and found in error.message
    assert fix in error.fix


@pytest.mark.parametrize("index", ["-1", "2.0", "true", '"2"', "[2]", "NaN", "1e999", "-Infinity"])
def test_invalid_indices(tmp_path: Path, index: str) -> None:
    path = write_lines(
        tmp_path, '{"caption": "x", "index": 0}', f'{{"caption": "x", "index": {index}}}'
    )
    assert caption_error(path).message.startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("boxes", "found"),
    [
        ("[]", "got 0 boxes for 2 words"),
        ("[[1, 2, 3, 4]]", "got 1 boxes for 2 words"),
        *(
            (f"[[1, 2, 3, 4], {box}]", "wrong value of 'boxes_xywh' (expected four finite numbers")
            for box in ("[1, 2, 3]", "7", '[1, 2, 3, "4"]', "[true, 2, 3, 4]", "[1, 2, 1e999, 4]")
        ),
        ("[[1, 2, 3, 4], [1, NaN, 3, 4]]", "'{"),
        *(
            (f"[[1, 2, 3, 4], {box}]", "wrong value of 'boxes_xywh' (expected a width")
            for box in ("[1, 2, 0, 4]", "[1, 2, 3, -4]")
        ),
    ],
)
def test_invalid_boxes(tmp_path: Path, boxes: str, found: str) -> None:
    path = write_lines(tmp_path, f'{{"caption": "two ducks", "boxes_xywh": {boxes}}}')
    message = caption_error(path).message
    assert message.startswith(f"{path}:1: ") and found in message
    path = write_lines(tmp_path, {"captions": ["two", "a pair"], "boxes_xywh": [[1, 2, 3, 4]]})
    assert "got 1 boxes for 2 captions" in caption_error(path).message


@pytest.mark.parametrize("key", KEYS)
def test_deeply_nested_values(tmp_path: Path, key: str) -> None:
    for depth in (10, 300, *range(800, 1000, 3), 5000):
        fields = {"caption": '"x"', key: "[" * depth + "]" * depth}
        line = ", ".join(f'"{name}": {value}' for name, value in fields.items())
        caption_error(write_lines(tmp_path, f"{{{line}}}"))


# --- tables and Flickr8k


def test_a_table(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.png", "b c.png")
    path = write_lines(
        tmp_path, "a.png\ttwo ducks\r", "b c.png\t x#1 ", "", "a.png\ta pair", name="train.tsv"
    )
    expected = [
        CaptionedImage(tmp_path / "a.png", ("two ducks", "a pair")),
        CaptionedImage(tmp_path / "b c.png", ("x#1",)),
    ]
    assert read_captions(path) == expected
    packed = tmp_path / "train.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_captions(packed) == expected


TOKENS = ("b.jpg#0\tx .", "a.jpg#0\ty", "a.jpg#1\tz", "c.jpg.1#0\tw")


def test_flickr8k(tmp_path: Path) -> None:
    write_empty(tmp_path / "images", "a.jpg", "b.jpg", "c.jpg.1")
    path = write_lines(tmp_path, *TOKENS, name="token.txt")
    folder = tmp_path / "images"
    everything = [
        CaptionedImage(folder / "b.jpg", ("x .",)),
        CaptionedImage(folder / "a.jpg", ("y", "z")),
        CaptionedImage(folder / "c.jpg.1", ("w",)),
    ]
    assert read_captions(path, folder=folder) == everything
    image_list = write_lines(tmp_path, "a.jpg", "b.jpg ", name="list.txt")
    chosen = read_captions(path, folder=folder, image_list=image_list)
    assert chosen == [everything[1], everything[0]]


def test_rows_by_name(tmp_path: Path) -> None:
    path = write_lines(tmp_path, *TOKENS, name="token.txt")
    names = write_lines(tmp_path, "q.jpg", "a.jpg", "", "b.jpg", name="names.txt")
    image_list = write_lines(tmp_path, "b.jpg", "a.jpg", name="list.txt")
    assert read_captions(path, names=names, image_list=image_list, rows=4) == [
        CaptionedImage(3, ("x .",)),
        CaptionedImage(1, ("y", "z")),
    ]
    error = caption_error(path, names=names)
    assert error.message == (f"{path}:4: the image 'c.jpg.1' is not in {names}, so it has no row")
    error = caption_error(path, names=names, image_list=image_list, rows=5)
    assert error.message.startswith(f"{names}: expected 5 names")


def test_wrong_lists(tmp_path: Path) -> None:
    path = write_lines(tmp_path, *TOKENS, name="token.txt")
    names = write_lines(tmp_path, "a.jpg", "b.jpg", name="names.txt")
    image_list = write_lines(tmp_path, "b.jpg", "", "d.jpg", name="list.txt")
    error = caption_error(path, names=names, image_list=image_list)
    assert (
        error.message
        == f"{image_list}:3: expected the name of an image with a caption, got 'd.jpg'"
    )
    twice = write_lines(tmp_path, "b.jpg", "a.jpg", "b.jpg", name="twice.txt")
    for options in ({"names": twice}, {"names": names, "image_list": twice}):
        assert caption_error(path, **options).message.startswith(
            f"{twice}:3: duplicate name 'b.jpg'"
        )
    lines = write_lines(tmp_path, {"caption": "x"})
    for options in ({"names": names}, {"image_list": image_list}):
        message = caption_error(lines, **options).message
        assert "JSON lines cannot be combined with the list of names" in message


@pytest.mark.parametrize(
    ("lines", "found", "fix"),
    [
        (["two ducks"], "1: expected JSON objects", "formats.md#captions"),
        (["a.png\tx", "a.png  x"], "2: expected image<TAB>", "run of spaces"),
        (["a.png\tx", "a.png\tx\ty"], "2: expected image<TAB>", "cut -f1,2"),
        (["a.png\tx", "a.png\t "], "2: expected image<TAB>", "formats"),
        (["a.png\tx", "\tx"], "2: expected image<TAB>", "formats"),
        (["a.png#0\tx", "a.png\tx"], "2: expected image#number", "formats"),
        (["a.png#0\tx", "a.png#1\t"], "2: expected image#number", "formats"),
        (["a.png#0\tx", "#1\tx"], "2: expected image#number", "formats"),
        (["a.png#0\tx", "a.png#1\tx\ty"], "2: expected image", "cut -f1,2"),
        (["a.png#0\tx", "a.png#²\tx"], "2: expected image", "formats"),
        (
            ["a.png#0\tx", "a.png#0\ty"],
            "2: 'a.png' already has a caption with the number 0",
            "number",
        ),
        (["a.png#0\tx", "a.png#0  x"], "2: expected image", "run of spaces"),
    ],
)
def test_wrong_lines_of_tables(tmp_path: Path, lines: list[str], found: str, fix: str) -> None:
    write_empty(tmp_path, "a.png")
    path = write_lines(tmp_path, *lines, name="train.txt")
    error = caption_error(path)
    assert error.message.startswith(f"{path}:{found}")
    assert fix in error.fix


def test_long_lines_are_rejected_in_linear_time(tmp_path: Path) -> None:
    long = "#1" * 2**19 + "\t" + "x " * 2**19
    path = write_lines(tmp_path, "a.png#0\tx", long + "\ty", name="train.txt")
    assert caption_error(path).message.startswith(f"{path}:2: ")


# --- COCO


def coco(**changes: Any) -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "images": [{"id": 7, "file_name": "b.jpg", "width": 5}, {"id": 3, "file_name": "a.jpg"}],
        "annotations": [
            {"id": 1, "image_id": 3, "caption": "two ducks\n"},
            {"id": 2, "image_id": 7, "caption": "x"},
            {"id": 3, "image_id": 3, "caption": "a pair"},
        ],
    } | changes


def test_coco(tmp_path: Path) -> None:
    write_empty(tmp_path / "train2014", "a.jpg", "b.jpg")
    path = write_lines(tmp_path / "train2014", json.dumps(coco(), indent=1), name="captions.json")
    folder = tmp_path / "train2014"
    everything = [
        CaptionedImage(folder / "b.jpg", ("x",)),
        CaptionedImage(folder / "a.jpg", ("two ducks", "a pair")),
    ]
    assert read_captions(path) == everything
    elsewhere = write_lines(tmp_path, coco(), name="captions.txt")
    assert read_captions(elsewhere, file_format="coco", folder=folder) == everything
    image_list = write_lines(tmp_path, "a.jpg", name="list.txt")
    names = write_lines(tmp_path, "q.jpg", "a.jpg", name="names.txt")
    assert read_captions(elsewhere, file_format="coco", image_list=image_list, names=names) == [
        CaptionedImage(1, ("two ducks", "a pair"))
    ]


@pytest.mark.parametrize(
    ("document", "found", "fix"),
    [
        ('{\n"images": [,]}', ":2: invalid JSON (Expecting value", ".jsonl"),
        ('{"caption": "x"}\n{"caption": "y"}', ":2: invalid JSON (Extra", ".jsonl"),
        ('{"images": [], "images": []}', ": invalid JSON (a key occurs", ""),
        ('{"images": NaN}', ": invalid JSON (NaN is not a JSON number", ""),
        ("[" * 100_000, ": invalid JSON (", ""),
        ("[1]", ": expected COCO's object", ".jsonl"),
        ({"image": "a.jpg", "caption": "x"}, ": expected COCO's object", ".jsonl"),
        (coco(images={}), ": wrong value of 'images' (expected a list", "correct"),
        (coco(images=[]), ": annotations[0]: no image has the id 3 of", "complete"),
        (coco(images=[], annotations=[]), ": no examples", "complete"),
        (coco(images=[3]), ": images[0]: expected an object with 'id' and", "captions"),
        (coco(images=[{"id": 3}]), ": images[0]: expected an object", "captions"),
        (coco(images=[{"id": 3.5, "file_name": "a"}]), ": images[0]: wrong value of 'id'", "corr"),
        (coco(images=[{"id": True, "file_name": "a"}]), ": images[0]: wrong value of 'id'", "corr"),
        (coco(images=[{"id": 3, "file_name": 5}]), ": images[0]: wrong value of 'file_", "correct"),
        (coco(images=coco()["images"] * 2), ": images[2]: duplicate id 7", "remove one"),
        (coco(annotations=coco()["annotations"][:1]), ": images[0]: expected a caption", "write"),
        *(
            (coco(annotations=[annotation]), f": annotations[0]: {found}", fix)
            for annotation, found, fix in (
                (
                    {"image_id": 3, "bbox": [1, 2, 3, 4]},
                    "expected an object",
                    "not one of its instances",
                ),
                ({"image_id": 9, "caption": "x"}, "no image has", "complete"),
                ({"image_id": [], "caption": "x"}, "wrong value of", "correct"),
                ({"image_id": 3, "caption": 5}, "wrong value of", "correct"),
            )
        ),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_wrong_coco_files(tmp_path: Path, document: object, found: str, fix: str) -> None:
    write_empty(tmp_path, "a.jpg", "b.jpg")
    path = write_lines(tmp_path, document, name="captions.json")
    error = caption_error(path)
    assert error.message.startswith(f"{path}{found}")
    assert fix in error.fix


def test_coco_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path, coco(), name="captions.json")
    monkeypatch.setattr(module, "MAX_COCO", 100)
    assert "characters of JSON, got" in caption_error(path).message


# --- missing files


def test_missing_images_are_counted(tmp_path: Path) -> None:
    write_empty(tmp_path, "a.png")
    names = ["a.png", "b.png", "c.png", "b.png", "d\0.png", ".", "e" * 5000]
    path = write_lines(tmp_path, *({"image": name, "caption": "x"} for name in names))
    error = caption_error(path)
    assert error.message.startswith(f"{path}:2: image not found: {tmp_path / 'b.png'} ")
    assert "(5 of 6 files are missing)" in error.message


# --- round trip

numbers = st.floats(-1e9, 1e9)
sizes = st.floats(1e-9, 1e9)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
boxes = st.builds(Box, numbers, numbers, sizes, sizes)


@st.composite
def captioned(draw: st.DrawFn, image: st.SearchStrategy[Path | int]) -> CaptionedImage:
    captions = draw(st.lists(texts, min_size=1, max_size=3))
    words = len(captions[0].split())
    boxed = len(captions) == 1 and draw(st.booleans())
    places = draw(st.lists(boxes, min_size=words, max_size=words)) if boxed else []
    return CaptionedImage(draw(image), tuple(captions), tuple(places))


files = st.sampled_from([Path("a.png"), Path("ä b/'c\".jpg")])
rows = st.integers(0, 10**18)


@given(
    examples=st.sampled_from([files, rows]).flatmap(
        lambda image: st.lists(captioned(image), min_size=1)
    )
)
def test_round_trip_of_captions(
    tmp_path_factory: pytest.TempPathFactory, examples: list[CaptionedImage]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "written"
    write_empty(folder, "a.png", "ä b/'c\".jpg")
    records, expected = [], []
    for image, captions, boxes in map(astuple, examples):
        is_file = isinstance(image, Path)
        fields = {"caption": captions[0]} if len(captions) == 1 else {"captions": captions}
        fields |= {"boxes_xywh": boxes} if boxes else {}
        records.append({"image" if is_file else "index": str(image) if is_file else image} | fields)
        named = folder / image if is_file else image
        expected.append(CaptionedImage(named, captions, tuple(Box(*box) for box in boxes)))
    assert read_captions(write_lines(folder, *records)) == expected


@pytest.mark.parametrize("row", ["2", "9" * 18, "9" * 5000])
def test_rows_beyond_the_array(tmp_path: Path, row: str) -> None:
    np.save(tmp_path / "maps.npy", np.zeros((2, 1, 1, 1), np.float32))
    error_of(load_image, f"{tmp_path / 'maps.npy'}#{row}", None, read_feature_maps)
