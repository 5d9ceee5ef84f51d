"""Write files atomically: under a temporary name, synced to the disk, then renamed.

A power failure or a kill leaves either the old file or the new one. If writing fails, the old file
is unchanged and the error names it.
"""

import errno
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import Failure, UserError, is_wrong_path

if TYPE_CHECKING:
    from torch import Tensor

LOCK = ".lock"
# PyTorch dtypes -> their names in safetensors files
STORED_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing into a `UserError` or a `Failure`."""
    try:
        yield
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror or error})"
        if is_wrong_path(error):
            raise UserError(message, fix="choose another path") from error
        fix = "free some space or choose another folder; earlier files are unchanged"
        raise Failure(message, fix=fix) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` if the block succeeds."""
    unfinished = _temporary(path)
    with convert_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            sync(unfinished)
            unfinished.replace(path)
            sync(path.parent)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise, before anything is computed, the error that writing this file would raise."""
    with convert_write_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = _temporary(path)
        unfinished.touch()
        unfinished.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def stored_order(tensors: Mapping[str, "Tensor"]) -> list[str]:
    """Return the order of tensors in a file: large elements first, for alignment, then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))


def write_tensors(
    path: Path,
    tensors: Mapping[str, "Tensor"],
    load: Callable[["Tensor"], "Tensor"] = lambda tensor: tensor,
) -> None:
    """Write a safetensors file; call it inside `replacing` or `replacing_folder`.

    `load` is called for each tensor in turn, and its result is dropped before the next call. The
    `safetensors` library would need all loaded tensors in memory at once.
    """
    from torch import uint8

    header, end, names = {}, 0, stored_order(tensors)
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.itemsize
        dtype = STORED_TYPES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            data = load(tensors[name]).detach().cpu().contiguous().reshape(-1)
            file.write(data.view(uint8).numpy().data)


@contextmanager
def appended(path: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that appends a line to a text file; each line is written at once."""
    with convert_write_errors(path):
        file = path.open("a", encoding="utf-8", buffering=1, newline="\n")

    def write_line(line: str) -> None:
        with convert_write_errors(path):
            file.write(line + "\n")

    try:
        yield write_line
    finally:
        with suppress(OSError):  # closing tries again to write to a full disk
            file.close()


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` if the block succeeds."""
    unfinished = _temporary(folder)
    with convert_write_errors(folder):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            yield unfinished
            for file in unfinished.iterdir():
                sync(file)
            sync(unfinished)
            # A kill between these two renames leaves no `folder`, only the two temporary ones.
            old = _set_aside(folder)
            try:
                unfinished.rename(folder)
            except OSError:
                with suppress(FileNotFoundError):  # there was no old folder
                    old.rename(folder)
                raise
            sync(folder.parent)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted writes and deletions left in a folder and its subfolders."""
    for pattern in (".*.unfinished", ".*.removed"):
        for path in list(folder.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create and lock a folder, or raise `UserError` if another process has locked it."""
    with convert_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / LOCK
        handle = _acquire(lock)
    try:
        yield
    finally:
        if os.name == "nt":  # Windows cannot remove an open file
            os.close(handle)
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        if os.name != "nt":
            os.close(handle)


def _acquire(lock: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_file(handle)
            # The process that held the lock may have removed the file after it was opened here.
            if lock.exists() and os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            message = f"{lock.parent}: another process is training in this folder"
            raise UserError(message, fix="wait until it ends, or choose another folder") from None
        except FileNotFoundError:
            pass
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process trains in a folder; a killed process leaves the file without a lock."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except OSError:
        return False
    try:
        _lock_file(handle)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _lock_file(handle: int) -> None:
    """Lock an open file or raise BlockingIOError; the lock of a killed process is released."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            raise BlockingIOError from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_folder(folder: Path) -> None:
    """Rename a folder, then remove it, so that a partly removed folder never looks complete."""
    shutil.rmtree(_set_aside(folder), ignore_errors=True)


def _set_aside(folder: Path) -> Path:
    """Rename a folder, if it exists, to a temporary name, and return the new path."""
    old = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    return old


def relative_name(folder: Path, name: str, here: Path) -> str:
    """Return the path of a file relative to the folder `here`; absolute on another drive."""
    try:
        return (Path(os.path.relpath(folder, here)) / name).as_posix()
    except ValueError:  # two Windows drives
        return (folder / name).as_posix()


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_text(record: Any, indent: int | None = None) -> str:
    """Return a record as JSON, with null for NaN and infinity."""
    return json.dumps(_finite(record), ensure_ascii=False, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
