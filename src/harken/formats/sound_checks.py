"""Detect audio formats by the first bytes, and reject truncated WAV, AIFF, W64 and Ogg files.

libsndfile decodes a truncated file without an error.
"""

import struct
import zlib
from typing import BinaryIO

from harken.errors import UserError

MAX_CHUNKS = 1000
STREAMED = (0xFFFFFFFF, 0x80000000, 0x7FFFF000)  # lengths in piped WAV files, or up to 255 less
W64_MAGIC = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
OGG_PAGE = struct.Struct("<4sBBqIIIB")  # OggS, version, flags, time, stream, number, CRC, segments
MAX_PAGE = 27 + 255 + 255 * 255
END_OF_STREAM = 4  # flag of the last page
REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
FORMATS = "WAV, AIFF, W64, FLAC, Ogg (Vorbis, Opus), MP3 or NIST SPHERE"
CONVERT = "convert it to WAV, for example with `ffmpeg -i OLD NEW.wav`"


def sound_format(start: bytes) -> str | None:
    """Return libsndfile's name of the format, or None."""
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return "WAV"
    if start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        return "AIFF"
    # An MPEG frame starts with 11 one bits; the layer bits 01 are layer III.
    if start[:3] == b"ID3" or (start[:1] == b"\xff" and start[1:2] and start[1] & 0xE6 == 0xE2):
        return "MP3"
    magics = {W64_MAGIC: "W64", b"fLaC": "FLAC", b"OggS": "OGG", b"NIST_1A\n": "NIST"}
    return next((kind for magic, kind in magics.items() if start.startswith(magic)), None)


def check_data_chunk(file: BinaryIO, size: int, kind: str, name: str) -> None:
    """Compare the length of the data chunk with the bytes that follow its header."""
    is_w64 = kind == "W64"
    header = struct.Struct({"WAV": "<4sI", "AIFF": ">4sI", "W64": "<4s12xQ"}[kind])
    position, alignment = (40, 8) if is_w64 else (12, 2)
    for _ in range(MAX_CHUNKS):
        file.seek(min(position, size))
        raw = file.read(header.size)
        if len(raw) < header.size:
            raise damaged_sound(name, "no sound data")
        chunk_id, length = header.unpack(raw)
        position += header.size
        length -= header.size if is_w64 else 0  # W64 lengths include the header
        if length < 0:
            raise damaged_sound(name, "a chunk of negative length")
        if chunk_id == (b"SSND" if kind == "AIFF" else b"data"):
            break
        position += -(-length // alignment) * alignment
    else:
        raise damaged_sound(name, f"more than {MAX_CHUNKS} chunks")
    actual = size - position
    streamed = kind == "WAV" and any(limit - 256 < length <= limit for limit in STREAMED)
    if length == 0 and actual:
        message = f"{name}: interrupted recording (expected length {actual:,} in the header, got 0)"
        raise UserError(message, fix="record it again, or repair it with `ffmpeg -i OLD NEW.wav`")
    if length > actual and not streamed:
        problem = f"the file is truncated (expected {length:,} bytes of audio, got {actual:,})"
        raise UserError(f"{name}: {problem}", fix="copy, download or record it again")


def check_last_page(file: BinaryIO, size: int, name: str) -> None:
    """Check that an Ogg file ends with a complete page that has the end-of-stream flag."""
    file.seek(0)
    first_stream = OGG_PAGE.unpack(file.read(OGG_PAGE.size).ljust(OGG_PAGE.size, b"\0"))[4]
    file.seek(max(0, size - MAX_PAGE))
    tail = file.read(MAX_PAGE)
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) >= OGG_PAGE.size:
        _, _, flags, _, stream, _, checksum, segments = OGG_PAGE.unpack_from(page)
        lengths = page[OGG_PAGE.size : OGG_PAGE.size + segments]
        page = page[: OGG_PAGE.size + segments + sum(lengths)]
        if stream != first_stream:
            message = f"{name}: several Ogg streams (expected one audio stream)"
            raise UserError(message, fix=CONVERT)
        if flags & END_OF_STREAM and checksum == ogg_checksum(page):
            return
    raise damaged_sound(name, "the last Ogg page is incomplete or lacks the end-of-stream flag")


def ogg_checksum(page: bytes) -> int:
    """Return the CRC of an Ogg page, computed with its CRC field set to zero.

    Ogg and zlib use the same polynomial; zlib also reverses the bits of each byte and complements
    the value before and after.
    """
    zeroed = page[:22] + bytes(4) + page[26:]
    value = zlib.crc32(zeroed.translate(REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(value.to_bytes(4, "little").translate(REVERSED_BITS), "big")


def damaged_sound(name: str, reason: str) -> UserError:
    """Return the error for an incomplete or unsupported file."""
    message = f"{name}: damaged or unsupported sound ({reason}; expected a complete file)"
    return UserError(message, fix=f"copy or download it again, or {CONVERT}")
