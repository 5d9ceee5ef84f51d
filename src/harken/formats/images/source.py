"""A picture file that was looked at, the limits, and the sentences for one that is not right.

Every format is looked at by our own reader, which takes the size from the header, compares it with
the limits and hands on only those parts of the file that make the picture. Texts, colour profiles,
thumbnails and further frames never reach a decoder, so nothing in them can unpack to anything.

What is not here: the formats (png.py, jpeg.py, containers.py), and decoding (files.py).
"""

import struct
from dataclasses import dataclass

from harken.errors import UserError

MOST_BYTES = 2**26  # of a file, which is held in memory
MOST_PIXELS = 2**26  # more than a telephone's 50 million, fewer than Pillow warns of
MOST_SIDE = 2**15  # columns or rows
MOST_PARTS = 2**20  # chunks, segments or blocks: a file of empty ones would keep us busy for long

CONVERT = "convert it to PNG, for example with `magick OLD NEW.png`"
ORIENTATION = 0x0112  # a tag of Exif
SHORT = 3  # a type of Exif
EXIF_HEAD = b"Exif\0\0"  # some formats have it and some do not
BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """What the first look finds; the pixels are still packed."""

    name: str  # for sentences
    kind: str  # as Pillow calls the format
    columns: int  # as stored, before it is turned upright
    rows: int
    content: bytes  # of the file, what makes the picture
    orientation: int = 1  # as in Exif, 1 to 8; from 5 on columns are rows

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the upright picture."""
        return (self.rows, self.columns) if self.orientation > 4 else (self.columns, self.rows)


def damaged(name: str, found: str) -> UserError:
    """For a file that is not what it begins as."""
    return UserError(
        f"{name}: found {found}, wanted a whole picture", fix="copy, download or save it again"
    )


def cut_short(name: str, kind: str, content: bytes) -> UserError:
    """For a file that ends before its picture does."""
    return damaged(name, f"a {kind} file that was cut short after {len(content)} bytes")


def unwanted(name: str, found: str, wanted: str) -> UserError:
    """For a file that may be right, but is not read here."""
    return UserError(f"{name}: found {found}, wanted {wanted}", fix=CONVERT)


def check_size(name: str, columns: int, rows: int, most_pixels: int) -> None:
    """Refuse what a header promises before anything is unpacked."""
    if columns < 1 or rows < 1:
        raise damaged(name, f"a picture of {columns} x {rows} pixels")
    if max(columns, rows) > MOST_SIDE or columns * rows > most_pixels:
        raise UserError(
            f"{name}: found a picture of {columns} x {rows} pixels, "
            f"wanted at most {most_pixels} and none of its sides above {MOST_SIDE}",
            fix="if that is its true size, shrink it, "
            "for example with `magick OLD -resize 1000x1000 NEW.jpg`",
        )


def exif_orientation(exif: bytes) -> int:
    """How the picture was held, 1 to 8; upright where a block of Exif does not say."""
    exif = exif.removeprefix(EXIF_HEAD)
    order = BYTE_ORDERS.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, start)
        for place in range(start + 2, start + 2 + 12 * entries, 12):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, place)
            if (tag, kind) == (ORIENTATION, SHORT) and 1 <= value <= 8:
                return int(value)
    except struct.error:  # the block ends too early; the pixels are whole all the same
        pass
    return 1
