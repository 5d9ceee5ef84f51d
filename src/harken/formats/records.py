"""Parse the JSON lines of manifests and captions, and look for the files that they name."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.files import relative_name, write_text
from harken.formats.text import Line
from harken.inputs import is_file
from harken.strict_json import ERRORS, integer, parsed

Example = TypeVar("Example")


def parse_object(
    line: Line, fix: str, *, whole: Callable[[str], int | float] = integer
) -> dict[str, Any]:
    """Parse a line that is one JSON object; fields that are null are left out."""
    text = line.text.strip()[:60]
    try:
        value = parsed(line.text, whole=whole)
    except ERRORS as error:
        message = f"{line.where}: invalid JSON ({error}; expected one object, got {text!r})"
        raise UserError(message, fix=fix) from error
    if not isinstance(value, dict):
        raise UserError(f"{line.where}: expected a JSON object, got {text!r}", fix=fix)
    return {key: field for key, field in value.items() if field is not None}


def check_keys(
    where: str, found: Iterable[str], known: Sequence[str], required: Sequence[str] = ()
) -> None:
    """Refuse unknown keys, with the nearest known one, and missing keys."""
    for key in found:
        if key not in known:
            near = nearest(key, known)
            raise UserError(
                f"{where}: unknown key {key[:60]!r} (expected {', '.join(known)})",
                fix=f"did you mean {near!r}?" if near else "remove it",
            )
    for key in required:
        if key not in found:
            raise UserError(f"{where}: missing key {key!r}", fix=f"add {key!r}")


def checked_files(
    examples: Iterable[tuple[str, Example]], file_of: Callable[[Example], object], what: str
) -> Iterator[Example]:
    """Yield examples, given with their place; at the end, report the files that do not exist.

    A missing file is an error when the list is read, not an hour into a training.
    """
    there: dict[Path, bool] = {}
    missing = []
    for where, example in examples:
        path = file_of(example)
        if isinstance(path, Path) and path not in there:
            there[path] = is_file(path)
            missing += [] if there[path] else [f"{where}: {what} not found: {str(path)[:200]}"]
        yield example
    if missing:
        more = f" ({len(missing)} of {len(there)} files are missing)" if len(missing) > 1 else ""
        raise UserError(
            f"{missing[0]}{more}",
            fix="check the paths: a relative one begins at the folder of the file that names it",
        )


def require_unicode(where: str, *texts: str) -> None:
    """Refuse lone surrogates, which JSON can spell and no file can contain."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{where}: expected Unicode text, got {text[:60]!r}",
                fix="rename the file, or correct the text",
            ) from error


def write_json_lines(path: Path, records: Sequence[tuple[str, object, dict[str, Any]]]) -> None:
    """Write records of (key, value, other fields); a path is written relative to the file.

    Links in folders are resolved, so that `..` means the same to every reader; a file that is a
    link keeps its own name.
    """
    folders = {value.parent for _, value, _ in records if isinstance(value, Path)}
    resolved = {folder: folder.resolve() for folder in folders}
    here = path.parent.resolve()
    lines = []
    for key, value, fields in records:
        if isinstance(value, Path):
            value = relative_name(resolved[value.parent], value.name, here)
        record = {key: value} | fields
        lines.append(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(path, "".join(lines))
