"""Captions of pictures that have names: what is said of each, in the order of the file.

    table    a/1.jpg<TAB>two ducks           lines of one picture are gathered
    tokens   1.jpg#0<TAB>two ducks           as Flickr8k has them: the number counts its captions
    COCO     {"images": [{"id": 3, "file_name": "1.jpg"}, …],
              "annotations": [{"image_id": 3, "caption": "two ducks"}, …]}

What is not here: where the pictures are (captions.py).
"""

import json
import re
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harken.errors import UserError
from harken.formats.text import Line, named, read_whole
from harken.strict_json import ERRORS, is_whole, parsed, text_of, wrong

TOKEN = re.compile(r"([^\t]*)#([0-9]+)\t(.*)")  # no more: its time must be linear in the line
LARGEST_COCO = 2**28  # characters; what JSON becomes in memory is many times larger
SEE = "see docs/formats.md#captions"


class Told(NamedTuple):
    """What is said of a picture, and where it is named first."""

    where: str
    captions: list[str]


def from_table(lines: Iterable[Line]) -> dict[str, Told]:
    """By the name of each picture."""
    told: dict[str, Told] = {}
    for line in lines:
        cells = [cell.strip() for cell in line.text.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise _no_pair(line, "picture<TAB>caption")
        name, caption = cells
        told.setdefault(name, Told(line.where, [])).captions.append(caption)
    return told


def from_tokens(lines: Iterable[Line]) -> dict[str, Told]:
    """By the name of each picture; no caption has the number of another."""
    told: dict[str, Told] = {}
    seen = set()
    for line in lines:
        found = TOKEN.fullmatch(line.text)
        name, number, caption = map(str.strip, found.groups()) if found else ("", "", "")
        if not name or not caption or "\t" in caption:
            raise _no_pair(line, "picture#number<TAB>caption")
        if (name, number) in seen:
            raise UserError(
                f"{line.where}: found a second caption {number[:20]} of {name[:60]!r}, wanted one",
                fix="give each caption of a picture a number of its own",
            )
        seen.add((name, number))
        told.setdefault(name, Told(line.where, [])).captions.append(caption)
    return told


def from_coco(path: Path) -> dict[str, Told]:
    """By the name of each picture; one without a caption has an empty list."""
    document = _document(path)
    told: dict[str, Told] = {}
    pictures: dict[int | str, Told] = {}
    for where, fields in _records(document, path, "images", ("id", "file_name")):
        number = _identity(where, "id", fields["id"])
        name = text_of(where, "file_name", fields["file_name"])
        if number in pictures or name in told:
            raise UserError(
                f"{where}: found {reprlib.repr(number)}, {name[:60]!r} again, wanted each id and "
                "each file once",
                fix="remove one",
            )
        told[name] = pictures[number] = Told(where, [])
    for where, fields in _records(document, path, "annotations", ("image_id", "caption")):
        number = _identity(where, "image_id", fields["image_id"])
        if number not in pictures:
            raise UserError(
                f"{where}: found a caption of {reprlib.repr(number)}, wanted an id that stands in "
                "'images'",
                fix="check that the file is whole",
            )
        # Some captions of COCO end in a space or a new line.
        pictures[number].captions.append(text_of(where, "caption", fields["caption"]).strip())
    return told


def _no_pair(line: Line, wanted: str) -> UserError:
    spaces = "\t" not in line.text and "  " in line.text.strip()
    return UserError(
        f"{line.where}: found {line.text[:60]!r}, wanted {wanted}",
        fix="replace the run of spaces by one tab" if spaces else SEE,
    )


def _document(path: Path) -> dict[str, Any]:
    text = read_whole(path)
    if len(text) > LARGEST_COCO:
        raise UserError(
            f"{named(path)}: found {len(text) >> 20} Mi characters of JSON, wanted at most "
            f"{LARGEST_COCO >> 20} Mi",
            fix="make JSON lines of it, which are read one by one",
        )
    by_lines = f"if every line is an object of its own, name the file .jsonl; {SEE}"
    try:
        value = parsed(text)
    except ERRORS as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(
            f"{named(path)}{line}: found text that is no JSON ({error}), wanted that of COCO",
            fix=by_lines,
        ) from error
    if not isinstance(value, dict) or not {"images", "annotations"} <= value.keys():
        found = f"the keys {', '.join(value)}" if isinstance(value, dict) else text.strip()
        raise UserError(
            f"{named(path)}: found {found[:60]!r}, wanted COCO's object with 'images' and "
            "'annotations'",
            fix=by_lines,
        )
    return value


def _records(
    document: dict[str, Any], path: Path, part: str, keys: tuple[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(document[part], list):
        raise wrong(str(named(path)), part, document[part], "a list of objects")
    for number, fields in enumerate(document[part]):
        where = f"{named(path)}: {part}[{number}]"
        if not isinstance(fields, dict) or not set(keys) <= fields.keys():
            raise UserError(
                f"{where}: found {reprlib.repr(fields)[:60]}, wanted an object with "
                f"{keys[0]!r} and {keys[1]!r}",
                fix="take COCO's file of captions, not that of instances or keypoints",
            )
        yield where, fields


def _identity(where: str, key: str, value: object) -> int | str:
    if isinstance(value, int | str) and (is_whole(value) or isinstance(value, str)):
        return value
    raise wrong(where, key, value, "a whole number or a text")
