"""Images against numpy arrays that Pillow's encoders, or zlib and struct by hand, wrote."""

import io
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps

from harken.errors import UserError
from harken.formats import image_file
from harken.formats.image_file import decode_image, exif_orientation, image_size, read_image

pytestmark = pytest.mark.filterwarnings("error")

KINDS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
LOSSLESS = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True}}
ROWS, COLUMNS = 23, 31
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by PNG's types of color
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)]
ADAM7 += [(0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def noise(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(rows: int = ROWS, columns: int = COLUMNS) -> np.ndarray:
    """Each corner of another color, so that JPEG keeps it nearly as it is."""
    down, across = np.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
    return (255 * np.stack([down, across, (1 - down) * across], -1)).astype(np.uint8)


def packed(pixels: np.ndarray | Image.Image, kind: str, **options: object) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resaved(kind: str, mark: bytes, distance: int, value: bytes) -> bytes:
    """A good file in which a field was overwritten."""
    content = packed(smooth(), kind)
    place = content.index(mark) + distance
    return content[:place] + value + content[place + len(value) :]


def saved(folder: Path, content: bytes, name: str = "picture.png") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def decoded(content: bytes, channels: int = 3, **options: object) -> np.ndarray:
    pixels = decode_image(content, "it.png", channels=channels, **options)
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == channels
    return pixels


def complaint(content: bytes, **options: int) -> UserError:
    with pytest.raises(UserError) as caught:
        decode_image(content, "it.png", **{"channels": 3, **options})
    assert caught.value.message.startswith("it.png: ") and "expected" in caught.value.message
    assert "\n" not in str(caught.value) and caught.value.fix
    return caught.value


# --- PNG by hand


def chunk(kind: bytes, data: bytes) -> bytes:
    sum_ = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)


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
    """Rows without a filter, of values Y X K that may have 16 bits."""
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


# --- what is read


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), (ROWS, COLUMNS, 3), (1, 1, 3), (1, 97, 3)])
def test_pixels_come_back(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    pixels = noise(*shape)
    # The suffix of another format: only the content counts.
    path = saved(tmp_path, packed(pixels, kind, **LOSSLESS[kind]), "picture.jpg")
    expected = pixels if pixels.ndim == 3 else np.stack([pixels] * 3, -1)
    np.testing.assert_array_equal(read_image(path, channels=3), expected)
    assert image_size(path) == (shape[1], shape[0])
    assert read_image(path, channels=3).flags.writeable


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("JPEG", {"subsampling": 0}), ("WEBP", {})],
)
def test_pixels_of_lossy_formats_as_pillow_alone_decodes_them(kind: str, options: dict) -> None:
    content = packed(noise(ROWS, COLUMNS, 3), kind, **options)
    theirs = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    np.testing.assert_array_equal(decoded(content), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_gray_pictures(kind: str) -> None:
    gray = smooth()[..., 0]
    ours = decoded(packed(gray, kind, **LOSSLESS.get(kind, {})), channels=1)[..., 0]
    np.testing.assert_allclose(ours.astype(int), gray, atol=2 if kind == "JPEG" else 0)


def test_gray_of_colors_by_their_luma() -> None:
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
def test_every_kind_of_png(color: int, depth: int, interlaced: int) -> None:
    """All bits count, and of 16 the upper 8: clipping would make nearly everything white."""
    channels = CHANNELS[color]
    chance = np.random.default_rng(5)
    values = chance.integers(0, 2**depth, (ROWS, COLUMNS, channels))
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
def test_interlaced_pictures_of_any_size(columns: int, rows: int, depth: int) -> None:
    """And one byte less of them is one too few."""
    values = np.random.default_rng(7).integers(0, 2**depth, (rows, columns, 1))
    content = png_of(values, depth, 0, interlaced=1)
    shown = values * 255 // (2**depth - 1)
    np.testing.assert_array_equal(decoded(content, channels=1), shown)
    stream = zlib.compress(unpacked_rows(values, depth, interlaced=True)[:-1])
    short = png(stream, columns, rows, depth=depth, color=0, interlaced=1)
    assert "truncated PNG data" in complaint(short).message


# --- what is transparent, on white


@pytest.mark.parametrize(
    ("color", "depth"), [*((0, depth) for depth in (1, 2, 4, 8, 16)), (2, 8), (2, 16)]
)
def test_a_transparent_color(color: int, depth: int) -> None:
    channels = CHANNELS[color]
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
    places = np.random.default_rng(5).integers(0, 5, (ROWS, COLUMNS)).astype(np.uint8)
    palette = noise(5, 3)
    image = Image.fromarray(places)
    image.putpalette(palette.tobytes())
    shown = palette.copy()
    np.testing.assert_array_equal(decoded(packed(image, "GIF")), shown[places])
    shown[3] = 255
    np.testing.assert_array_equal(decoded(packed(image, "GIF", transparency=3)), shown[places])


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "LA"), ("PNG", "RGBA"), ("WEBP", "RGBA")])
def test_half_transparent_pixels(kind: str, mode: str) -> None:
    colors = noise(ROWS, COLUMNS, len(mode))
    alpha = colors[..., -1:] / 255
    shown = colors[..., :-1] * alpha + 255 * (1 - alpha)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    ours = decoded(packed(colors, kind, **options)).astype(float)
    np.testing.assert_allclose(ours, np.broadcast_to(shown, ours.shape), rtol=0, atol=1.01)


