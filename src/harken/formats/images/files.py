"""Picture files -> pixels: rows, columns and channels of 8 bits, grey or red, green and blue.

    bytes -> which format they begin as -> the size, compared with the limits -> decoded (Pillow)
          -> 8 bits on white -> upright -> of the size that is asked for

Nothing is believed that has not been looked at. The format is known by the first bytes, never by
the suffix, and is one of PNG, JPEG, GIF, BMP and WebP; of what else Pillow can open nothing is
tried. Half a picture is an error. What a header promises is compared with the limits in source.py
before anything is decoded, so that reading takes at most

    24 bytes * pixels    +    4 * bytes of the file

What is transparent shows white, as on the paper that such drawings are made for: most are dark
lines, which would be lost on black. Of 16 bits the upper 8 are kept, CMYK becomes colour by
(1 - C) (1 - K), and photographs are turned upright by what their Exif says of the camera. Colour
profiles are not applied. Of animations the first frame is taken.

What is not here: arrays of ready pictures, numbers between 0 and 1 (encode/), and captions.
"""

import io
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageChops, UnidentifiedImageError

from harken.errors import UserError
from harken.formats.images import containers, jpeg, png
from harken.formats.images.resize import Fit, resized
from harken.formats.images.source import CONVERT, MOST_BYTES, MOST_PIXELS, Picture, damaged
from harken.inputs import read_input

# What is known and not read, by the beginning.
OTHERS = {b"II*\0": "TIFF", b"MM\0*": "TIFF", b"%PDF": "PDF", b"<svg": "SVG", b"8BPS": "Photoshop"}
# By the orientation of Exif.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_image(
    path: Path,
    *,
    channels: Literal[1, 3],
    size: tuple[int, int] | None = None,
    fit: Fit = "pad",
    most_pixels: int = MOST_PIXELS,
) -> UInt8[np.ndarray, "Y X K"]:
    """The picture in a file, with the columns and rows of `size` where they are given."""
    return decode_image(
        _content(path), str(path), channels=channels, size=size, fit=fit, most_pixels=most_pixels
    )


def decode_image(
    content: bytes,
    name: str,
    *,
    channels: Literal[1, 3],
    size: tuple[int, int] | None = None,
    fit: Fit = "pad",
    most_pixels: int = MOST_PIXELS,
) -> UInt8[np.ndarray, "Y X K"]:
    """The same for the bytes of a file, which sentences call by the name."""
    picture = _look(content, name, most_pixels)
    try:
        image = _decoded(picture, "L" if channels == 1 else "RGB")
        if picture.orientation in UPRIGHT:
            image = image.transpose(UPRIGHT[picture.orientation])
        if size is not None:
            image = resized(image, size, fit)
        return np.array(image).reshape(image.height, image.width, channels)
    except MemoryError as error:
        raise UserError(
            f"{name}: found a picture of {picture.columns} x {picture.rows} pixels, "
            "wanted one that fits into memory",
            fix="shrink it, or end other programs",
        ) from error


def image_size(path: Path, *, most_pixels: int = MOST_PIXELS) -> tuple[int, int]:
    """Columns and rows of the upright picture; boxes are places in that."""
    return _look(_content(path), str(path), most_pixels).size


def _content(path: Path) -> bytes:
    return read_input(path, "a picture", max_bytes=MOST_BYTES)


def _look(content: bytes, name: str, most_pixels: int) -> Picture:
    if content.startswith(png.MAGIC):
        return png.look_at_png(content, name, most_pixels)
    if content.startswith(jpeg.MAGIC):
        return jpeg.look_at_jpeg(content, name, most_pixels)
    if content.startswith(containers.GIF_MAGICS):
        return containers.look_at_gif(content, name, most_pixels)
    if content.startswith(containers.BMP_MAGIC):
        return containers.look_at_bmp(content, name, most_pixels)
    if containers.is_webp(content):
        return containers.look_at_webp(content, name, most_pixels)
    if not content:
        raise damaged(name, "an empty file")
    other = "HEIC or AVIF" if content[4:8] == b"ftyp" else OTHERS.get(content[:4])
    raise UserError(
        f"{name}: found {other or f'a file that begins with {content[:12]!r}'}, "
        "wanted PNG, JPEG, GIF, BMP or WebP",
        fix=CONVERT if other else f"if it is a picture, {CONVERT}",
    )


def _decoded(picture: Picture, mode: str) -> Image.Image:
    stored = picture.columns, picture.rows
    try:
        with Image.open(io.BytesIO(picture.content), formats=[picture.kind]) as image:
            if image.size != stored:  # our reader and Pillow's must mean the same
                raise ValueError(f"{image.size} pixels where the header says {stored}")
            return _on_white(image).convert(mode)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises a dozen kinds on damaged data, and promises none
        # The sentence of this one tells the address of a buffer.
        said = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
        raise damaged(picture.name, f"{picture.kind} that cannot be decoded{said}") from error


def _on_white(image: Image.Image) -> Image.Image:
    """Eight bits a channel, and nothing transparent."""
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
    ink = image.convert("RGBA")
    paper = Image.new("RGB", image.size, "white")
    paper.paste(ink, mask=ink)
    return paper
