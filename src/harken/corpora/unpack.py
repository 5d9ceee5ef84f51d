"""A packed file -> plain files, trusting nothing that it says of itself.

`gunzip` makes one file of one .gz. `unpack` writes the wanted members of a zip or tar side by side
into a folder, under their last names only. An archive with any member that could reach outside the
folder, or mean two things on two systems, is refused as a whole: links, devices, sparse files,
absolute names, "..", drive names, backslashes, two members of one name (or of names that differ
only in case), encrypted members.

Sizes are counted while bytes come out, never believed: at most

    min(limits.bytes, max(limits.ratio * size of the archive, 1 MiB))

What is not here: giving the result its final name (fetch.py does, once its digest is right).
"""

import bz2
import errno
import gzip
import io
import lzma
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NoReturn

from harken.errors import Failure

CHUNK = 2**16
SMALL = 2**20  # a ratio says nothing of archives that unpack to less
ENCRYPTED = 0x1 | 0x40 | 0x2000  # flags of a zip member: password, strong, hidden names
Archive = Literal["zip", "tar.gz", "tar.bz2", "tar.xz"]
PLAIN: dict[str, Callable[[Path], io.BufferedIOBase]] = {
    "tar.gz": gzip.GzipFile,
    "tar.bz2": bz2.BZ2File,
    "tar.xz": lzma.LZMAFile,
}

# What the readers raise over bytes that make no sense.
BROKEN = (
    EOFError,
    ArithmeticError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class Unsound(Failure):
    """What came is not what was published: there is no use in keeping it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What an honest archive never exceeds."""

    bytes: int  # unpacked, unwanted members included
    members: int = 20_000
    ratio: int = 200  # unpacked bytes to packed ones

    def room(self, archive: Path) -> int:
        """Bytes that may come out of this one."""
        return min(self.bytes, max(self.ratio * archive.stat().st_size, SMALL))


def gunzip(archive: Path, path: Path, limits: Limits) -> None:
    """One compressed file."""
    with _damage(archive), gzip.GzipFile(archive) as packed, path.open("wb") as file:
        _copy(_Capped(packed, limits.room(archive), archive), file)


def unpack(archive: Path, folder: Path, *, kind: Archive, members: str, limits: Limits) -> None:
    """Write the members that match FOLDER/PATTERN; `folder` is there and empty."""
    with _damage(archive):
        sieve = _Sieve(archive, members, limits)
        if kind == "zip":
            _unzip(archive, folder, sieve)
        else:
            with PLAIN[kind](archive) as plain:
                _untar(plain, folder, sieve)
    if not any(folder.iterdir()):
        _refuse(archive, f"no member {members!r}")


class _Sieve:
    """Looks at members one after the other; remembers names, to find two of the same."""

    def __init__(self, archive: Path, members: str, limits: Limits) -> None:
        self.archive = archive
        self.wanted = PurePosixPath(members)
        self.limits = limits
        self.count = 0
        self.seen: set[str] = set()

    def last_name(self, name: str, *, folder: bool) -> str | None:
        """The file to write for a member, if it is wanted; every member's name must be sound."""
        self.count += 1
        if self.count > self.limits.members:
            _refuse(self.archive, f"more than {self.limits.members} members")
        path = PurePosixPath(name)
        odd = "\\" in name or ":" in name or any(ord(letter) < 32 for letter in name)
        if path.is_absolute() or ".." in path.parts or odd or not path.parts:
            _refuse(self.archive, f"the name {name!r}")
        if folder:
            return None
        # Some systems fold case and compose accents: there the second would replace the first.
        key = unicodedata.normalize("NFC", str(path)).casefold()
        if key in self.seen:
            _refuse(self.archive, f"two members named {name!r}")
        self.seen.add(key)
        fits = path.parent == self.wanted.parent and fnmatchcase(path.name, self.wanted.name)
        return path.name if fits else None


class _Capped(io.RawIOBase):
    """Reads from a stream that must not yield more than its room."""

    def __init__(self, stream: io.BufferedIOBase | IO[bytes], room: int, archive: Path) -> None:
        self.stream = stream
        self.left = room
        self.archive = archive

    def read(self, size: int = CHUNK) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            _refuse(self.archive, "far more inside than it should hold")
        return data


def _copy(source: _Capped, file: IO[bytes]) -> None:
    while data := source.read(CHUNK):
        file.write(data)


def _unzip(archive: Path, folder: Path, sieve: _Sieve) -> None:
    room = sieve.limits.room(archive)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.flag_bits & ENCRYPTED:
                _refuse(archive, f"the encrypted member {member.filename!r}")
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                _refuse(archive, f"{member.filename!r}, which is a link or a device")
            # zipfile cuts a name at a zero byte; the name as written must be sound too.
            name = sieve.last_name(member.orig_filename, folder=member.is_dir())
            if name is not None:
                with opened.open(member) as packed, (folder / name).open("xb") as file:
                    source = _Capped(packed, room, archive)
                    _copy(source, file)
                if room - source.left != member.file_size:  # zipfile looks at the sum only
                    _refuse(archive, f"{name!r} shorter than it says")
                room = source.left


def _untar(plain: io.BufferedIOBase, folder: Path, sieve: _Sieve) -> None:
    # Read as a stream, so that what is skipped is counted, and long headers as well.
    room = sieve.limits.room(sieve.archive)
    capped = _Capped(plain, room, sieve.archive)
    with tarfile.open(fileobj=capped, mode="r|") as opened:
        for member in opened:
            if not member.isdir() and (not member.isreg() or member.issparse()):
                _refuse(sieve.archive, f"{member.name!r}, which is a link, a device or sparse")
            if not 0 <= member.size <= room:  # tarfile would go looking for the end of it for ever
                _refuse(sieve.archive, f"{member.name!r} of {member.size} bytes")
            name = sieve.last_name(member.name, folder=member.isdir())
            packed = opened.extractfile(member) if name is not None else None
            if name is not None and packed is not None:
                with (folder / name).open("xb") as file:
                    shutil.copyfileobj(packed, file, CHUNK)


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """Turn what the readers raise over broken bytes into a sentence."""
    try:
        yield
    except BROKEN as error:
        _broken(archive, error)
    except OSError as error:
        # The readers' own have no number, or that of a seek to before the start.
        if error.errno not in (None, errno.EINVAL):
            raise
        _broken(archive, error)


def _broken(archive: Path, error: Exception) -> NoReturn:
    raise Unsound(
        f"{archive}: found a broken archive ({error or type(error).__name__}), wanted a whole one",
        fix="fetch it again",
    ) from error


def _refuse(archive: Path, what: str) -> NoReturn:
    raise Unsound(
        f"{archive}: found {what}, wanted the published archive of plain files",
        fix="nothing was kept of it; fetch it again, from another server if this happens twice",
    )
