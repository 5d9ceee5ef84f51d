"""GIF, BMP and WebP files: their size, and the bytes that make the first picture in them.

    GIF     the head, the palette, what is transparent, the first frame
    BMP     all of it; run lengths, which Pillow unpacks byte by byte in Python, are refused
    WebP    all of it, which must not be shorter than it says

Of animations the first frame is taken: it is what a page shows before anything moves.
"""

import struct

from harken.formats.images.source import (
    MOST_PARTS,
    Picture,
    check_size,
    cut_short,
    damaged,
    exif_orientation,
    unwanted,
)

GIF_MAGICS = (b"GIF87a", b"GIF89a")
BMP_MAGIC = b"BM"
EXTENSION, FRAME = b"!", b","
CONTROL = 0xF9  # the extension that says which colour is transparent
OLD_BITMAP = 12  # bytes of the first header of BMP, with sizes of 16 bits
UNPACKED, MASKS = 0, 3  # ways to store a BMP picture


def look_at_gif(content: bytes, name: str, most_pixels: int) -> Picture:
    """The first frame of a file that begins with one of `GIF_MAGICS`."""
    columns, rows, flags = struct.unpack_from("<HHB", content.ljust(13, b"\0"), 6)
    head = place = 13 + _palette_bytes(flags)
    control = b""
    for _ in range(MOST_PARTS):
        start, kind = place, content[place : place + 1]
        if kind == EXTENSION:
            place = _after_blocks(content, place + 2, name)
            if content[start + 1] == CONTROL:
                control = content[start:place]
        elif kind == FRAME and len(content) >= place + 10:
            left, top, width, height, flags = struct.unpack_from("<4HB", content, place + 1)
            # A frame may reach beyond the screen, which then grows, here as in browsers.
            columns, rows = max(columns, left + width), max(rows, top + height)
            check_size(name, columns, rows, most_pixels)
            place = _after_blocks(content, place + 11 + _palette_bytes(flags), name)
            parts = content[:head], control, content[start:place], b";"
            return Picture(
                name=name, kind="GIF", columns=columns, rows=rows, content=b"".join(parts)
            )
        elif kind in (b"", FRAME):
            raise cut_short(name, "GIF", content)
        else:
            raise damaged(name, "a GIF file without a picture")
    raise damaged(name, f"a GIF file of more than {MOST_PARTS} extensions")


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(content: bytes, place: int, name: str) -> int:
    """Where a row of blocks ends, each of which begins with its length, the last of length 0."""
    for _ in range(MOST_PARTS):
        if place >= len(content):
            raise cut_short(name, "GIF", content)
        length = content[place]
        place += 1 + length
        if not length:
            return place
    raise damaged(name, f"a GIF file of more than {MOST_PARTS} blocks")


def look_at_bmp(content: bytes, name: str, most_pixels: int) -> Picture:
    """The picture in a file that begins with `BMP_MAGIC`."""
    head = content[:34].ljust(34, b"\0")
    if int.from_bytes(head[14:18], "little") == OLD_BITMAP:
        columns, rows = struct.unpack_from("<HH", head, 18)
    else:
        columns, rows, storage = struct.unpack_from("<ii4xI", head, 18)
        rows = abs(rows)  # negative where the first row is the upper one
        if storage not in (UNPACKED, MASKS):
            raise unwanted(name, f"BMP packed in way {storage}", "pixels that are not packed")
    check_size(name, columns, rows, most_pixels)
    return Picture(name=name, kind="BMP", columns=columns, rows=rows, content=content)


def is_webp(content: bytes) -> bool:
    """Whether a file begins as WebP does."""
    return content[:4] == b"RIFF" and content[8:12] == b"WEBP"


def look_at_webp(content: bytes, name: str, most_pixels: int) -> Picture:
    """The picture, or the first frame, of a file that `is_webp`."""
    end = 8 + int.from_bytes(content[4:8], "little")
    if end > len(content):
        raise cut_short(name, "WebP", content)
    columns, rows = _webp_size(content[12:30].ljust(18, b"\0"), name)
    check_size(name, columns, rows, most_pixels)
    orientation, place = 1, 12
    for _ in range(MOST_PARTS):
        kind, length = struct.unpack("<4sI", content[place : place + 8].ljust(8, b"\0"))
        if kind == b"EXIF":
            orientation = exif_orientation(content[place + 8 : place + 8 + length])
        place += 8 + length + length % 2  # chunks begin at even places
        if place >= end:
            return Picture(
                name=name,
                kind="WEBP",
                columns=columns,
                rows=rows,
                content=content,
                orientation=orientation,
            )
    raise damaged(name, f"a WebP file of more than {MOST_PARTS} chunks")


def _webp_size(head: bytes, name: str) -> tuple[int, int]:
    """Columns and rows by the first 18 bytes of the first chunk."""
    kind, data = head[:4], head[8:]
    if kind == b"VP8X":
        return (int.from_bytes(data[4:7], "little") + 1, int.from_bytes(data[7:10], "little") + 1)
    if kind == b"VP8 " and data[3:6] == b"\x9d\x01\x2a":
        columns, rows = struct.unpack_from("<HH", data, 6)
        return columns & 0x3FFF, rows & 0x3FFF
    if kind == b"VP8L" and data[:1] == b"\x2f":
        bits = int.from_bytes(data[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    raise damaged(name, f"a WebP file that begins with a chunk {kind!r}")
