"""Captions: pictures with what people say of them.

    {"image": "a/1.jpg", "captions": ["two ducks", "a pair of ducks"]}
    {"index": 7, "caption": "two ducks", "boxes_xywh": [[1, 8, 28, 28], [29, 43, 28, 28]]}

A picture is a file or, by `index`, a row of an array; a line with neither is about the row of its
own line, counted from 0. A box is of one word of the only caption, in pixels. Lines of JSON stay
as many examples as they are lines.

In the other forms (forms.py) pictures have names: paths or, where a file of `names` has the name of
row n in line n, rows.

What is not here: the pictures themselves (files.py, arrays.py).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.files import relative_name, write_text
from harken.formats.examples import Box, Captioned
from harken.formats.images.forms import SEE, TOKEN, Told, from_coco, from_table, from_tokens
from harken.formats.named_files import NamedFiles, require_unicode
from harken.formats.text import Line, named, read_lines
from harken.strict_json import ERRORS, is_finite, is_whole, parsed, text_of, wrong

Form = Literal["json_lines", "table", "tokens", "coco"]
KEYS = ("image", "index", "caption", "captions", "boxes_xywh")


def read_captions(
    path: Path,
    *,
    form: Form | None = None,
    folder: Path | None = None,
    rows: int | None = None,
    names: Path | None = None,
    listed: Path | None = None,
) -> list[Captioned]:
    """All examples of a file in its order; the picture of each is there.

    form: None tells it by the suffix .json, which is COCO's, and else by the first line
    folder: where paths begin; None is the folder of the file
    rows: how many pictures the array has, to refuse an index behind them
    names: a file whose line n is the name of row n of the array
    listed: a file of the only names to take, one a line, in this order
    """
    here = path.parent if folder is None else folder
    if form == "coco" or (form is None and ".json" in path.suffixes):
        return _gathered(_placed(from_coco(path), here, rows, names, listed), path)
    # A pipe can be read only once: the line that tells the form goes back in front.
    rest = read_lines(path)
    first = next(rest)
    lines, form = chain([first], rest), form or _form(first)
    if form != "json_lines":
        told = from_tokens(lines) if form == "tokens" else from_table(lines)
        return _gathered(_placed(told, here, rows, names, listed), path)
    if names or listed:
        raise UserError(
            f"{named(path)}: found JSON lines and the names in {names or listed}, wanted one of "
            "them",
            fix="leave the names out: a line has its own 'image' or 'index'",
        )
    return _gathered(_json_lines(lines, here, rows), path)


def write_captions(path: Path, examples: Sequence[Captioned]) -> None:
    """JSON lines; paths are relative to the file, unless they are on another drive."""
    # Links of folders are followed, so that `..` means the same to whoever reads it; a link that
    # stands for the file keeps its own name.
    folders = {one.image.parent for one in examples if isinstance(one.image, Path)}
    resolved = {folder: folder.resolve() for folder in folders}
    here = path.parent.resolve()
    lines = (
        _json(one, {"image": relative_name(resolved[one.image.parent], one.image.name, here)})
        if isinstance(one.image, Path)
        else _json(one, {"index": one.image})
        for one in examples
    )
    write_text(path, "".join(f"{line}\n" for line in lines))


def _form(first: Line) -> Form:
    if first.text.lstrip().startswith("{"):
        return "json_lines"
    if TOKEN.fullmatch(first.text):
        return "tokens"
    if "\t" in first.text:
        return "table"
    raise UserError(
        f"{first.where}: found {first.text.strip()[:60]!r}, wanted JSON objects, "
        "picture<TAB>caption, or a file of COCO that is named .json",
        fix=SEE,
    )


# --- JSON lines


def _json_lines(
    lines: Iterable[Line], folder: Path, rows: int | None
) -> Iterator[tuple[str, Captioned]]:
    usual = None
    for line in lines:
        # Programs write `null` for what is not there.
        fields = {key: value for key, value in _object(line).items() if value is not None}
        _check_keys(line.where, fields)
        # One way in the whole file: a line that forgot its `image` must not become a row.
        way = next((f"with {key!r}" for key in KEYS[:2] if key in fields), "without picture")
        usual = usual or way
        if way != usual:
            raise UserError(
                f"{line.where}: found a line {way} after others {usual}, wanted all alike",
                fix=f"mend it, or make two files; {SEE}",
            )
        captions = _captions(line.where, fields)
        yield (
            line.where,
            Captioned(
                _image(line, fields, folder, rows), captions, _boxes(line.where, fields, captions)
            ),
        )


def _object(line: Line) -> dict[str, Any]:
    try:
        value = parsed(line.text)
    except ERRORS as error:
        raise UserError(
            f"{line.where}: found {line.text.strip()[:60]!r} ({error}), wanted one JSON object",
            fix=f"one a line; the name of a file of COCO ends in .json; {SEE}",
        ) from error
    if not isinstance(value, dict):
        raise UserError(
            f"{line.where}: found {line.text.strip()[:60]!r}, wanted an object in braces", fix=SEE
        )
    return value


def _check_keys(where: str, fields: dict[str, Any]) -> None:
    for key in fields:
        if key not in KEYS:
            near = nearest(key, KEYS)
            raise UserError(
                f"{where}: found {key[:60]!r}, wanted only {', '.join(KEYS)}",
                fix=f"did you mean {near!r}?" if near else "remove it",
            )
    for pair in (KEYS[:2], KEYS[2:4]):
        if set(pair) <= fields.keys():
            raise UserError(
                f"{where}: found {pair[0]!r} and {pair[1]!r}, wanted one of them", fix="remove one"
            )


def _image(line: Line, fields: dict[str, Any], folder: Path, rows: int | None) -> Path | int:
    if "image" in fields:
        return folder / text_of(line.where, "image", fields["image"])
    row: int = fields.get("index", line.number - 1)
    if not is_whole(row) or row < 0:
        raise wrong(line.where, "index", row, "a row of the array: 0, 1, 2, …")
    if rows is not None and row >= rows:
        raise UserError(
            f"{line.where}: found row {str(row)[:20]}, wanted one of the {rows} rows of the array, "
            "counted from 0",
            fix="check that captions and array belong together",
        )
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
    boxes = fields["boxes_xywh"]
    if not isinstance(boxes, list):
        raise wrong(where, "boxes_xywh", boxes, "a list of [x, y, width, height]")
    words = [len(caption.split()) for caption in captions]
    if words != [len(boxes)]:
        raise UserError(
            f"{where}: found {len(boxes)} boxes and captions of {words} words, wanted one caption "
            "and a box for each of its words",
            fix="mend 'boxes_xywh', or remove it",
        )
    return tuple(_box(where, box) for box in boxes)


def _box(where: str, value: object) -> Box:
    if not isinstance(value, list) or len(value) != 4 or not all(map(is_finite, value)):
        raise wrong(where, "boxes_xywh", value, "four finite numbers: x, y, width, height")
    box = Box(*map(float, value))
    if box.width <= 0 or box.height <= 0:
        raise wrong(where, "boxes_xywh", value, "a width and a height of more than 0")
    return box


# --- names


def _placed(
    told: dict[str, Told], folder: Path, rows: int | None, names: Path | None, listed: Path | None
) -> Iterator[tuple[str, Captioned]]:
    """Names as files or as rows; only those of the list, where there is one, in its order."""
    places = None if names is None else {name: line.number - 1 for name, line in _names(names)}
    count = 0 if places is None else max(places.values()) + 1
    if places and rows not in (None, count):
        raise UserError(
            f"{names}: found {count} names, wanted {rows}, one for each row of the array",
            fix="take the names that were written with the array",
        )
    for name in told if listed is None else _chosen(listed, told):
        where, captions = told[name]
        if places is not None and name not in places:
            raise UserError(
                f"{where}: found {name[:60]!r}, wanted a name that stands in {names}",
                fix="add it there, or leave it out by a list of names without it",
            )
        yield where, Captioned(folder / name if places is None else places[name], tuple(captions))


def _chosen(listed: Path, told: dict[str, Told]) -> Iterator[str]:
    for name, line in _names(listed):
        if name not in told:
            raise UserError(
                f"{line.where}: found {name[:60]!r}, wanted the name of a picture with a caption",
                fix="remove it from the list, or write its caption",
            )
        yield name


def _names(path: Path) -> Iterator[tuple[str, Line]]:
    seen = set()
    for line in read_lines(path):
        name = line.text.strip()
        if name in seen:
            raise UserError(
                f"{line.where}: found {name[:60]!r} again, wanted each name once", fix="remove one"
            )
        seen.add(name)
        yield name, line


# --- all forms


def _gathered(found: Iterable[tuple[str, Captioned]], path: Path) -> list[Captioned]:
    """All of them, checked."""
    examples: list[Captioned] = []
    files = NamedFiles("picture")
    for where, one in found:
        _check_texts(where, one)
        if isinstance(one.image, Path):
            files.look_for(one.image, where)
        examples.append(one)
    files.require_all()
    if not examples:
        raise UserError(f"{named(path)}: found no picture, wanted at least one", fix=SEE)
    return examples


def _check_texts(where: str, one: Captioned) -> None:
    if not one.captions or not all(caption.strip() for caption in one.captions):
        raise UserError(
            f"{where}: found no caption or an empty one, wanted what is to be seen",
            fix=f"write it down, or leave the picture out; {SEE}",
        )
    require_unicode(where, str(one.image), *one.captions)


# --- writing


def _json(one: Captioned, picture: dict[str, object]) -> str:
    fields = picture
    if len(one.captions) == 1:
        fields["caption"] = one.captions[0]
    else:
        fields["captions"] = one.captions
    if one.boxes:
        fields["boxes_xywh"] = [[box.x, box.y, box.width, box.height] for box in one.boxes]
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)
