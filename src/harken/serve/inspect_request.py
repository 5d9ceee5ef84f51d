"""The parameters of an `inspect` request, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harken.errors import UserError
from harken.inspection.refs import HeadPattern, parse_patterns
from harken.serve.errors import ApiError
from harken.serve.settings import Limits

MAX_NBEST, MAX_ALTERNATIVES, MAX_DISABLED = 16, 20, 4096
Method = Literal["zero", "mean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectRequest:
    """One of text, media and example, and how to run the model on it."""

    text: str | None = None
    media: str | None = None
    example: int | None = None
    nbest: int = 1
    alternatives: int = 5
    output: str | None = None
    disabled: tuple[HeadPattern, ...] = ()
    method: Method = "zero"


def parse_json_request(fields: object, limits: Limits) -> InspectRequest:
    """Check the fields of a JSON body."""
    if not isinstance(fields, dict):
        raise invalid("the body", "an object", fields)
    known = InspectRequest.__dataclass_fields__
    if unknown := [name for name in fields if name not in known]:
        raise ApiError(400, f"unknown field {unknown[0][:60]!r}", fix=f"use {', '.join(known)}")
    given = [name for name in ("text", "media", "example") if fields.get(name) is not None]
    if len(given) != 1:
        raise ApiError(
            400, f"expected one of text, media and example, got {len(given)}", fix="send one"
        )
    text, media, output = (_text(fields, name, limits) for name in ("text", "media", "output"))
    return InspectRequest(
        text=text,
        media=media,
        example=None if fields.get("example") is None else _number(fields, "example", 0, 2**31, 0),
        output=output,
        nbest=_number(fields, "nbest", 1, MAX_NBEST, 1),
        alternatives=_number(fields, "alternatives", 0, MAX_ALTERNATIVES, 5),
        disabled=_heads(fields.get("disabled", [])),
        method=parse_method(fields.get("method")),
    )


def parse_upload_request(query: Mapping[str, str], media: str, limits: Limits) -> InspectRequest:
    """Check the query of an upload, which is stored as `media`."""
    fields: dict[str, Any] = dict(query)
    if fields.keys() & {"text", "media", "example"}:
        raise ApiError(400, "an upload has no text, media or example", fix="leave them out")
    for name in fields.keys() & {"nbest", "alternatives"}:
        fields[name] = int(fields[name]) if fields[name].isdecimal() else fields[name]
    if "disabled" in fields:
        fields["disabled"] = [name for name in fields["disabled"].split(",") if name]
    return parse_json_request({**fields, "media": media}, limits)


def parse_method(value: object) -> Method:
    """Return what replaces the output of a removed head."""
    if value is None or value == "zero":
        return "zero"
    if value == "mean":
        return "mean"
    raise invalid("method", "zero or mean", value)


def invalid(name: str, expected: str, value: object) -> ApiError:
    """Return the error for a field with a wrong value."""
    return ApiError(400, f"{name}: expected {expected}, got {str(value)[:60]!r}", fix="change it")


def _text(fields: Mapping[str, Any], name: str, limits: Limits) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise invalid(name, "a text", type(value).__name__)
    if len(value) > limits.text_characters:
        most = f"at most {limits.text_characters:,} characters"
        raise ApiError(413, f"{name}: expected {most}, got {len(value):,}", fix="shorten it")
    return value


def _number(fields: Mapping[str, Any], name: str, minimum: int, maximum: int, default: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not minimum <= value <= maximum:
        raise invalid(name, f"an integer from {minimum} to {maximum}", value)
    return value


def _heads(names: object) -> tuple[HeadPattern, ...]:
    if not isinstance(names, list) or len(names) > MAX_DISABLED:
        raise invalid("disabled", "a list of names of heads", type(names).__name__)
    patterns: list[HeadPattern] = []
    for name in names:
        try:
            if not isinstance(name, str) or "H" not in name or "," in name:
                raise invalid("disabled", "names of heads such as L1.H3", name)
            patterns += parse_patterns("heads", name)
        except UserError:
            raise invalid("disabled", "names of heads such as L1.H3", name) from None
    return tuple(dict.fromkeys(patterns))
