"""Errors with a message for the user: what is wrong, where, and how to fix it.

`UserError` (exit code 2) reports wrong input: `where: problem (expected X, got Y); fix`. `Failure`
(exit code 1) reports a problem outside of the input, such as a full disk, a failed download or a
damaged file of a run. Bugs of Harken are `AssertionError`.
"""

import errno
from collections.abc import Callable
from functools import partial

MAX_LENGTH = 1000  # characters of a message
LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


class DataWarning(UserWarning):
    """Some of the data does not fit the model and is truncated or left out."""


class HarkenError(Exception):
    """Base class of errors with a message and a fix."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str) -> None:
        self.message, self.fix = _one_line(message), _one_line(fix)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}"

    # Errors are pickled for other processes; by default, unpickling would not pass `fix`.
    def __reduce__(self) -> tuple[Callable[[str], "HarkenError"], tuple[str]]:
        return partial(type(self), fix=self.fix), (self.message,)


def _one_line(text: str) -> str:
    """Return the text as one line of bounded length, because messages quote contents of files."""
    half = MAX_LENGTH // 2
    short = text if len(text) <= MAX_LENGTH else f"{text[:half]}…{text[-half:]}"
    return short.translate(LINE_ENDS)


class UserError(HarkenError):
    """The input is wrong."""

    exit_code = 2


class OptionError(UserError):
    """An option does not suit the task or the model, so that every input would fail."""


class Failure(HarkenError):
    """A problem outside of the input, such as a full disk, a failed download or damaged weights."""


def is_wrong_path(error: OSError) -> bool:
    """Whether another path would work, unlike with a full or broken disk."""
    types = (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)
    codes = (errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP, errno.ENOENT)
    return isinstance(error, types) or error.errno in codes


def error_text(error: Exception) -> str:
    """Describe an error in one line, also if the operating system raised it."""
    if isinstance(error, PermissionError):
        return _one_line(f"{error.filename}: permission denied; change its permissions")
    if isinstance(error, OSError) and error.filename is not None:
        return _one_line(f"{error.filename}: {error.strerror}")
    return str(error)
