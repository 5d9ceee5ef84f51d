"""Decoded images against Pillow and against arrays written by hand."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from harken.formats.image_file import PNG_CHANNELS, exif_orientation, image_size, read_image
from small_images import (
    COLUMNS,
    KINDS,
    LOSSLESS,
    ROWS,
    chunk,
    decoded,
    image_error,
    noise,
    packed,
    png,
    png_of,
    saved,
    smooth,
    unpacked_rows,
)

pytestmark = pytest.mark.filterwarnings("error")


# --- formats


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), (ROWS, COLUMNS, 3), (1, 1, 3), (1, 97, 3)])
def test_lossless_formats(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    pixels = noise(*shape)
    # The suffix of another format: only the content counts.
    path = saved(tmp_path, packed(pixels, kind, **LOSSLESS[kind]), name="image.jpg")
    expected = pixels if pixels.ndim == 3 else np.stack([pixels] * 3, -1)
    np.testing.assert_array_equal(read_image(path, channels=3), expected)
    assert image_size(path) == (shape[1], shape[0])
    assert read_image(path, channels=3).flags.writeable


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("JPEG", {"subsampling": 0}), ("WEBP", {})],
)
def test_lossy_formats_equal_pillow(kind: str, options: dict) -> None:
    content = packed(noise(ROWS, COLUMNS, 3), kind, **options)
    theirs = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    np.testing.assert_array_equal(decoded(content), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_gray_images(kind: str) -> None:
    gray = smooth()[..., 0]
    ours = decoded(packed(gray, kind, **LOSSLESS.get(kind, {})), channels=1)[..., 0]
    np.testing.assert_allclose(ours.astype(int), gray, atol=2 if kind == "JPEG" else 0)


def test_gray_is_the_luma_of_colors() -> None:
    pixels = noise(ROWS, COLUMNS, 3)
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(decoded(packed(pixels, "PNG"), channels=1)[..., 0], luma, atol=0.51)


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize(
    ("color", "depth"),
    [
        *((0, depth) for depth in (1, 2, 4, 8, 16)),
        *((color, depth) for color in (2, 4, 6) for depth in (8, 16)),
    ],
)
def test_png_color_types_and_depths(color: int, depth: int, interlaced: int) -> None:
    """All bits count, and of 16 the upper 8: clipping would make nearly everything white."""
    channels = PNG_CHANNELS[color]
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**depth, (ROWS, COLUMNS, channels))
    shown = values >> 8 if depth == 16 else values * 255 // (2**depth - 1)
    if channels in (2, 4):
        alpha = shown[..., -1:] / 255
        shown = shown[..., :-1] * alpha + 255 * (1 - alpha)
    content = png_of(values, depth, color, interlaced=interlaced)
    ours = decoded(content).astype(float)
    np.testing.assert_allclose(ours, np.broadcast_to(shown, ours.shape), rtol=0, atol=0.51)
    if shown.shape[2] == 1:
        ours = decoded(content, channels=1).astype(float)
        np.testing.assert_allclose(ours, shown, rtol=0, atol=0.51)


@settings(max_examples=40)
@given(columns=st.integers(1, 19), rows=st.integers(1, 19), depth=st.sampled_from([1, 4, 8]))
def test_interlaced_images_of_any_size(columns: int, rows: int, depth: int) -> None:
    values = np.random.default_rng(7).integers(0, 2**depth, (rows, columns, 1))
    content = png_of(values, depth, 0, interlaced=1)
    shown = values * 255 // (2**depth - 1)
    np.testing.assert_array_equal(decoded(content, channels=1), shown)
    stream = zlib.compress(unpacked_rows(values, depth, interlaced=True)[:-1])
    short = png(stream, columns, rows, depth=depth, color=0, interlaced=1)
    assert "truncated PNG data" in image_error(short).message


# --- transparency


@pytest.mark.parametrize(
    ("color", "depth"), [*((0, depth) for depth in (1, 2, 4, 8, 16)), (2, 8), (2, 16)]
)
def test_a_transparent_color(color: int, depth: int) -> None:
    channels = PNG_CHANNELS[color]
    # Of 16 bits the upper 8 and the lower are to differ, or it would not matter which count.
    step = 0x2507 if depth == 16 else 1
    values = np.random.default_rng(5).integers(0, min(2**depth, 4), (7, 11, channels)) * step
    key = values[3, 5]
    content = png_of(
        values, depth, color, before=chunk(b"tRNS", struct.pack(f">{channels}H", *key))
    )
    shown = values >> 8 if depth == 16 else values * 255 // (2**depth - 1)
    shown = np.where((values == key).all(-1, keepdims=True), 255, shown)
    assert (shown != 255).any()
    ours = decoded(content)
    np.testing.assert_array_equal(ours, np.broadcast_to(shown, ours.shape))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("alphas", [b"", b"\xff\0", b"\x80\x40"])
def test_palettes(depth: int, alphas: bytes) -> None:
    palette = noise(2**depth, 3)
    values = np.random.default_rng(5).integers(0, 2**depth, (7, 11, 1))
    before = chunk(b"PLTE", palette.tobytes()) + (chunk(b"tRNS", alphas) if alphas else b"")
    opacity = np.full((2**depth, 1), 1.0)
    opacity[: len(alphas), 0] = np.frombuffer(alphas, np.uint8) / 255
    shown = (palette * opacity + 255 * (1 - opacity))[values[..., 0]]
    ours = decoded(png_of(values, depth, 3, before=before)).astype(float)
    np.testing.assert_allclose(ours, shown, rtol=0, atol=0.51)


def test_a_gif_with_a_transparent_color() -> None:
    indices = np.random.default_rng(5).integers(0, 5, (ROWS, COLUMNS)).astype(np.uint8)
    palette = noise(5, 3)
    image = Image.fromarray(indices)
    image.putpalette(palette.tobytes())
    np.testing.assert_array_equal(decoded(packed(image, "GIF")), palette[indices])
    palette[3] = 255
    np.testing.assert_array_equal(decoded(packed(image, "GIF", transparency=3)), palette[indices])


def test_half_transparent_pixels_of_webp() -> None:
    colors = noise(ROWS, COLUMNS, 4)
    alpha = colors[..., -1:] / 255
    shown = colors[..., :-1] * alpha + 255 * (1 - alpha)
    ours = decoded(packed(colors, "WEBP", lossless=True, exact=True)).astype(float)
    np.testing.assert_allclose(ours, shown, rtol=0, atol=1.01)


# --- CMYK


INKS = np.array([[0, 0, 0, 0], [255, 0, 0, 0], [0, 255, 0, 0], [0, 0, 255, 0], [0, 0, 0, 255]])


def inked(inverted: bool) -> tuple[bytes, np.ndarray]:
    """Return stripes of ink and their colors; Pillow writes Adobe's convention."""
    inks = np.concatenate([INKS, [[51, 102, 153, 34], [204, 0, 102, 85]]]).astype(np.uint8)
    stripes = np.tile(inks.repeat(16, 0), (16, 1, 1))
    shown = 255 * (1 - stripes[..., :3] / 255) * (1 - stripes[..., 3:] / 255)
    stored = stripes if inverted else 255 - stripes
    image = Image.merge("CMYK", [Image.fromarray(ink) for ink in np.moveaxis(stored, -1, 0)])
    content = packed(image, "JPEG", quality=100, subsampling=0)
    if not inverted:
        start = content.index(b"\xff\xee\x00\x0eAdobe")
        content = content[:start] + content[start + 16 :]
    return content, shown


