"""Read and write manifests: audio files with their transcripts, one utterance per line.

    {"audio": "a/1.wav", "text": "go on", "speaker": "ann", "start": 0.5, "end": 1.25,
     "words": [{"word": "go", "start": 0.0, "end": 0.31}, …]}                      (on one line)

or, without word times, a tab-separated table whose first line names its columns in any order:

    audio<TAB>text<TAB>speaker<TAB>start<TAB>end

Only `audio` and `text` are required. Paths are relative to the manifest. Times are in seconds,
those of words relative to the start of their utterance.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from harken.errors import UserError
from harken.files import relative_name, write_text
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.records import check_examples, check_keys, parse_object, require_unicode
from harken.formats.text import Line, display_path, read_lines
from harken.inputs import is_folder
from harken.strict_json import text_of, wrong_value

KEYS = ("audio", "text", "speaker", "start", "end", "words")
COLUMNS = KEYS[:-1]
REQUIRED = KEYS[:2]
WORD_KEYS = ("word", "start", "end")
ROUNDING = 0.01  # seconds by which a word may end after its utterance
SEE = "see docs/formats.md#speech"


def read_utterances(path: Path) -> list[Utterance]:
    """Read all utterances of a manifest in order; check that the audio file of each exists."""
    if is_folder(path):
        message = f"{path}: this is a folder (expected a manifest)"
        raise UserError(message, fix="write one for it with `harken data manifest`")
    lines = read_lines(path)
    first = next(lines)
    parse_lines = _objects if first.text.lstrip().startswith("{") else _rows
    located = (
        (line.where, _utterance(line.where, fields, path.parent))
        for line, fields in parse_lines(first, lines)
    )
    return checked_utterances(located, str(display_path(path)))


def checked_utterances(located: Iterable[tuple[str, Utterance]], name: str) -> list[Utterance]:
    """Return utterances after checking them and that their audio files exist.

    located: utterances, each with its line or file for error messages
    name: the manifest or folder that they are read from
    """
    return check_examples(located, name, "audio file", _checked_audio)


def write_manifest(utterances: Sequence[Utterance], path: Path) -> None:
    """Write JSON lines; paths are relative to the manifest.

    Symbolic links to folders are resolved, so that `..` means the same to every reader. A symbolic
    link to a file keeps its name.
    """
    resolved = {folder: folder.resolve() for folder in {item.audio.parent for item in utterances}}
    here, lines = path.parent.resolve(), []
    for utterance in utterances:
        audio = utterance.audio
        fields = {
            "audio": relative_name(resolved[audio.parent], audio.name, here),
            "text": utterance.text,
            "speaker": utterance.speaker or None,
            "start": utterance.start or None,
            "end": utterance.end,
            "words": [asdict(word) for word in utterance.words] or None,
        }
        fields = {key: value for key, value in fields.items() if value is not None}
        lines.append(json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(path, "".join(lines))


def word_suffixes(utterance: Utterance) -> Iterator[Utterance]:
    """Yield the suffixes of an utterance: "no yes no", "yes no", "no".

    Training on suffixes prevents a model from learning that all sentences begin with the same
    words. An utterance without word times is only yielded as a whole.
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
    """Add predicted word times to each utterance without times whose words equal the predicted."""
    return [
        replace(utterance, words=tuple(words))
        if not utterance.words and [word.word for word in words] == utterance.text.split()
        else utterance
        for utterance, words in zip(utterances, predicted, strict=True)
    ]


def _checked_audio(where: str, utterance: Utterance) -> Path:
    if not utterance.text.strip():
        message = f"{where}: the text of {utterance.audio} is empty (expected a transcript)"
        raise UserError(message, fix="write it, or leave the recording out")
    words = (word.word for word in utterance.words)
    require_unicode(where, str(utterance.audio), utterance.text, utterance.speaker, *words)
    start, end = utterance.start, math.inf if utterance.end is None else utterance.end
    if not 0 <= start < end or utterance.end == math.inf:  # false for NaN
        message = f"{where}: expected 0 <= start < end, got {start} and {utterance.end}"
        raise UserError(message, fix="both are seconds from the start of the file")
    previous = 0.0
    for word in utterance.words:
        if not previous <= word.start <= word.end <= end - start + ROUNDING:
            span = f"word {word.word!r} from {word.start} to {word.end} s"
            message = f"{where}: {span} (expected words in order and within the utterance)"
            raise UserError(message, fix="word times are seconds from the start of the utterance")
        previous = word.start
    return utterance.audio


def _objects(first: Line, others: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    for line in chain([first], others):
        # Parse integers as floats: a million digits become infinity, which is rejected.
        fields = parse_object(line, SEE, parse_int=float)
        check_keys(line.where, fields, KEYS, REQUIRED)
        yield line, fields


def _rows(header: Line, lines: Iterator[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Yield the fields of each row of a table; an empty cell counts as missing."""
    columns = [name.strip() for name in header.text.split("\t")]
    if not set(columns) & set(COLUMNS):
        expected = f"JSON objects, or column names with tabs between them ({', '.join(COLUMNS)})"
        raise header.error(f"expected {expected}, got {header.text.strip()[:60]!r}", SEE)
    check_keys(header.where, columns, COLUMNS, REQUIRED)
    if len(set(columns)) < len(columns):
        raise header.error("duplicate column (expected each once)", "remove one")
    for line in lines:
        cells = line.text.split("\t")
        if len(cells) != len(columns):
            expected = f"expected {len(columns)} tab-separated cells, as in the first line"
            problem = f"{expected}, got {len(cells)} in {line.text[:60]!r}"
            raise line.error(problem, "put a tab between cells, also next to empty cells")
        texts = zip(columns, map(str.strip, cells), strict=True)
        fields: dict[str, Any] = {name: text for name, text in texts if text}
        check_keys(line.where, fields, COLUMNS, REQUIRED)
        for name in fields.keys() & {"start", "end"}:
            try:
                fields[name] = float(fields[name])
            except ValueError:
                raise wrong_value(line.where, name, fields[name], "seconds") from None
        yield line, fields


def _utterance(where: str, fields: dict[str, Any], folder: Path) -> Utterance:
    words = fields.pop("words", [])
    if not isinstance(words, list):
        raise wrong_value(where, "words", words, "a list of objects")
    typed = _typed(where, fields)
    typed["audio"] = folder / typed["audio"]
    return Utterance(**typed, words=tuple(_word(where, word) for word in words))


def _word(where: str, fields: object) -> SpokenWord:
    if not isinstance(fields, dict):
        raise wrong_value(where, "words", fields, "objects")
    check_keys(where, fields, WORD_KEYS, WORD_KEYS)
    return SpokenWord(**_typed(where, fields))


def _typed(where: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after a check of their types: floats for times, else texts."""
    for key, value in fields.items():
        if key not in ("start", "end"):
            text_of(where, key, value)
        elif not isinstance(value, float):
            raise wrong_value(where, key, value, "seconds")
    return fields
