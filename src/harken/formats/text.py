"""Text files, plain, .gz or .zst, strictly UTF-8: whole, or line by line in constant memory.

    bytes -> unpacked where they begin as an archive does -> lines, or one text

A byte that is not UTF-8 is an error with its line, never a replacement character: a silent one
would end up in a vocabulary. CRLF is read as LF and a byte order mark is dropped; nothing else is
changed, so that a letter with a combining accent stays two characters. The path `-` is stdin.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import zstandard

from harken.errors import UserError
from harken.formats import split
from harken.inputs import file_size, open_input

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = Path("-")
EXPECTED = "a text file"
LONGEST_LINE = 2**26  # bytes; a small archive can hold one line that fills the memory
LARGEST_WHOLE = 2**30  # bytes of a text that is held in memory as one
# Four bytes of zstd can stand for 128 KiB of text, so a piece never unpacks to more than 32 MiB.
PIECE = 2**10
BLOCK = 2**16
# Text is compressed to a fifth or a tenth. A file that unpacks to far more is made to fill memory.
MAX_RATIO = 64
FREE_BYTES = 2**24  # that may be unpacked at any ratio


class Line(NamedTuple):
    """A line without its end, and where it stands."""

    path: Path
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


def named(path: Path) -> Path:
    """What a sentence calls the path."""
    return Path("<stdin>") if path == STDIN else path


def require_file(path: Path) -> None:
    """Raise `UserError` unless the path is a regular file or stdin."""
    if path != STDIN:
        file_size(path, EXPECTED)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a text, unpacked; stdin, for `-`, is left open."""
    if path == STDIN and sys.stdin is None:  # closed, as by `<&-`
        raise UserError("<stdin>: found it closed, wanted text", fix="name a file, or use a pipe")
    with nullcontext(sys.stdin.buffer) if path == STDIN else open_input(path, EXPECTED) as file:
        yield unpacked(file, path)


def read_lines(path: Path) -> Iterator[Line]:
    """Every line that is not blank; a file of none is an error."""
    empty = True
    with open_text(path) as file:
        for line in read_every_line(file, path):
            if line.text.strip():
                empty = False
                yield line
    if empty:
        raise _no_text(path)


def read_every_line(file: BinaryIO, path: Path) -> Iterator[Line]:
    """Blank lines too, of a file or a stream; `path` is only its name."""
    path = named(path)
    for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if len(raw) > LONGEST_LINE:
            raise UserError(
                f"{path}:{number}: found a line of more than {LONGEST_LINE >> 20} MiB, "
                "wanted shorter ones",
                fix="check that the file is text, and put one sentence or document on a line",
            )
        yield Line(path, number, _decoded(raw, path, number).rstrip("\r\n"))


def read_whole(path: Path) -> str:
    """A file as one text, however long its lines; one of blanks alone is an error."""
    pieces, size = [], 0
    with open_text(path) as file:
        while piece := file.read(BLOCK):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_WHOLE:
                raise UserError(
                    f"{named(path)}: found more than {LARGEST_WHOLE >> 30} GiB of text, "
                    "wanted one that fits into the memory",
                    fix="take a part of it, for example with `head -c 1G`",
                )
    text = _decoded(b"".join(pieces), named(path), 1).replace("\r\n", "\n")
    if not text.strip():
        raise _no_text(path)
    return text


def hold_out_lines(lines: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """(kept, held out), `share` of the distinct lines held out; neither side is left empty."""
    return split.hold_out(lines, share, seed, key=lambda line: line)


def unpacked(file: BinaryIO, path: Path) -> BinaryIO:
    """The same bytes, or those of the archive that they are; `path` is only a name."""
    if not isinstance(file, io.BufferedReader):
        file = io.BufferedReader(cast(io.RawIOBase, file))
    start = file.peek(4)[:4]
    for archive in ARCHIVES:
        cut_short = path.suffix == archive.suffix and archive.magic.startswith(start)
        if start.startswith(archive.magic) or cut_short:
            return io.BufferedReader(_Unpacked(archive, file, path), BLOCK)
    return file


class Archive(NamedTuple):
    """How a kind of archive begins, and how its text is taken out piece by piece."""

    suffix: str
    magic: bytes
    pieces: Callable[[BinaryIO], Iterator[bytes]]


def _gunzipped(file: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as archive:
        while piece := archive.read1(BLOCK):
            yield piece


def _unzstandard(file: BinaryIO) -> Iterator[bytes]:
    """Frame after frame: `zstd` and `cat` both write files of several.

    Not by `stream_reader`: it takes a file that was cut short for one that has ended.
    """
    frame = None
    while piece := file.read(PIECE):
        while piece:
            if frame is None or frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(piece)
            piece = frame.unused_data if frame.eof else b""
    if frame is not None and not frame.eof:
        raise EOFError("the file ends within a frame")


# None of these is the beginning of a UTF-8 text, but for the control character in the last.
ARCHIVES = (
    Archive(".gz", b"\x1f\x8b", _gunzipped),
    Archive(".zst", b"\x28\xb5\x2f\xfd", _unzstandard),
    Archive(".zst", b"\x50\x2a\x4d\x18", _unzstandard),  # as `pzstd` begins
)


class _Counted:
    """A stream that counts the bytes that are read from it."""

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
        self._packed = _Counted(file)
        self._pieces = archive.pieces(cast(BinaryIO, self._packed))
        self._path = path
        self._rest = memoryview(b"")
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        try:
            while not self._rest:
                self._rest = memoryview(next(self._pieces))
                self._count += len(self._rest)
                self._check_ratio()
        except StopIteration:
            return 0
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise UserError(
                f"{named(self._path)}: found a damaged archive ({error}), wanted a whole one",
                fix="make or download the file again",
            ) from error
        room = memoryview(buffer).cast("B")
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _check_ratio(self) -> None:
        if self._count > max(FREE_BYTES, MAX_RATIO * self._packed.count):
            raise UserError(
                f"{named(self._path)}: {self._packed.count:,} bytes unpack to more than "
                f"{self._count:,} (expected a text compressed to at least 1/{MAX_RATIO} of its "
                "size)",
                fix="unpack the file yourself if you trust it",
            )


def _decoded(raw: bytes, path: Path, number: int) -> str:
    """Bytes that begin with line `number` of a file, as text."""
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        before, wrong = error.object[: error.start], error.object[error.start]
        line, place = number + before.count(b"\n"), len(before) - before.rfind(b"\n")
        raise UserError(
            f"{path}:{line}: found byte 0x{wrong:02x} at place {place} of the line, "
            "wanted UTF-8 text",
            fix="convert the file to UTF-8, for example with `iconv -t UTF-8`",
        ) from None


def _no_text(path: Path) -> UserError:
    return UserError(
        f"{named(path)}: found an empty file, wanted at least one line of text",
        fix="check that the file was written or downloaded whole",
    )
