"""Open input files. Every reader of Harken opens its files here.

`open_input` accepts regular files of bounded size. Folders, pipes, devices, link loops and missing
files raise `UserError` before a byte is read. Readers that accept `-` read standard
input themselves.
"""

import difflib
import errno
import json
import os
import stat
import struct
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from harken.errors import Failure, UserError
from harken.strict_json import JSON_ERRORS, parse_json

MAX_SHOWN = 200  # characters of a path in a message
MAX_LISTED = 1000  # files of a folder that are compared with a misspelled name
MAX_HEADER = 2**23  # bytes of a safetensors header: 65,536 tensors with names of 50 characters
MAX_TENSORS = 2**16
FILE_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
CHECK = "check that this is the right file"


def open_input(path: Path, expected: str = "a file", *, max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file of at most `max_bytes` for reading; `expected` is named in errors."""
    file_size(path, expected, max_bytes=max_bytes)
    try:
        # Without blocking, because a pipe may have replaced the file after the check.
        nonblocking = getattr(os, "O_NONBLOCK", 0)
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | nonblocking))
    except OSError as error:
        raise _unreadable(path, expected, error) from error


def file_size(path: Path, expected: str = "a file", *, max_bytes: int | None = None) -> int:
    """Return the size of a regular file of at most `max_bytes`; raise `UserError` otherwise."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, expected, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = FILE_TYPES.get(stat.S_IFMT(status.st_mode), "a special file")
        fix = "write the data to a regular file"
        message = f"{short_path(path)}: this is {kind} (expected {expected})"
        raise UserError(message, fix="name a file inside it" if kind == "a folder" else fix)
    if max_bytes is not None and status.st_size > max_bytes:
        limit = f"expected {expected} of at most {max_bytes:,} bytes"
        raise UserError(
            f"{short_path(path)}: the file has {status.st_size:,} bytes ({limit})", fix=CHECK
        )
    return status.st_size


def read_input(path: Path, expected: str = "a file", *, max_bytes: int) -> bytes:
    """Read a whole regular file of at most `max_bytes`."""
    size = file_size(path, expected, max_bytes=max_bytes)
    with open_input(path, expected, max_bytes=max_bytes) as file:
        try:
            content = file.read(size + 1)
            if len(content) > size:  # the file grew, or its file system reports no sizes (/proc)
                content += file.read(max_bytes + 1 - len(content))
        except OSError as error:
            raise _unreadable(path, expected, error) from error
    if len(content) > max_bytes:
        problem = f"the file has more than {max_bytes:,} bytes (expected {expected})"
        raise UserError(f"{short_path(path)}: {problem}", fix=CHECK)
    return content


def read_json(path: Path, expected: str = "a JSON file", *, max_bytes: int) -> Any:
    """Read a JSON file with the strict parser of `harken.strict_json`."""
    content = read_input(path, expected, max_bytes=max_bytes)
    try:
        return parse_json(content.decode("utf-8"))
    except JSON_ERRORS as error:  # UnicodeDecodeError is a ValueError
        message = f"{short_path(path)}: invalid JSON ({str(error)[:200]}, expected {expected})"
        raise UserError(message, fix="restore the file from a copy") from error


def is_file(path: Path) -> bool:
    """Whether the path is a regular file; False for invalid paths."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; False for invalid paths."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Whether a file or folder has this path; False for invalid paths."""
    return _mode(path) != 0


def short_path(path: Path) -> str:
    """Return the path for a message; the middle of a very long path is left out."""
    text, half = str(path), MAX_SHOWN // 2
    return text if len(text) <= MAX_SHOWN else f"{text[:half]}…{text[-half:]}"


class TensorInfo(NamedTuple):
    """Entry of a tensor in a safetensors header."""

    dtype: str  # such as F32
    shape: tuple[int, ...]


def safetensors_header(path: Path) -> dict[str, TensorInfo]:
    """Read the header of a safetensors file: 8 bytes of length, then JSON.

    Length, number of tensors and offsets are checked against the file, because the library reads
    headers of any length and raises exceptions of many types for damaged files.
    """
    size = file_size(path, "a safetensors file")
    with open_input(path, "a safetensors file") as file:
        try:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
            header = parse_json(file.read(length).decode("utf-8"))
            return _checked_tensors(header, size - 8 - length)
        except (OSError, *JSON_ERRORS) as error:
            reason = f"{str(error)[:200]}, expected a safetensors file"
            raise Failure(
                f"{short_path(path)}: the weights cannot be read ({reason})",
                fix="restore the file from a copy, or download it again "
                "(a file of about 130 bytes is a Git LFS pointer)",
            ) from None


def _checked_tensors(header: Any, data_bytes: int) -> dict[str, TensorInfo]:
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise ValueError(f"{len(header):,} tensors, more than {MAX_TENSORS:,}")
    tensors = {}
    for name, fields in header.items():
        tensor = f"tensor {name[:60]!r}"
        match fields:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
                pass
            case _:
                raise ValueError(f"{tensor} has no dtype, shape and data_offsets")
        if not all(type(length) is int and 0 <= length < 2**48 for length in shape):
            raise ValueError(f"{tensor} has the shape {json.dumps(shape)[:60]}")
        if not 0 <= start <= end <= data_bytes:
            raise ValueError(f"{tensor} lies outside of the file")
        tensors[name] = TensorInfo(dtype, tuple(shape))
    return tensors


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except PermissionError:  # the file may exist, so do not report it as missing
        raise
    except (OSError, ValueError):  # missing, name too long, loop of links, null character
        return 0


def _unreadable(path: Path, expected: str, error: OSError | ValueError) -> UserError:
    code = error.errno if isinstance(error, OSError) else errno.ENOENT  # null character
    if code in (errno.ENOENT, errno.ENOTDIR):
        if os.path.islink(str(path).replace("\0", "")):  # noqa: PTH114 (a null must not raise)
            problem, fix = "this is a link to a file that does not exist", "restore its target"
        else:
            problem, fix = "file not found", _suggest_name(path)
    elif code == errno.ENAMETOOLONG:
        problem, fix = f"the path is too long ({len(str(path)):,} characters)", "check the path"
    elif code == errno.ELOOP:
        problem, fix = "this is a loop of symbolic links", "remove or restore the link"
    else:
        reason = getattr(error, "strerror", None) or error
        problem, fix = f"the file cannot be read ({reason})", "check its permissions"
    return UserError(f"{short_path(path)}: {problem} (expected {expected})", fix=fix)


def _suggest_name(path: Path) -> str:
    """Suggest the most similar file name in the folder of a path that does not exist."""
    names: list[str] = []
    with suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, MAX_LISTED) if entry.is_file()]
    similar = difflib.get_close_matches(path.name[:MAX_SHOWN], names, n=1)
    return f"did you mean {similar[0]!r}?" if similar else "check the name and the folder"
