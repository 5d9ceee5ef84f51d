"""Manifests: sound files with what is said in them, one utterance a line.

    {"audio": "a/1.wav", "text": "go on", "speaker": "ann", "start": 0.5, "end": 1.25,
     "words": [{"word": "go", "start": 0.0, "end": 0.31}, …]}                      (on one line)

or, without the times of words, a table with tabs whose first line names its columns in any order:

    audio<TAB>text<TAB>speaker<TAB>start<TAB>end

Only `audio` and `text` must be there. Paths are relative to the manifest. Times are in seconds,
those of words from the start of their utterance.

What is not here: folders (folders.py, kaldi.py) and names of files (names.py).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.files import relative_name, write_text
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.speech.gather import gather
from harken.formats.text import Line, named, read_lines
from harken.inputs import is_folder
from harken.strict_json import ERRORS, parsed, wrong

KEYS = ("audio", "text", "speaker", "start", "end", "words")
COLUMNS = KEYS[:-1]
REQUIRED = KEYS[:2]
WORD_KEYS = ("word", "start", "end")
SEE = "see docs/formats.md#speech"

Value = TypeVar("Value")


def read_utterances(path: Path) -> list[Utterance]:
    """All utterances of a manifest in its order; the sound file of each is there."""
    if is_folder(path):
        raise UserError(
            f"{path}: found a folder, wanted a manifest",
            fix="make one of it with `harken data manifest`",
        )
    lines = read_lines(path)
    first = next(lines)
    read = _objects if first.text.lstrip().startswith("{") else _rows
    return gather(
        (
            (line.where, _utterance(line.where, fields, path.parent))
            for line, fields in read(first, lines)
        ),
        str(named(path)),
    )


def write_manifest(utterances: Sequence[Utterance], path: Path) -> None:
    """JSON lines; paths are relative to the manifest, unless they are on another drive."""
    # Links of folders are followed, so that `..` means the same to whoever reads it; a link that
    # stands for the file keeps its own name.
    folders = {one.audio.parent for one in utterances}
    resolved = {folder: folder.resolve() for folder in folders}
    here = path.parent.resolve()
    lines = (
        _json(one, relative_name(resolved[one.audio.parent], one.audio.name, here))
        for one in utterances
    )
    write_text(path, "".join(f"{line}\n" for line in lines))


# --- reading


def _objects(first: Line, rest: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    for line in chain([first], rest):
        # Programs write `null` for what is not there.
        fields = {key: value for key, value in _object(line).items() if value is not None}
        _check_keys(line.where, fields, KEYS, REQUIRED)
        yield line, fields


def _object(line: Line) -> dict[str, Any]:
    try:
        # Numbers as floats: an integer of a million digits is refused like any other infinity.
        value = parsed(line.text, whole=float)
    except ERRORS as error:
        raise UserError(
            f"{line.where}: found {line.text.strip()[:60]!r} ({error}), wanted one JSON object",
            fix=SEE,
        ) from error
    if not isinstance(value, dict):
        raise UserError(
            f"{line.where}: found {line.text.strip()[:60]!r}, wanted an object in braces", fix=SEE
        )
    return value


def _rows(head: Line, rest: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    """An empty cell is one that is not there."""
    columns = [name.strip() for name in head.text.split("\t")]
    if not set(columns) & set(COLUMNS):
        raise UserError(
            f"{head.where}: found {head.text.strip()[:60]!r}, wanted JSON objects, or the names "
            f"of columns with tabs between them: {', '.join(COLUMNS)}",
            fix=SEE,
        )
    _check_keys(head.where, columns, COLUMNS, REQUIRED)
    if len(set(columns)) < len(columns):
        raise UserError(f"{head.where}: found a column twice, wanted each once", fix="remove one")
    for line in rest:
        cells = line.text.split("\t")
        if len(cells) != len(columns):
            raise UserError(
                f"{line.where}: found {len(cells)} tab-separated cells in {line.text[:60]!r}, "
                f"wanted {len(columns)}, as its first line has",
                fix="put a tab between cells, also where one is empty",
            )
        fields: dict[str, Any] = {
            name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()
        }
        _check_keys(line.where, fields, COLUMNS, REQUIRED)
        for name in fields.keys() & {"start", "end"}:
            fields[name] = _number(line, name, fields[name])
        yield line, fields


def _number(line: Line, name: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise wrong(line.where, name, cell, "seconds") from None


def _check_keys(
    where: str, found: Iterable[str], known: Iterable[str], required: Iterable[str]
) -> None:
    for key in found:
        if key not in known:
            near = nearest(key, known)
            raise UserError(
                f"{where}: found {key[:60]!r}, wanted only {', '.join(known)}",
                fix=f"did you mean {near!r}?" if near else "remove it",
            )
    for key in required:
        if key not in found:
            raise UserError(f"{where}: found no {key!r}, wanted one", fix=f"add {key!r}; {SEE}")


def _utterance(where: str, fields: dict[str, Any], folder: Path) -> Utterance:
    words = fields.get("words", [])
    if not isinstance(words, list):
        raise wrong(where, "words", words, "a list of objects")
    return Utterance(
        audio=folder / _typed(where, "audio", fields["audio"], str),
        text=_typed(where, "text", fields["text"], str),
        speaker=_typed(where, "speaker", fields.get("speaker", ""), str),
        start=_typed(where, "start", fields.get("start", 0.0), float),
        end=None if "end" not in fields else _typed(where, "end", fields["end"], float),
        words=tuple(_word(where, word) for word in words),
    )


def _word(where: str, fields: object) -> SpokenWord:
    if not isinstance(fields, dict):
        raise wrong(where, "words", fields, "objects")
    _check_keys(where, fields, WORD_KEYS, WORD_KEYS)
    return SpokenWord(
        word=_typed(where, "word", fields["word"], str),
        start=_typed(where, "start", fields["start"], float),
        end=_typed(where, "end", fields["end"], float),
    )


def _typed(where: str, key: str, value: object, kind: type[Value]) -> Value:
    if isinstance(value, kind):
        return value
    raise wrong(where, key, value, "a text in quotes" if kind is str else "seconds")


# --- writing


def _json(one: Utterance, audio: str) -> str:
    fields: dict[str, object] = {"audio": audio, "text": one.text}
    if one.speaker:
        fields["speaker"] = one.speaker
    if one.start:
        fields["start"] = one.start
    if one.end is not None:
        fields["end"] = one.end
    if one.words:
        fields["words"] = [
            {"word": word.word, "start": word.start, "end": word.end} for word in one.words
        ]
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)
