"""Sound files -> samples: one channel, float32, at the rate that is asked for.

    bytes -> which format they begin as -> a stretch of frames -> their mean over the channels
          -> resampled (soxr, HQ)

Nothing is believed that has not been looked at. The format is known by the first bytes, never by
the suffix. A file that is shorter than its header says is an error, never the samples that are
there. What a header promises is compared with the limits below before anything is decoded, and
decoding goes block by block, so that reading takes at most

    8 bytes * seconds * rate wanted    +    16 bytes * BLOCK * MOST_CHANNELS    (32 MiB)

What is not here: filterbanks (encode/), and what is said in the sound (speech/).
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soxr
from jaxtyping import Float

from harken.errors import UserError
from harken.formats.sound.containers import open_container
from harken.formats.sound.source import CONVERT, Sound, damaged
from harken.formats.sound.sphere import MAGIC, open_sphere
from harken.inputs import open_input

MOST_SECONDS = 600.0  # of one stretch
MOST_BYTES = 2**28  # of a stream, which is held in memory: 25 minutes of a CD
MOST_CHANNELS = 32
MAX_SAMPLES = 2**27  # of one stretch over all channels: 10 minutes of stereo at 96 kHz
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
LOUDEST = 2.0**16  # twice what float files hold whose samples nobody divided by 2^15
BLOCK = 2**16  # frames
ROUNDING = 0.01  # seconds: the end of a file may have been rounded up to hundredths


def read_sound(
    path: Path,
    *,
    rate: int,
    start: float = 0.0,
    end: float | None = None,
    most_seconds: float = MOST_SECONDS,
) -> Float[np.ndarray, "samples"]:
    """The stretch between two times in seconds, to the end of the file where `end` is None."""
    with _open_file(path) as file, _open_sound(file, str(path)) as sound:
        return _samples(sound, rate, *_stretch(sound, start, end, most_seconds))


def read_sound_stream(
    stream: BinaryIO,
    *,
    rate: int,
    name: str = "<stdin>",
    most_seconds: float = MOST_SECONDS,
    most_bytes: int = MOST_BYTES,
) -> Float[np.ndarray, "samples"]:
    """The whole of a sound that comes through a pipe; for bytes, wrap them in `io.BytesIO`."""
    with _open_sound(_held(stream, name, most_bytes), name) as sound:
        return _samples(sound, rate, *_stretch(sound, 0.0, None, most_seconds))


def sound_seconds(path: Path) -> float:
    """How long a whole file is by its header, which is compared with its size."""
    with _open_file(path) as file, _open_sound(file, str(path)) as sound:
        return sound.seconds


def sound_rate(path: Path) -> int:
    """How many samples per second a file has, by its header."""
    with _open_file(path) as file, _open_sound(file, str(path)) as sound:
        return sound.rate


def _open_file(path: Path) -> BinaryIO:
    return open_input(path, "a sound file")


def _held(stream: BinaryIO, name: str, most_bytes: int) -> BinaryIO:
    """A stream as a file in memory."""
    held = io.BytesIO()
    while piece := stream.read(BLOCK):
        held.write(piece)
        if held.tell() > most_bytes:
            raise UserError(
                f"{name}: found more than {most_bytes} bytes of sound, wanted fewer from a pipe",
                fix="write it to a file and name that",
            )
    return held


@contextmanager
def _open_sound(file: BinaryIO, name: str) -> Iterator[Sound]:
    file.seek(0)
    start = file.read(12)
    if start.startswith(MAGIC):
        yield _within_limits(open_sphere(file, name))
    elif start.startswith((b"fLaC", b"OggS")) or (start[:4], start[8:]) == (b"RIFF", b"WAVE"):
        with open_container(file, name) as sound:
            yield _within_limits(sound)
    else:
        found = f"a file that begins with {start!r}" if start else "an empty file"
        raise UserError(
            f"{name}: found {found}, wanted WAV, FLAC, Ogg or NIST SPHERE",
            fix=f"if it is sound, {CONVERT}" if start else "copy, download or record it again",
        )


def _within_limits(sound: Sound) -> Sound:
    if sound.frames < 1:
        raise damaged(sound.name, "a header and no sound")
    if not LOWEST_RATE <= sound.rate <= HIGHEST_RATE:
        found, wanted = f"{sound.rate} Hz", f"{LOWEST_RATE} to {HIGHEST_RATE} Hz"
    elif not 1 <= sound.channels <= MOST_CHANNELS:
        found, wanted = f"{sound.channels} channels", f"1 to {MOST_CHANNELS}"
    else:
        return sound
    raise UserError(
        f"{sound.name}: found {found}, wanted {wanted}", fix=f"if the file is whole, {CONVERT}"
    )


def _stretch(sound: Sound, start: float, end: float | None, most_seconds: float) -> tuple[int, int]:
    """The first frame, and the frame after the last."""
    stop = sound.seconds if end is None else end
    if not 0 <= start < stop <= sound.seconds + ROUNDING:  # NaN is not, either
        raise UserError(
            f"{sound.name}: found the stretch from {start} to {stop} s, "
            f"wanted one within its {sound.seconds:.3f} s",
            fix="mend start and end; both are seconds from the beginning of the file",
        )
    if stop - start > most_seconds:
        raise UserError(
            f"{sound.name}: found {stop - start:.1f} s of sound, wanted at most {most_seconds:g} s",
            fix="cut it into utterances, by files or by start and end in the manifest",
        )
    first, last = round(start * sound.rate), min(round(stop * sound.rate), sound.frames)
    if (last - first) * sound.channels > MAX_SAMPLES:
        raise UserError(
            f"{sound.name}: {stop - start:.1f} s of {sound.channels} channels at {sound.rate} Hz "
            f"are too many samples to decode (expected at most {MAX_SAMPLES:,})",
            fix="mix the channels or lower the rate, for example with "
            "`ffmpeg -i OLD -ac 1 -ar 16000 NEW.wav`",
        )
    if first >= last:
        raise UserError(
            f"{sound.name}: found the stretch from {start} to {stop} s, "
            f"wanted at least one sample, 1/{sound.rate} s",
            fix="mend start and end",
        )
    return first, last


def _samples(sound: Sound, rate: int, first: int, last: int) -> Float[np.ndarray, "samples"]:
    resampler = soxr.ResampleStream(sound.rate, rate, 1, dtype="float32", quality="HQ")
    # A product is many times faster than numpy's mean over so short an axis.
    share = np.full(sound.channels, 1 / sound.channels, dtype=np.float32)
    pieces = []
    for place in range(first, last, BLOCK):
        after = min(place + BLOCK, last)
        samples = _block(sound, place, after) @ share
        if sound.rate != rate:
            samples = resampler.resample_chunk(samples, last=after == last)
        pieces.append(samples)
    resampled = np.concatenate(pieces)
    if not len(resampled):
        raise UserError(
            f"{sound.name}: found {(last - first) / sound.rate:.6f} s of sound, "
            f"wanted at least one sample at {rate} Hz",
            fix="remove it: it is too short to hold a word",
        )
    return resampled


def _block(sound: Sound, place: int, after: int) -> Float[np.ndarray, "frames channels"]:
    block = sound.read(place, after - place)
    if len(block) < after - place:
        there = (place + len(block)) / sound.rate
        raise damaged(sound.name, f"{there:.3f} s of sound and then no more")
    loudest = max(block.max(), -block.min())
    if not loudest <= LOUDEST:  # NaN is not, either
        raise UserError(
            f"{sound.name}: found a sample of size {loudest} after {place / sound.rate:.3f} s, "
            "wanted finite ones between -1 and 1",
            fix="write the file again with numbers between -1 and 1",
        )
    return block
