"""Small images, and PNG files written with zlib and struct."""

import io
import struct
import zlib
from functools import partial

import numpy as np
from PIL import Image

from harken.errors import UserError
from harken.formats.image_file import ADAM7, decode_image
from small_files import error_of, write_bytes

KINDS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
LOSSLESS = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True}}
ROWS, COLUMNS = 23, 31


def noise(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(rows: int = ROWS, columns: int = COLUMNS) -> np.ndarray:
    """Return a color gradient, which JPEG changes little."""
    down, across = np.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
    return (255 * np.stack([down, across, (1 - down) * across], -1)).astype(np.uint8)


def packed(pixels: np.ndarray | Image.Image, kind: str, **options: object) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resaved(kind: str, mark: bytes, distance: int, value: bytes) -> bytes:
    """Return a valid file in which a field was overwritten."""
    content = packed(smooth(), kind)
    offset = content.index(mark) + distance
    return content[:offset] + value + content[offset + len(value) :]


saved = partial(write_bytes, name="image.png")


def decoded(content: bytes, channels: int = 3, **options: object) -> np.ndarray:
    pixels = decode_image(content, "it.png", channels=channels, **options)
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == channels
    return pixels


def image_error(content: bytes) -> UserError:
    error = error_of(decode_image, content, "it.png", channels=3)
    assert error.message.startswith("it.png: ") and "expected" in error.message
    assert "\n" not in str(error) and error.fix
    return error


def chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def png(
    stream: bytes,
    columns: int,
    rows: int,
    *,
    depth: int = 8,
    color: int = 2,
    interlaced: int = 0,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    header = struct.pack(">IIBBBBB", columns, rows, depth, color, 0, 0, interlaced)
    chunks = chunk(b"IHDR", header) + before + chunk(b"IDAT", stream) + after + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def unpacked_rows(values: np.ndarray, depth: int, interlaced: bool = False) -> bytes:
    """Return PNG rows without filters, of values Y X K with up to 16 bits."""
    rows = []
    for left, top, across, down in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = values[top::down, left::across]
        for row in part if part.size else []:
            shifts = np.arange(depth)[::-1]
            bits = (row.reshape(-1, 1) >> shifts & 1).astype(np.uint8)
            rows.append(b"\0" + np.packbits(bits.ravel()).tobytes())
    return b"".join(rows)


def png_of(values: np.ndarray, depth: int, color: int, **options: object) -> bytes:
    rows = unpacked_rows(values, depth, bool(options.get("interlaced")))
    return png(
        zlib.compress(rows), values.shape[1], values.shape[0], depth=depth, color=color, **options
    )
