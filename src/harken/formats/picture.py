"""Read picture files: rows, columns and channels of 8 bits, gray or red, green and blue.

    bytes -> format by the first bytes -> size within the limits -> decoded (Pillow) -> on white
          -> upright by Exif -> resized

PNG, JPEG, GIF, BMP and WebP are read; of an animation, the first frame. A truncated file is an
error. Reading takes at most

    24 bytes * pixels    +    4 * bytes of the file

Transparent pixels become white: most transparent drawings are dark lines. Of 16 bits the upper 8
are kept, CMYK becomes (1 - C) (1 - K), and color profiles are not applied.

`resized` makes all pictures one size:

    pad        the whole picture, as large as fits, on white
    cut        the middle of the picture, as much as fills the size
    squeeze    the whole picture, with its sides scaled by different factors

`pad` keeps what a caption may mention: `cut` removes the edges, and `squeeze` changes proportions.
"""

import io
import struct
import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageChops, UnidentifiedImageError

from harken.errors import UserError
from harken.formats.examples import Box
from harken.formats.picture_checks import (
    CONVERT,
    MAX_PIXELS,
    check_opened,
    damaged_picture,
    picture_format,
    picture_parts,
    too_large,
)
from harken.inputs import read_input

MAX_BYTES = 2**26  # of a file, which is held in memory
OTHER_FORMATS = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"%PDF": "PDF",
    b"<svg": "SVG",
    b"8BPS": "Photoshop",
}
ORIENTATION, SHORT = 0x0112, 3  # a tag and a type of Exif
BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Fit = Literal["pad", "crop", "stretch"]


def read_image(
    path: Path,
    *,
    channels: Literal[1, 3],
    size: tuple[int, int] | None = None,
    fit: Fit = "pad",
    max_pixels: int = MAX_PIXELS,
) -> UInt8[np.ndarray, "Y X K"]:
    """Read a picture file; `size` is the number of columns and rows to resize it to."""
    content = read_input(path, "a picture", max_bytes=MAX_BYTES)
    return decode_image(
        content, str(path), channels=channels, size=size, fit=fit, max_pixels=max_pixels
    )


def decode_image(
    content: bytes,
    name: str,
    *,
    channels: Literal[1, 3],
    size: tuple[int, int] | None = None,
    fit: Fit = "pad",
    max_pixels: int = MAX_PIXELS,
) -> UInt8[np.ndarray, "Y X K"]:
    """Decode the bytes of a picture file, which errors call `name`."""
    image = _decoded(content, name, "L" if channels == 1 else "RGB", max_pixels)
    try:
        if size is not None:
            image = resized(image, size, fit)
        return np.array(image).reshape(image.height, image.width, channels)
    except MemoryError as error:
        raise _no_memory(name) from error


