"""Read image files (PNG, JPEG, GIF, BMP, WebP) as uint8 arrays Y X K, gray or RGB.

    format by the first bytes -> size limits -> Pillow -> white background -> Exif -> resizing

Of an animation, the first frame is read. Transparent pixels become white, 16 bits per channel are
reduced to the upper 8, CMYK becomes (1 - C) (1 - K), and color profiles are ignored. `fit`
determines how an image is resized:

    pad        the whole image, as large as fits, on white
    crop       the center of the image, as much as fills the size
    stretch    the whole image, with its sides scaled by different factors

Files that Pillow reads incompletely or very slowly are rejected: truncated PNG data with valid
checksums (Pillow fills the missing rows with black), JPEG with too many scans, BMP with run-length
encoding, too many pixels or chunks. Reading takes at most 24 bytes * pixels + 4 * file size of
memory.
"""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageChops, UnidentifiedImageError

from harken.errors import UserError
from harken.formats.examples import Box
from harken.inputs import read_input

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
BLOCK = 2**12  # bytes, which decompress to 4 MiB at most
# Within JPEG data, 0xff is followed by 0 or by one of the eight restart markers.
JPEG_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
END_OF_IMAGE, START_OF_SCAN = b"\xd9", b"\xda"
BMP_RLE = (1, 2)
MAX_BYTES = 2**26  # of a file
OTHER_FORMATS = {b"%PDF": "PDF", b"<svg": "SVG", b"8BPS": "Photoshop"}
OTHER_FORMATS |= {b"II*\0": "TIFF", b"MM\0*": "TIFF"}
ORIENTATION, SHORT = 0x0112, 3  # a tag and a type of Exif
BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
# The transpose that undoes each Exif orientation.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Fit = Literal["pad", "crop", "stretch"]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


def read_image(
    path: Path, *, channels: Literal[1, 3], size: tuple[int, int] | None = None, fit: Fit = "pad"
) -> UInt8[np.ndarray, "Y X K"]:
    """Read an image file; `size` is the number of columns and rows to resize it to."""
    content = read_input(path, "an image", max_bytes=MAX_BYTES)
    return decode_image(content, str(path), channels=channels, size=size, fit=fit)


def decode_image(
    content: bytes,
    name: str,
    *,
    channels: Literal[1, 3],
    size: tuple[int, int] | None = None,
    fit: Fit = "pad",
) -> UInt8[np.ndarray, "Y X K"]:
    """Decode the bytes of an image file; `name` appears in error messages."""
    kind = _format(content)
    if kind is None:
        raise _other_format(content, name)
    parts = _parts(content, kind, name)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(content), formats=[kind]) as opened,
        ):
            _check_opened(opened, parts, name)
            opened.load()
            upright = UPRIGHT.get(exif_orientation(opened.info.get("exif", b"")))
            image = _on_white(opened, content).convert("L" if channels == 1 else "RGB")
        image = image if upright is None else image.transpose(upright)
        image = image if size is None else resized(image, size, fit)
        return np.array(image).reshape(image.height, image.width, channels)
    except UserError:
        raise
    except MemoryError as error:
        message = f"{name}: the image does not fit into memory"
        raise UserError(message, fix="shrink it, or stop other programs") from error
    except Image.DecompressionBombError as error:
        raise _too_large(name, "more than Pillow opens") from error
    except Exception as error:  # Pillow raises many types on damaged data
        # The message of UnidentifiedImageError contains the address of a buffer.
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {error}"[:200]
        raise _damaged(name, f"Pillow cannot decode the {kind} data{reason}") from error


def image_size(path: Path) -> tuple[int, int]:
    """Return the columns and rows of the upright image."""
    rows, columns, _ = read_image(path, channels=1).shape
    return columns, rows


def _other_format(content: bytes, name: str) -> UserError:
    expected = "expected PNG, JPEG, GIF, BMP or WebP"
    other = "HEIC or AVIF" if content[4:8] == b"ftyp" else OTHER_FORMATS.get(content[:4])
    if other:
        return UserError(f"{name}: unsupported format ({expected}, got {other})", fix=CONVERT)
    got = f"starts with {content[:12]!r}" if content else "is empty"
    fix = f"if it is an image, {CONVERT}" if content else "copy, download or save it again"
    return UserError(f"{name}: the file {got} ({expected})", fix=fix)