# --- CMYK


INKS = np.array([[0, 0, 0, 0], [255, 0, 0, 0], [0, 255, 0, 0], [0, 0, 255, 0], [0, 0, 0, 255]])


def inked(inverted: bool) -> tuple[bytes, np.ndarray]:
    """Stripes of ink, and the colors that they are; Pillow writes Adobe's kind."""
    inks = np.concatenate([INKS, [[51, 102, 153, 34], [204, 0, 102, 85]]]).astype(np.uint8)
    stripes = np.tile(inks.repeat(16, 0), (16, 1, 1))
    shown = 255 * (1 - stripes[..., :3] / 255) * (1 - stripes[..., 3:] / 255)
    stored = stripes if inverted else 255 - stripes
    image = Image.merge("CMYK", [Image.fromarray(ink) for ink in np.moveaxis(stored, -1, 0)])
    content = packed(image, "JPEG", quality=100, subsampling=0)
    if not inverted:
        place = content.index(b"\xff\xee\x00\x0eAdobe")
        content = content[:place] + content[place + 16 :]
    return content, shown


@pytest.mark.parametrize("inverted", [True, False], ids=["adobe", "plain"])
def test_ink_becomes_light(inverted: bool) -> None:
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


def test_the_first_of_several_photographs() -> None:
    """As cameras with two lenses write them; Pillow alone would warn of their odd list."""
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


# --- photographs that were not held upright


HELD: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: np.rot90(pixels, 1),
}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", HELD)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_orientations(tmp_path: Path, kind: str, orientation: int, order: str) -> None:
    exif = Image.Exif()
    exif.endian = order
    exif[0x010F], exif[0x0112] = "a camera", orientation
    content = packed(smooth(), kind, exif=exif, **LOSSLESS.get(kind, {}))
    stored = Image.open(io.BytesIO(content))
    upright = HELD[orientation](np.asarray(stored.convert("RGB")))
    np.testing.assert_array_equal(decoded(content), upright)
    theirs = ImageOps.exif_transpose(stored).convert("RGB")
    np.testing.assert_array_equal(decoded(content), np.asarray(theirs))
    path = saved(tmp_path, content)
    assert image_size(path) == (upright.shape[1], upright.shape[0])


@pytest.mark.parametrize(
    "exif", [b"", b"MM\0*", b"MM\0*\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff" + b"\1" * 40]
)
def test_exif_that_says_nothing(exif: bytes) -> None:
    content = packed(smooth(), "JPEG", exif=b"Exif\0\0" + exif)
    plain = packed(smooth(), "JPEG")
    np.testing.assert_array_equal(decoded(content), decoded(plain))


