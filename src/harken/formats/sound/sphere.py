"""NIST SPHERE files, as AN4, TIMIT and the corpora of the LDC have them.

    NIST_1A
       1024                        bytes of this header, which is filled up with blanks
    sample_count -i 16000          samples of each channel
    sample_byte_format -s2 01      01: the low byte first, 10: the high byte first
    …
    end_head

Read are 16 bit PCM and 8 bit mu-law, of which a byte with the bits ~seeemmmm stands for

    (-1)^s * ((33 + 2m) * 2^e - 33) * 4

Files that were compressed with shorten are refused, with the name of the tool that unpacks them.
"""

import re
from typing import BinaryIO

import numpy as np
from jaxtyping import Float

from harken.errors import UserError
from harken.formats.sound.source import Sound, cut_short, damaged

MAGIC = b"NIST_1A\n"
LARGEST_HEADER = 2**16
FIELD = re.compile(r"(\S+) -(?:i|r|s[0-9]+) (.*)")
COUNT = re.compile(r"[0-9]{1,15}")
UNPACK = "convert it to WAV, for example with `sph2pipe -f wav OLD NEW.wav`"


def _mu_law() -> Float[np.ndarray, "bytes"]:
    byte = ~np.arange(256, dtype=np.uint8)
    size, steps = (byte >> 4) & 7, (byte & 15).astype(np.int32)
    heights = ((33 + 2 * steps) * 2**size - 33) * 4
    return (np.where(byte & 128, -heights, heights) / 2**15).astype(np.float32)


MU_LAW = _mu_law()


def open_sphere(file: BinaryIO, name: str) -> Sound:
    """The sound in a seekable file that begins with `MAGIC`."""
    size = file.seek(0, 2)
    file.seek(0)
    fields, start = _header(file, size, name)
    rate, channels, frames, sample_bytes = (
        _count(fields, field, name)
        for field in ("sample_rate", "channel_count", "sample_count", "sample_n_bytes")
    )
    if not rate or not channels:
        raise damaged(name, f"{channels} channels at {rate} Hz in a SPHERE header")
    kind = _kind(fields, sample_bytes, name)
    frame_bytes = channels * kind.itemsize
    if size - start < frames * frame_bytes:
        raise cut_short(
            name,
            rate=rate,
            frame_bytes=frame_bytes,
            found=size - start,
            promised=frames * frame_bytes,
        )

    def read(first: int, count: int) -> Float[np.ndarray, "frames channels"]:
        file.seek(start + first * frame_bytes)
        raw = file.read(count * frame_bytes)
        whole = len(raw) // frame_bytes * channels
        numbers = np.frombuffer(raw, kind, count=whole).reshape(-1, channels)
        if kind == np.uint8:
            return MU_LAW[numbers]
        return numbers * np.float32(2**-15)

    return Sound(name=name, rate=rate, channels=channels, frames=frames, read=read)


def _header(file: BinaryIO, size: int, name: str) -> tuple[dict[str, str], int]:
    """The fields, and where the samples begin."""
    start = file.read(16)[len(MAGIC) :].decode("latin-1").strip()
    length = int(start) if COUNT.fullmatch(start) else 0
    if not 16 < length <= min(size, LARGEST_HEADER):
        raise damaged(name, f"a SPHERE header of length {start!r} in a file of {size} bytes")
    text, end, _ = file.read(length - 16).decode("latin-1").partition("end_head")
    if not end:
        raise damaged(name, "a SPHERE header without its end_head")
    fields = (FIELD.fullmatch(line.strip()) for line in text.split("\n"))
    return {field[1]: field[2].strip() for field in fields if field}, length


def _count(fields: dict[str, str], field: str, name: str) -> int:
    value = fields.get(field, "")
    if not COUNT.fullmatch(value):
        found = f"{field} {value!r}" if value else f"no {field}"
        raise damaged(name, f"{found} in a SPHERE header")
    return int(value)


def _kind(fields: dict[str, str], sample_bytes: int, name: str) -> np.dtype[np.generic]:
    """How a sample is stored; headers of the first corpora name no coding and mean PCM."""
    coding = fields.get("sample_coding", "pcm")
    order = fields.get("sample_byte_format", "")
    if coding == "pcm" and sample_bytes == 2 and order in ("01", "10"):
        return np.dtype("<i2" if order == "01" else ">i2")
    if coding in ("ulaw", "mu-law") and sample_bytes == 1:
        return np.dtype(np.uint8)
    raise UserError(
        f"{name}: found SPHERE coding {coding!r} with {sample_bytes} bytes a sample in the order "
        f"{order!r}, wanted pcm with 2 bytes in the order '01' or '10', or ulaw",
        fix=UNPACK,
    )