def _on_white(image: Image.Image, content: bytes) -> Image.Image:
    """Return the image with 8 bits per channel and without transparency."""
    if image.mode == "I;16":
        values = np.asarray(image)
        upper = (values >> 8).astype(np.uint8)
        if "transparency" in image.info:
            upper[values == image.info["transparency"]] = 255
        return Image.fromarray(upper)
    if image.mode == "CMYK" and "adobe" not in image.info:
        return ImageChops.invert(image)  # Pillow assumes Adobe's convention, 1 - ink
    if not image.has_transparency_data:
        return image
    if image.format == "PNG" and "transparency" in image.info:
        # Pillow compares the transparent color with pixels of 8 bits.
        color, depth = image.info["transparency"], content[24]
        if image.mode == "L" and depth in (2, 4):
            image.info["transparency"] = color * 255 // (2**depth - 1)
        elif image.mode == "RGB" and depth == 16:
            image.info["transparency"] = tuple(value >> 8 for value in color)
    colors = image.convert("RGBA")
    background = Image.new("RGB", image.size, "white")
    background.paste(colors, mask=colors)
    return background


def exif_orientation(exif: bytes) -> int:
    """Return the orientation of the camera, 1 to 8; 1 is upright.

    Pillow's `ImageOps.exif_transpose` is not used, because it reads every tag, and the tags in
    64 KiB of Exif can take 350 MB.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = BYTE_ORDERS.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, start)
        for offset in range(start + 2, start + 2 + 12 * entries, 12):
            tag, tag_type, _, value = struct.unpack_from(f"{order}HHIH", exif, offset)
            if (tag, tag_type) == (ORIENTATION, SHORT) and 1 <= value <= 8:
                return int(value)
    except struct.error:  # truncated Exif data
        pass
    return 1


# --- checks


class _FilePart(NamedTuple):
    """A PNG chunk, a JPEG segment or a GIF block; only PNG has data and a checksum."""

    type: bytes
    data: memoryview = memoryview(b"")
    intact: bool = True


def _format(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((kind for magic, kind in MAGICS.items() if content.startswith(magic)), None)


def _parts(content: bytes, kind: str, name: str) -> list[_FilePart]:
    """List the parts of a PNG, JPEG or GIF file; raise `UserError` for too many parts or scans."""
    walks = {"PNG": _png_chunks, "JPEG": _jpeg_segments, "GIF": _gif_blocks}
    parts = list(islice(walks[kind](content), MAX_PARTS + 1)) if kind in walks else []
    scans = sum(part.type == START_OF_SCAN for part in parts) if kind == "JPEG" else 0
    if len(parts) > MAX_PARTS or scans > MAX_SCANS:
        limit = f"{MAX_SCANS} scans" if scans > MAX_SCANS else f"{MAX_PARTS:,} parts"
        message = f"{name}: unusual {kind} file (expected at most {limit}, got more)"
        raise UserError(message, fix=CONVERT)
    return parts


def _check_opened(image: Image.Image, parts: list[_FilePart], name: str) -> None:
    """Check the header before Pillow decodes the pixels."""
    columns, rows = image.size
    if max(columns, rows) > MAX_SIDE or columns * rows > MAX_PIXELS:
        raise _too_large(name, f"{columns} x {rows}")
    if image.format == "PNG":
        _check_png_data(image, parts, name)
    if image.format == "BMP" and image.info.get("compression") in BMP_RLE:
        message = f"{name}: BMP with run-length encoding (expected uncompressed pixels)"
        raise UserError(message, fix=CONVERT)


def _too_large(name: str, size: str) -> UserError:
    limits = f"expected at most {MAX_PIXELS:,} pixels and sides of {MAX_SIDE:,}"
    return UserError(
        f"{name}: the image is too large ({limits}, got {size})",
        fix="shrink it, for example with `magick OLD -resize 1000x1000 NEW.jpg`",
    )


def _damaged(name: str, reason: str) -> UserError:
    message = f"{name}: damaged image ({reason}; expected a complete file)"
    return UserError(message, fix="copy, download or save it again")


def _png_chunks(content: bytes) -> Iterator[_FilePart]:
    offset, view = 8, memoryview(content)
    while offset + 8 <= len(content):
        length, chunk_type = struct.unpack_from(">I4s", content, offset)
        end = offset + 8 + length
        data, checksum = view[offset + 8 : end], int.from_bytes(view[end : end + 4])
        intact = zlib.crc32(data, zlib.crc32(chunk_type)) == checksum
        yield _FilePart(chunk_type, data, intact)
        if chunk_type == b"IEND":
            return
        offset = end + 4


def _jpeg_segments(content: bytes) -> Iterator[_FilePart]:
    offset = 2
    while (marker := JPEG_MARKER.search(content, offset)) and marker[1] != END_OF_IMAGE:
        yield _FilePart(marker[1])
        offset = marker.end() + max(2, int.from_bytes(content[marker.end() : marker.end() + 2]))


def _gif_blocks(content: bytes) -> Iterator[_FilePart]:
    """Yield the blocks of the extensions before the first frame."""
    offset = 13  # length of the header
    # Bit 7 of its flags: a color table follows; bits 0 to 2: the size of the table.
    if len(content) > 10 and content[10] & 0x80:
        offset += 3 * 2 ** ((content[10] & 7) + 1)
    while content[offset : offset + 1] == b"!":
        offset += 2
        while offset < len(content):
            length = content[offset]
            offset += 1 + length
            yield _FilePart(b"!")
            if not length:
                break


def _check_png_data(image: Image.Image, parts: list[_FilePart], name: str) -> None:
    """Decompress the data and check their bytes: Σ_passes rows · (1 + ⌈columns · bits / 8⌉)."""
    header = next(part.data for part in parts if part.type == b"IHDR")
    depth, color, interlaced = header[8], header[9], header[12]
    bits, expected = depth * PNG_CHANNELS.get(color, 1), 0  # bits per pixel
    for left, top, across, down in ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = len(range(left, image.width, across)), len(range(top, image.height, down))
        expected += rows * (1 + (columns * bits + 7) // 8) if columns else 0
    chunks = [part for part in parts if part.type == b"IDAT"]
    if not all(chunk.intact for chunk in chunks):  # Pillow skips the checksums of data
        raise _damaged(name, "wrong checksum of PNG data")
    stream = io.BytesIO(b"".join(chunk.data for chunk in chunks))
    decompressor, count = zlib.decompressobj(), 0
    try:  # stop at the expected size, because zlib would store all bytes after it
        while count < expected and not decompressor.eof and (block := stream.read(BLOCK)):
            count += len(decompressor.decompress(block))
    except zlib.error as error:
        raise _damaged(name, f"PNG data that cannot be decompressed: {error}") from error
    if count < expected:
        raise _damaged(name, f"truncated PNG data, {count:,} of {expected:,} bytes")


# --- resizing


def resized(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """Return the image with `size` columns and rows, with Pillow's antialiased bicubic filter."""
    source, (left, top, right, bottom) = _placement(image.size, size, fit)
    inner = round(right - left), round(bottom - top)
    scaled = image.resize(inner, Image.Resampling.BICUBIC, box=source)
    if inner == size:
        return scaled
    padded = Image.new(image.mode, size, "white")
    padded.paste(scaled, (round(left), round(top)))
    return padded


