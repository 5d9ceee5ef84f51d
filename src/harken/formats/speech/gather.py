"""What every reader of speech does with the utterances it found: check each, and look for its file.

Files that are missing are found here, when the list is read, not an hour into a training; what is
in them is looked at when they are (sound/).
"""

import math
from collections.abc import Iterable
from pathlib import Path

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.named_files import NamedFiles, require_unicode
from harken.inputs import is_file

SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".sph", ".nist")
ROUNDING = 0.01  # seconds by which the last word may end after its utterance


def gather(found: Iterable[tuple[str, Utterance]], name: str) -> list[Utterance]:
    """All of them, each given with where it stands; `name` is what they were read from."""
    utterances: list[Utterance] = []
    files = NamedFiles("sound file")
    for where, one in found:
        _check_text(where, one)
        _check_times(where, one)
        files.look_for(one.audio, where)
        utterances.append(one)
    files.require_all()
    if not utterances:
        raise UserError(
            f"{name}: found no utterance, wanted at least one", fix="check that it is whole"
        )
    return utterances


def sound_beside(folder: Path, stem: str, usual: str) -> Path:
    """The sound file of a name without suffix; the usual one, which is then missing, if none is."""
    suffixes = (usual, *SOUND_SUFFIXES)
    for suffix in (*suffixes, *(suffix.upper() for suffix in suffixes)):
        if is_file(path := folder / f"{stem}{suffix}"):
            return path
    return folder / f"{stem}{usual}"


def is_sound(path: Path) -> bool:
    """Whether a file of a folder is meant to be sound: by its suffix, and not hidden.

    Archives made on a Mac have a `._name.wav` beside each name.wav.
    """
    named = path.suffix.lower() in SOUND_SUFFIXES and not path.name.startswith(".")
    return named and is_file(path)


def _check_text(where: str, one: Utterance) -> None:
    if not one.text.strip():
        raise UserError(
            f"{where}: found an empty text for {one.audio}, wanted what is said in it",
            fix="write it down, or leave the recording out",
        )
    words = (word.word for word in one.words)
    require_unicode(where, str(one.audio), one.text, one.speaker, *words)


def _check_times(where: str, one: Utterance) -> None:
    end = math.inf if one.end is None else one.end
    if not 0 <= one.start < end or one.end == math.inf:  # NaN is not, either
        raise UserError(
            f"{where}: found a stretch from {one.start} to {one.end} s, wanted 0 <= start < end",
            fix="both are seconds from the beginning of the file",
        )
    before = 0.0
    for word in one.words:
        if not before <= word.start <= word.end <= end - one.start + ROUNDING:
            raise UserError(
                f"{where}: found {word.word!r} from {word.start} to {word.end} s, "
                "wanted words in their order and within the utterance",
                fix="their times are seconds from the start of the utterance",
            )
        before = word.start