@pytest.mark.parametrize("inverted", [True, False], ids=["adobe", "plain"])
def test_cmyk(inverted: bool) -> None:
    content, shown = inked(inverted)
    np.testing.assert_allclose(decoded(content).astype(float), shown, rtol=0, atol=4)
    gray = shown @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(decoded(content, channels=1)[..., 0], gray, rtol=0, atol=4)


# --- animations


FRAMES = [Image.new("RGB", (31, 23), color) for color in ("red", "lime", "blue")]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    content = packed(FRAMES[0], kind, save_all=True, append_images=FRAMES[1:], **options)
    assert Image.open(io.BytesIO(content)).n_frames == 3
    np.testing.assert_array_equal(decoded(content), np.full((23, 31, 3), (255, 0, 0)))


def test_the_first_image_of_an_mpo_file() -> None:
    """As cameras with two lenses write; Pillow alone warns about their list of images."""
    red, lime, _ = (packed(frame, "JPEG") for frame in FRAMES)
    content = red[:2] + b"\xff\xe2\0\x0aMPF\0none" + red[2:] + lime
    with pytest.warns(UserWarning, match="malformed MPO"):
        Image.open(io.BytesIO(content))
    np.testing.assert_array_equal(decoded(content), decoded(red))


def test_a_frame_beyond_the_screen() -> None:
    """As Pillow and browsers do it, the screen grows."""
    content = bytearray(packed(noise(7, 11), "GIF"))
    whole = decoded(bytes(content))
    content[6:10] = struct.pack("<HH", 5, 3)
    np.testing.assert_array_equal(decoded(bytes(content)), whole)


# --- Exif


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_orientations_equal_pillow(tmp_path: Path, kind: str, orientation: int, order: str) -> None:
    exif = Image.Exif()
    exif.endian = order
    exif[0x010F], exif[0x0112] = "a camera", orientation
    content = packed(smooth(), kind, exif=exif, **LOSSLESS.get(kind, {}))
    theirs = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    np.testing.assert_array_equal(decoded(content), np.asarray(theirs))
    assert image_size(saved(tmp_path, content)) == theirs.size


@pytest.mark.parametrize(
    "exif", [b"", b"MM\0*", b"MM\0*\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff" + b"\1" * 40]
)
def test_exif_without_an_orientation(exif: bytes) -> None:
    content = packed(smooth(), "JPEG", exif=b"Exif\0\0" + exif)
    plain = packed(smooth(), "JPEG")
    np.testing.assert_array_equal(decoded(content), decoded(plain))


def test_exif_before_xmp() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = packed(smooth(), "JPEG", exif=exif, xmp=b"<x:xmpmeta/>")
    assert content.index(b"Exif") < content.index(b"xmpmeta")
    assert decoded(content).shape == (COLUMNS, ROWS, 3)


@pytest.mark.parametrize(("value", "kind"), [(0, 3), (9, 3), (6, 4)])
def test_invalid_orientations(value: int, kind: int) -> None:
    entry = struct.pack(">HHIHH", 0x0112, kind, 1, value, 0)
    exif = b"MM\0*" + struct.pack(">IH", 8, 1) + entry + bytes(4)
    assert exif_orientation(exif) == 1
    assert exif_orientation(exif.replace(entry[:10], entry[:3] + b"\3\0\0\0\1\0\6")) == 6
