"""PNG files: the chunks that make the picture, with their checksums right, written anew.

    IHDR PLTE tRNS IDAT… IEND    and eXIf, for the orientation

The stream in IDAT must unpack to all rows, and is counted no further than that:

    sum over passes of    rows * (1 + ceil(columns * bits / 8))

Pillow alone would fill the missing rows of a stream that ends early with black, and say nothing. Of
an animation (APNG) remains what programs show that know of none, which is mostly its first frame.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from harken.formats.images.source import (
    MOST_PARTS,
    Picture,
    check_size,
    cut_short,
    damaged,
    exif_orientation,
)

MAGIC = b"\x89PNG\r\n\x1a\n"
READ = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"eXIf")
GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, COLOUR: 3, PALETTE: 1, GREY_ALPHA: 2, COLOUR_ALPHA: 4}
DEPTHS = {GREY: (1, 2, 4, 8, 16), PALETTE: (1, 2, 4, 8)}  # of the others: 8 or 16
# Of an interlaced picture: the first column and row of each pass, and the steps from there.
PASSES = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
HEADER = struct.Struct(">IIBBBBB")
PIECE = 2**12  # bytes, which unpack to four MiB at most


class _Header(NamedTuple):
    """The fields of IHDR."""

    columns: int
    rows: int
    depth: int  # bits of a channel
    colour: int
    packing: int
    filtering: int
    interlaced: int


def look_at_png(content: bytes, name: str, most_pixels: int) -> Picture:
    """The picture in a file that begins with `MAGIC`."""
    chunks: dict[bytes, list[memoryview]] = {kind: [] for kind in READ}
    for kind, data in _chunks(content, name):
        chunks[kind].append(data)
    header = _header(chunks[b"IHDR"], name)
    if header.colour == PALETTE and not chunks[b"PLTE"]:
        raise damaged(name, "a PNG file that has lost its palette")
    check_size(name, header.columns, header.rows, most_pixels)
    packed = b"".join(chunks[b"IDAT"])
    _require_all_rows(packed, header, name)
    parts = [MAGIC, *_written(b"IHDR", *chunks[b"IHDR"])]
    for palette in chunks[b"PLTE"][:1]:
        parts += _written(b"PLTE", palette)
    for transparent in chunks[b"tRNS"][:1]:
        parts += _written(b"tRNS", _as_pillow_compares(bytes(transparent), header))
    return Picture(
        name=name,
        kind="PNG",
        columns=header.columns,
        rows=header.rows,
        content=b"".join([*parts, *_written(b"IDAT", packed), *_written(b"IEND", b"")]),
        orientation=exif_orientation(b"".join(chunks[b"eXIf"][:1])),
    )


def _written(kind: bytes, data: bytes | memoryview) -> list[bytes | memoryview]:
    """A chunk: its length and kind, its data, its checksum."""
    return [
        struct.pack(">I4s", len(data), kind),
        data,
        struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))),
    ]


def _chunks(content: bytes, name: str) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks that are read, up to the end of the picture; what follows it is nobody's."""
    place, view = len(MAGIC), memoryview(content)
    for _ in range(MOST_PARTS):
        length, kind = struct.unpack(">I4s", content[place : place + 8].ljust(8, b"\0"))
        data, after = view[place + 8 : place + 8 + length], place + 12 + length
        if after > len(content):
            raise cut_short(name, "PNG", content)
        if kind == b"IEND":
            return
        if kind in READ:
            if zlib.crc32(data, zlib.crc32(kind)) != int.from_bytes(view[after - 4 : after], "big"):
                raise damaged(name, f"a wrong checksum in {kind.decode()} at byte {place}")
            yield kind, data
        place = after
    raise damaged(name, f"a PNG file of more than {MOST_PARTS} chunks")


def _header(chunks: list[memoryview], name: str) -> _Header:
    if [len(data) for data in chunks] != [HEADER.size]:
        raise damaged(name, "a PNG file without its one header")
    header = _Header(*HEADER.unpack(chunks[0]))
    known = header.colour in CHANNELS and header.depth in DEPTHS.get(header.colour, (8, 16))
    if not known or header.packing or header.filtering or header.interlaced > 1:
        raise damaged(name, f"a PNG header that ends in {chunks[0][8:].hex(' ')}")
    return header


def _require_all_rows(packed: bytes, header: _Header, name: str) -> None:
    bits = header.depth * CHANNELS[header.colour]
    wanted = 0
    for left, top, across, down in PASSES if header.interlaced else ((0, 0, 1, 1),):
        columns = len(range(left, header.columns, across))
        rows = len(range(top, header.rows, down))
        wanted += rows * (1 + (columns * bits + 7) // 8) if columns else 0
    unpacker, there = zlib.decompressobj(), 0
    try:
        for place in range(0, len(packed), PIECE):
            there += len(unpacker.decompress(packed[place : place + PIECE]))
            if there >= wanted or unpacker.eof:  # what follows the end would be piled up
                break
    except zlib.error as error:
        raise damaged(name, f"pixels that cannot be unpacked ({error})") from error
    if there < wanted:
        raise damaged(name, f"a PNG file that was cut short: {there} of {wanted} bytes of pixels")


def _as_pillow_compares(key: bytes, header: _Header) -> bytes:
    """The transparent colour, in bits of the file, on the scale on which Pillow looks for it."""
    if header.colour == GREY and header.depth in (2, 4):
        return struct.pack(">H", key[-1] * 255 // (2**header.depth - 1)) if key else key
    if header.colour == COLOUR and header.depth == 16:
        return b"".join(bytes([0, high]) for high in key[::2])
    return key
