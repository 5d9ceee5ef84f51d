"""Read arrays of images, or of feature maps of another network.

    images   uint8           [N, Y, X] or [N, Y, X, K]   N images, channels last
    maps     float or int8   [N, X, Y, K]                N maps M[x, y, K]
    scale    float           [K]                         factor per channel, multiplies the maps

Each is a .npz, which is decompressed into memory, or a .npy, which is memory-mapped. Nothing is
unpickled. The size in a header is compared with the bytes of the file before memory is allocated.
"""

import io
import math
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from numpy.lib import format as npy
from numpy.typing import NDArray

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.inputs import open_input

MAX_BYTES = 2**30  # of a decompressed .npz: 5,000 images of 256 x 256 x 3
MAX_CHANNELS = 4  # of an image; with more, the channels are probably not the last axis
MAX_HEADER = 2**16  # bytes of a .npy header (numpy writes 128), and of the end record of a .npz
MAX_DIRECTORY = 2**20  # bytes of the central directory of a .npz, which `ZipFile` reads whole
MAX_DEFLATE_RATIO = 1032  # maximum compression ratio of Deflate
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

Check = Callable[[tuple[int, ...], np.dtype[Any]], str | None]
"""Function of a shape and a dtype: None, or a description of the array that was expected."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _ArrayFile:
    path: Path
    array: Shaped[np.ndarray, "N first second K"]

    def __len__(self) -> int:
        return len(self.array)

    @property
    def channels(self) -> int:
        return int(self.array.shape[3])

    def _select(self, indices: Sequence[int]) -> Shaped[np.ndarray, "B first second K"]:
        for index in indices:
            if not 0 <= index < len(self):
                message = f"{self.path}: no row {str(index)[:20]} (expected 0 to {len(self) - 1})"
                raise UserError(message, fix="check that captions and array belong together")
        return np.asarray(self.array[np.asarray(indices, dtype=np.intp)])


class ImageArray(_ArrayFile):
    """Images of one size: uint8 [N, Y, X, K]."""

    __slots__ = ()
    rows = property(lambda self: int(self.array.shape[1]))
    columns = property(lambda self: int(self.array.shape[2]))

    def take(self, indices: Sequence[int]) -> UInt8[np.ndarray, "B Y X K"]:
        """Return the images with these indices, counted from 0."""
        return self._select(indices)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FeatureMaps(_ArrayFile):
    """Features that another network computed from images: [N, X, Y, K]."""

    scale: Float[np.ndarray, "K"] | None = None

    columns = property(lambda self: int(self.array.shape[1]))
    rows = property(lambda self: int(self.array.shape[2]))

    def take(self, indices: Sequence[int]) -> Float[np.ndarray, "B X Y K"]:
        """Return the maps with these indices, counted from 0, scaled, as float32."""
        stored = self._select(indices)
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            maps: Float[np.ndarray, "B X Y K"] = stored.astype(np.float32, order="C")
            if self.scale is not None:
                maps *= self.scale
        finite = np.isfinite(maps).all(axis=(1, 2, 3))
        if not finite.all():
            problem = f"a value of row {indices[finite.argmin()]} is not finite"
            fix = "compute the map again, or remove its image"
            raise UserError(f"{self.path}: {problem} (expected float32 numbers)", fix=fix)
        return maps


def read_image_array(path: Path, *, max_bytes: int = MAX_BYTES) -> ImageArray:
    """Read the images of a .npz (the key `images`, or the only key) or of a .npy."""

    def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
        is_image = len(shape) in (3, 4) and max(shape[3:], default=1) <= MAX_CHANNELS
        accepted = dtype == np.uint8 and is_image
        return None if accepted else f"uint8 [N, Y, X] or [N, Y, X, K] with K <= {MAX_CHANNELS}"

    array = _load(path, check, key="images", max_bytes=max_bytes)
    return ImageArray(path=path, array=array[..., None] if array.ndim == 3 else array)


def read_feature_maps(path: Path, *, scale: Path | None = None) -> FeatureMaps:
    """Read the maps of a .npy or .npz; `scale` is a file with a factor per channel."""

    def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
        accepted = (_is_float(dtype) or dtype == np.int8) and len(shape) == 4
        return None if accepted else "float or int8 [N, X, Y, K]"

    def check_scale(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
        accepted = _is_float(dtype) and shape == array.shape[3:]
        return None if accepted else f"float [{array.shape[3]}], one per channel of {path}"

    array = _load(path, check, key="maps", max_bytes=MAX_BYTES)
    if scale is None:
        return FeatureMaps(path=path, array=array)
    stored = _load(scale, check_scale, key="scale", max_bytes=MAX_BYTES)
    with np.errstate(over="ignore"):
        factors = stored.astype(np.float32)
    if not np.isfinite(factors).all():
        message = f"{scale}: a factor is not finite (expected float32 numbers)"
        raise UserError(message, fix="save the file again")
    return FeatureMaps(path=path, array=array, scale=factors)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 8


def _load(path: Path, check: Check, *, key: str, max_bytes: int) -> NDArray[Any]:
    with open_input(path, "an array") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        try:
            with warnings.catch_warnings(action="ignore"):  # about headers of Python 2
                start = file.read(MAX_HEADER)
                if start.startswith(b"PK"):
                    return _load_npz(file, size, path, check, key, max_bytes)
                _check_header(start, size, path, check)
                return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (UserError, MemoryError):
            raise
        except Exception as error:  # numpy and zipfile raise many types on damaged data
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise _unreadable(path, reason) from error


def _load_npz(
    file: BinaryIO, size: int, path: Path, check: Check, key: str, max_bytes: int
) -> NDArray[Any]:
    file.seek(max(0, size - MAX_HEADER))
    end_record = file.read().rpartition(b"PK\5\6")[2]
    directory_size = int.from_bytes(end_record[8:12], "little")
    if directory_size > MAX_DIRECTORY:
        raise _unreadable(path, f"a central directory of {directory_size:,} bytes")
    with zipfile.ZipFile(file) as archive:
        member = _member(archive, path, key)
        if member.file_size > max_bytes:
            sizes = f"expected at most {max_bytes:,} bytes, got {member.file_size:,}"
            fix = "save it with `numpy.save` as .npy, which is memory-mapped"
            raise UserError(f"{path}: the array is too large ({sizes})", fix=fix)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unreadable(path, "compression other than Deflate")
        if member.file_size > MAX_DEFLATE_RATIO * member.compress_size:
            packed = f"{member.compress_size:,} compressed bytes"
            raise _unreadable(path, f"{member.file_size:,} bytes in {packed}")
        with archive.open(member) as stream:
            _check_header(stream.read(MAX_HEADER), member.file_size, path, check)
        with archive.open(member) as stream:
            array = npy.read_array(stream, allow_pickle=False)
            stream.read(1)  # zipfile verifies the checksum at the end of the member
            return np.asarray(array)


def _member(archive: zipfile.ZipFile, path: Path, key: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    matching = [member for member in members if member.filename == f"{key}.npy"] or members
    if len(matching) == 1:
        return matching[0]
    keys = [member.filename.removesuffix(".npy") for member in members]
    near = nearest(key, keys[:100])
    fix = f"save it with `numpy.savez_compressed(PATH, {key}=ARRAY)`"
    if near not in (None, key):
        fix = f"rename {near[:60]!r} to {key!r}"
    got = ", ".join(keys)[:60]
    raise UserError(f"{path}: expected the key {key!r} or only one key, got {got!r}", fix=fix)


def _check_header(start: bytes, size: int, path: Path, check: Check) -> None:
    """Check the shape and type in a .npy header, and that `size` bytes match them."""
    stream = io.BytesIO(start)
    try:
        shape, _, dtype = HEADERS[npy.read_magic(stream)](stream)
    except MemoryError as error:  # raised by Python's parser for deeply nested brackets
        raise _unreadable(path, "invalid header") from error
    got = f"{str(dtype)[:60]} [{', '.join(map(str, shape))[:60]}]"
    if (expected := check(shape, dtype)) is not None:
        raise UserError(
            f"{path}: unexpected array (expected {expected}, got {got})",
            fix="convert it with `astype` and `transpose`; see docs/formats.md#captions",
        )
    data_bytes = size - stream.tell()
    if min(shape) < 1 or math.prod(shape) * dtype.itemsize != data_bytes:
        raise _unreadable(path, f"{data_bytes:,} bytes of data for {got}")


def _unreadable(path: Path, reason: str) -> UserError:
    message = f"{path}: the array cannot be read ({reason[:200]}; expected a complete .npy or .npz)"
    return UserError(message, fix="copy or download it again, or save it with numpy")
