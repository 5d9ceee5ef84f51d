"""Read pictures, or feature maps of another network, that are rows of one array.

    train.npz   uint8           [N, Y, X] or [N, Y, X, K]   N pictures, channels last
    maps.npy    float or int8   [N, X, Y, K]                N maps M[x, y, K]
    scale.npy   float           [K]                         the maps are map * scale

A .npz is decompressed into memory. A .npy is mapped: only the rows in use are read. Nothing is ever
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
from jaxtyping import Float, Int, Shaped, UInt8
from numpy.lib import format as npy
from numpy.typing import NDArray

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.inputs import open_input

MAX_BYTES = 2**30  # of a decompressed .npz: 5,000 pictures of 256 x 256 x 3
MAX_CHANNELS = 4  # of a picture; more are a sign that the channels come first
MAX_HEADER = 2**16  # bytes; numpy writes 128
MAX_DIRECTORY = 2**20  # bytes of the list of members of a .npz, which `ZipFile` reads at once
MAX_DEFLATED = 1032  # bytes that one byte of Deflate can stand for
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

Check = Callable[[tuple[int, ...], np.dtype[Any]], str | None]  # -> what is expected instead


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pictures:
    """Pictures of one size."""

    path: Path
    array: UInt8[np.ndarray, "N Y X K"]

    def __len__(self) -> int:
        return len(self.array)

    @property
    def columns(self) -> int:
        return int(self.array.shape[2])

    @property
    def rows(self) -> int:
        return int(self.array.shape[1])

    @property
    def channels(self) -> int:
        return int(self.array.shape[3])

    def take(self, indices: Sequence[int]) -> UInt8[np.ndarray, "B Y X K"]:
        """Return the pictures with these indices, counted from 0."""
        taken: UInt8[np.ndarray, "B Y X K"] = self.array[_checked(indices, len(self), self.path)]
        return taken


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FeatureMaps:
    """Features of each place x, y, which another network computed from pictures."""

    path: Path
    array: Shaped[np.ndarray, "N X Y K"]  # as stored
    scale: Float[np.ndarray, "K"] | None = None

    def __len__(self) -> int:
        return len(self.array)

    @property
    def columns(self) -> int:
        return int(self.array.shape[1])

    @property
    def rows(self) -> int:
        return int(self.array.shape[2])

    @property
    def channels(self) -> int:
        return int(self.array.shape[3])

    def take(self, indices: Sequence[int]) -> Float[np.ndarray, "B X Y K"]:
        """Return the maps with these indices, counted from 0, scaled, as float32."""
        stored = self.array[_checked(indices, len(self), self.path)]
        with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the row
            maps: Float[np.ndarray, "B X Y K"] = stored.astype(np.float32, order="C")
            if self.scale is not None:
                maps *= self.scale
        finite = np.isfinite(maps)
        if not finite.all():
            row = indices[finite.all(axis=(1, 2, 3)).argmin()]
            raise UserError(
                f"{self.path}: a value of row {row} is not finite (expected float32 numbers)",
                fix="compute the map again, or leave its picture out",
            )
        return maps


def read_pictures(path: Path, *, max_bytes: int = MAX_BYTES) -> Pictures:
    """Read the pictures of a .npz (the key `images`, or the only key) or of a .npy."""

    def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
        sizes = len(shape) in (3, 4) and max(shape[3:], default=1) <= MAX_CHANNELS
        if dtype == np.uint8 and sizes:
            return None
        return f"uint8 [N, Y, X] or [N, Y, X, K] with K <= {MAX_CHANNELS}"

    array = _load(path, check, key="images", max_bytes=max_bytes)
    return Pictures(path=path, array=array[..., None] if array.ndim == 3 else array)


def read_maps(path: Path, *, scale: Path | None = None) -> FeatureMaps:
    """Read the maps of a .npy or .npz; `scale` is another file, with a factor per channel."""

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
        raise UserError(
            f"{scale}: a factor is not finite (expected float32 numbers)",
            fix="save the file again",
        )
    return FeatureMaps(path=path, array=array, scale=factors)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 8


def _checked(indices: Sequence[int], count: int, path: Path) -> Int[np.ndarray, "B"]:
    for index in indices:
        if not 0 <= index < count:
            raise UserError(
                f"{path}: no row {str(index)[:20]} (expected 0 to {count - 1})",
                fix="check that captions and array belong together",
            )
    return np.asarray(indices, dtype=np.intp)


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
        except Exception as error:  # numpy and zipfile raise a dozen kinds on damaged data
            raise _damaged(path, str(error).partition("\n")[0] or type(error).__name__) from error


def _load_npz(
    file: BinaryIO, size: int, path: Path, check: Check, key: str, max_bytes: int
) -> NDArray[Any]:
    file.seek(max(0, size - MAX_HEADER))
    end = file.read().rpartition(b"PK\5\6")[2]
    if int.from_bytes(end[8:12], "little") > MAX_DIRECTORY:
        raise _damaged(path, "the list of members is too long")
    with zipfile.ZipFile(file) as archive:
        member = _member(archive, path, key)
        if member.file_size > max_bytes:
            raise UserError(
                f"{path}: the array is too large (expected at most {max_bytes:,} bytes, got "
                f"{member.file_size:,})",
                fix="save it with `numpy.save` as .npy, of which only the rows in use are read",
            )
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _damaged(path, "compression other than Deflate")
        if member.file_size > MAX_DEFLATED * member.compress_size:
            raise _damaged(path, f"{member.file_size:,} bytes in {member.compress_size:,}")
        with archive.open(member) as stream:
            _check_header(stream.read(MAX_HEADER), member.file_size, path, check)
        with archive.open(member) as stream:
            array = npy.read_array(stream, allow_pickle=False)
            stream.read(1)  # at the end, zipfile compares the checksum
            return np.asarray(array)


def _member(archive: zipfile.ZipFile, path: Path, key: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    found = [member for member in members if member.filename == f"{key}.npy"] or members
    if len(found) == 1:
        return found[0]
    keys = [member.filename.removesuffix(".npy") for member in members]
    near = nearest(key, keys[:100])
    raise UserError(
        f"{path}: expected the key {key!r} or only one key, got {', '.join(keys)[:60]!r}",
        fix=f"rename {near[:60]!r} to {key!r}"
        if near not in (None, key)
        else f"save it with `numpy.savez_compressed(PATH, {key}=ARRAY)`",
    )


def _check_header(start: bytes, size: int, path: Path, check: Check) -> None:
    """Check shape and type, and that the numbers fill the rest of `size` bytes."""
    stream = io.BytesIO(start)
    try:
        shape, _, dtype = HEADERS[npy.read_magic(stream)](stream)
    except MemoryError as error:  # as the parser of Python says that brackets are too deep
        raise _damaged(path, "invalid header") from error
    found = f"{str(dtype)[:60]} [{', '.join(map(str, shape))[:60]}]"
    if (expected := check(shape, dtype)) is not None:
        raise UserError(
            f"{path}: unexpected array (expected {expected}, got {found})",
            fix="save it again, by `astype` and `transpose`; see docs/formats.md#captions",
        )
    there = size - stream.tell()
    if min(shape) < 1 or math.prod(shape) * dtype.itemsize != there:
        raise _damaged(path, f"{there:,} bytes of numbers for {found}")


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: damaged array ({reason[:200]}; expected a complete .npy or .npz)",
        fix="copy, download or save it again",
    )
