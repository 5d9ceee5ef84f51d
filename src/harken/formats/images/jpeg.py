"""JPEG files: the segments that make the picture, and the packed pixels behind each scan's head.

    SOI  APP0 (JFIF)  APP14 (Adobe)  DQT  DHT  DRI  SOF  (SOS pixels)…  EOI

and APP1, for the orientation. Comments, thumbnails, profiles, further pictures (MPO) and the films
that telephones append are left out. A file without EOI was cut short.

A progressive picture is drawn over as often as it has scans, and a scan of ten bytes may go over
all of it: their number is limited, as the size of the file does not limit the time.

JPEG has no checksums, and no lengths of its scans: what was changed or lost within packed pixels
cannot be told from an odd picture.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from harken.formats.images.source import (
    MOST_PARTS,
    Picture,
    check_size,
    cut_short,
    damaged,
    exif_orientation,
    unwanted,
)

MAGIC = b"\xff\xd8\xff"
MOST_SCANS = 100  # programs write ten; so many over 16 million pixels take 1.5 s
# Within packed pixels 0xff stands before zero and before the eight marks of a restart.
MARK = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
END, SCAN, EXIF = 0xD9, 0xDA, 0xE1
FRAMES = {0xC0, 0xC1, 0xC2}  # baseline, extended and progressive, all of Huffman's codes
OTHER_FRAMES = {0xC3, *range(0xC5, 0xD0), 0xDE} - {0xCC}  # arithmetic, lossless, hierarchical
# JFIF and Adobe, which say what the channels mean; codes, quantisation, the distance of restarts.
KEPT = {0xE0, 0xEE, 0xC4, 0xDB, 0xDD, SCAN} | FRAMES
LEFT_OUT = {*range(0xE0, 0xF0), 0xCC, 0xDC, 0xFE} - KEPT


class _Segment(NamedTuple):
    mark: int
    data: bytes  # behind its two bytes of length
    pixels: memoryview  # behind a scan's head; empty for others


def look_at_jpeg(content: bytes, name: str, most_pixels: int) -> Picture:
    """The picture in a file that begins with `MAGIC`."""
    parts: list[bytes | memoryview] = [content[:2]]
    columns, rows, scans, orientation = 0, 0, 0, 1
    for mark, data, pixels in _segments(content, name):
        if mark in OTHER_FRAMES:
            raise unwanted(name, f"JPEG of kind 0x{mark:02x}", "baseline or progressive JPEG")
        if mark not in KEPT and mark not in LEFT_OUT:
            raise damaged(name, f"an unknown mark 0x{mark:02x} of JPEG")
        if mark in FRAMES:
            if columns or len(data) < 6:
                raise damaged(name, "a JPEG file without its one header")
            bits, rows, columns = struct.unpack_from(">BHH", data)
            if bits != 8:
                raise unwanted(name, f"JPEG of {bits} bits", "JPEG of 8 bits")
            check_size(name, columns, rows, most_pixels)
        elif mark == EXIF and orientation == 1:  # other things use this mark too
            orientation = exif_orientation(data)
        elif mark == SCAN:
            scans += 1
        if mark in KEPT:
            parts += [struct.pack(">BBH", 0xFF, mark, len(data) + 2), data, pixels]
    if not columns or not scans:
        raise damaged(name, "a JPEG file without a picture")
    if scans > MOST_SCANS:
        raise unwanted(name, f"JPEG of {scans} scans", f"at most {MOST_SCANS}")
    return Picture(
        name=name,
        kind="JPEG",
        columns=columns,
        rows=rows,
        content=b"".join([*parts, bytes([0xFF, END])]),
        orientation=orientation,
    )


def _segments(content: bytes, name: str) -> Iterator[_Segment]:
    """The segments up to the end of the picture; stray bytes between them are passed over."""
    place, view = 2, memoryview(content)
    for _ in range(MOST_PARTS):
        mark = _next_mark(content, place, name)
        if mark[1][0] == END:
            return
        length = int.from_bytes(view[mark.end() : mark.end() + 2], "big")
        place = mark.end() + max(length, 2)
        if place > len(content):
            raise cut_short(name, "JPEG", content)
        data, pixels = content[mark.end() + 2 : place], view[:0]
        if mark[1][0] == SCAN:
            after = _next_mark(content, place, name).start()
            place, pixels = after, view[place:after]
        yield _Segment(mark[1][0], data, pixels)
    raise damaged(name, f"a JPEG file of more than {MOST_PARTS} segments")


def _next_mark(content: bytes, place: int, name: str) -> re.Match[bytes]:
    mark = MARK.search(content, place)
    if mark is None:
        raise cut_short(name, "JPEG", content)
    return mark
