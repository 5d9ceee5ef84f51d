"""Read captions of images.

    JSON lines   {"image": "a/1.jpg", "captions": ["two ducks", "a pair of ducks"]}
                 {"index": 7, "caption": "two ducks", "boxes_xywh": [[1, 8, 28, 28], …]}
    table        a/1.jpg<TAB>two ducks           an image may have several lines
    Flickr8k     1.jpg#0<TAB>two ducks           the number counts the captions of the image
    COCO         {"images": [{"id": 3, "file_name": "1.jpg"}, …],
                  "annotations": [{"image_id": 3, "caption": "two ducks"}, …]}

In JSON lines, an image is a file or, by `index`, a row of an array. A line without either refers to
the row of its own number: the first line to row 0. `boxes_xywh` has a box in pixels for each word
of the only caption. In the other formats, an image is a path or, with a file of `names`, a row.
"""

import json
import re
import reprlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harken.errors import UserError
from harken.formats.examples import Box, CaptionedImage
from harken.formats.records import check_examples, check_keys, parse_object, require_unicode
from harken.formats.text import Line, display_path, read_lines, read_whole
from harken.formats.tsv import split_full_cells
from harken.strict_json import JSON_ERRORS, is_finite, is_whole, parse_json, text_of, wrong_value

Format = Literal["json_lines", "table", "flickr8k", "coco"]
KEYS = ("image", "index", "caption", "captions", "boxes_xywh")
FLICKR8K = re.compile(r"([^\t]*)#([0-9]+)\t(.*)")  # matches in linear time
MAX_COCO = 2**28  # characters; parsed JSON takes many times as much memory
SEE = "see docs/formats.md#captions"


class LocatedCaptions(NamedTuple):
    """The captions of an image, and a location for errors.

    The location is the line of the first caption, or the record of the image in a COCO file.
    """

    where: str
    captions: list[str]


def read_captions(
    path: Path,
    *,
    file_format: Format | None = None,
    folder: Path | None = None,
    rows: int | None = None,
    names: Path | None = None,
    image_list: Path | None = None,
) -> list[CaptionedImage]:
    """Read all examples of a file in order; check that the image of each exists.

    file_format: by default COCO if .json is among the suffixes, else detected from the first line
    folder: base of relative paths; by default the folder of the file
    rows: number of images in the array, to check indices
    names: a file whose line n is the name of row n of the array
    image_list: a file with one image name per line; only these images are read, in this order
    """
    folder = path.parent if folder is None else folder
    if file_format == "coco" or (file_format is None and ".json" in path.suffixes):
        located = _examples_of(_read_coco(path), folder, rows, names, image_list)
    else:
        lines = read_lines(path)
        first = next(lines)
        lines = chain([first], lines)  # a pipe can be read only once
        file_format = file_format or _detect_format(first)
        if file_format != "json_lines":
            captions = _read_table(lines, numbered=file_format == "flickr8k")
            located = _examples_of(captions, folder, rows, names, image_list)
        elif names or image_list:
            problem = f"JSON lines cannot be combined with the list of names {names or image_list}"
            fix = "remove the list: JSON lines have 'image' or 'index', or refer to rows in order"
            raise UserError(f"{display_path(path)}: {problem}", fix=fix)
        else:
            located = _json_lines(lines, folder, rows)
    return check_examples(located, str(display_path(path)), "image", _checked_image)


def _checked_image(where: str, example: CaptionedImage) -> Path | int:
    if not example.captions or not all(caption.strip() for caption in example.captions):
        message = f"{where}: expected a caption, got none or an empty one"
        raise UserError(message, fix=f"write it, or leave the image out; {SEE}")
    require_unicode(where, str(example.image), *example.captions)
    return example.image


def _detect_format(first: Line) -> Format:
    if first.text.lstrip().startswith("{"):
        return "json_lines"
    if FLICKR8K.fullmatch(first.text):
        return "flickr8k"
    if "\t" in first.text:
        return "table"
    expected = "JSON objects, image<TAB>caption or a COCO file named .json"
    raise first.error(f"expected {expected}, got {first.text.strip()[:60]!r}", SEE)


# --- JSON lines


