"""Read captions of images.

    JSON lines   {"image": "a/1.jpg", "captions": ["two ducks", "a pair of ducks"]}
                 {"index": 7, "caption": "two ducks", "boxes_xywh": [[1, 8, 28, 28], …]}
    table        a/1.jpg<TAB>two ducks           several lines per image are allowed
    tokens       1.jpg#0<TAB>two ducks           as in Flickr8k: the number counts the captions
    COCO         {"images": [{"id": 3, "file_name": "1.jpg"}, …],
                  "annotations": [{"image_id": 3, "caption": "two ducks"}, …]}

In JSON lines, an image is a file or, by `index`, a row of an array; line n without either refers to
row n, counted from 0. `boxes_xywh` has a box in pixels for each word of the only caption. In the
other forms an image is a path or, with a file of `names`, a row.
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
from harken.formats.tsv import split_pair
from harken.strict_json import JSON_ERRORS, is_finite, is_whole, parse_json, text_of, wrong

Form = Literal["json_lines", "table", "tokens", "coco"]
KEYS = ("image", "index", "caption", "captions", "boxes_xywh")
TOKEN = re.compile(r"([^\t]*)#([0-9]+)\t(.*)")  # matches in linear time
MAX_COCO = 2**28  # characters; parsed JSON takes many times as much memory
SEE = "see docs/formats.md#captions"


class NamedCaptions(NamedTuple):
    """The captions of an image, and the line or record of the first."""

    where: str
    captions: list[str]


def read_captions(
    path: Path,
    *,
    form: Form | None = None,
    folder: Path | None = None,
    rows: int | None = None,
    names: Path | None = None,
    image_list: Path | None = None,
) -> list[CaptionedImage]:
    """Read all examples of a file in order; check that the image of each exists.

    form: None: COCO for the suffix .json, else detected from the first line
    folder: base of relative paths; None is the folder of the file
    rows: number of images in the array, to check indices
    names: a file whose line n is the name of row n of the array
    image_list: a file of the names to read, one per line, in this order
    """
    folder = path.parent if folder is None else folder
    if form == "coco" or (form is None and ".json" in path.suffixes):
        located = _located(_coco(path), folder, rows, names, image_list)
    else:
        lines = read_lines(path)
        first = next(lines)
        lines = chain([first], lines)  # a pipe can be read only once
        form = form or _form(first)
        if form != "json_lines":
            captions = _pairs(lines, numbered=form == "tokens")
            located = _located(captions, folder, rows, names, image_list)
        elif names or image_list:
            problem = f"expected either JSON lines or the names in {names or image_list}, got both"
            fix = "remove the names: each line has its own 'image' or 'index'"
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


def _form(first: Line) -> Form:
    if first.text.lstrip().startswith("{"):
        return "json_lines"
    if TOKEN.fullmatch(first.text):
        return "tokens"
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
                problem = f"expected one of {pair[0]!r} and {pair[1]!r}, got both"
                raise line.error(problem, "remove one")
        # The same key in all lines: a line without its `image` must not become a row.
        key = next((f"with {key!r}" for key in KEYS[:2] if key in fields), "without an image")
        first_key = first_key or key
        if key != first_key:
            problem = f"expected a line {first_key}, as the lines before, got one {key}"
            raise line.error(problem, f"correct it, or write two files; {SEE}")
        captions = _captions(line.where, fields)
        boxes = _boxes(line.where, fields, captions)
        yield line.where, CaptionedImage(_image(line, fields, folder, rows), captions, boxes)


def _image(line: Line, fields: dict[str, Any], folder: Path, rows: int | None) -> Path | int:
    if "image" in fields:
        return folder / text_of(line.where, "image", fields["image"])
    row: int = fields.get("index", line.number - 1)
    if not is_whole(row) or row < 0:
        raise wrong(line.where, "index", row, "a row of the array: 0, 1, 2, …")
    if rows is not None and row >= rows:
        problem = f"no row {str(row)[:20]} in the array (expected 0 to {rows - 1})"
        raise line.error(problem, "check that captions and array belong together")
    return row


def _captions(where: str, fields: dict[str, Any]) -> tuple[str, ...]:
    if "caption" in fields:
        return (text_of(where, "caption", fields["caption"]),)
    captions = fields.get("captions", [])
    if not isinstance(captions, list):
        raise wrong(where, "captions", captions, "a list of texts")
    return tuple(text_of(where, "captions", caption) for caption in captions)


def _boxes(where: str, fields: dict[str, Any], captions: tuple[str, ...]) -> tuple[Box, ...]:
    if "boxes_xywh" not in fields:
        return ()
    values = fields["boxes_xywh"]
    if not isinstance(values, list):
        raise wrong(where, "boxes_xywh", values, "a list of [x, y, width, height]")
    words = [len(caption.split()) for caption in captions]
    if words != [len(values)]:
        got = f"got {len(values)} boxes and captions of {words} words"
        message = f"{where}: expected one caption and a box for each of its words, {got}"
        raise UserError(message, fix="correct 'boxes_xywh', or remove it")
    boxes = []
    for value in values:
        if not isinstance(value, list) or len(value) != 4 or not all(map(is_finite, value)):
            raise wrong(where, "boxes_xywh", value, "four finite numbers: x, y, width, height")
        boxes.append(Box(*map(float, value)))
        if boxes[-1].width <= 0 or boxes[-1].height <= 0:
            raise wrong(where, "boxes_xywh", value, "a width and a height of more than 0")
    return tuple(boxes)


# --- images with names


def _pairs(lines: Iterable[Line], *, numbered: bool) -> dict[str, NamedCaptions]:
    """Read `image<TAB>caption`, or `image#number<TAB>caption` if numbered."""
    by_name: dict[str, NamedCaptions] = {}
    numbers = set()
    expected = "image#number<TAB>caption" if numbered else "image<TAB>caption"
    for line in lines:
        name, caption = split_pair(line, expected, SEE)
        if numbered:
            token = TOKEN.fullmatch(line.text)
            name = token[1].strip() if token else ""
            if not token or not name:
                raise line.error(f"expected {expected}, got {line.text[:60]!r}", SEE)
            if (name, token[2]) in numbers:
                problem = f"second caption {token[2][:20]} of {name[:60]!r} (expected one)"
                raise line.error(problem, "give each caption of an image its own number")
            numbers.add((name, token[2]))
        by_name.setdefault(name, NamedCaptions(line.where, [])).captions.append(caption)
    return by_name


def _coco(path: Path) -> dict[str, NamedCaptions]:
    """Return captions by file name; an image without captions has an empty list."""
    document = _coco_document(path)
    by_name: dict[str, NamedCaptions] = {}
    by_id: dict[int | str, NamedCaptions] = {}
    for where, number, name in _coco_records(document, path, "images", "id", "file_name"):
        if number in by_id or name in by_name:
            got = f"{reprlib.repr(number)}, {name[:60]!r} again"
            raise UserError(f"{where}: {got} (expected each id and file once)", fix="remove one")
        by_name[name] = by_id[number] = NamedCaptions(where, [])
    for where, number, text in _coco_records(document, path, "annotations", "image_id", "caption"):
        if number not in by_id:
            message = f"{where}: caption of {reprlib.repr(number)} (expected an id in 'images')"
            raise UserError(message, fix="check that the file is complete")
        by_id[number].captions.append(text.strip())  # some end in a space or a new line
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
        keys = f"the keys {', '.join(value)}" if isinstance(value, dict) else text.strip()
        problem = f"expected COCO's object with 'images' and 'annotations', got {keys[:60]!r}"
        raise UserError(f"{where}: {problem}", fix=fix)
    return value


def _coco_records(
    document: dict[str, Any], path: Path, section: str, id_key: str, text_key: str
) -> Iterator[tuple[str, int | str, str]]:
    """Yield the location, the id and the text of each record."""
    if not isinstance(document[section], list):
        raise wrong(str(display_path(path)), section, document[section], "a list of objects")
    for number, fields in enumerate(document[section]):
        where = f"{display_path(path)}: {section}[{number}]"
        if not isinstance(fields, dict) or not {id_key, text_key} <= fields.keys():
            problem = f"expected an object with {id_key!r} and {text_key!r}"
            message = f"{where}: {problem}, got {reprlib.repr(fields)[:60]}"
            raise UserError(message, fix="use COCO's captions, not its instances or keypoints")
        image_id = fields[id_key]
        if not is_whole(image_id) and not isinstance(image_id, str):
            raise wrong(where, id_key, image_id, "a whole number or a text")
        yield where, image_id, text_of(where, text_key, fields[text_key])


def _located(
    captions: dict[str, NamedCaptions],
    folder: Path,
    rows: int | None,
    names: Path | None,
    image_list: Path | None,
) -> Iterator[tuple[str, CaptionedImage]]:
    """Resolve names to files or rows; with a list, only its names, in its order."""
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
            fix = "add it there, or leave it out by a list of names without it"
            raise UserError(f"{where}: expected a name of {names}, got {name[:60]!r}", fix=fix)
        yield where, CaptionedImage(row_of[name] if names else folder / name, tuple(texts))


def _names(path: Path) -> dict[str, Line]:
    names: dict[str, Line] = {}
    for line in read_lines(path):
        name = line.text.strip()
        if name in names:
            raise line.error(f"{name[:60]!r} again (expected each name once)", "remove one")
        names[name] = line
    return names
