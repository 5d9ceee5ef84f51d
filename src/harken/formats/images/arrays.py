"""Pictures, or maps of features, that are one array: a caption then names a row of it.

    train.npz   uint8           [N, Y, X] or [N, Y, X, K]   N pictures, channels last
    maps.npy    float or int8   [N, X, Y, K]                N maps M[x, y, K]
    scale.npy   float           [K]                         map * scale is what was meant

A .npz is unpacked once and held in memory; of a .npy, which pictures may be as well, only the rows
that are taken are read (numpy_files.py).

What is not here: pictures that are files of their own (files.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from harken.errors import UserError
from harken.formats.images.numpy_files import Header, load_array

MOST_BYTES = 2**30  # of a .npz, unpacked: 5,000 pictures of 256 x 256 x 3
MOST_CHANNELS = 4  # of a picture; more are a sign that the channels stand first


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

    def take(self, which: Sequence[int]) -> UInt8[np.ndarray, "B Y X K"]:
        """The pictures with these numbers, counted from 0."""
        taken: UInt8[np.ndarray, "B Y X K"] = self.array[_within(which, len(self), self.path)]
        return taken


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FeatureMaps:
    """What another network made of pictures: features of each place x, y."""

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

    def take(self, which: Sequence[int]) -> Float[np.ndarray, "B X Y K"]:
        """The maps with these numbers, counted from 0, scaled, as float32."""
        stored = self.array[_within(which, len(self), self.path)]
        with np.errstate(over="ignore", invalid="ignore"):  # told below, with the row
            maps: Float[np.ndarray, "B X Y K"] = stored.astype(np.float32, order="C")
            if self.scale is not None:
                maps *= self.scale
        finite = np.isfinite(maps)
        if not finite.all():
            row = which[finite.all(axis=(1, 2, 3)).argmin()]
            raise UserError(
                f"{self.path}: found a value in row {row} that is not finite, "
                "wanted numbers that fit float32",
                fix="make the map again, or leave its picture out",
            )
        return maps


def read_pictures(path: Path, *, most_bytes: int = MOST_BYTES) -> Pictures:
    """All pictures of a .npz, by the key `images` or the only one, or of a .npy."""

    def accept(header: Header) -> None:
        channels = header.shape[3:]
        sizes = len(header.shape) in (3, 4) and max(channels, default=1) <= MOST_CHANNELS
        if header.kind != np.uint8 or not sizes:
            raise _unwanted(header, f"uint8 [N, Y, X] or [N, Y, X, K] with K <= {MOST_CHANNELS}")

    array = load_array(path, accept, key="images", most_bytes=most_bytes)
    return Pictures(path=path, array=array[..., None] if array.ndim == 3 else array)


def read_maps(path: Path, *, scale: Path | None = None) -> FeatureMaps:
    """All maps of a .npy; `scale` is another, with a factor for each channel."""

    def accept(header: Header) -> None:
        if not (_is_float(header.kind) or header.kind == np.int8) or len(header.shape) != 4:
            raise _unwanted(header, "float or int8 [N, X, Y, K]")

    def accept_scale(header: Header) -> None:
        if not _is_float(header.kind) or header.shape != array.shape[3:]:
            wanted = f"float [{array.shape[3]}], for as many channels as {path} has"
            raise _unwanted(header, wanted)

    array = load_array(path, accept, key="maps", most_bytes=MOST_BYTES)
    if scale is None:
        return FeatureMaps(path=path, array=array)
    stored = load_array(scale, accept_scale, key="scale", most_bytes=MOST_BYTES)
    with np.errstate(over="ignore"):
        factors = stored.astype(np.float32)
    if not np.isfinite(factors).all():
        raise UserError(
            f"{scale}: found a factor that is not finite, wanted numbers that fit float32",
            fix="make the file again",
        )
    return FeatureMaps(path=path, array=array, scale=factors)


def _is_float(kind: np.dtype[np.generic]) -> bool:
    return kind.kind == "f" and kind.itemsize <= 8


def _unwanted(header: Header, wanted: str) -> UserError:
    if header.kind.hasobject:
        return UserError(
            f"{header.name}: found Python objects, wanted {wanted}",
            fix="save an array of numbers; objects are pickles, which can run programs",
        )
    return UserError(
        f"{header.name}: found {header}, wanted {wanted}",
        fix="save it again, by `astype` and `transpose`; see docs/formats.md#captions",
    )


def _within(which: Sequence[int], count: int, path: Path) -> Int[np.ndarray, "B"]:
    for row in which:
        if not 0 <= row < count:
            raise UserError(
                f"{path}: found a wish for row {str(row)[:20]}, wanted one of its {count} rows, "
                "counted from 0",
                fix="check that captions and array belong together",
            )
    return np.asarray(which, dtype=np.intp)
