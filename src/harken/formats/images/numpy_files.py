"""Arrays as numpy.save and numpy.savez write them, trusting nothing that they say of themselves.

    .npy   a header (kind of numbers, shape, order), then the numbers: mapped, never read as a whole
    .npz   a zip of .npy: one of them is unpacked into memory

Before anything is allocated, what the header says is compared with the bytes that are there: those
of the file or, in a .npz,

    header + numbers  =  bytes unpacked  <=  1032 * bytes packed,  and  <=  most_bytes

since Deflate cannot pack 1033 bytes into one. The first bytes decide which of the two a file is,
never its name. Nothing is ever unpickled: a pickle can run programs.

What is not here: which kinds and shapes are wanted (arrays.py).
"""

import errno
import io
import math
import tokenize
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from harken.config.spelling import nearest
from harken.corpora.unpack import BROKEN, CHUNK, ENCRYPTED
from harken.errors import UserError
from harken.inputs import open_input

MOST_DEFLATED = 1032  # bytes that one byte of Deflate can stand for: two bits repeat 258
LARGEST_HEADER = 2**16  # bytes; numpy writes 128
MAX_READ = 2**20  # bytes
VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

# What numpy's reader of headers raises over bytes that make no sense.
NONSENSE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)


class Header(NamedTuple):
    """What an array says of itself."""

    name: str  # for sentences
    shape: tuple[int, ...]
    kind: np.dtype[Any]
    order: Literal["C", "F"]  # whether the last index runs fastest, or the first
    start: int  # of the numbers, in bytes

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * self.kind.itemsize

    def __str__(self) -> str:
        return f"{str(self.kind)[:60]} [{', '.join(map(str, self.shape))[:60]}]"


Accept = Callable[[Header], None]  # raises a UserError over an array that is not wanted


def load_array(path: Path, accept: Accept, *, key: str, most_bytes: int) -> NDArray[Any]:
    """The array in a .npy or, in a .npz, the one that is named `key` or is the only one."""
    with open_input(path, "an array") as file:
        beginning = file.read(LARGEST_HEADER)
        if not beginning.startswith(npy.MAGIC_PREFIX):
            return _unpacked(file, path, accept, key, most_bytes)
        header = _header(beginning, str(path))
        accept(header)
        _check_size(header, file.seek(0, io.SEEK_END) - header.start)
        mapped = np.memmap(
            file, header.kind, mode="r", offset=header.start, shape=header.shape, order=header.order
        )
        return np.asarray(mapped)


def _header(beginning: bytes, name: str) -> Header:
    # From these bytes alone: no length that stands in them can make numpy read more.
    file = io.BytesIO(beginning)
    try:
        with warnings.catch_warnings(action="ignore"):  # about headers of Python 2
            shape, fortran, kind = VERSIONS[npy.read_magic(file)](file)
    except NONSENSE as error:
        raise _damaged(name, f"{beginning[:10]!r} and no header after it", error) from error
    return Header(name, tuple(map(int, shape)), kind, "F" if fortran else "C", file.tell())


def _check_size(header: Header, there: int) -> None:
    if min(header.shape, default=1) < 1 or header.size != there:
        raise _damaged(header.name, f"{there} bytes of numbers for {header}")


def _unpacked(
    file: BinaryIO, path: Path, accept: Accept, key: str, most_bytes: int
) -> NDArray[Any]:
    with _damage(path), zipfile.ZipFile(_SmallReads(file)) as archive:
        member = _member(archive, path, key)
        _check_packing(member, file.seek(0, io.SEEK_END), path, most_bytes)
        with archive.open(member) as stream:
            header = _header(stream.read(LARGEST_HEADER), f"{path}/{member.filename[:60]}")
        accept(header)
        _check_size(header, member.file_size - header.start)
        numbers = np.empty(header.size, dtype=np.uint8)
        with archive.open(member) as stream:
            stream.read(header.start)
            for start in range(0, header.size, CHUNK):
                piece = numbers[start : start + CHUNK]
                data = stream.read(len(piece))
                if len(data) < len(piece):
                    raise EOFError("it ends too early")
                piece[:] = np.frombuffer(data, dtype=np.uint8)
        return numbers.view(header.kind).reshape(header.shape, order=header.order)


class _SmallReads(io.RawIOBase):
    """A file that refuses to read much at once.

    `ZipFile` reads the whole list of members before anything else, whatever its length. A list of
    `MAX_READ` bytes has about 20,000 members.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            place = self._file.tell()
            size = self._file.seek(0, io.SEEK_END) - place
            self._file.seek(place)
        if size > MAX_READ:
            raise zipfile.BadZipFile("its list of members is too long")
        return self._file.read(size)


def _member(archive: zipfile.ZipFile, path: Path, key: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    found = [one for one in members if one.filename == f"{key}.npy"] or members
    if len(found) == 1:
        return found[0]
    keys = [one.filename.removesuffix(".npy") for one in members]
    near = nearest(key, keys[:100])
    raise UserError(
        f"{path}: found the keys {', '.join(keys)[:60]!r}, wanted {key!r} once, or one key alone",
        fix=f"rename {near[:60]!r} to {key!r}" if near not in (None, key) else _savez(key),
    )


def _check_packing(member: zipfile.ZipInfo, size: int, path: Path, most_bytes: int) -> None:
    """What the archive says of a member, against its own size."""
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: MOST_DEFLATED}.get(member.compress_type)
    if most is None or member.flag_bits & ENCRYPTED:
        raise UserError(
            f"{path}: found an archive that is encrypted, or packed otherwise than by Deflate, "
            "wanted one of numpy's",
            fix=_savez("NAME"),
        )
    packed, unpacked = member.compress_size, member.file_size
    if member.header_offset + packed > size or unpacked > most * packed:
        raise _damaged(
            str(path), f"{unpacked} bytes said to be packed into {packed} of a file of {size}"
        )
    if unpacked > most_bytes:
        raise UserError(
            f"{path}: found {unpacked} bytes to unpack into memory, wanted at most {most_bytes}",
            fix="write it by `numpy.save` as .npy, of which only the rows in use are read",
        )


def _savez(key: str) -> str:
    return f"write it by `numpy.savez_compressed(PATH, {key}=ARRAY)`"


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn what the reader of archives raises over broken bytes into a sentence."""
    try:
        yield
    except (*BROKEN, OSError) as error:
        # Its own OSErrors have no number, or that of a seek to before the start.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise _damaged(str(path), "a broken archive", error) from error


def _damaged(name: str, found: str, error: Exception | None = None) -> UserError:
    first = str(error).partition("\n")[0][:100]
    reason = f" ({first or type(error).__name__})" if error else ""
    return UserError(
        f"{name}: found {found}{reason}, wanted a whole array of numpy's",
        fix="copy, download or save it again",
    )
