"""Refuse picture files that Pillow would read as half a picture, or for minutes.

PNG     data that end early behind valid checksums: Pillow fills the missing rows with black
JPEG    too many scans, each of which draws over the whole picture
BMP     run-length encoding, which Pillow decodes byte by byte in Python
all     too many pixels, or too many chunks, which Pillow reads one by one in Python
"""

import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from PIL import Image

from harken.errors import UserError

MAX_PIXELS = 2**26  # more than a phone's 50 million, fewer than Pillow warns about
MAX_SIDE = 2**15  # columns or rows
MAX_PARTS = 2**16  # PNG chunks, JPEG segments, or GIF blocks before the first frame
MAX_SCANS = 100  # encoders write ten; 100 scans of 16 million pixels take 1.5 s
CONVERT = "convert it to PNG, for example with `magick OLD NEW.png`"

MAGICS = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
}
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by color type
# First column, first row, column step and row step of each pass of an interlaced PNG.
ADAM7 = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
PIECE = 2**12  # bytes, which decompress to 4 MiB at most
# Within JPEG data, 0xff is followed by 0 or by one of the eight restart markers.
JPEG_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
END_OF_IMAGE, START_OF_SCAN = b"\xd9", b"\xda"
BMP_RLE = (1, 2)


class FilePart(NamedTuple):
    """A PNG chunk, a JPEG segment or a GIF block; data and checksum only of PNG."""

    kind: bytes
    data: memoryview = memoryview(b"")
    intact: bool = True


def picture_format(content: bytes) -> str | None:
    """Return the format by the first bytes, as Pillow calls it."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((kind for magic, kind in MAGICS.items() if content.startswith(magic)), None)


def picture_parts(content: bytes, kind: str, name: str) -> list[FilePart]:
    """List the parts of a PNG, JPEG or GIF file; refuse too many of them, or of scans."""
    walks = {"PNG": _png_chunks, "JPEG": _jpeg_segments, "GIF": _gif_blocks}
    parts = list(islice(walks[kind](content), MAX_PARTS + 1)) if kind in walks else []
    scans = sum(part.kind == START_OF_SCAN for part in parts) if kind == "JPEG" else 0
    if len(parts) > MAX_PARTS or scans > MAX_SCANS:
        limit = f"{MAX_SCANS} scans" if scans > MAX_SCANS else f"{MAX_PARTS:,} parts"
        raise UserError(
            f"{name}: unusual {kind} file (expected at most {limit}, got more)", fix=CONVERT
        )
    return parts


def check_opened(image: Image.Image, parts: list[FilePart], name: str, max_pixels: int) -> None:
    """Check what Pillow read of the header, before it decodes the pixels."""
    columns, rows = image.size
    if max(columns, rows) > MAX_SIDE or columns * rows > max_pixels:
        raise too_large(name, f"{columns} x {rows}", max_pixels)
    if image.format == "PNG":
        _check_png_data(image, parts, name)
    if image.format == "BMP" and image.info.get("compression") in BMP_RLE:
        raise UserError(
            f"{name}: compressed BMP (expected pixels without run lengths)", fix=CONVERT
        )


def too_large(name: str, size: str, max_pixels: int) -> UserError:
    """Return the error for a picture of too many pixels."""
    return UserError(
        f"{name}: the picture is too large (expected at most {max_pixels:,} pixels and sides of "
        f"{MAX_SIDE:,}, got {size})",
        fix="shrink it, for example with `magick OLD -resize 1000x1000 NEW.jpg`",
    )


def damaged_picture(name: str, reason: str) -> UserError:
    """Return the error for a file that is not a complete picture."""
    return UserError(
        f"{name}: damaged picture ({reason}; expected a complete file)",
        fix="copy, download or save it again",
    )


def _png_chunks(content: bytes) -> Iterator[FilePart]:
    place, view = 8, memoryview(content)
    while place + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        end = place + 8 + length
        data, checksum = view[place + 8 : end], int.from_bytes(view[end : end + 4])
        yield FilePart(kind, data, zlib.crc32(data, zlib.crc32(kind)) == checksum)
        if kind == b"IEND":
            return
        place = end + 4


def _jpeg_segments(content: bytes) -> Iterator[FilePart]:
    place = 2
    while (marker := JPEG_MARKER.search(content, place)) and marker[1] != END_OF_IMAGE:
        yield FilePart(marker[1])
        place = marker.end() + max(2, int.from_bytes(content[marker.end() : marker.end() + 2]))


def _gif_blocks(content: bytes) -> Iterator[FilePart]:
    """The blocks of the extensions before the first frame."""
    place = 13 + (3 << (content[10] & 7) + 1 if content[10:11] >= b"\x80" else 0)
    while content[place : place + 1] == b"!":
        place += 2
        while place < len(content):
            length = content[place]
            place += 1 + length
            yield FilePart(b"!")
            if not length:
                break


def _check_png_data(image: Image.Image, parts: list[FilePart], name: str) -> None:
    """Decompress the data and count them:  Σ_passes rows · (1 + ceil(columns · bits / 8))."""
    header = next(part.data for part in parts if part.kind == b"IHDR")
    depth, color, interlaced = header[8], header[9], header[12]
    bits, expected = depth * PNG_CHANNELS.get(color, 1), 0
    for left, top, across, down in ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns = len(range(left, image.width, across))
        rows = len(range(top, image.height, down))
        expected += rows * (1 + (columns * bits + 7) // 8) if columns else 0
    chunks = [part for part in parts if part.kind == b"IDAT"]
    if not all(chunk.intact for chunk in chunks):  # Pillow skips the checksums of data
        raise damaged_picture(name, "wrong checksum of PNG data")
    packed = b"".join(chunk.data for chunk in chunks)
    decompressor, found = zlib.decompressobj(), 0
    try:
        for place in range(0, len(packed), PIECE):
            found += len(decompressor.decompress(packed[place : place + PIECE]))
            if found >= expected or decompressor.eof:  # zlib would collect what follows the end
                break
    except zlib.error as error:
        raise damaged_picture(name, f"PNG data that cannot be decompressed: {error}") from error
    if found < expected:
        raise damaged_picture(name, f"truncated PNG data, {found:,} of {expected:,} bytes")
