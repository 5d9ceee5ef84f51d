"""Read folders of speech corpora.

    Kaldi          wav.scp (recording path), text (utterance words …) and optionally
                   segments (utterance recording start end) and utt2spk (utterance speaker)
    CMU Sphinx     etc/NAME.fileids, etc/NAME.transcription, wav/, as in AN4
    LibriSpeech    speaker/chapter/speaker-chapter.trans.txt next to the audio
    text files     name.wav and name.txt, in any subfolder
    file names     {text}_{speaker}_{index}.wav, such as 7_jackson_32.wav (text 7, speaker jackson)

`read_speech_folder` uses the first layout that fits; `utterances_from_names` reads file names, for
which it needs the pattern. Commands in `wav.scp` are rejected, never run. Relative paths in
`wav.scp` are relative to the folder or to the working directory.
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
from harken.inputs import is_file, is_folder, short_path

SOUND_SUFFIXES = (
    *(".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus"),
    *(".sph", ".nist", ".aif", ".aiff", ".aifc", ".w64"),
)
TRANSCRIPTION = re.compile(r"(?P<words>.*?)\s*\((?P<name>[^()\s]+)\)\s*")
SILENCES = {"<s>", "</s>", "<sil>"}
FIELD = re.compile(r"\{([^{}]*)\}")
FIX_KALDI = "correct the tables, for example with Kaldi's `utils/fix_data_dir.sh`"

Utterances = Iterator[tuple[str, Utterance]]  # each with its line or file


def read_speech_folder(folder: Path) -> list[Utterance]:
    """Read all utterances of a folder, whose layout is detected."""
    _require_folder(folder)
    return checked_utterances(_utterances(folder), str(folder))


def _utterances(folder: Path) -> Utterances:
    if is_file(folder / "wav.scp"):
        return _kaldi(folder)
    if controls := sorted((folder / "etc").glob("*.fileids")):
        return chain.from_iterable(map(_sphinx, controls))
    if transcripts := sorted(folder.rglob("*.trans.txt")):
        return chain.from_iterable(map(_librispeech, transcripts))
    files = sorted(path for path in folder.rglob("*") if is_file(path))
    sounds = [path for path in files if _is_sound(path)]
    if any(is_file(sound.with_suffix(".txt")) for sound in sounds):
        return _text_files(folder, sounds)
    suffixes = Counter(path.suffix.lower() or "no suffix" for path in files)
    counts = ", ".join(f"{count} of {suffix}" for suffix, count in suffixes.most_common(5))
    raise UserError(
        f"{folder}: expected a folder of Kaldi (wav.scp), CMU Sphinx (etc/*.fileids) or "
        "LibriSpeech (*.trans.txt), or a name.txt next to each name.wav, got "
        f"{f'files ({counts})' if counts else 'no files'}",
        fix="if the file names contain the text, give a pattern such as "
        '"{text}_{speaker}_{index}.wav" (command line: --pattern)',
    )


def _require_folder(folder: Path) -> None:
    if not is_folder(folder):
        message = f"{short_path(folder)}: folder not found (expected a folder of audio files)"
        raise UserError(message, fix="check the name")


def _is_sound(path: Path) -> bool:
    """Whether a file has an audio suffix and is not hidden, as `._name.wav` in Mac archives is."""
    return path.suffix.lower() in SOUND_SUFFIXES and path.name[0] != "." and is_file(path)


def _sound_file(folder: Path, stem: str, default_suffix: str) -> Path:
    """Return the audio file with this stem; the path with the default suffix if none exists."""
    suffixes = (default_suffix, *SOUND_SUFFIXES)
    for suffix in (*suffixes, *(suffix.upper() for suffix in suffixes)):
        if is_file(path := folder / f"{stem}{suffix}"):
            return path
    return folder / f"{stem}{default_suffix}"


def _sphinx(control: Path) -> Utterances:
    """Combine line n of the control file, a path, with line n of the transcripts."""
    transcripts = list(read_lines(control.with_suffix(".transcription")))
    paths = list(read_lines(control))
    if len(transcripts) != len(paths):
        counts = f"got {len(paths)} and {len(transcripts)}"
        message = f"{control}: expected as many lines as {control.stem}.transcription, {counts}"
        raise UserError(message, fix="check that both are complete")
    for path, transcript in zip(paths, transcripts, strict=True):
        stem = path.text.strip()
        name = stem.rpartition("/")[2]
        match = TRANSCRIPTION.fullmatch(transcript.text)
        if match is None or match["name"].rpartition("/")[2] != name:
            expected, got = f"words and ({name}), as in {path.where}", transcript.text.strip()[-60:]
            fix = "bring both files into the same order"
            raise transcript.error(f"expected {expected}, got {got!r}", fix)
        words = " ".join(word for word in match["words"].split() if word not in SILENCES)
        audio = _sound_file(control.parent.parent / "wav", stem, ".sph")
        yield transcript.where, Utterance(audio=audio, text=words, speaker=audio.parent.name)


def _librispeech(transcript: Path) -> Utterances:
    chapter = transcript.name.removesuffix(".trans.txt")
    for line in read_lines(transcript):
        name, _, text = line.text.strip().partition(" ")
        if not name.startswith(f"{chapter}-"):
            problem = f"expected a name that begins with {chapter}-, got {name[:60]!r}"
            raise line.error(problem, "write one utterance per line: name, space, text")
        audio = _sound_file(transcript.parent, name, ".flac")
        yield line.where, Utterance(audio=audio, text=text, speaker=chapter.partition("-")[0])


def _text_files(folder: Path, sounds: Iterable[Path]) -> Utterances:
    texts = {sound: sound.with_suffix(".txt") for sound in sounds}
    if missing := [sound for sound, text in texts.items() if not is_file(text)]:
        raise UserError(
            f"{folder}: no text for {missing[0].relative_to(folder)} and {len(missing) - 1} "
            "other audio files (expected name.txt for each name.wav)",
            fix="write the texts, or move those files elsewhere",
        )
    for sound, text in texts.items():
        yield str(text), Utterance(audio=sound, text=" ".join(read_whole(text).split()))


# --- Kaldi


class _Row(NamedTuple):
    line: Line
    text: str  # of the line after its first word, the name


def _kaldi(folder: Path) -> Utterances:
    texts, sounds = _table(folder / "text"), _table(folder / "wav.scp")
    recordings = {name: _audio(row, folder) for name, row in sounds.items()}
    segments: dict[str, tuple[str, float, float | None]]  # recording, start and end
    segments = {name: (name, 0.0, None) for name in recordings}
    if is_file(table := folder / "segments"):
        segments = {name: _segment(row) for name, row in _table(table).items()}
    speakers = _table(table) if is_file(table := folder / "utt2spk") else {}
    unknown = {name for name, (source, _, _) in segments.items() if source not in recordings}
    for names, problem in (
        (texts.keys() - segments.keys(), "a text, but no sound"),
        (segments.keys() - texts.keys(), "sound, but no text"),
        (unknown, "a segment of a recording that is not in wav.scp"),
        (texts.keys() - speakers.keys() if speakers else set(), "no speaker in utt2spk"),
    ):
        if names:
            subject = f"{min(names)!r} and {len(names) - 1} other utterances"
            expected = "expected the same utterances in all tables"
            raise UserError(f"{folder}: {subject} have {problem} ({expected})", fix=FIX_KALDI)
    for name, (line, text) in texts.items():
        recording, start, end = segments[name]
        words, speaker = " ".join(text.split()), speakers[name].text if speakers else ""
        yield line.where, Utterance(recordings[recording], words, speaker, start, end)


def _table(path: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for line in read_lines(path):
        name, *text = line.text.split(maxsplit=1)
        if name in rows:
            raise line.error(f"duplicate {name!r} (expected it once)", FIX_KALDI)
        rows[name] = _Row(line, text[0].strip() if text else "")
    return rows


def _audio(row: _Row, folder: Path) -> Path:
    if row.text.endswith("|") or row.text.startswith("|"):
        got = f"the command {row.text[:60]!r}, which Harken does not run"
        fix = "run it yourself and name the file that it writes"
        raise row.line.error(f"expected the path of an audio file, got {got}", fix)
    if not row.text:
        raise row.line.error("expected `recording path`, got no path", FIX_KALDI)
    in_folder, in_working_directory = folder / row.text, Path(row.text)
    if not is_file(in_folder) and is_file(in_working_directory):
        return in_working_directory
    return in_folder  # also if it does not exist: the error names it


def _segment(row: _Row) -> tuple[str, float, float | None]:
    try:
        recording, *times = row.text.split()
        start, end = map(float, times)
    except ValueError:
        expected = "`utterance recording start end` with times in seconds"
        problem = f"expected {expected}, got {row.line.text[:60]!r}"
        raise row.line.error(problem, FIX_KALDI) from None
    return recording, start, None if end == -1 else end  # Kaldi: -1 is the end of the recording


# --- file names


def utterances_from_names(
    folder: Path, pattern: str, *, words: Mapping[str, str] | None = None, split: str = ""
) -> list[Utterance]:
    """Read one utterance per audio file from its name, in the order of names.

    A field of the pattern matches at least one character except `/`; fields other than `text` and
    `speaker` are ignored. `split` separates the words in the text of a name, and `words` maps each
    of them to the word that is spoken: with `_` and {"1": "yes", "0": "no"}, the text of 1_0_1.wav
    is "yes no yes".
    """
    fields, literals = FIELD.findall(pattern), FIELD.split(pattern)[::2]
    _check_pattern(pattern, fields, literals)
    _require_folder(folder)
    wildcard = "*/" * pattern.count("/") + "*"
    sounds = sorted(path for path in folder.glob(wildcard) if _is_sound(path))
    names = [sound.relative_to(folder).as_posix() for sound in sounds]
    if not sounds:
        raise UserError(
            f"{folder}: no audio file at {wildcard} (expected some that match {pattern!r})",
            fix=f"name subfolders in the pattern, too; suffixes are {' '.join(SOUND_SUFFIXES)}",
        )
    # If lazy and greedy fields match the same text, no other match exists.
    escaped = [re.escape(literal) for literal in literals]
    lazy, greedy = (re.compile(field.join(escaped)) for field in ("([^/]+?)", "([^/]+)"))
    matches, unmatched, ambiguous = [], [], []
    for name in names:
        shortest, longest = lazy.fullmatch(name), greedy.fullmatch(name)
        if shortest is None or longest is None:  # both or none
            unmatched.append(name)
        elif shortest.groups() != longest.groups():
            ambiguous.append(name)
        else:
            matches.append(shortest.groups())
    if wrong := unmatched or ambiguous:
        problem = "do not match" if unmatched else "match in several ways"
        count = f"{len(wrong)} of {len(names)} audio files"
        message = f"{folder}: {count} {problem} {pattern!r}, the first is {wrong[0]!r}"
        raise UserError(message, fix="correct the pattern, rename the files or move them elsewhere")
    utterances = []
    for sound, values in zip(sounds, matches, strict=True):
        by_field = dict(zip(fields, values, strict=True))
        text = _spoken_words(sound, by_field["text"], words, split)
        utterances.append((str(sound), Utterance(sound, text, by_field.get("speaker", ""))))
    return checked_utterances(utterances, str(folder))


def _check_pattern(pattern: str, fields: list[str], literals: list[str]) -> None:
    if fields.count("text") != 1 or fields.count("speaker") > 1:
        similar = [field for field in fields if nearest(field, ["text"])]
        fix = 'write it like "{text}_{speaker}_{index}.wav"'
        if similar and similar[0] != "text":
            fix = f"did you mean 'text' by {similar[0]!r}?"
        expected = "expected 'text' once and 'speaker' at most once"
        raise UserError(f"pattern {pattern!r}: {expected}, got {fields}", fix=fix)
    if any(brace in literal for literal in literals for brace in "{}"):
        message = f"pattern {pattern!r}: unmatched brace (expected fields such as {{text}})"
        raise UserError(message, fix="close every brace")


def _spoken_words(sound: Path, text: str, words: Mapping[str, str] | None, split: str) -> str:
    parts = text.split(split) if split else [text]
    if words:
        if unknown := [part for part in parts if part not in words]:
            message = f"{sound}: expected one of {', '.join(words)} as text, got {unknown[0]!r}"
            raise UserError(message, fix=f"map it to a word, as in {unknown[0]}=WORD")
        parts = [words[part] for part in parts]
    return " ".join(parts)