def test_another_block_behind_exif() -> None:
    """Metadata of Adobe has the same mark."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = packed(smooth(), "JPEG", exif=exif, xmp=b"<x:xmpmeta/>")
    assert content.index(b"Exif") < content.index(b"xmpmeta")
    assert decoded(content).shape == (COLUMNS, ROWS, 3)


@pytest.mark.parametrize(("value", "kind"), [(0, 3), (9, 3), (6, 4)])
def test_an_orientation_that_there_is_not(value: int, kind: int) -> None:
    entry = struct.pack(">HHIHH", 0x0112, kind, 1, value, 0)
    exif = b"MM\0*" + struct.pack(">IH", 8, 1) + entry + bytes(4)
    assert exif_orientation(exif) == 1
    assert exif_orientation(exif.replace(entry[:10], entry[:3] + b"\3\0\0\0\1\0\6")) == 6


# --- the damage table: a damaged file is an error, or has the pixels of the whole


@pytest.mark.parametrize(
    ("kind", "options"), [*((kind, {}) for kind in KINDS), ("JPEG", {"progressive": True})]
)
def test_damage(kind: str, options: dict) -> None:
    """Truncated anywhere, with a hole, and without its middle."""
    content = packed(noise(ROWS, COLUMNS, 3), kind, **options)
    whole = decoded(content)
    refused = 0
    for length in [*range(60), *range(60, len(content) - 9, 17), *range(-9, 0)]:
        try:
            np.testing.assert_array_equal(decoded(content[:length]), whole)
        except UserError as error:
            refused += 1
            assert str(error).startswith("it.png: ")
    # Nothing but padding and end markers may be missing.
    assert refused >= 60 + (len(content) - 69) // 17
    if kind != "JPEG":  # JPEG has neither checksums nor lengths of its data
        complaint(content[: len(content) // 2] + content[len(content) // 2 + 100 :])


def test_png_data_that_end_early() -> None:
    """Valid compression and checksums; some versions of Pillow return black rows."""
    rows = unpacked_rows(noise(ROWS, COLUMNS, 3), 8)
    whole = len(rows)
    for there in (0, 1, whole // 2, whole - 1):
        content = png(zlib.compress(rows[:there]), COLUMNS, ROWS)
        assert f"truncated PNG data, {there:,} of {whole:,} bytes" in complaint(content).message
    complaint(png(zlib.compress(rows)[:-900], COLUMNS, ROWS))
    assert "cannot be decompressed" in complaint(png(rows, COLUMNS, ROWS)).message
    assert decoded(png(zlib.compress(rows), COLUMNS, ROWS)).shape == (ROWS, COLUMNS, 3)


def test_bytes_after_the_data_cost_no_time() -> None:
    """zlib would collect them: a little more at each call, and all of them copied each time."""
    rows = unpacked_rows(noise(ROWS, COLUMNS, 3), 8)
    start = time.process_time()
    complaint(png(zlib.compress(rows[:-1]) + bytes(2**25), COLUMNS, ROWS))
    assert time.process_time() - start < 1


def test_every_changed_byte_of_a_png_is_found() -> None:
    content = packed(noise(ROWS, COLUMNS, 3), "PNG")
    for place in range(len(content) - 12):
        complaint(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_the_picture_does_not_matter(kind: str) -> None:
    content = packed(noise(ROWS, COLUMNS, 3), kind)
    np.testing.assert_array_equal(decoded(content + b"a film"), decoded(content))


# --- limits


def sized(kind: str, columns: int, rows: int) -> bytes:
    """A small file whose header claims another size."""
    match kind:
        case "PNG":
            return png(zlib.compress(b"few"), columns, rows)
        case "JPEG":
            return resaved(kind, b"\xff\xc0", 5, struct.pack(">HH", rows, columns))
        case "BMP":
            return resaved(kind, b"BM", 18, struct.pack("<ii", columns, rows))
        case "WEBP":
            return resaved(kind, b"VP8 ", 14, struct.pack("<HH", columns, rows))
    size = struct.pack("<HH", columns, rows)
    return b"GIF89a" + size + bytes(3) + b",\0\0\0\0" + size + b"\0\2\1\4\0;"


@pytest.mark.parametrize("size", [(0, 0), (0, 23), (31, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_pixels(kind: str, size: tuple[int, int]) -> None:
    complaint(sized(kind, *size))


@pytest.mark.parametrize("side", [10_000, 60_000])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP"])
def test_a_small_file_that_claims_to_be_huge(
    kind: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = sized(kind, side, side)
    assert len(content) < 5_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    error = complaint(content)
    assert "the image is too large (expected at most 67,108,864 pixels" in error.message
    assert "shrink it" in error.fix


def test_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(noise(7, 11), "PNG")
    with monkeypatch.context() as patch:
        patch.setattr(image_file, "MAX_PIXELS", 77)
        assert decoded(content).shape == (7, 11, 3)
        patch.setattr(image_file, "MAX_PIXELS", 76)
        assert "at most 76 pixels" in complaint(content).message
    long = packed(np.zeros((1, image_file.MAX_SIDE), np.uint8), "PNG")
    assert decoded(long, channels=1).shape == (1, image_file.MAX_SIDE, 1)
    longer = packed(np.zeros((1, image_file.MAX_SIDE + 1), np.uint8), "PNG")
    assert "sides of 32,768" in complaint(longer).message
    monkeypatch.setattr(image_file, "MAX_BYTES", len(content))
    read_image(saved(tmp_path, content), channels=1)
    monkeypatch.setattr(image_file, "MAX_BYTES", len(content) - 1)
    with pytest.raises(UserError, match=f"expected an image of at most {len(content) - 1:,}"):
        read_image(saved(tmp_path, content), channels=1)


def crowded(part: str, count: int) -> bytes:
    """A valid file with many unnecessary parts."""
    kind = {"chunks": "PNG", "segments": "JPEG"}.get(part, "GIF")
    content = packed(smooth(), kind)
    place = {"PNG": 33, "JPEG": 2, "GIF": 13 + 3 * 256}[kind]
    more = {
        "chunks": chunk(b"noNe", b"") * count,
        "segments": b"\xff\xfe\0\2" * count,
        "extensions": b"!\xfe\0" * count,
        "blocks": b"!\xfe" + b"\1x" * count + b"\0",
    }[part]
    return content[:place] + more + content[place:]


@pytest.mark.parametrize("part", ["chunks", "segments", "extensions", "blocks"])
def test_parts_are_limited(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow reads them one by one: 64 MiB of them take half a minute."""
    monkeypatch.setattr(image_file, "MAX_PARTS", 50)
    whole = decoded(crowded(part, 0))
    np.testing.assert_array_equal(decoded(crowded(part, 30)), whole)
    assert "expected at most 50 parts" in complaint(crowded(part, 60)).message


