"""Files that are whole or not there: written beside their final name, synced, then renamed.

A power cut or a kill at any moment leaves either the old file or the new one. A disk that refuses
(full, read-only) leaves the old one and raises a `Failure` that names the file.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harken.errors import Failure


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a sentence."""
    try:
        yield
    except OSError as error:
        raise Failure(
            f"{path}: could not be written ({error.strerror or error}), wanted room for it",
            fix="free some space or choose another folder; what was there before is unharmed",
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` when the block ends well."""
    with refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            yield unfinished
            sync(unfinished)
            unfinished.replace(path)
            sync(path.parent)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A whole text file."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """The same for a folder of files: every one is synced before the folder gets its name.

    Names of folders cannot be exchanged in one move: a kill between the two moves leaves the old
    folder whole, but as `.NAME.doomed`.
    """
    with refusals(folder):
        unfinished = folder.with_name(f".{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            yield unfinished
            for file in unfinished.iterdir():
                sync(file)
            sync(unfinished)
            doomed = _set_aside(folder)
            try:
                unfinished.rename(folder)
            except OSError:
                with suppress(FileNotFoundError):  # there was no old one
                    doomed.rename(folder)
                raise
            sync(folder.parent)
            shutil.rmtree(doomed, ignore_errors=True)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Rename first: a folder half removed must not look like a whole one."""
    shutil.rmtree(_set_aside(folder), ignore_errors=True)


def _set_aside(folder: Path) -> Path:
    doomed = folder.with_name(f".{folder.name}.doomed")
    shutil.rmtree(doomed, ignore_errors=True)
    if folder.exists():
        folder.rename(doomed)
    return doomed


def is_file(path: Path) -> bool:
    """Whether a file is there; nothing is there by a name that is too long for any file."""
    try:
        return path.is_file()
    except PermissionError:
        raise
    except OSError:
        return False


def relative_name(folder: Path, name: str, here: Path) -> str:
    """How a file of a folder is called in a file that stands `here`; whole on another drive."""
    try:
        return (Path(os.path.relpath(folder, here)) / name).as_posix()
    except ValueError:  # two drives of Windows
        return (folder / name).as_posix()


def sha256(path: Path) -> str:
    """The digest of a file's bytes, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
