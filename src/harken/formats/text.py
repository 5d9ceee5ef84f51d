"""Read UTF-8 text files, plain or compressed (gz, zst), as a whole or line by line.

Invalid UTF-8 raises an error that names the line. CRLF is read as LF and a byte order mark is
removed; the text is not normalized otherwise. The path `-` is stdin. Compression is detected by the
first bytes.
"""

import codecs
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import zstandard

from harken.errors import UserError
from harken.inputs import file_size, open_input

STDIN = Path("-")
EXPECTED = "a text file"
MAX_LINE = 2**26  # bytes; a small archive can contain a line that fills the memory
MAX_WHOLE = 2**30  # characters of a text that is read as a whole
BLOCK = 2**16  # bytes
COMPRESSED_BLOCK = 2**10  # bytes, because four bytes of zstd can decompress to 128 KiB
MAX_RATIO = 64  # of decompression; texts have 5 to 10, decompression bombs far more
FREE_BYTES = 2**24  # may be decompressed at any ratio


class Line(NamedTuple):
    """A line without its end, with its file and number."""

    path: Path
    number: int  # from 1
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"

    def error(self, problem: str, fix: str) -> UserError:
        return UserError(f"{self.where}: {problem}", fix=fix)


def display_path(path: Path) -> Path:
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
        yield decompressed(file, path)


def read_lines(path: Path, *, keep_blank: bool = False) -> Iterator[Line]:
    """Yield the lines of a file; skip blank lines, and reject a blank file, unless `keep_blank`."""
    has_text = keep_blank
    with open_text(path) as file:
        for line in iter_lines(file, path):
            if keep_blank or line.text.strip():
                has_text = True
                yield line
    if not has_text:
        raise _no_text(path)


def iter_lines(file: BinaryIO, path: Path) -> Iterator[Line]:
    """Yield all lines of a stream; `path` is used in messages only."""
    path = display_path(path)
    for number, raw in enumerate(iter(partial(file.readline, MAX_LINE + 1), b""), start=1):
        if len(raw) > MAX_LINE:
            problem = f"the line is too long (expected at most {MAX_LINE >> 20} MiB)"
            fix = "check that the file is text, and write one sentence or document per line"
            raise UserError(f"{path}:{number}: {problem}", fix=fix)
        yield Line(path, number, _decoded(raw, path, number).rstrip("\r\n"))


def read_whole(path: Path) -> str:
    """Read a file as one text, with lines of any length; a blank file is an error."""
    blocks, size = [], 0
    for block in read_blocks(path):
        blocks.append(block)
        size += len(block)
        require_readable(size, path)
    return "".join(blocks)


def require_readable(size: int, path: Path) -> None:
    """Raise `UserError` if a text is too large to be held in memory."""
    if size > MAX_WHOLE:
        problem = f"the text is too large (expected at most {MAX_WHOLE >> 30} Gi characters)"
        fix = "take a part of it, for example with `head -c 1G`"
        raise UserError(f"{display_path(path)}: {problem}", fix=fix)


def read_blocks(path: Path) -> Iterator[str]:
    """Yield the text of a file in blocks, in constant memory; a blank file is an error."""
    has_text, data, line, column = False, b"", 1, 0
    with open_text(path) as file:
        block = file.read(BLOCK).removeprefix(codecs.BOM_UTF8)
        while block or data:
            data, is_end = data + block, not block
            try:
                text, used = codecs.utf_8_decode(data, "strict", is_end)
            except UnicodeDecodeError as error:
                raise _not_utf8(error, display_path(path), line, column) from None
            if text.endswith("\r") and not is_end:  # the next block may begin with its line feed
                text, used = text[:-1], used - 1
            if text:
                has_text = has_text or not text.isspace()
                yield text.replace("\r\n", "\n")
            lines = data.count(b"\n", 0, used)
            column = used - data.rfind(b"\n", 0, used) - 1 if lines else column + used
            line, data, block = line + lines, data[used:], file.read(BLOCK)
    if not has_text:
        raise _no_text(path)


