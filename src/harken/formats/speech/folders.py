"""Folders of speech as they are published -> utterances.

    Kaldi          wav.scp, text, …                                            (kaldi.py)
    CMU Sphinx     etc/NAME.fileids, etc/NAME.transcription, wav/, as AN4 has them
    LibriSpeech    speaker/chapter/speaker-chapter.trans.txt with the sound beside it
    side by side   name.wav and name.txt, in any folder below

The first of these that a folder fits is what it is. Where names tell what is said, see
names.py.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech.gather import gather, is_sound, sound_beside
from harken.formats.speech.kaldi import read_kaldi
from harken.formats.text import read_lines, read_whole
from harken.inputs import is_file, is_folder, shown

TRANSCRIPTION = re.compile(r"(?P<words>.*?)\s*\((?P<name>[^()\s]+)\)\s*")
SILENCES = {"<s>", "</s>", "<sil>"}


def read_folder(folder: Path) -> list[Utterance]:
    """All utterances below a folder of one of the known layouts."""
    if not is_folder(folder):
        raise UserError(
            f"{shown(folder)}: folder not found (expected one of speech)", fix="check the name"
        )
    if is_file(folder / "wav.scp"):
        return read_kaldi(folder)
    if controls := sorted((folder / "etc").glob("*.fileids")):
        return gather(chain.from_iterable(map(_sphinx, controls)), str(folder))
    if transcripts := sorted(folder.rglob("*.trans.txt")):
        return gather(chain.from_iterable(map(_librispeech, transcripts)), str(folder))
    sounds = sorted(path for path in folder.rglob("*") if is_sound(path))
    if any(is_file(_text_of(sound)) for sound in sounds):
        return gather(_side_by_side(folder, sounds), str(folder))
    raise UserError(
        f"{folder}: found {_seen(folder)}, wanted a folder of Kaldi (wav.scp), of CMU Sphinx "
        "(etc/*.fileids), of LibriSpeech (*.trans.txt), or a name.txt beside each name.wav",
        fix="if the file names contain the text, give a pattern such as "
        '"{text}_{speaker}_{index}.wav" (command line: --pattern)',
    )


def read_sphinx(control: Path) -> list[Utterance]:
    """Those of one `etc/NAME.fileids`: a corpus has one for training and one for testing."""
    return gather(_sphinx(control), str(control))


def _sphinx(control: Path) -> Iterator[tuple[str, Utterance]]:
    """Line n of one file tells the path, line n of the other what is said in it."""
    texts = list(read_lines(control.with_suffix(".transcription")))
    paths = list(read_lines(control))
    if len(texts) != len(paths):
        raise UserError(
            f"{control}: found {len(paths)} names, and {len(texts)} lines in "
            f"{control.stem}.transcription, wanted as many in both",
            fix="check that both are whole",
        )
    for path, text in zip(paths, texts, strict=True):
        name = path.text.strip()
        last = name.rpartition("/")[2]
        match = TRANSCRIPTION.fullmatch(text.text)
        if match is None or match["name"].rpartition("/")[2] != last:
            raise UserError(
                f"{text.where}: found {text.text.strip()[-60:]!r}, "
                f"wanted words and ({last}), as {path.where} has it",
                fix="bring both files into the same order",
            )
        words = " ".join(word for word in match["words"].split() if word not in SILENCES)
        audio = sound_beside(control.parent.parent / "wav", name, ".sph")
        yield text.where, Utterance(audio=audio, text=words, speaker=audio.parent.name)


def _librispeech(transcript: Path) -> Iterator[tuple[str, Utterance]]:
    chapter = transcript.name.removesuffix(".trans.txt")
    for line in read_lines(transcript):
        name, _, text = line.text.strip().partition(" ")
        if not name.startswith(f"{chapter}-"):
            raise UserError(
                f"{line.where}: found {name[:60]!r}, wanted a name that begins with {chapter}-",
                fix="one line is one utterance: name, blank, text",
            )
        audio = sound_beside(transcript.parent, name, ".flac")
        yield line.where, Utterance(audio=audio, text=text, speaker=chapter.partition("-")[0])


def _text_of(sound: Path) -> Path:
    return sound.with_suffix(".txt")


def _side_by_side(folder: Path, sounds: Iterable[Path]) -> Iterator[tuple[str, Utterance]]:
    silent = [sound for sound in sounds if not is_file(_text_of(sound))]
    if silent:
        raise UserError(
            f"{folder}: found no text beside {silent[0].relative_to(folder)} and "
            f"{len(silent) - 1} other sound files, wanted name.txt for each name.wav",
            fix="write the texts, or move those files elsewhere",
        )
    for sound in sounds:
        text = _text_of(sound)
        yield str(text), Utterance(audio=sound, text=" ".join(read_whole(text).split()))


def _seen(folder: Path) -> str:
    kinds = Counter(
        path.suffix.lower() or "no suffix" for path in folder.rglob("*") if is_file(path)
    )
    seen = ", ".join(f"{count} of {kind}" for kind, count in kinds.most_common(5))
    return f"files ({seen})" if seen else "no files"
