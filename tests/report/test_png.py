import base64
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from harken.report.palette import DARK, LEVELS, LIGHT, picture, scale
from harken.report.png import data_uri, png

from .parsed import parse


def decoded(file: bytes) -> NDArray[np.uint8]:
    """Colours [height, width, 3] of an unfiltered indexed PNG, by hand."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(file):
        (size,) = struct.unpack(">I", file[at : at + 4])
        kind, payload = file[at + 4 : at + 8], file[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", file[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(kind + payload), kind
        chunks[kind] = payload
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 3, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    return np.asarray(palette[rows[:, 1:]], dtype=np.uint8)


def test_pixels_come_back_in_their_places() -> None:
    palette = np.array([[0, 0, 0], [255, 128, 1], [7, 11, 13]], dtype=np.uint8)
    pixels = np.array([[0, 1, 2, 0, 1], [2, 2, 0, 1, 1], [1, 0, 0, 0, 2]], dtype=np.uint8)
    np.testing.assert_array_equal(decoded(png(pixels, palette)), palette[pixels])


def test_an_index_outside_the_palette_is_refused() -> None:
    with pytest.raises(AssertionError):
        png(np.array([[3]], dtype=np.uint8), np.zeros((3, 3), dtype=np.uint8))


@pytest.mark.parametrize(("anchors", "falls"), [(LIGHT, True), (DARK, False)])
def test_scale_meets_its_anchors_and_lightness_is_monotone(
    anchors: tuple[str, ...], falls: bool
) -> None:
    colours = scale(anchors)
    assert colours.shape == (LEVELS, 3)
    assert bytes(colours[0]).hex() == anchors[0][1:]
    assert bytes(colours[-1]).hex() == anchors[-1][1:]
    # Luminance of linear light: what a reader without one kind of cone, or a grey printer, keeps.
    share = colours / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    steps = np.diff(linear @ [0.2126, 0.7152, 0.0722])
    assert (steps < 0).all() if falls else (steps > 0).all()


def test_picture_shows_the_square_root_of_each_weight() -> None:
    weights = np.array([[0.0, 1.0, 0.25], [0.04, 0.5, 0.0]])
    found = parse(picture(weights, alt="a map"))
    levels = np.rint(np.sqrt(weights) * (LEVELS - 1)).astype(int)
    image, source = found.one("img"), found.one("source")
    assert image.attributes["alt"] == "a map"
    for uri, anchors in ((image.attributes["src"], LIGHT), (source.attributes["srcset"], DARK)):
        prefix, _, body = uri.partition(",")
        assert prefix == "data:image/png;base64"
        file = base64.b64decode(body, validate=True)
        np.testing.assert_array_equal(decoded(file), scale(anchors)[levels])
        assert data_uri(file) == uri