def resized_box(box: Box, *, original: tuple[int, int], size: tuple[int, int], fit: Fit) -> Box:
    """Return the box in the resized image, clipped to it (width or height can become 0).

    x -> (x - source left) * target width / source width + target left        (y likewise)
    """
    source, target = _placement(original, size, fit)

    def moved(value: float, axis: int) -> float:
        (start, end), (new_start, new_end) = source[axis::2], target[axis::2]
        new = (value - start) * (new_end - new_start) / (end - start) + new_start
        return min(max(new, new_start), new_end)

    left, top = moved(box.x, 0), moved(box.y, 1)
    right, bottom = moved(box.x + box.width, 0), moved(box.y + box.height, 1)
    return Box(left, top, right - left, bottom - top)


def _placement(
    original: tuple[int, int], size: tuple[int, int], fit: Fit
) -> tuple[Rectangle, Rectangle]:
    """Return the visible part of the original, and where it is in the resized image."""
    (columns, rows), (width, height) = original, size
    source: Rectangle = (0, 0, columns, rows)
    target: Rectangle = (0, 0, width, height)
    x_scale, y_scale = width / columns, height / rows
    if fit == "pad":
        scaled = [max(1, round(side * min(x_scale, y_scale))) for side in original]
        left, top = (width - scaled[0]) // 2, (height - scaled[1]) // 2
        target = (left, top, left + scaled[0], top + scaled[1])
    elif fit == "crop":
        visible = [side / max(x_scale, y_scale) for side in size]
        cut_x, cut_y = max(0.0, columns - visible[0]) / 2, max(0.0, rows - visible[1]) / 2
        source = (cut_x, cut_y, columns - cut_x, rows - cut_y)
    return source, target
