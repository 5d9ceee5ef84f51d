"""WAV, FLAC and Ogg files, decoded by libsndfile, after a look at whether they are whole.

    WAV    the chunk of data must lie within the file
    FLAC   the header must say how many frames follow
    Ogg    every page there, with the right checksum, in its turn, the last one marked as the last

Without that look libsndfile would give what there is of half a WAV file, or leave out the damaged
pages of an Ogg file, and say nothing. A damaged or missing end of a FLAC file shows when it is
decoded.

A WAV file from a pipe cannot know its length; some programs then write one of `STREAMED`, and the
sound goes to the end of the file. A length of 0 before more bytes is a recorder that was stopped
before it came back to write the length: that is refused, as nobody can tell how much is missing.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile
from jaxtyping import Float

from harken.errors import UserError
from harken.formats.sound.source import CONVERT, Sound, cut_short, damaged

STREAMED = (0xFFFFFFFF, 0x80000000, 0x7FFFF000)  # as ffmpeg, arecord and sox write it
CODINGS = {1: "PCM", 3: "float", 6: "A-law", 7: "mu-law", 0xFFFE: "extensible"}
MOST_CHUNKS = 1000  # a large file of empty chunks would keep us busy for minutes
PAGE = struct.Struct("<4sBBqIIIB")  # OggS, version, flags, time, stream, number, checksum, segments
LAST_PAGE = 4  # a flag
BACKWARDS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@contextmanager
def open_container(file: BinaryIO, name: str) -> Iterator[Sound]:
    """The sound in a seekable file that begins as one of the three does."""
    promised = _promised(file, name)
    file.seek(0)
    with _damage(name):
        decoder = soundfile.SoundFile(file)
    with decoder:
        if promised is not None and promised != decoder.frames:
            raise damaged(
                name, f"{decoder.frames} frames of sound where its header says {promised}"
            )

        def read(first: int, count: int) -> Float[np.ndarray, "frames channels"]:
            with _damage(name, f" after {first / decoder.samplerate:.3f} s"):
                if decoder.tell() != first:
                    decoder.seek(first)
                return np.asarray(decoder.read(count, dtype="float32", always_2d=True))

        yield Sound(
            name=name,
            rate=decoder.samplerate,
            channels=decoder.channels,
            frames=decoder.frames,
            read=read,
        )


@contextmanager
def _damage(name: str, place: str = "") -> Iterator[None]:
    try:
        yield
    except soundfile.LibsndfileError as error:
        said = error.error_string.removeprefix("Error : ").rstrip(".")
        raise damaged(name, f"bytes that cannot be decoded{place} ({said})") from error


def _promised(file: BinaryIO, name: str) -> int | None:
    """The frames that a header promises; None where nothing but decoding tells."""
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(12)
    if start.startswith(b"RIFF"):
        return _wav_frames(file, size, name)
    if start.startswith(b"fLaC"):
        return _flac_frames(file, name)
    _check_pages(file, name)
    return None


class _Layout(NamedTuple):
    """The first fields of the chunk `fmt `."""

    coding: int
    channels: int
    rate: int
    byte_rate: int
    frame_bytes: int
    bits: int


def _wav_frames(file: BinaryIO, size: int, name: str) -> int:
    layout = None
    place = 12
    for _ in range(MOST_CHUNKS):
        file.seek(place)
        kind, length = struct.unpack("<4sI", file.read(8).ljust(8, b"\0"))
        place += 8
        if place > size:
            raise damaged(name, "a WAV header without data")
        if kind == b"data":
            if layout is None:
                raise damaged(name, "the data of a WAV file before its format")
            return _data_bytes(layout, length, size - place, name) // layout.frame_bytes
        if kind == b"fmt ":
            layout = _layout(file.read(min(length, 16)), name)
        place += length + length % 2  # chunks begin at even places
    raise damaged(name, f"a WAV file of more than {MOST_CHUNKS} chunks")


def _layout(raw: bytes, name: str) -> _Layout:
    if len(raw) < 16:
        raise damaged(name, f"a WAV format of {len(raw)} bytes instead of 16")
    layout = _Layout(*struct.unpack("<HHIIHH", raw))
    if layout.coding not in CODINGS:
        known = ", ".join(CODINGS.values())
        raise UserError(
            f"{name}: found WAV coding 0x{layout.coding:04x}, wanted one of {known}", fix=CONVERT
        )
    wanted = layout.channels * ((layout.bits + 7) // 8)
    if not layout.rate or not wanted or layout.frame_bytes != wanted:
        raise damaged(
            name,
            f"{layout.channels} channels of {layout.bits} bits in frames of {layout.frame_bytes} "
            f"bytes at {layout.rate} Hz",
        )
    return layout


def _data_bytes(layout: _Layout, length: int, there: int, name: str) -> int:
    """The length of the chunk of data, of which so many bytes are there."""
    # A writer may round its mark down to whole frames.
    if length // layout.frame_bytes in {mark // layout.frame_bytes for mark in STREAMED}:
        return there
    if length == 0 and there:
        raise UserError(
            f"{name}: found a WAV header of length 0 before {there} bytes, wanted the length: "
            "the recording was stopped before its end was written",
            fix="record it again; or keep what is there, with `ffmpeg -i OLD NEW.wav`",
        )
    if length > there:
        raise cut_short(
            name,
            rate=layout.rate,
            frame_bytes=layout.frame_bytes,
            found=there,
            promised=length,
        )
    return length


def _flac_frames(file: BinaryIO, name: str) -> int:
    file.seek(0)
    head = file.read(26)
    if len(head) < 26 or head[4] & 0x7F or int.from_bytes(head[5:8], "big") != 34:
        raise damaged(name, "a FLAC file without its first header")
    frames = int.from_bytes(head[18:26], "big") & (1 << 36) - 1
    if not frames:
        raise UserError(
            f"{name}: found a FLAC file of unknown length, wanted the number of its samples",
            fix="write it to a file instead of a pipe, or again with `ffmpeg -i OLD NEW.flac`",
        )
    return frames


def _check_pages(file: BinaryIO, name: str) -> None:
    file.seek(0)
    number, stream, flags = 0, None, 0
    while head := file.read(PAGE.size):
        where = f"an Ogg file that is damaged at page {number}"
        if len(head) < PAGE.size:
            raise damaged(name, where)
        magic, _, flags, _, its_stream, its_number, checksum, segments = PAGE.unpack(head)
        lengths = file.read(segments)
        page = head[:22] + bytes(4) + head[26:] + lengths + file.read(sum(lengths))
        if magic != b"OggS" or checksum != page_checksum(page):
            raise damaged(name, where)
        stream = its_stream if stream is None else stream
        if its_stream != stream:
            raise UserError(
                f"{name}: found several streams in one Ogg file, wanted one of sound", fix=CONVERT
            )
        if its_number != number:
            raise damaged(name, f"page {its_number} of an Ogg file in place of page {number}")
        number += 1
    if not flags & LAST_PAGE:
        raise damaged(name, f"an Ogg file that was cut short after {number} pages")


def page_checksum(page: bytes) -> int:
    """The sum of an Ogg page whose own four bytes are zero.

    Ogg and zlib divide by the same polynomial, but zlib takes the bits of a byte from the other
    end and complements the number before and after.
    """
    sum_ = zlib.crc32(page.translate(BACKWARDS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(sum_.to_bytes(4, "little").translate(BACKWARDS), "big")
