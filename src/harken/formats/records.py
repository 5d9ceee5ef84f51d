"""Parse JSON lines, and check the audio and image files of examples."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.text import Line
from harken.inputs import is_file
from harken.strict_json import JSON_ERRORS, integer, parse_json

Example = TypeVar("Example")


def parse_object(
    line: Line,
    fix: str,
    *,
    parse_int: Callable[[str], int | float] = integer,
    keep_null: bool = False,
) -> dict[str, Any]:
    """Parse a line that is one JSON object; fields that are null are left out by default."""
    text = line.text.strip()[:60]
    try:
        value = parse_json(line.text, parse_int=parse_int)
    except JSON_ERRORS as error:
        problem = f"invalid JSON ({error}; expected one object, got {text!r})"
        raise line.error(problem, fix) from error
    if not isinstance(value, dict):
        raise line.error(f"expected a JSON object, got {text!r}", fix)
    return {key: field for key, field in value.items() if keep_null or field is not None}


def check_keys(
    where: str, keys: Iterable[str], known: Sequence[str], required: Sequence[str] = ()
) -> None:
    """Raise `UserError` for unknown keys, with the nearest known key, and for missing keys."""
    for key in keys:
        if key not in known:
            near = nearest(key, known)
            message = f"{where}: unknown key {key[:60]!r} (expected {', '.join(known)})"
            raise UserError(message, fix=f"did you mean {near!r}?" if near else "remove it")
    for key in required:
        if key not in keys:
            raise UserError(f"{where}: missing key {key!r}", fix=f"add {key!r}")


def check_examples(
    located: Iterable[tuple[str, Example]],
    name: str,
    kind: str,
    check: Callable[[str, Example], object],
) -> list[Example]:
    """Return the examples after checking them and the existence of their files.

    located: examples, each with its location for error messages
    name: the file or folder that the examples are read from
    kind: "image" or "audio file"
    check: raises `UserError` if an example is wrong; returns the path of its file, if it has one
    """
    examples, missing, checked = [], [], set[Path]()
    for where, example in located:
        path = check(where, example)
        if isinstance(path, Path) and path not in checked:
            checked.add(path)
            if not is_file(path):
                missing.append(f"{where}: {kind} not found: {str(path)[:200]}")
        examples.append(example)
    if missing:
        more = f" ({len(missing)} of {len(checked)} files are missing)" if len(missing) > 1 else ""
        fix = "check the paths and the folder that they are relative to"
        raise UserError(f"{missing[0]}{more}", fix=fix)
    if not examples:
        message = f"{name}: no examples (expected at least one)"
        raise UserError(message, fix="check that the file or folder is complete")
    return examples


def require_unicode(where: str, *texts: str) -> None:
    """Raise `UserError` for lone surrogates, which JSON can encode and UTF-8 cannot."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"{where}: expected Unicode text, got {text[:60]!r}"
            raise UserError(message, fix="rename the file, or correct the text") from error
