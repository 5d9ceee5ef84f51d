"""Names of sound files that tell what is said -> utterances.

    {text}_{speaker}_{index}.wav     of 7_jackson_32.wav     text 7, speaker jackson
    {speaker}/{text}.wav             of ann/go.wav           text go, speaker ann

A field stands for at least one character, none of which is a `/`; fields other than `text` and
`speaker` are left alone. What a text is in words may be told (7=seven), for each of its parts if a
separator splits it: with `_` and 1=yes, 0=no the name 1_0_1.wav of {text}.wav says `yes no yes`.

Every sound file must fit, and in one way only: of {text}_{index}.wav the name a_b_1.wav could be
`a` or `a_b`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.speech.gather import SOUND_SUFFIXES, gather, is_sound
from harken.inputs import is_folder, shown

FIELD = re.compile(r"\{([^{}]*)\}")


class _Pattern(NamedTuple):
    """Two expressions for one pattern: a name fits it in one way if both divide it alike."""

    written: str
    fields: list[str]
    shortest: re.Pattern[str]
    longest: re.Pattern[str]


def utterances_from_names(
    folder: Path, pattern: str, *, words: Mapping[str, str] | None = None, split: str = ""
) -> list[Utterance]:
    """One utterance a sound file, in the order of their names."""
    compiled = _compiled(pattern)
    if not is_folder(folder):
        raise UserError(
            f"{shown(folder)}: folder not found (expected one of sound files)",
            fix="check the name",
        )
    depth = "*/" * pattern.count("/") + "*"
    sounds = sorted(path for path in folder.glob(depth) if is_sound(path))
    if not sounds:
        raise UserError(
            f"{folder}: found no sound file at {depth}, wanted some that fit {pattern!r}",
            fix=f"name subfolders in the pattern, too; suffixes are {' '.join(SOUND_SUFFIXES)}",
        )
    return gather(_utterances(folder, sounds, compiled, words, split), str(folder))


def _compiled(pattern: str) -> _Pattern:
    fields = FIELD.findall(pattern)
    literals = FIELD.split(pattern)[::2]
    if fields.count("text") != 1 or fields.count("speaker") > 1:
        near = next((field for field in fields if nearest(field, ["text"])), None)
        raise UserError(
            f"pattern {pattern!r}: found the fields {fields}, wanted 'text' once and 'speaker' at "
            "most once",
            fix=f"did you mean 'text' by {near!r}?"
            if near and near != "text"
            else 'write it like "{text}_{speaker}_{index}.wav"',
        )
    if any(brace in literal for literal in literals for brace in "{}"):
        raise UserError(
            f"pattern {pattern!r}: found a brace alone, wanted fields such as {{text}}",
            fix="close every brace",
        )
    escaped = [re.escape(literal) for literal in literals]
    return _Pattern(
        pattern, fields, re.compile("([^/]+?)".join(escaped)), re.compile("([^/]+)".join(escaped))
    )


def _utterances(
    folder: Path,
    sounds: list[Path],
    pattern: _Pattern,
    words: Mapping[str, str] | None,
    split: str,
) -> Iterator[tuple[str, Utterance]]:
    names = [sound.relative_to(folder).as_posix() for sound in sounds]
    if misfits := [name for name in names if not pattern.shortest.fullmatch(name)]:
        raise _misfits(folder, misfits, len(names), f"do not fit {pattern.written!r}")
    parts = [match.groups() for name in names if (match := pattern.shortest.fullmatch(name))]
    others = [match.groups() for name in names if (match := pattern.longest.fullmatch(name))]
    if doubtful := [
        name for name, one, other in zip(names, parts, others, strict=True) if one != other
    ]:
        how = f"fit {pattern.written!r} in more than one way"
        raise _misfits(folder, doubtful, len(names), how)
    for sound, values in zip(sounds, parts, strict=True):
        fields = dict(zip(pattern.fields, values, strict=True))
        text = _said(sound, fields["text"], words, split)
        yield str(sound), Utterance(audio=sound, text=text, speaker=fields.get("speaker", ""))


def _misfits(folder: Path, names: list[str], of: int, how: str) -> UserError:
    return UserError(
        f"{folder}: found {len(names)} of {of} sound files that {how}, the first {names[0]!r}, "
        "wanted none",
        fix="mend the pattern, rename the files or move them elsewhere",
    )


def _said(sound: Path, text: str, words: Mapping[str, str] | None, split: str) -> str:
    parts = text.split(split) if split else [text]
    if words:
        if unknown := [part for part in parts if part not in words]:
            raise UserError(
                f"{sound}: found {unknown[0]!r} as text, wanted one of {', '.join(words)}",
                fix=f"say what it is in words, as in {unknown[0]}=WORD",
            )
        parts = [words[part] for part in parts]
    return " ".join(parts)
