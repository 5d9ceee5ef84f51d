"""The two ways in which Harken gives up, each with one sentence for a person.

`UserError` is a wrong input (exit code 2): it says where, what was found, what was wanted, and how
to mend it. `Failure` is a machine that cannot go on (exit code 1): a full disk, damaged weights.
A broken invariant of Harken's own is an `assert`, never one of these.
"""

import errno

MAX_LENGTH = 1000  # characters of a message
LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


class DataWarning(UserWarning):
    """Some of the data does not fit the model and is truncated or left out."""


class Complaint(Exception):
    """What both share: a message of what and where, and a fix that a person can carry out."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str) -> None:
        self.message, self.fix = _one_line(message), _one_line(fix)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}"


def _one_line(text: str) -> str:
    """Return a text as one line of bounded length: messages quote what files contain."""
    half = MAX_LENGTH // 2
    short = text if len(text) <= MAX_LENGTH else f"{text[:half]}…{text[-half:]}"
    return short.translate(LINE_ENDS)


class UserError(Complaint):
    """The input is wrong; nothing was changed."""

    exit_code = 2


class OptionError(UserError):
    """An option does not suit the task or the model, whatever the input is."""


class Failure(Complaint):
    """The input may be right, but the machine or a stored file is not."""

    exit_code = 1


def is_wrong_path(error: OSError) -> bool:
    """Whether another path would have worked, as opposed to a full or broken disk."""
    wrong = (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)
    numbers = (errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP, errno.ENOENT)
    return isinstance(error, wrong) or error.errno in numbers


def error_text(error: Exception) -> str:
    """Describe an error in one line, also where the operating system raised it."""
    if isinstance(error, PermissionError):
        return _one_line(f"{error.filename}: permission denied; change its mode or owner")
    if isinstance(error, OSError) and error.filename is not None:
        return _one_line(f"{error.filename}: {error.strerror}")
    return str(error)