def _json_lines(
    lines: Iterable[Line], folder: Path, rows: int | None
) -> Iterator[tuple[str, CaptionedImage]]:
    first_key = None
    for line in lines:
        fields = parse_object(line, f"write one per line; a COCO file is named .json; {SEE}")
        check_keys(line.where, fields, KEYS)
        for pair in (KEYS[:2], KEYS[2:4]):
            if set(pair) <= fields.keys():
                problem = f"expected {pair[0]!r} or {pair[1]!r}, got both"
                raise line.error(problem, "remove one")
        # The same key in all lines: a line without its `image` must not become a row.
        key = next((repr(key) for key in KEYS[:2] if key in fields), "neither 'image' nor 'index'")
        first_key = first_key or key
        if key != first_key:
            problem = f"this line has {key}, but the first line has {first_key}"
            raise line.error(problem, f"correct it, or write two files; {SEE}")
        captions = _captions(line.where, fields)
        boxes = _boxes(line.where, fields, captions)
        yield line.where, CaptionedImage(_image(line, fields, folder, rows), captions, boxes)


def _image(line: Line, fields: dict[str, Any], folder: Path, rows: int | None) -> Path | int:
    if "image" in fields:
        return folder / text_of(line.where, "image", fields["image"])
    row: int = fields.get("index", line.number - 1)
    if not is_whole(row) or row < 0:
        raise wrong_value(line.where, "index", row, "a row of the array: 0, 1, 2, …")
    if rows is not None and row >= rows:
        problem = f"no row {str(row)[:20]} in the array (expected 0 to {rows - 1})"
        raise line.error(problem, "check that captions and array belong together")
    return row


def _captions(where: str, fields: dict[str, Any]) -> tuple[str, ...]:
    if "caption" in fields:
        return (text_of(where, "caption", fields["caption"]),)
    captions = fields.get("captions", [])
    if not isinstance(captions, list):
        raise wrong_value(where, "captions", captions, "a list of texts")
    return tuple(text_of(where, "captions", caption) for caption in captions)


def _boxes(where: str, fields: dict[str, Any], captions: tuple[str, ...]) -> tuple[Box, ...]:
    if "boxes_xywh" not in fields:
        return ()
    values = fields["boxes_xywh"]
    if not isinstance(values, list):
        raise wrong_value(where, "boxes_xywh", values, "a list of [x, y, width, height]")
    counts = [len(caption.split()) for caption in captions]
    if counts != [len(values)]:
        subject = f"{counts[0]} words" if len(counts) == 1 else f"{len(counts)} captions"
        got = f"got {len(values)} boxes for {subject}"
        message = f"{where}: expected one caption and a box for each of its words, {got}"
        raise UserError(message, fix="correct 'boxes_xywh', or remove it")
    boxes = []
    for value in values:
        if not isinstance(value, list) or len(value) != 4 or not all(map(is_finite, value)):
            raise wrong_value(
                where, "boxes_xywh", value, "four finite numbers: x, y, width, height"
            )
        boxes.append(Box(*map(float, value)))
        if boxes[-1].width <= 0 or boxes[-1].height <= 0:
            raise wrong_value(where, "boxes_xywh", value, "a width and a height of more than 0")
    return tuple(boxes)


# --- captions by image name


def _read_table(lines: Iterable[Line], *, numbered: bool) -> dict[str, LocatedCaptions]:
    """Group lines `image<TAB>caption`, or `image#number<TAB>caption` if numbered, by image."""
    by_name: dict[str, LocatedCaptions] = {}
    numbers = set()
    names = ("image#number" if numbered else "image", "caption")
    for line in lines:
        name, caption = split_full_cells(line, names, SEE)
        if numbered:
            match = FLICKR8K.fullmatch(line.text)
            name = match[1].strip() if match else ""
            if not match or not name:
                raise line.error(f"expected {'<TAB>'.join(names)}, got {line.text[:60]!r}", SEE)
            if (name, match[2]) in numbers:
                problem = f"{name[:60]!r} already has a caption with the number {match[2][:20]}"
                raise line.error(problem, "give each caption of an image its own number")
            numbers.add((name, match[2]))
        by_name.setdefault(name, LocatedCaptions(line.where, [])).captions.append(caption)
    return by_name


