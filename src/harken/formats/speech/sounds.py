"""The signals of utterances and of named files, each read when it is asked for.

talk.wav              a file
talk.wav#t=1.5,3      seconds 1.5 to 3 of it, as the web's media fragments are written
-                     stdin
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
from jaxtyping import Float

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound.audio import read_sound, read_sound_stream
from harken.inputs import exists

Signal = Float[np.ndarray, "samples"]

_SECONDS = r"[0-9]+(\.[0-9]+)?"
_STRETCH = re.compile(rf"(?P<file>.+)#t=(?P<start>{_SECONDS})?(,(?P<end>{_SECONDS}))?")


class Sounds(Sequence[Signal]):
    """Signals of utterances: a corpus need not fit in memory."""

    def __init__(self, utterances: Sequence[Utterance], rate: int, most_seconds: float) -> None:
        self._utterances, self._rate, self._most_seconds = utterances, rate, most_seconds

    def __len__(self) -> int:
        return len(self._utterances)

    @overload
    def __getitem__(self, place: int) -> Signal: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Signal]: ...
    def __getitem__(self, place: int | slice) -> Signal | Sequence[Signal]:
        if isinstance(place, slice):
            return Sounds(self._utterances[place], self._rate, self._most_seconds)
        one, longest = self._utterances[place], self._most_seconds
        return read_sound(
            one.audio, rate=self._rate, start=one.start, end=one.end, most_seconds=longest
        )


def name_of(utterance: Utterance) -> str:
    """What `signal_of` reads the sound of an utterance by."""
    start, end = utterance.start, utterance.end
    if start == 0.0 and end is None:
        return str(utterance.audio)
    until = "" if end is None else f",{end!r}"
    return f"{utterance.audio}#t={start!r}{until}"


def signal_of(name: str, rate: int, most_seconds: float) -> Signal:
    """The sound of a file or of a stretch of it; `-` is stdin."""
    if name == "-":
        if sys.stdin is None:  # closed, as by `<&-`
            raise UserError("<stdin>: it is closed", fix="name a file, or use a pipe")
        return read_sound_stream(sys.stdin.buffer, rate=rate, most_seconds=most_seconds)
    stretch = None if exists(Path(name)) else _STRETCH.fullmatch(name)
    if stretch is None:
        return read_sound(Path(name), rate=rate, most_seconds=most_seconds)
    start, end = stretch["start"], stretch["end"]
    return read_sound(
        Path(stretch["file"]),
        rate=rate,
        start=float(start) if start else 0.0,
        end=float(end) if end else None,
        most_seconds=most_seconds,
    )
