"""Read and write manifests: sound files with their transcripts, one utterance per line.

    {"audio": "a/1.wav", "text": "go on", "speaker": "ann", "start": 0.5, "end": 1.25,
     "words": [{"word": "go", "start": 0.0, "end": 0.31}, …]}                      (on one line)

or, without the times of words, a table with tabs whose first line names its columns in any order:

    audio<TAB>text<TAB>speaker<TAB>start<TAB>end

Only `audio` and `text` are required. Paths are relative to the manifest. Times are in seconds,
those of words from the start of their utterance.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from harken.errors import UserError
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.records import (
    check_keys,
    checked_files,
    parse_object,
    require_unicode,
    write_json_lines,
)
from harken.formats.text import Line, named, read_lines
from harken.inputs import is_folder
from harken.strict_json import wrong

KEYS = ("audio", "text", "speaker", "start", "end", "words")
COLUMNS = KEYS[:-1]
REQUIRED = KEYS[:2]
WORD_KEYS = ("word", "start", "end")
ROUNDING = 0.01  # seconds by which the last word may end after its utterance
SEE = "see docs/formats.md#speech"

Value = TypeVar("Value")


def read_utterances(path: Path) -> list[Utterance]:
    """Read all utterances of a manifest in its order; the sound file of each exists."""
    if is_folder(path):
        raise UserError(
            f"{path}: this is a folder (expected a manifest)",
            fix="write one for it with `harken data manifest`",
        )
    lines = read_lines(path)
    first = next(lines)
    read = _objects if first.text.lstrip().startswith("{") else _rows
    return checked_utterances(
        (
            (line.where, _utterance(line.where, fields, path.parent))
            for line, fields in read(first, lines)
        ),
        str(named(path)),
    )


def write_manifest(utterances: Sequence[Utterance], path: Path) -> None:
    """Write JSON lines; paths are relative to the manifest."""
    write_json_lines(
        path, [("audio", utterance.audio, _fields(utterance)) for utterance in utterances]
    )


def _fields(utterance: Utterance) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": utterance.text}
    if utterance.speaker:
        fields["speaker"] = utterance.speaker
    if utterance.start:
        fields["start"] = utterance.start
    if utterance.end is not None:
        fields["end"] = utterance.end
    if utterance.words:
        fields["words"] = [
            {"word": word.word, "start": word.start, "end": word.end} for word in utterance.words
        ]
    return fields


def checked_utterances(found: Iterable[tuple[str, Utterance]], name: str) -> list[Utterance]:
    """Check utterances, each given with its place, and that their files exist."""

    def checked() -> Iterator[tuple[str, Utterance]]:
        for where, utterance in found:
            _check_text(where, utterance)
            _check_times(where, utterance)
            yield where, utterance

    utterances = list(checked_files(checked(), lambda utterance: utterance.audio, "sound file"))
    if not utterances:
        raise UserError(
            f"{name}: no utterances (expected at least one)", fix="check that it is complete"
        )
    return utterances


def split_at_words(utterance: Utterance) -> Iterator[Utterance]:
    """Yield the utterance from each of its words on: "no yes no", "yes no", "no".

    A corpus whose sentences all begin alike teaches that they do. An utterance whose words have no
    times stays whole.
    """
    texts = utterance.text.split()
    yield utterance
    if [word.word for word in utterance.words] != texts:
        return
    for index in range(1, len(texts)):
        start = utterance.words[index].start
        words = tuple(
            SpokenWord(word.word, word.start - start, word.end - start)
            for word in utterance.words[index:]
        )
        yield replace(
            utterance, text=" ".join(texts[index:]), start=utterance.start + start, words=words
        )


def with_word_times(
    utterances: Sequence[Utterance], predicted: Sequence[Sequence[SpokenWord]]
) -> list[Utterance]:
    """Add predicted word times to utterances without times whose words were all predicted."""
    return [
        replace(utterance, words=tuple(words))
        if not utterance.words and [word.word for word in words] == utterance.text.split()
        else utterance
        for utterance, words in zip(utterances, predicted, strict=True)
    ]


def _check_text(where: str, utterance: Utterance) -> None:
    if not utterance.text.strip():
        raise UserError(
            f"{where}: the text of {utterance.audio} is empty (expected a transcript)",
            fix="write it, or leave the recording out",
        )
    words = (word.word for word in utterance.words)
    require_unicode(where, str(utterance.audio), utterance.text, utterance.speaker, *words)


def _check_times(where: str, utterance: Utterance) -> None:
    start, end = utterance.start, math.inf if utterance.end is None else utterance.end
    if not 0 <= start < end or utterance.end == math.inf:  # false for NaN
        raise UserError(
            f"{where}: expected 0 <= start < end, got {start} and {utterance.end}",
            fix="both are seconds from the beginning of the file",
        )
    before = 0.0
    for word in utterance.words:
        if not before <= word.start <= word.end <= end - start + ROUNDING:
            raise UserError(
                f"{where}: word {word.word!r} from {word.start} to {word.end} s (expected words "
                "in their order and within the utterance)",
                fix="word times are seconds from the start of the utterance",
            )
        before = word.start


def _objects(first: Line, rest: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    for line in chain([first], rest):
        # Numbers as floats: an integer of a million digits becomes infinite, and is refused.
        fields = parse_object(line, SEE, whole=float)
        check_keys(line.where, fields, KEYS, REQUIRED)
        yield line, fields


def _rows(header: Line, rest: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Read a table; an empty cell counts as missing."""
    columns = [name.strip() for name in header.text.split("\t")]
    if not set(columns) & set(COLUMNS):
        raise UserError(
            f"{header.where}: expected JSON objects, or column names with tabs between them "
            f"({', '.join(COLUMNS)}), got {header.text.strip()[:60]!r}",
            fix=SEE,
        )
    check_keys(header.where, columns, COLUMNS, REQUIRED)
    if len(set(columns)) < len(columns):
        raise UserError(f"{header.where}: duplicate column (expected each once)", fix="remove one")
    for line in rest:
        cells = line.text.split("\t")
        if len(cells) != len(columns):
            raise UserError(
                f"{line.where}: expected {len(columns)} tab-separated cells, as in the first line, "
                f"got {len(cells)} in {line.text[:60]!r}",
                fix="put a tab between cells, also where one is empty",
            )
        fields: dict[str, Any] = {
            name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()
        }
        check_keys(line.where, fields, COLUMNS, REQUIRED)
        for name in fields.keys() & {"start", "end"}:
            try:
                fields[name] = float(fields[name])
            except ValueError:
                raise wrong(line.where, name, fields[name], "seconds") from None
        yield line, fields


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
    check_keys(where, fields, WORD_KEYS, WORD_KEYS)
    return SpokenWord(
        word=_typed(where, "word", fields["word"], str),
        start=_typed(where, "start", fields["start"], float),
        end=_typed(where, "end", fields["end"], float),
    )


def _typed(where: str, key: str, value: object, kind: type[Value]) -> Value:
    if isinstance(value, kind):
        return value
    raise wrong(where, key, value, "a text in quotes" if kind is str else "seconds")
