"""Damaged, truncated and oversized images are errors, quickly and in little memory."""

import io
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from harken.errors import UserError
from harken.formats import image_file
from harken.formats.image_file import decode_image, read_image
from small_files import peak_memory
from small_images import (
    COLUMNS,
    KINDS,
    ROWS,
    chunk,
    decoded,
    image_error,
    noise,
    packed,
    png,
    png_of,
    resaved,
    saved,
    smooth,
    unpacked_rows,
)

pytestmark = pytest.mark.filterwarnings("error")


# --- damaged files


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
        image_error(content[: len(content) // 2] + content[len(content) // 2 + 100 :])


def test_png_data_that_end_early() -> None:
    """Valid compression and checksums; some versions of Pillow return black rows."""
    rows = unpacked_rows(noise(ROWS, COLUMNS, 3), 8)
    whole = len(rows)
    for size in (0, 1, whole // 2, whole - 1):
        content = png(zlib.compress(rows[:size]), COLUMNS, ROWS)
        assert f"truncated PNG data, {size:,} of {whole:,} bytes" in image_error(content).message
    image_error(png(zlib.compress(rows)[:-900], COLUMNS, ROWS))
    assert "cannot be decompressed" in image_error(png(rows, COLUMNS, ROWS)).message
    assert decoded(png(zlib.compress(rows), COLUMNS, ROWS)).shape == (ROWS, COLUMNS, 3)


def test_bytes_after_the_data_cost_no_time() -> None:
    """zlib would collect them: a little more at each call, and all of them copied each time."""
    rows = unpacked_rows(noise(ROWS, COLUMNS, 3), 8)
    start = time.process_time()
    image_error(png(zlib.compress(rows[:-1]) + bytes(2**25), COLUMNS, ROWS))
    assert time.process_time() - start < 1


def test_every_changed_byte_of_a_png_is_an_error() -> None:
    content = packed(noise(ROWS, COLUMNS, 3), "PNG")
    for index in range(len(content) - 12):
        image_error(content[:index] + bytes([content[index] ^ 0x10]) + content[index + 1 :])


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_after_the_image_are_ignored(kind: str) -> None:
    content = packed(noise(ROWS, COLUMNS, 3), kind)
    np.testing.assert_array_equal(decoded(content + b"a video"), decoded(content))


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
    image_error(sized(kind, *size))


@pytest.mark.parametrize("side", [10_000, 60_000])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP"])
def test_small_files_with_a_large_size_in_the_header(
    kind: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = sized(kind, side, side)
    assert len(content) < 5_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    error = image_error(content)
    assert "the image is too large (expected at most 67,108,864 pixels" in error.message
    assert "shrink it" in error.fix


def test_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(noise(7, 11), "PNG")
    with monkeypatch.context() as patch:
        patch.setattr(image_file, "MAX_PIXELS", 77)
        assert decoded(content).shape == (7, 11, 3)
        patch.setattr(image_file, "MAX_PIXELS", 76)
        assert "at most 76 pixels" in image_error(content).message
    long = packed(np.zeros((1, image_file.MAX_SIDE), np.uint8), "PNG")
    assert decoded(long, channels=1).shape == (1, image_file.MAX_SIDE, 1)
    longer = packed(np.zeros((1, image_file.MAX_SIDE + 1), np.uint8), "PNG")
    assert "sides of 32,768" in image_error(longer).message
    monkeypatch.setattr(image_file, "MAX_BYTES", len(content))
    read_image(saved(tmp_path, content), channels=1)
    monkeypatch.setattr(image_file, "MAX_BYTES", len(content) - 1)
    with pytest.raises(UserError, match=f"expected an image of at most {len(content) - 1:,}"):
        read_image(saved(tmp_path, content), channels=1)


def with_parts(part: str, count: int) -> bytes:
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
    whole = decoded(with_parts(part, 0))
    np.testing.assert_array_equal(decoded(with_parts(part, 30)), whole)
    assert "expected at most 50 parts" in image_error(with_parts(part, 60)).message


def test_scans_are_limited() -> None:
    """Each takes as long as the image is large, however small the scan is."""
    content = packed(noise(ROWS, COLUMNS, 3), "JPEG", progressive=True)
    again = content[content.rindex(b"\xff\xda") : -2]
    scans, limit = content.count(b"\xff\xda"), image_file.MAX_SCANS
    most = content[:-2] + again * (limit - scans) + content[-2:]
    video = np.random.default_rng(1).bytes(50) + again * 200  # appended, as phones do
    assert decoded(most + video).shape == (ROWS, COLUMNS, 3)
    error = image_error(content[:-2] + again * (limit + 1 - scans) + content[-2:])
    assert "expected at most 100 scans" in error.message


def zeros(megabytes: int, before: bytes = b"") -> bytes:
    """A zlib stream of that many million zeros; packed once, as blocks may be repeated."""
    packer = zlib.compressobj(9)
    start = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(10**6)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.adler32(before)
    upper = ((checksum >> 16) + (checksum & 0xFFFF) * megabytes * 10**6) % 65521
    end = b"\3\0" + struct.pack(">HH", upper, checksum & 0xFFFF)
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

    def read_or_refuse() -> None:
        with suppress(UserError):
            np.testing.assert_array_equal(decoded(content), noise(ROWS, COLUMNS, 3))

    assert peak_memory(read_or_refuse) < 2**23


def test_exif_with_large_tags_takes_no_memory() -> None:
    """5,000 tags that each say to be the same 60 kB; the orientation is the last."""
    entries = [(0x9000 + number, 7, 60_000, 8) for number in range(4_900)]
    tags = b"".join(struct.pack(">HHII", *entry) for entry in entries)
    tags += struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(entries) + 1) + tags
    content = packed(smooth(), "JPEG", exif=exif)
    assert decoded(content).shape == (COLUMNS, ROWS, 3)
    assert peak_memory(decoded, content) < 2**20


# --- invalid files


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
    error = image_error(content)
    assert message in error.message
    assert ("magick" in error.fix) == ("damaged" not in message and "empty" not in message)


def test_run_lengths_of_bmp_are_refused() -> None:
    content = b"BM" + struct.pack("<IHHI", 1090, 0, 0, 54 + 1024)
    content += struct.pack("<IiiHHIIiiII", 40, 5, 3, 1, 8, 1, 12, 0, 0, 256, 0) + bytes(1024)
    content += b"\5\1\0\0" * 2 + b"\5\1\0\1"
    assert Image.open(io.BytesIO(content)).size == (5, 3)
    assert "BMP with run-length encoding" in image_error(content).message


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
