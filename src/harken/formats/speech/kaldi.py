"""Kaldi's data folders: tables whose first column is a name.

    wav.scp    recording path                    a command that ends in a pipe is refused: nothing
    text       utterance words …                 that stands in data is run
    segments   utterance recording start end     may be missing; an end of -1 is that of the file
    utt2spk    utterance speaker                 may be missing

Without `segments` every recording is one utterance. Relative paths are tried from the folder and
then, as Kaldi means them, from the working directory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech.gather import gather
from harken.formats.text import Line, read_lines
from harken.inputs import is_file

MEND = "mend the tables, for example with Kaldi's `utils/fix_data_dir.sh`"


class _Row(NamedTuple):
    line: Line
    rest: str  # what stands after the name


class _Segment(NamedTuple):
    recording: str
    start: float
    end: float | None


def read_kaldi(folder: Path) -> list[Utterance]:
    """All utterances of a data folder, in the order of `text`."""
    return gather(_utterances(folder), str(folder))


def _utterances(folder: Path) -> Iterator[tuple[str, Utterance]]:
    texts, sounds = _table(folder / "text"), _table(folder / "wav.scp")
    recordings = {name: _audio(row, folder) for name, row in sounds.items()}
    cuts = folder / "segments"
    if is_file(cuts):
        segments = {name: _segment(row) for name, row in _table(cuts).items()}
    else:
        segments = {name: _Segment(name, 0.0, None) for name in recordings}
    people = folder / "utt2spk"
    speakers = _table(people) if is_file(people) else {}
    _check_names(folder, texts.keys() - segments.keys(), "a text, but no sound")
    _check_names(folder, segments.keys() - texts.keys(), "sound, but no text")
    unknown = {name for name, segment in segments.items() if segment.recording not in recordings}
    _check_names(folder, unknown, "a segment of a recording that is not in wav.scp")
    if speakers:
        _check_names(folder, texts.keys() - speakers.keys(), "no speaker in utt2spk")
    for name, (line, text) in texts.items():
        segment = segments[name]
        yield (
            line.where,
            Utterance(
                audio=recordings[segment.recording],
                text=" ".join(text.split()),
                speaker=speakers[name].rest if speakers else "",
                start=segment.start,
                end=segment.end,
            ),
        )


def _table(path: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for line in read_lines(path):
        name, *rest = line.text.split(maxsplit=1)
        if name in rows:
            raise UserError(
                f"{line.where}: found {name!r} a second time, wanted each name once", fix=MEND
            )
        rows[name] = _Row(line, rest[0].strip() if rest else "")
    return rows


def _audio(row: _Row, folder: Path) -> Path:
    if row.rest.endswith("|") or row.rest.startswith("|"):
        raise UserError(
            f"{row.line.where}: found the command {row.rest[:60]!r}, wanted the path of a sound "
            "file: no command is run that stands in data",
            fix="run it yourself and name the file that it writes",
        )
    if not row.rest:
        raise UserError(
            f"{row.line.where}: found a name without a path, wanted `recording path`", fix=MEND
        )
    here = folder / row.rest
    return here if is_file(here) or not is_file(Path(row.rest)) else Path(row.rest)


def _segment(row: _Row) -> _Segment:
    cells = row.rest.split()
    try:
        recording, start, end = cells[0], *map(float, cells[1:])
    except (ValueError, IndexError):
        raise UserError(
            f"{row.line.where}: found {row.line.text[:60]!r}, "
            "wanted `utterance recording start end` with times in seconds",
            fix=MEND,
        ) from None
    return _Segment(recording, start, None if end == -1 else end)


def _check_names(folder: Path, wrong: set[str], what: str) -> None:
    if wrong:
        raise UserError(
            f"{folder}: found {what} for {min(wrong)!r} and {len(wrong) - 1} other utterances, "
            "wanted text and sound of the same ones",
            fix=MEND,
        )