def test_scans_are_limited() -> None:
    """Each goes over the whole picture, however small it is in the file."""
    content = packed(noise(ROWS, COLUMNS, 3), "JPEG", progressive=True)
    again = content[content.rindex(b"\xff\xda") : -2]
    there, limit = content.count(b"\xff\xda"), image_file.MAX_SCANS
    most = content[:-2] + again * (limit - there) + content[-2:]
    film = np.random.default_rng(1).bytes(50) + again * 200  # appended, as phones do
    assert decoded(most + film).shape == (ROWS, COLUMNS, 3)
    error = complaint(content[:-2] + again * (limit + 1 - there) + content[-2:])
    assert "expected at most 100 scans" in error.message


def peak(content: bytes) -> int:
    """Bytes that Python, numpy and zlib took at once; a refusal is fine."""
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(decoded(content), noise(ROWS, COLUMNS, 3))
    except UserError:
        pass
    finally:
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return size


def zeros(megabytes: int, before: bytes = b"") -> bytes:
    """A zlib stream of that many million zeros; packed once, as blocks may be repeated."""
    packer = zlib.compressobj(9)
    start = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(10**6)) + packer.flush(zlib.Z_FULL_FLUSH)
    sum_ = zlib.adler32(before)
    upper = ((sum_ >> 16) + (sum_ & 0xFFFF) * megabytes * 10**6) % 65521
    end = b"\3\0" + struct.pack(">HH", upper, sum_ & 0xFFFF)
    return start + block * megabytes + end


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP", b"IDAT"])
def test_compressed_bombs(kind: bytes) -> None:
    """500 MB in half of one: in texts, in a color profile, and after the last row."""
    assert zlib.decompress(zeros(3, b"rows")) == b"rows" + bytes(3 * 10**6)
    head = b"words\0\1\0\0\0" if kind == b"iTXt" else b"words\0\0"
    rows = unpacked_rows(noise(ROWS, COLUMNS, 3), 8)
    content = png(zeros(500, rows), COLUMNS, ROWS)
    if kind != b"IDAT":
        bomb = chunk(kind, head + zeros(500))
        content = png(zlib.compress(rows), COLUMNS, ROWS, before=bomb)
    assert len(content) < 600_000
    assert peak(content) < 2**23


def test_exif_with_large_tags_takes_no_memory() -> None:
    """5,000 tags that each say to be the same 60 kB; the orientation is the last."""
    entries = [(0x9000 + number, 7, 60_000, 8) for number in range(4_900)]
    tags = b"".join(struct.pack(">HHII", *entry) for entry in entries)
    tags += struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(entries) + 1) + tags
    content = packed(smooth(), "JPEG", exif=exif)
    tracemalloc.start()
    assert decoded(content).shape == (COLUMNS, ROWS, 3)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


