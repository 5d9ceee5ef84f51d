"""Read labeled texts, sounds and images.

    table        What is an atom ?<TAB>DESC            CSV, TSV or Parquet; TSV may have no header
    JSON lines   {"text": "What is an atom ?", "label": "DESC"}
                 {"audio": "a/1.wav", "label": "yes", "start": 0.5, "end": 1.25}
                 {"image": "a/1.jpg", "labels": ["dog", "beach"]}
                 {"index": 7, "label": "dog"}          row 7 of train.npz for train.jsonl
    folder       dog/1.jpg  dog/2.jpg  cat/7.jpg       one folder per label

Paths are relative to the file, and times in seconds. In a table, several labels are separated by
commas.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harken.errors import UserError
from harken.formats.examples import LabeledExample, Utterance
from harken.formats.records import check_examples, parse_object, require_unicode
from harken.formats.sound import segment_name
from harken.formats.speech_folders import SOUND_SUFFIXES
from harken.formats.table import Columns, cell_text, column_names, read_values
from harken.formats.text import display_path, read_lines
from harken.inputs import is_file, is_folder
from harken.strict_json import is_finite, is_whole, text_of, wrong_value

InputKind = Literal["text", "sound", "image"]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
SUFFIXES: Mapping[InputKind, Sequence[str]] = {"sound": SOUND_SUFFIXES, "image": IMAGE_SUFFIXES}
FIELDS: Mapping[InputKind, str] = {"text": "text", "sound": "audio", "image": "image"}
SEPARATOR = ","  # of labels in a table
SEE = "see docs/tasks/classify.md#data"

Located = Iterator[tuple[str, LabeledExample]]  # each with its line or file


class LabelFormat(NamedTuple):
    """What a file contains."""

    kind: InputKind
    columns: Columns  # of the input and of the label
    multiple: bool  # whether an example may have any number of labels


def read_labeled(path: Path, contents: LabelFormat) -> list[LabeledExample]:
    """Read all examples of a file or folder in order; check that each sound or image exists."""
    if is_folder(path):
        located = _folder(path, contents)
    elif ".jsonl" in path.suffixes:
        located = _json_lines(path, contents)
    else:
        located = _table(path, contents)
    files = "image" if contents.kind == "image" else "audio file"
    return check_examples(located, str(display_path(path)), files, _checked)


def detect_kind(path: Path) -> InputKind:
    """Return the kind of the inputs of a file, by its first line, or of a folder, by suffixes."""
    if is_folder(path):
        for kind in SUFFIXES:
            if any(_class_files(path, kind)):
                return kind
        folders = f"folders of images or audio files, such as {path / 'dog' / '1.jpg'}"
        raise UserError(f"{path}: expected {folders}, got none", fix=SEE)
    is_json = ".jsonl" in path.suffixes
    names: Collection[str]
    if is_json:
        names = parse_object(next(read_lines(path)), SEE)
    else:
        names = column_names(path, FIELDS.values())
    # A row with a sound may also have its transcript as `text`.
    kinds: tuple[InputKind, ...] = ("sound", "image")
    default: InputKind = "image" if is_json and "index" in names else "text"
    return next((kind for kind in kinds if FIELDS[kind] in names), default)


def has_label_lists(path: Path) -> bool:
    """Whether the first line of a file of JSON lines has a list of labels."""
    if is_folder(path) or ".jsonl" not in path.suffixes:
        return False
    fields = parse_object(next(read_lines(path)), SEE)
    return any(isinstance(fields.get(key), list) for key in ("label", "labels"))


def join_labels(labels: Sequence[str]) -> str:
    """Return several labels as one text."""
    return f"{SEPARATOR} ".join(labels)


def split_labels(text: str) -> list[str]:
    """Return the labels in a text, which commas separate."""
    return [label for part in text.split(SEPARATOR) if (label := part.strip())]


def _checked(where: str, example: LabeledExample) -> Path | None:
    if not example.input.strip():
        message = f"{where}: the text is empty (expected a text with a label)"
        raise UserError(message, fix="write it, or leave the example out")
    require_unicode(where, example.input, *example.labels)
    return example.file


def _table(path: Path, contents: LabelFormat) -> Located:
    names, field = contents.columns, FIELDS[contents.kind]
    for number, values in read_values(path, names):
        where, cells = f"{display_path(path)}:{number}", dict(zip(names, values, strict=True))
        text = cell_text(where, names[field], cells[field])
        if not text.strip() and not cells["label"]:
            continue  # a blank line
        labels = _labels(where, names["label"], cells["label"], contents)
        file = None if contents.kind == "text" else path.parent / text
        yield where, LabeledExample(text if file is None else str(file), labels, file)


def _json_lines(path: Path, contents: LabelFormat) -> Located:
    names = contents.columns
    for line in read_lines(path):
        fields = parse_object(line, SEE)
        key = names["label"]
        if key == "label" and key not in fields:
            key = "labels"
        if key not in fields:
            got = ", ".join(fields)[:60]
            problem = f"missing key {names['label']!r} (expected a label, got the keys {got})"
            raise line.error(problem, "add it, or set data.columns.label to the key of the labels")
        labels = _labels(line.where, key, fields[key], contents)
        yield line.where, _example(path, line.where, fields, labels, contents)


def _example(
    path: Path,
    where: str,
    fields: dict[str, Any],
    labels: tuple[str, ...],
    contents: LabelFormat,
) -> LabeledExample:
    kind = contents.kind
    key = contents.columns[FIELDS[kind]]
    if kind == "image" and key not in fields and "index" in fields:
        row, array = fields["index"], path.with_suffix(".npz")
        if not is_whole(row) or row < 0:
            raise wrong_value(where, "index", row, "a row of the array: 0, 1, 2, …")
        return LabeledExample(f"{array}#{row}", labels, array)
    if key not in fields:
        message = f"{where}: missing key {key!r}"
        raise UserError(message, fix=f"add it, or set data.columns.{FIELDS[kind]}; {SEE}")
    text = text_of(where, key, fields[key])
    if kind == "text":
        return LabeledExample(text, labels)
    file = path.parent / text
    if kind == "image":
        return LabeledExample(str(file), labels, file)
    start, end = fields.get("start", 0.0), fields.get("end")
    for name, seconds in (("start", start), ("end", end)):
        if seconds is not None and not is_finite(seconds):
            raise wrong_value(where, name, seconds, "seconds")
    if start < 0 or (end is not None and end <= start):
        message = f"{where}: expected 0 <= start < end, got {start} and {end}"
        raise UserError(message, fix="both are seconds from the start of the file")
    segment = Utterance(file, "", start=float(start), end=None if end is None else float(end))
    return LabeledExample(segment_name(segment), labels, file)


def _folder(path: Path, contents: LabelFormat) -> Located:
    if contents.kind == "text":
        message = f"{path}: this is a folder (expected a file of texts with labels)"
        raise UserError(message, fix=SEE)
    for file in _class_files(path, contents.kind):
        yield str(file), LabeledExample(str(file), (file.parent.name,), file)


def _class_files(path: Path, kind: InputKind) -> Iterator[Path]:
    """Yield the sounds or images in the subfolders, in the order of their names."""
    for folder in sorted(filter(is_folder, path.iterdir())):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in SUFFIXES[kind] and file.name[0] != "." and is_file(file):
                yield file


def _labels(where: str, key: str, value: object, contents: LabelFormat) -> tuple[str, ...]:
    """Return the labels of an example, in alphabetical order."""
    values = value if isinstance(value, list) else [value]
    labels = [cell_text(where, key, item).strip() for item in values]
    if contents.multiple and not isinstance(value, list):
        labels = split_labels(labels[0])
    if not contents.multiple and len(labels) != 1:
        problem = f"{where}: expected one label, got {len(labels)}"
        raise UserError(problem, fix='set data.labels = "multiple" for several labels per example')
    for label in labels:
        if not label:
            raise UserError(
                f"{where}: empty label in {key!r} (expected a text)",
                fix="write the label, or leave the example out",
            )
        if contents.multiple and SEPARATOR in label:
            raise wrong_value(where, key, label, "labels without commas, which separate labels")
    return tuple(sorted(set(labels)))