def _read_coco(path: Path) -> dict[str, LocatedCaptions]:
    """Return captions by file name; an image without captions has an empty list."""
    document = _coco_document(path)
    by_name: dict[str, LocatedCaptions] = {}
    by_id: dict[int | str, LocatedCaptions] = {}
    for where, image_id, name in _coco_records(document, path, "images", "id", "file_name"):
        if image_id in by_id or name in by_name:
            key = f"id {reprlib.repr(image_id)}" if image_id in by_id else f"file {name[:60]!r}"
            raise UserError(f"{where}: duplicate {key} (expected each once)", fix="remove one")
        by_name[name] = by_id[image_id] = LocatedCaptions(where, [])
    records = _coco_records(document, path, "annotations", "image_id", "caption")
    for where, image_id, text in records:
        if image_id not in by_id:
            message = f"{where}: no image has the id {reprlib.repr(image_id)} of this caption"
            raise UserError(message, fix="check that 'images' is complete")
        by_id[image_id].captions.append(text.strip())  # some end in a space or a new line
    return by_name


def _coco_document(path: Path) -> dict[str, Any]:
    text, where = read_whole(path), str(display_path(path))
    if len(text) > MAX_COCO:
        problem = f"expected at most {MAX_COCO:,} characters of JSON, got {len(text):,}"
        raise UserError(f"{where}: {problem}", fix="convert it to JSON lines")
    fix = f"if every line is an object of its own, name the file .jsonl; {SEE}"
    try:
        value = parse_json(text)
    except JSON_ERRORS as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        message = f"{where}{line}: invalid JSON ({error}; expected a COCO file)"
        raise UserError(message, fix=fix) from error
    if not isinstance(value, dict) or not {"images", "annotations"} <= value.keys():
        got = f"the keys {list(value)}" if isinstance(value, dict) else text.strip()
        problem = f"expected COCO's object with 'images' and 'annotations', got {got[:60]}"
        raise UserError(f"{where}: {problem}", fix=fix)
    return value


def _coco_records(
    document: dict[str, Any], path: Path, section: str, id_key: str, text_key: str
) -> Iterator[tuple[str, int | str, str]]:
    """Yield the location and the image id of each record, and its file name or caption."""
    if not isinstance(document[section], list):
        raise wrong_value(str(display_path(path)), section, document[section], "a list of objects")
    for number, fields in enumerate(document[section]):
        where = f"{display_path(path)}: {section}[{number}]"
        if not isinstance(fields, dict) or not {id_key, text_key} <= fields.keys():
            problem = f"expected an object with {id_key!r} and {text_key!r}"
            message = f"{where}: {problem}, got {reprlib.repr(fields)[:60]}"
            raise UserError(
                message, fix="use a captions file of COCO, not one of its instances or keypoints"
            )
        image_id = fields[id_key]
        if not is_whole(image_id) and not isinstance(image_id, str):
            raise wrong_value(where, id_key, image_id, "a whole number or a text")
        yield where, image_id, text_of(where, text_key, fields[text_key])


def _examples_of(
    captions: dict[str, LocatedCaptions],
    folder: Path,
    rows: int | None,
    names: Path | None,
    image_list: Path | None,
) -> Iterator[tuple[str, CaptionedImage]]:
    """Yield examples with their location; image names become paths, or rows if `names` is given."""
    row_of = {name: line.number - 1 for name, line in _names(names).items()} if names else {}
    count = max(row_of.values(), default=-1) + 1
    if names and rows not in (None, count):
        message = f"{names}: expected {rows} names, one for each row of the array, got {count}"
        raise UserError(message, fix="use the names that were written with the array")
    selected = _names(image_list) if image_list else {}
    for name, line in selected.items():
        if name not in captions:
            problem = f"expected the name of an image with a caption, got {name[:60]!r}"
            raise line.error(problem, "remove it from the list, or write its caption")
    for name in selected or captions:
        where, texts = captions[name]
        if names and name not in row_of:
            message = f"{where}: the image {name[:60]!r} is not in {names}, so it has no row"
            raise UserError(message, fix="add it there, or select other images with an image list")
        yield where, CaptionedImage(row_of[name] if names else folder / name, tuple(texts))


def _names(path: Path) -> dict[str, Line]:
    names: dict[str, Line] = {}
    for line in read_lines(path):
        name = line.text.strip()
        if name in names:
            raise line.error(f"duplicate name {name[:60]!r} (expected each once)", "remove one")
        names[name] = line
    return names