# --- files that are something else, or wrong within


GOOD = png_of(noise(3, 5, 3).astype(int), 8, 2)
HEADER = chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 3, 8, 2, 0, 0, 0))
PHOTOGRAPH = packed(smooth(), "JPEG")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty (expected PNG, JPEG, GIF, BMP or WebP)"),
        (b"hello, I am text\n", "the file starts with b'hello, I am ' (expected PNG, JPEG"),
        (b"\x89PNG\r\n\x1a\n", "damaged image (Pillow cannot decode the PNG data"),
        (b"\xff\xd8\xff", "damaged image"),
        (b"GIF89a", "damaged image"),
        (b"BM", "damaged image"),
        (b"RIFF\4\0\0\0WEBP", "damaged image"),
        (packed(smooth(), "TIFF"), "got TIFF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "got HEIC or AVIF"),
        (packed(smooth(), "ICO"), "the file starts with b'\\x00\\x00\\x01"),
        (packed(smooth(), "PPM"), "the file starts with b'P6\\n31 23"),
        (GOOD.replace(HEADER, b""), "damaged image"),
        (png(b"", 5, 3, depth=4), "damaged image"),
        (png(b"", 5, 3, color=5), "damaged image"),
        (png(b"", 5, 3, color=3), "damaged image"),
        (GOOD.replace(b"IDAT", b"IDAU"), "damaged image"),
        (GOOD[:-13] + b"\0" + GOOD[-12:], "damaged image"),
        (PHOTOGRAPH.replace(b"\xff\xc0", b"\xff\xfe"), "damaged image"),
        (PHOTOGRAPH.replace(b"\xff\xdb", b"\xff\xfe"), "damaged image"),
        (b"GIF89a\5\0\3\0\0\0\0;", "damaged image"),
        (resaved("BMP", b"BM", 28, b"\7\0"), "damaged image"),
        (resaved("WEBP", b"VP8 ", 8, b"\xff"), "damaged image"),
    ],
    ids=range(22),
)
def test_unreadable_files(content: bytes, message: str) -> None:
    error = complaint(content)
    assert message in error.message
    assert ("magick" in error.fix) == ("damaged" not in message and "empty" not in message)


def test_run_lengths_of_bmp_are_refused() -> None:
    content = b"BM" + struct.pack("<IHHI", 1090, 0, 0, 54 + 1024)
    content += struct.pack("<IiiHHIIiiII", 40, 5, 3, 1, 8, 1, 12, 0, 0, 256, 0) + bytes(1024)
    content += b"\5\1\0\0" * 2 + b"\5\1\0\1"
    assert Image.open(io.BytesIO(content)).size == (5, 3)
    assert "compressed BMP" in complaint(content).message


def test_old_and_upside_down_bitmaps() -> None:
    pixels = noise(7, 11, 3)
    content = packed(pixels, "BMP")
    turned = content[:22] + struct.pack("<i", -7) + content[26:]
    np.testing.assert_array_equal(decoded(turned), pixels[::-1])
    old = content[:10] + struct.pack("<IIHHHH", 26, 12, 11, 7, 1, 24) + content[54:]
    np.testing.assert_array_equal(decoded(old), pixels)


@pytest.mark.parametrize(
    "error",
    [
        *(OSError, SyntaxError, ValueError, struct.error, zlib.error, EOFError, OverflowError),
        *(IndexError, KeyError, TypeError, AttributeError, RuntimeError, SystemError, MemoryError),
        *(Image.DecompressionBombError, RecursionError, AssertionError, ZeroDivisionError),
    ],
)
def test_exceptions_of_pillow_become_errors(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error("why")

    monkeypatch.setattr(Image, "open", fails)
    with pytest.raises(UserError, match=r"^it.png: "):
        decode_image(GOOD, "it.png", channels=3)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_decoder_is_tried(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, opened = [], Image.open

    def open_image(file: io.BytesIO, formats: list[str]) -> Image.Image:
        calls.append(formats)
        return opened(file, "r", formats)

    monkeypatch.setattr(Image, "open", open_image)
    decoded(packed(smooth(), kind))
    assert calls == [[kind]]
