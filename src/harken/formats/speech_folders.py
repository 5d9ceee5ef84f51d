"""Read folders of speech as they are published.

    Kaldi          wav.scp (recording path), text (utterance words …) and, if there are any,
                   segments (utterance recording start end) and utt2spk (utterance speaker)
    CMU Sphinx     etc/NAME.fileids, etc/NAME.transcription, wav/, as in AN4
    LibriSpeech    speaker/chapter/speaker-chapter.trans.txt beside the sound
    side by side   name.wav and name.txt, in any folder below
    file names     {text}_{speaker}_{index}.wav     of 7_jackson_32.wav: text 7, speaker jackson

The first of the layouts that fits is used. Commands in a `wav.scp` are refused, never run.
Relative paths of Kaldi are tried from the folder and then from the working directory.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.manifest import checked_utterances
from harken.formats.text import Line, read_lines, read_whole
from harken.inputs import is_file, is_folder, shown

SOUND_SUFFIXES = (
    *(".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus"),
    *(".sph", ".nist", ".aif", ".aiff", ".aifc", ".w64"),
)
TRANSCRIPTION = re.compile(r"(?P<words>.*?)\s*\((?P<name>[^()\s]+)\)\s*")
SILENCES = {"<s>", "</s>", "<sil>"}
FIELD = re.compile(r"\{([^{}]*)\}")
FIX_KALDI = "correct the tables, for example with Kaldi's `utils/fix_data_dir.sh`"

Found = Iterator[tuple[str, Utterance]]  # each with its place


def read_folder(folder: Path) -> list[Utterance]:
    """Read all utterances below a folder of one of the known layouts."""
    _require_folder(folder)
    if is_file(folder / "wav.scp"):
        return read_kaldi(folder)
    if controls := sorted((folder / "etc").glob("*.fileids")):
        return checked_utterances(chain.from_iterable(map(_sphinx, controls)), str(folder))
    if transcripts := sorted(folder.rglob("*.trans.txt")):
        return checked_utterances(chain.from_iterable(map(_librispeech, transcripts)), str(folder))
    sounds = sorted(path for path in folder.rglob("*") if _is_sound(path))
    if any(is_file(sound.with_suffix(".txt")) for sound in sounds):
        return checked_utterances(_side_by_side(folder, sounds), str(folder))
    suffixes = Counter(
        path.suffix.lower() or "no suffix" for path in folder.rglob("*") if is_file(path)
    )
    found = ", ".join(f"{count} of {suffix}" for suffix, count in suffixes.most_common(5))
    raise UserError(
        f"{folder}: expected a folder of Kaldi (wav.scp), CMU Sphinx (etc/*.fileids) or "
        "LibriSpeech (*.trans.txt), or a name.txt beside each name.wav, got "
        f"{f'files ({found})' if found else 'no files'}",
        fix="if the file names contain the text, give a pattern such as "
        '"{text}_{speaker}_{index}.wav" (command line: --pattern)',
    )


def read_sphinx(control: Path) -> list[Utterance]:
    """Read one `etc/NAME.fileids`: a corpus has one for training and one for testing."""
    return checked_utterances(_sphinx(control), str(control))


def read_kaldi(folder: Path) -> list[Utterance]:
    """Read a Kaldi data folder, in the order of `text`."""
    return checked_utterances(_kaldi(folder), str(folder))


def _require_folder(folder: Path) -> None:
    if not is_folder(folder):
        raise UserError(
            f"{shown(folder)}: folder not found (expected one of sound files)",
            fix="check the name",
        )


def _is_sound(path: Path) -> bool:
    """Whether a file is sound by its suffix; archives from a Mac have hidden `._name.wav`."""
    sound = path.suffix.lower() in SOUND_SUFFIXES and not path.name.startswith(".")
    return sound and is_file(path)


def _sound_beside(folder: Path, stem: str, usual: str) -> Path:
    """Return the sound file with this stem; the usual one, which is then missing, if none is."""
    suffixes = (usual, *SOUND_SUFFIXES)
    for suffix in (*suffixes, *(suffix.upper() for suffix in suffixes)):
        if is_file(path := folder / f"{stem}{suffix}"):
            return path
    return folder / f"{stem}{usual}"


def _sphinx(control: Path) -> Found:
    """Line n of one file is the path, line n of the other the transcript."""
    texts = list(read_lines(control.with_suffix(".transcription")))
    paths = list(read_lines(control))
    if len(texts) != len(paths):
        raise UserError(
            f"{control}: expected as many lines as {control.stem}.transcription, got {len(paths)} "
            f"and {len(texts)}",
            fix="check that both are complete",
        )
    for path, text in zip(paths, texts, strict=True):
        name = path.text.strip()
        last = name.rpartition("/")[2]
        match = TRANSCRIPTION.fullmatch(text.text)
        if match is None or match["name"].rpartition("/")[2] != last:
            raise UserError(
                f"{text.where}: expected words and ({last}), as in {path.where}, got "
                f"{text.text.strip()[-60:]!r}",
                fix="bring both files into the same order",
            )
        words = " ".join(word for word in match["words"].split() if word not in SILENCES)
        audio = _sound_beside(control.parent.parent / "wav", name, ".sph")
        yield text.where, Utterance(audio=audio, text=words, speaker=audio.parent.name)


def _librispeech(transcript: Path) -> Found:
    chapter = transcript.name.removesuffix(".trans.txt")
    for line in read_lines(transcript):
        name, _, text = line.text.strip().partition(" ")
        if not name.startswith(f"{chapter}-"):
            raise UserError(
                f"{line.where}: expected a name that begins with {chapter}-, got {name[:60]!r}",
                fix="one line is one utterance: name, blank, text",
            )
        audio = _sound_beside(transcript.parent, name, ".flac")
        yield line.where, Utterance(audio=audio, text=text, speaker=chapter.partition("-")[0])


def _side_by_side(folder: Path, sounds: Iterable[Path]) -> Found:
    texts = [(sound, sound.with_suffix(".txt")) for sound in sounds]
    if missing := [sound for sound, text in texts if not is_file(text)]:
        raise UserError(
            f"{folder}: no text beside {missing[0].relative_to(folder)} and {len(missing) - 1} "
            "other sound files (expected name.txt for each name.wav)",
            fix="write the texts, or move those files elsewhere",
        )
    for sound, text in texts:
        yield str(text), Utterance(audio=sound, text=" ".join(read_whole(text).split()))


# --- Kaldi


class _Row(NamedTuple):
    line: Line
    rest: str  # what follows the name


class _Segment(NamedTuple):
    recording: str
    start: float
    end: float | None


def _kaldi(folder: Path) -> Found:
    texts, sounds = _table(folder / "text"), _table(folder / "wav.scp")
    recordings = {name: _audio(row, folder) for name, row in sounds.items()}
    cuts, speaker_table = folder / "segments", folder / "utt2spk"
    if is_file(cuts):
        segments = {name: _segment(row) for name, row in _table(cuts).items()}
    else:
        segments = {name: _Segment(name, 0.0, None) for name in recordings}
    speakers = _table(speaker_table) if is_file(speaker_table) else {}
    _check_names(folder, texts.keys() - segments.keys(), "a text, but no sound")
    _check_names(folder, segments.keys() - texts.keys(), "sound, but no text")
    unknown = {name for name, segment in segments.items() if segment.recording not in recordings}
    _check_names(folder, unknown, "a segment of a recording that is not in wav.scp")
    if speakers:
        _check_names(folder, texts.keys() - speakers.keys(), "no speaker in utt2spk")
    for name, (line, text) in texts.items():
        segment = segments[name]
        utterance = Utterance(
            audio=recordings[segment.recording],
            text=" ".join(text.split()),
            speaker=speakers[name].rest if speakers else "",
            start=segment.start,
            end=segment.end,
        )
        yield line.where, utterance


def _table(path: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for line in read_lines(path):
        name, *rest = line.text.split(maxsplit=1)
        if name in rows:
            raise UserError(f"{line.where}: {name!r} again (expected it once)", fix=FIX_KALDI)
        rows[name] = _Row(line, rest[0].strip() if rest else "")
    return rows


def _audio(row: _Row, folder: Path) -> Path:
    if row.rest.endswith("|") or row.rest.startswith("|"):
        raise UserError(
            f"{row.line.where}: expected the path of a sound file, got the command "
            f"{row.rest[:60]!r}, which Harken does not run",
            fix="run it yourself and name the file that it writes",
        )
    if not row.rest:
        raise UserError(f"{row.line.where}: expected `recording path`, got no path", fix=FIX_KALDI)
    here = folder / row.rest
    return here if is_file(here) or not is_file(Path(row.rest)) else Path(row.rest)


def _segment(row: _Row) -> _Segment:
    cells = row.rest.split()
    try:
        recording, start, end = cells[0], *map(float, cells[1:])
    except (ValueError, IndexError):
        raise UserError(
            f"{row.line.where}: expected `utterance recording start end` with times in seconds, "
            f"got {row.line.text[:60]!r}",
            fix=FIX_KALDI,
        ) from None
    return _Segment(recording, start, None if end == -1 else end)


def _check_names(folder: Path, wrong: set[str], what: str) -> None:
    if wrong:
        raise UserError(
            f"{folder}: {min(wrong)!r} and {len(wrong) - 1} other utterances have {what} "
            "(expected text and sound of the same ones)",
            fix=FIX_KALDI,
        )


# --- file names


def utterances_from_names(
    folder: Path, pattern: str, *, words: Mapping[str, str] | None = None, split: str = ""
) -> list[Utterance]:
    """Read one utterance per sound file from its name, in the order of names.

    A field of the pattern is at least one character without `/`; fields other than `text` and
    `speaker` are ignored. `split` separates the words of a text, and `words` maps each to what is
    said: with `_` and {"1": "yes", "0": "no"}, the name 1_0_1.wav of {text}.wav is "yes no yes".
    """
    fields, literals = FIELD.findall(pattern), FIELD.split(pattern)[::2]
    _check_pattern(pattern, fields, literals)
    _require_folder(folder)
    depth = "*/" * pattern.count("/") + "*"
    sounds = sorted(path for path in folder.glob(depth) if _is_sound(path))
    names = [sound.relative_to(folder).as_posix() for sound in sounds]
    if not sounds:
        raise UserError(
            f"{folder}: no sound file at {depth} (expected some that match {pattern!r})",
            fix=f"name subfolders in the pattern, too; suffixes are {' '.join(SOUND_SUFFIXES)}",
        )
    # A name matches in one way only if the shortest and the longest fields divide it alike.
    escaped = [re.escape(literal) for literal in literals]
    shortest, longest = (re.compile(field.join(escaped)) for field in ("([^/]+?)", "([^/]+)"))
    matches = [(shortest.fullmatch(name), longest.fullmatch(name)) for name in names]
    found, values = [], [(a.groups(), b.groups()) for a, b in matches if a and b]
    if misfits := [name for name, (match, _) in zip(names, matches, strict=True) if not match]:
        raise _misfits(folder, misfits, len(names), f"do not match {pattern!r}")
    if misfits := [name for name, (a, b) in zip(names, values, strict=True) if a != b]:
        raise _misfits(folder, misfits, len(names), f"match {pattern!r} in more than one way")
    for sound, (cells, _) in zip(sounds, values, strict=True):
        known = dict(zip(fields, cells, strict=True))
        text = _spoken(sound, known["text"], words, split)
        found.append((str(sound), Utterance(sound, text, known.get("speaker", ""))))
    return checked_utterances(found, str(folder))


def _check_pattern(pattern: str, fields: list[str], literals: list[str]) -> None:
    if fields.count("text") != 1 or fields.count("speaker") > 1:
        near = next((field for field in fields if nearest(field, ["text"])), None)
        raise UserError(
            f"pattern {pattern!r}: expected 'text' once and 'speaker' at most once, got {fields}",
            fix=f"did you mean 'text' by {near!r}?"
            if near and near != "text"
            else 'write it like "{text}_{speaker}_{index}.wav"',
        )
    if any(brace in literal for literal in literals for brace in "{}"):
        raise UserError(
            f"pattern {pattern!r}: unmatched brace (expected fields such as {{text}})",
            fix="close every brace",
        )


def _misfits(folder: Path, names: list[str], count: int, how: str) -> UserError:
    return UserError(
        f"{folder}: {len(names)} of {count} sound files {how}, the first {names[0]!r}",
        fix="correct the pattern, rename the files or move them elsewhere",
    )


def _spoken(sound: Path, text: str, words: Mapping[str, str] | None, split: str) -> str:
    parts = text.split(split) if split else [text]
    if words:
        if unknown := [part for part in parts if part not in words]:
            raise UserError(
                f"{sound}: expected one of {', '.join(words)} as text, got {unknown[0]!r}",
                fix=f"map it to a word, as in {unknown[0]}=WORD",
            )
        parts = [words[part] for part in parts]
    return " ".join(parts)
