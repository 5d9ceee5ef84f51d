"""Small audio files, and their samples as libsndfile alone decodes them."""

import io
from functools import partial

import numpy as np
import soundfile

from fuzz.media import SOUNDS
from harken.errors import UserError
from harken.formats.sound import read_sound_stream
from small_files import error_of, write_bytes

RATE = 16_000
KINDS = {**SOUNDS, "NIST ulaw": ("NIST", "ULAW")}


def tone(frames: int, rate: int = RATE, pitch: float = 211.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(frames) / rate)


def noise(frames: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(3).standard_normal(frames)


def packed(samples: np.ndarray, rate: int = RATE, kind: str = "WAV", coding: str = "") -> bytes:
    file = io.BytesIO()
    form, usual = KINDS.get(kind, (kind, ""))
    soundfile.write(file, samples, rate, format=form, subtype=coding or usual)
    return file.getvalue()


saved = partial(write_bytes, name="sound.wav")


def read(content: bytes, rate: int = RATE) -> np.ndarray:
    return read_sound_stream(io.BytesIO(content), rate=rate)


class Sequential(soundfile.SoundFile):
    def seekable(self) -> bool:
        return False


def decoded(content: bytes) -> np.ndarray:
    """Return the samples that libsndfile alone decodes in one call."""
    with Sequential(io.BytesIO(content)) as file:
        return np.asarray(file.read(file.frames, dtype="float32", always_2d=True))


def sound_error(content: bytes) -> UserError:
    error = error_of(read_sound_stream, io.BytesIO(content), name="it.wav", rate=RATE)
    assert error.message.startswith("it.wav: ") and "\n" not in str(error)
    assert "expected" in error.message and error.fix
    return error