def image_size(path: Path, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return the columns and rows of the upright picture, in which boxes are measured."""
    content = read_input(path, "a picture", max_bytes=MAX_BYTES)
    return _decoded(content, str(path), "L", max_pixels).size


def _decoded(content: bytes, name: str, mode: str, max_pixels: int) -> Image.Image:
    kind = picture_format(content)
    if kind is None:
        raise _other_format(content, name)
    parts = picture_parts(content, kind, name)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(content), formats=[kind]) as image,
        ):
            check_opened(image, parts, name, max_pixels)
            image.load()
            upright = UPRIGHT.get(exif_orientation(image.info.get("exif", b"")))
            converted = _on_white(image, content).convert(mode)
            return converted if upright is None else converted.transpose(upright)
    except UserError:
        raise
    except MemoryError as error:
        raise _no_memory(name) from error
    except Image.DecompressionBombError as error:
        raise too_large(name, "more than Pillow opens", max_pixels) from error
    except Exception as error:  # Pillow documents no exceptions for damaged data, and has many
        # The message of this one contains the address of a buffer.
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {error}"[:200]
        raise damaged_picture(name, f"Pillow cannot decode the {kind} data{reason}") from error


def _other_format(content: bytes, name: str) -> UserError:
    expected = "expected PNG, JPEG, GIF, BMP or WebP"
    if not content:
        return UserError(
            f"{name}: the file is empty ({expected})", fix="copy, download or save it again"
        )
    other = "HEIC or AVIF" if content[4:8] == b"ftyp" else OTHER_FORMATS.get(content[:4])
    if other:
        return UserError(f"{name}: unsupported format ({expected}, got {other})", fix=CONVERT)
    return UserError(
        f"{name}: the file starts with {content[:12]!r} ({expected})",
        fix=f"if it is a picture, {CONVERT}",
    )


def _no_memory(name: str) -> UserError:
    return UserError(
        f"{name}: the picture does not fit into memory", fix="shrink it, or stop other programs"
    )


def _on_white(image: Image.Image, content: bytes) -> Image.Image:
    """Return the image with 8 bits per channel and without transparency."""
    if image.mode == "I;16":
        values = np.asarray(image)
        upper = (values >> 8).astype(np.uint8)
        if "transparency" in image.info:
            upper[values == image.info["transparency"]] = 255
        return Image.fromarray(upper)
    if image.mode == "CMYK" and "adobe" not in image.info:
        return ImageChops.invert(image)  # Pillow takes all for Adobe's, which stores 1 - ink
    if not image.has_transparency_data:
        return image
    if image.format == "PNG" and "transparency" in image.info:
        _rescale_transparency(image, depth=content[24])
    ink = image.convert("RGBA")
    paper = Image.new("RGB", image.size, "white")
    paper.paste(ink, mask=ink)
    return paper


def _rescale_transparency(image: Image.Image, depth: int) -> None:
    """Give the transparent color of a PNG the 8 bits in which Pillow compares it with pixels."""
    color = image.info["transparency"]
    if image.mode == "L" and depth in (2, 4):
        image.info["transparency"] = color * 255 // (2**depth - 1)
    elif image.mode == "RGB" and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in color)


def exif_orientation(exif: bytes) -> int:
    """Return how the camera was held, 1 to 8; 1 is upright.

    `ImageOps.exif_transpose` reads every tag, and 64 KiB of Exif can have tags of 350 MB.
    """
    exif = exif.removeprefix(b"Exif\0\0")
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
    except struct.error:  # the block ends early; the pixels are complete all the same
        pass
    return 1


# --- resizing


class _Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


def resized(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """Return the picture with `size` columns and rows, by Pillow's antialiased bicubic filter."""
    source, target = _placement(image.size, size, fit)
    inner = round(target.right - target.left), round(target.bottom - target.top)
    scaled = image.resize(inner, Image.Resampling.BICUBIC, box=source)
    if inner == size:
        return scaled
    padded = Image.new(image.mode, size, "white")
    padded.paste(scaled, (round(target.left), round(target.top)))
    return padded


def resized_box(box: Box, *, original: tuple[int, int], size: tuple[int, int], fit: Fit) -> Box:
    """Return where a box of the original picture is in the resized one.

    x -> (x - source.left) * target width / source width + target.left        (y likewise)

    A box is clipped to the picture, and may have no width or height afterwards.
    """
    source, target = _placement(original, size, fit)
    left, right = (
        _moved(x, source.left, source.right, target.left, target.right)
        for x in (box.x, box.x + box.width)
    )
    top, bottom = (
        _moved(y, source.top, source.bottom, target.top, target.bottom)
        for y in (box.y, box.y + box.height)
    )
    return Box(left, top, right - left, bottom - top)


def _moved(place: float, start: float, end: float, new_start: float, new_end: float) -> float:
    moved = (place - start) * (new_end - new_start) / (end - start) + new_start
    return min(max(moved, new_start), new_end)


def _placement(
    original: tuple[int, int], size: tuple[int, int], fit: Fit
) -> tuple[_Rectangle, _Rectangle]:
    """Return the visible part of the original, and its place in the resized picture."""
    (columns, rows), (width, height) = original, size
    source, target = _Rectangle(0, 0, columns, rows), _Rectangle(0, 0, width, height)
    across, down = width / columns, height / rows
    if fit == "pad":
        scaled = [max(1, round(side * min(across, down))) for side in original]
        left, top = (width - scaled[0]) // 2, (height - scaled[1]) // 2
        target = _Rectangle(left, top, left + scaled[0], top + scaled[1])
    elif fit == "crop":
        visible = [side / max(across, down) for side in size]
        aside, above = max(0.0, columns - visible[0]) / 2, max(0.0, rows - visible[1]) / 2
        source = _Rectangle(aside, above, columns - aside, rows - above)
    return source, target
