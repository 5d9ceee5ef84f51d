"""Arrays against numpy's reader; wrong sizes are errors before memory is allocated."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from harken.errors import UserError
from harken.formats.arrays import read_feature_maps, read_image_array
from small_files import error_of

N, Y, X, K = 7, 5, 3, 2
CHANNELS = 11  # of maps
LITTLE = 2**20  # bytes; the files below are a few hundred
RNG = np.random.default_rng(5)
PIXELS = RNG.integers(256, size=(N, Y, X, K), dtype=np.uint8)
MAPS = RNG.standard_normal((N, X, Y, CHANNELS))
INDICES = [6, 0, 6, 2]


def saved(path: Path, array: np.ndarray[Any, Any]) -> Path:
    np.save(path, array)
    return path


def refused(read: Callable[[Path], object], path: Path) -> UserError:
    error = error_of(read, path)
    assert error.message.startswith(str(path))
    assert "expected " in error.message and error.fix
    return error


@contextmanager
def limited_memory(max_bytes: int = LITTLE) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < max_bytes
    finally:
        tracemalloc.stop()


# --- arrays


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_images_of_an_archive(tmp_path: Path, write: Callable[..., None], order: Any) -> None:
    path = tmp_path / "train.npz"
    write(path, labels=np.arange(3), images=np.asarray(PIXELS, order=order))
    images = read_image_array(path)
    assert (len(images), images.rows, images.columns, images.channels) == (N, Y, X, K)
    taken = images.take(INDICES)
    assert taken.dtype == np.uint8
    np.testing.assert_array_equal(taken, PIXELS[INDICES])
    assert images.take([]).shape == (0, Y, X, K)


@pytest.mark.parametrize("name", ["train.npz", "train.npy", "train"])
def test_gray_images_have_one_channel(tmp_path: Path, name: str) -> None:
    path, gray = tmp_path / name, PIXELS[..., 0]
    with path.open("wb") as file:  # its name does not matter
        np.save(file, gray) if name.endswith("y") else np.savez(file, anything=gray)
    images = read_image_array(path)
    assert (images.rows, images.columns, images.channels) == (Y, X, 1)
    np.testing.assert_array_equal(images.take(np.array(INDICES)), gray[INDICES, ..., None])


def test_more_than_one_chunk_is_unpacked(tmp_path: Path) -> None:
    many = RNG.integers(4, size=(23, 101, 103), dtype=np.uint8)
    np.savez_compressed(tmp_path / "train.npz", images=many)
    read = read_image_array(tmp_path / "train.npz")
    np.testing.assert_array_equal(read.take(range(23))[..., 0], many)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f2", "<f4", ">f4", "<f8", "|i1"])
@pytest.mark.parametrize("scaled", [False, True])
def test_maps(tmp_path: Path, kind: str, order: Any, scaled: bool) -> None:
    stored = np.asarray(MAPS * 7, dtype=kind, order=order)
    path = saved(tmp_path / "maps.npy", stored)
    factors = RNG.standard_normal(CHANNELS).astype(np.float32) if scaled else None
    scale = None if factors is None else saved(tmp_path / "scale.npy", factors)
    maps = read_feature_maps(path, scale=scale)
    sizes = (len(maps), maps.columns, maps.rows, maps.channels)
    assert sizes == (N, X, Y, CHANNELS)
    taken = maps.take(INDICES)
    assert taken.dtype == np.float32 and taken.flags.c_contiguous
    wanted = np.load(path)[INDICES].astype(np.float32) * (1 if factors is None else factors)
    np.testing.assert_array_equal(taken, wanted)


def test_only_the_rows_that_are_taken_are_read(tmp_path: Path) -> None:
    shape = (100_003, 7, 7, 128)  # 2.5 GB, with nothing on the disk
    path = tmp_path / "maps.npy"
    with path.open("wb") as file:
        file.write(header(*shape, kind="<f4"))
        file.truncate(file.tell() + 4 * np.prod(shape, dtype=np.int64))
    with limited_memory():
        assert read_feature_maps(path).take([100_002, 5, 0]).shape == (3, 7, 7, 128)


@pytest.mark.parametrize("row", [7, -1, 10**30])
def test_missing_rows(tmp_path: Path, row: int) -> None:
    path = saved(tmp_path / "maps.npy", MAPS)
    maps = read_feature_maps(path)
    error = refused(lambda _: maps.take([0, row]), path)
    assert f"no row {str(row)[:20]} (expected 0 to 6)" in error.message
    np.savez(tmp_path / "train.npz", PIXELS)
    images = read_image_array(tmp_path / "train.npz")
    error = refused(lambda _: images.take([row]), tmp_path / "train.npz")
    assert "expected 0 to 6" in error.message


# --- other arrays


def header(*shape: int, kind: str = "|u1") -> bytes:
    file = io.BytesIO()
    fields = {"descr": kind, "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, fields)
    return file.getvalue()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (PIXELS.astype(np.int64), "int64 [7, 5, 3, 2]"),
        (PIXELS > 5, "bool [7, 5, 3, 2]"),
        (PIXELS[0, 0], "uint8 [3, 2]"),
        (PIXELS[None], "uint8 [1, 7, 5, 3, 2]"),
        (PIXELS.transpose(0, 3, 2, 1), "uint8 [7, 2, 3, 5]"),
        (np.zeros((N, Y, X), dtype="u1,u1"), "[('f0', 'u1'), ('f1', 'u1')] [7, 5, 3]"),
    ],
)
def test_images_of_another_kind(tmp_path: Path, array: np.ndarray[Any, Any], found: str) -> None:
    np.savez(tmp_path / "train.npz", images=array)
    error = refused(read_image_array, tmp_path / "train.npz")
    assert "expected uint8 [N, Y, X]" in error.message and f"got {found}" in error.message
    assert f"got {found}" in refused(read_image_array, saved(tmp_path / "a.npy", array)).message


@pytest.mark.parametrize("shape", [(0, Y, X), (N, Y, 0), (N, 0, X, K)])
def test_no_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    nothing = np.zeros(shape, dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", nothing)
    for path in (saved(tmp_path / "a.npy", nothing), tmp_path / "a.npz"):
        assert "0 bytes of data" in refused(read_image_array, path).message


@pytest.mark.parametrize("array", [PIXELS, MAPS[0], MAPS.astype(np.complex64), MAPS.astype(int)])
def test_maps_of_another_kind(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    error = refused(read_feature_maps, saved(tmp_path / "maps.npy", array))
    assert "expected float or int8 [N, X, Y, K]" in error.message


@pytest.mark.parametrize(
    ("scale", "found"),
    [
        (np.ones(CHANNELS + 1), "expected float [11], one per channel"),
        (np.ones((CHANNELS, 1)), "got float64 [11, 1]"),
        (np.ones(CHANNELS, dtype=int), "got int64 [11]"),
        (np.full(CHANNELS, np.nan), "a factor is not finite"),
        (np.full(CHANNELS, 1e300), "a factor is not finite"),
    ],
)
def test_another_scale(tmp_path: Path, scale: np.ndarray[Any, Any], found: str) -> None:
    maps = saved(tmp_path / "maps.npy", MAPS)
    path = saved(tmp_path / "scale.npy", scale)
    assert found in refused(lambda path: read_feature_maps(maps, scale=path), path).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_maps_that_are_not_finite(tmp_path: Path, value: float) -> None:
    wrong = MAPS.copy()
    wrong[5, 2, 3, 7] = value
    path = saved(tmp_path / "maps.npy", wrong)
    maps = read_feature_maps(path)
    maps.take([0, 6, 4])
    assert "a value of row 5 " in refused(lambda _: maps.take([6, 5, 4]), path).message


class Trap:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    objects = np.full((N, Y, X), Trap(tmp_path / "trapped"), dtype=object)
    np.savez(tmp_path / "train.npz", images=objects)
    for path in (tmp_path / "train.npz", saved(tmp_path / "train.npy", objects)):
        for read in (read_image_array, read_feature_maps):
            assert "got object" in refused(read, path).message
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(objects))
    refused(read_image_array, tmp_path / "bare.npz")
    assert not (tmp_path / "trapped").exists()


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    np.savez(path, image=PIXELS, labels=np.arange(N))
    error = refused(read_image_array, path)
    assert "expected the key 'images' or only one key, got 'image, labels'" in error.message
    assert error.fix == "rename 'image' to 'images'"
    np.savez(path)
    assert "got ''" in refused(read_image_array, path).message
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"")
        archive.writestr("images.npy", b"")
    assert "got 'images, images'" in refused(read_image_array, path).message


# --- wrong sizes


def npy_bytes(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz_bytes(content: bytes, packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        archive.writestr("images.npy", content)
    return file.getvalue()


def with_size(archive: bytes, unpacked: int) -> bytes:
    """The only member says that it is of another size, in both places."""
    data = bytearray(archive)
    struct.pack_into("<I", data, 22, unpacked)
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, unpacked)
    return bytes(data)


def test_decompression_bombs(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    np.savez_compressed(path, images=np.zeros((211, 101, 103), dtype=np.uint8))
    assert path.stat().st_size < 4000
    size = 211 * 101 * 103
    with limited_memory(size // 4):
        error = refused(lambda path: read_image_array(path, max_bytes=size), path)
    assert f"expected at most {size:,} bytes, got {size + 128:,}" in error.message
    assert "numpy.save" in error.fix
    assert len(read_image_array(path, max_bytes=size + 128)) == 211


def test_impossible_compression_ratios(tmp_path: Path) -> None:
    """Header and archive agree on half a gigabyte; the bytes that are there cannot hold it."""
    start = header(2**9, 2**10, 2**10)
    path = tmp_path / "train.npz"
    path.write_bytes(with_size(npz_bytes(start + bytes(1000)), 2**29 + len(start)))
    with limited_memory():
        error = refused(read_image_array, path)
    assert "536,871,040 bytes in " in error.message


def test_truncated_members(tmp_path: Path) -> None:
    """Header and archive agree on a size that could be packed, but is not."""
    start = header(101, 103, 2)
    path = tmp_path / "train.npz"
    whole = len(start) + 101 * 103 * 2
    path.write_bytes(with_size(npz_bytes(start + PIXELS.tobytes()), whole))
    assert "the array cannot be read" in refused(read_image_array, path).message


def test_members_with_more_data_than_stated(tmp_path: Path) -> None:
    """Ten megabytes after the images."""
    good = npy_bytes(PIXELS)
    path = tmp_path / "train.npz"
    path.write_bytes(with_size(npz_bytes(good + bytes(10**7)), len(good)))
    with limited_memory():
        assert "Bad CRC-32" in refused(read_image_array, path).message
    path.write_bytes(npz_bytes(good + bytes(10**7)))
    with limited_memory():
        assert f"{10**7 + PIXELS.size:,} bytes of data" in refused(read_image_array, path).message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[" * 5000,
        b"-" * 9000 + b"1",
        b"{'descr': '|u1', 'fortran_order': False}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': [3, 5, 7]}",
        b"{'descr': (), 'fortran_order': False, 'shape': (3, 5, 7)}",
        b"{'descr': [5], 'fortran_order': False, 'shape': (3, 5, 7)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (3, -5, -7)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (1" + b"0" * 4000 + b", 5, 7)}",
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (1" + b"0" * 9000 + b", 5, 7)}",
        b"{'descr': '|V0', 'fortran_order': False, 'shape': (3, 5, 7)}",
        b"{1: 2, 'descr': 3}",
        b"\xff\0'''",
    ],
    ids=lambda text: text.decode("latin-1")[:60],
)
def test_invalid_headers(tmp_path: Path, text: bytes) -> None:
    for version, length in ((b"\1\0", "<H"), (b"\2\0", "<I")):
        start = npy.MAGIC_PREFIX + version + struct.pack(length, len(text)) + text
        (tmp_path / "a.npy").write_bytes(start + bytes(105))
        (tmp_path / "a.npz").write_bytes(npz_bytes(start + bytes(105)))
        for name in ("a.npy", "a.npz"):
            refused(read_image_array, tmp_path / name)


@pytest.mark.parametrize("version", [b"\2\0", b"\3\0", b"\1\1"])
def test_header_lengths_are_limited(tmp_path: Path, version: bytes) -> None:
    start = npy.MAGIC_PREFIX + version + struct.pack("<I", 10**7)
    (tmp_path / "a.npy").write_bytes(start + b" " * 10**7)
    (tmp_path / "a.npz").write_bytes(npz_bytes(start + b" " * 10**7))
    for name in ("a.npy", "a.npz"):
        with limited_memory():
            assert "the array cannot be read" in refused(read_image_array, tmp_path / name).message


def test_other_compressions_and_encryption(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path.write_bytes(npz_bytes(npy_bytes(PIXELS), packing))
        assert "compression other than Deflate" in refused(read_image_array, path).message
    data = bytearray(npz_bytes(npy_bytes(PIXELS)))
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in refused(read_image_array, path).message


# --- damaged files

WHOLE = {
    "train.npz": npz_bytes(npy_bytes(PIXELS)),
    "stored.npz": npz_bytes(npy_bytes(PIXELS), zipfile.ZIP_STORED),
    "train.npy": npy_bytes(PIXELS),
    "maps.npy": npy_bytes(MAPS.astype(np.float32)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_truncated_files(tmp_path: Path, name: str) -> None:
    whole = WHOLE[name]
    path = tmp_path / name
    read = read_feature_maps if name == "maps.npy" else read_image_array
    path.write_bytes(whole)
    array = read(path)
    array.take(range(len(array)))
    for length in {*range(0, len(whole), 13), *range(len(whole) - 40, len(whole))}:
        path.write_bytes(whole[:length])
        assert "the array cannot be read" in refused(read, path).message


def test_a_list_of_too_many_members_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number:030d}", b"")
    assert "a central directory of" in refused(read_image_array, path).message


def test_images_that_unpack_to_more_than_a_gibibyte_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w") as file,
    ):
        file.write(header(2**18 + 1, 64, 64))
        for _ in range(2**6 + 1):
            file.write(bytes(2**24))
    assert "expected at most 1,073,741,824 bytes" in refused(read_image_array, path).message
