"""Read UTF-8 text files, plain or compressed (gz, zst), as a whole or line by line.

Invalid UTF-8 is an error with its line. CRLF is read as LF and a byte order mark is removed; no
other normalization is applied. The path `-` is stdin. Compression is detected by the first bytes.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import zstandard

from harken.errors import UserError
from harken.inputs import file_size, open_input

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = Path("-")
EXPECTED = "a text file"
LONGEST_LINE = 2**26  # bytes; a small archive can hold one line that fills the memory
LARGEST_WHOLE = 2**30  # bytes of a text that is read as a whole
PIECE = 2**10  # bytes of zstd: four can stand for 128 KiB, so a piece unpacks to 32 MiB at most
BLOCK = 2**16
MAX_RATIO = 64  # of decompression; texts have 5 to 10, decompression bombs far more
FREE_BYTES = 2**24  # may be decompressed at any ratio


class Line(NamedTuple):
    """A line without its end, with its file and number."""

    path: Path
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"

    def error(self, problem: str, fix: str) -> UserError:
        return UserError(f"{self.where}: {problem}", fix=fix)


def named(path: Path) -> Path:
    """Return the path for messages: `<stdin>` for `-`."""
    return Path("<stdin>") if path == STDIN else path


def require_file(path: Path) -> None:
    """Raise `UserError` unless the path is a regular file or stdin."""
    if path != STDIN:
        file_size(path, EXPECTED)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a text as decompressed bytes; stdin is not closed."""
    if path == STDIN and sys.stdin is None:  # closed by `<&-`
        raise UserError("<stdin>: it is closed", fix="name a file, or use a pipe")
    with nullcontext(sys.stdin.buffer) if path == STDIN else open_input(path, EXPECTED) as file:
        yield unpacked(file, path)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines that are not blank; a file without any is an error."""
    empty = True
    with open_text(path) as file:
        for line in read_every_line(file, path):
            if line.text.strip():
                empty = False
                yield line
    if empty:
        raise _no_text(path)


def read_every_line(file: BinaryIO, path: Path) -> Iterator[Line]:
    """Yield all lines of a stream, also blank ones; `path` is used in messages only."""
    path = named(path)
    for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if len(raw) > LONGEST_LINE:
            problem = f"the line is too long (expected at most {LONGEST_LINE >> 20} MiB)"
            fix = "check that the file is text, and write one sentence or document per line"
            raise UserError(f"{path}:{number}: {problem}", fix=fix)
        yield Line(path, number, _decoded(raw, path, number).rstrip("\r\n"))


def read_whole(path: Path) -> str:
    """Read a file as one text, with lines of any length; a blank file is an error."""
    pieces, size = [], 0
    with open_text(path) as file:
        while piece := file.read(BLOCK):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_WHOLE:
                problem = f"the text is too large (expected at most {LARGEST_WHOLE >> 30} GiB)"
                fix = "take a part of it, for example with `head -c 1G`"
                raise UserError(f"{named(path)}: {problem}", fix=fix)
    text = _decoded(b"".join(pieces), named(path), 1).replace("\r\n", "\n")
    if not text.strip():
        raise _no_text(path)
    return text


def unpacked(file: BinaryIO, path: Path) -> BinaryIO:
    """Return a stream that decompresses gz and zst; `path` is used in messages only."""
    if not isinstance(file, io.BufferedReader):
        file = io.BufferedReader(cast(io.RawIOBase, file))
    start = file.peek(4)[:4]
    for archive in ARCHIVES:
        truncated = path.suffix == archive.suffix and archive.magic.startswith(start)
        if start.startswith(archive.magic) or truncated:
            return io.BufferedReader(_Unpacked(archive, file, path), BLOCK)
    return file


class Archive(NamedTuple):
    """A compressed format: its first bytes, and a generator of decompressed pieces."""

    suffix: str
    magic: bytes
    pieces: Callable[[BinaryIO], Iterator[bytes]]


def _gunzipped(file: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as archive:
        while piece := archive.read1(BLOCK):
            yield piece


def _unzstandard(file: BinaryIO) -> Iterator[bytes]:
    # Not with `stream_reader`, which accepts truncated files. A file can have several frames.
    frame = None
    while piece := file.read(PIECE):
        while piece:
            if frame is None or frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(piece)
            piece = frame.unused_data if frame.eof else b""
    if frame is not None and not frame.eof:
        raise EOFError("the file ends within a frame")


# Only the last can start a UTF-8 text, with a control character.
ARCHIVES = (
    Archive(".gz", b"\x1f\x8b", _gunzipped),
    Archive(".zst", b"\x28\xb5\x2f\xfd", _unzstandard),
    Archive(".zst", b"\x50\x2a\x4d\x18", _unzstandard),  # written by `pzstd`
)


class _CountedReads:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.count += len(piece)
        return piece


class _Unpacked(io.RawIOBase):
    """The bytes of an archive as a stream; damage and decompression bombs raise `UserError`."""

    def __init__(self, archive: Archive, file: BinaryIO, path: Path) -> None:
        self._packed = _CountedReads(file)
        self._pieces = archive.pieces(cast(BinaryIO, self._packed))
        self._path, self._count, self._rest = path, 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        try:
            while not self._rest:
                self._rest = memoryview(next(self._pieces))
                self._count += len(self._rest)
                if self._count > max(FREE_BYTES, MAX_RATIO * self._packed.count):
                    raise self._too_large()
        except StopIteration:
            return 0
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            message = f"{named(self._path)}: damaged archive ({error}; expected a complete file)"
            raise UserError(message, fix="compress or download the file again") from error
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _too_large(self) -> UserError:
        sizes = f"{self._packed.count:,} bytes decompress to {self._count:,} or more"
        message = f"{named(self._path)}: {sizes} (expected a ratio of at most {MAX_RATIO})"
        return UserError(message, fix="decompress the file yourself if you trust it")


def _decoded(raw: bytes, path: Path, number: int) -> str:
    """Decode bytes that start with line `number` of a file."""
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        before, wrong = error.object[: error.start], error.object[error.start]
        line, place = number + before.count(b"\n"), len(before) - before.rfind(b"\n")
        message = f"{path}:{line}: invalid byte 0x{wrong:02x} at column {place} (expected UTF-8)"
        fix = "convert the file to UTF-8, for example with `iconv -t UTF-8`"
        raise UserError(message, fix=fix) from None


def _no_text(path: Path) -> UserError:
    message = f"{named(path)}: the file is empty (expected at least one line of text)"
    return UserError(message, fix="check that the file was written or downloaded completely")