def _decoded(raw: bytes, path: Path, number: int) -> str:
    """Decode bytes that start with line `number` of a file."""
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(error, path, number, 0) from None


def _not_utf8(error: UnicodeDecodeError, path: Path, line: int, column: int) -> UserError:
    """Return the error for bytes that start `column` bytes after the start of a line."""
    before, wrong = error.object[: error.start], error.object[error.start]
    lines = before.count(b"\n")
    column = len(before) - before.rfind(b"\n") if lines else column + len(before) + 1
    place = f"{path}:{line + lines}: invalid byte 0x{wrong:02x}, byte {column} of the line"
    # A guess: Windows programs often write these encodings.
    encoding = "UTF-16" if before == b"" and wrong in (0xFE, 0xFF) else "WINDOWS-1252"
    convert = f"iconv -f {encoding} -t UTF-8 {path} > NEW"
    fix = f"convert the file to UTF-8, from the encoding that it has: `{convert}`"
    return UserError(f"{place} (expected UTF-8)", fix=fix)


def _no_text(path: Path) -> UserError:
    message = f"{display_path(path)}: the file has no text (expected at least one line)"
    return UserError(message, fix="check that the file was written or downloaded completely")


# --- compression


class _Compression(NamedTuple):
    suffix: str
    magic: bytes  # the first bytes
    decoder: Callable[[], Any]  # of one gzip member or one zstd frame


GZIP = _Compression(".gz", b"\x1f\x8b", partial(zlib.decompressobj, 16 + zlib.MAX_WBITS))
ZSTD = _Compression(
    ".zst", b"\x28\xb5\x2f\xfd", lambda: zstandard.ZstdDecompressor().decompressobj()
)
# The third entry is the skippable frame with which files of `pzstd` begin.
COMPRESSIONS = (GZIP, ZSTD, ZSTD._replace(magic=b"\x50\x2a\x4d\x18"))


def decompressed(file: BinaryIO, path: Path) -> BinaryIO:
    """Return a stream that decompresses gz and zst; `path` is used in messages only."""
    if not isinstance(file, io.BufferedReader):
        file = io.BufferedReader(cast(io.RawIOBase, file))
    start = file.peek(4)[:4]
    for compression in COMPRESSIONS:
        is_cut = path.suffix == compression.suffix and compression.magic.startswith(start)
        if start.startswith(compression.magic) or is_cut:  # cut off within the magic number
            blocks = _decompressed_blocks(file, compression, display_path(path))
            return io.BufferedReader(_BlockStream(blocks), BLOCK)
    return file


def _decompressed_blocks(
    file: BinaryIO, compression: _Compression, path: Path
) -> Iterator[bytes | memoryview]:
    decoder, count_in, count_out = None, 0, 0
    try:
        while data := file.read(COMPRESSED_BLOCK):
            count_in += len(data)
            while data := data if decoder else data.lstrip(b"\0"):  # members may be padded
                decoder = decoder or compression.decoder()
                block = decoder.decompress(data)
                data, decoder = (decoder.unused_data, None) if decoder.eof else (b"", decoder)
                count_out += len(block)
                if count_out > max(FREE_BYTES, MAX_RATIO * count_in):
                    sizes = f"{count_in:,} bytes decompress to {count_out:,} or more"
                    message = f"{path}: {sizes} (expected a ratio of at most {MAX_RATIO})"
                    raise UserError(message, fix="decompress the file yourself if you trust it")
                yield block
        if decoder:
            raise EOFError("the end is missing")
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        message = f"{path}: damaged archive ({error}; expected a complete file)"
        raise UserError(message, fix="compress or download the file again") from error


class _BlockStream(io.RawIOBase):
    """A stream of blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes | memoryview]) -> None:
        self._blocks, self._block = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._block and (block := next(self._blocks, None)) is not None:
            self._block = memoryview(block)
        count = min(len(buffer), len(self._block))
        buffer[:count], self._block = self._block[:count], self._block[count:]
        return count
