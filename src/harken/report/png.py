"""A PNG writer for small maps: one byte a pixel into a palette, no filter.

    signature, IHDR, PLTE, IDAT = zlib(0 row, 0 row, …), IEND

Two images that differ only in palette share their pixels, so that one map can be shown on light
and on dark paper. Nothing here reads PNG.
"""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_INDEXED = 3


def _chunk(kind: bytes, payload: bytes) -> bytes:
    check = zlib.crc32(kind + payload)
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", check)


def png(pixels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """The image file of `pixels` [height, width], indices into `palette` [colours, 3]."""
    assert pixels.ndim == 2, pixels.shape
    assert palette.ndim == 2 and palette.shape[1] == 3 and len(palette) <= 256, palette.shape
    assert pixels.size > 0 and int(pixels.max()) < len(palette)
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # column 0: the filter, none
    rows[:, 1:] = pixels
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)),
            _chunk(b"PLTE", palette.astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def data_uri(file: bytes) -> str:
    """The file as an address that needs no network."""
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")
