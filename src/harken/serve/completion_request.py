"""The parameters of a completion, checked."""

from dataclasses import dataclass
from typing import Any

from harken.serve.errors import ApiError
from harken.serve.inspect_request import invalid
from harken.serve.settings import Limits

MAX_PROMPTS, MAX_N, MAX_TOKENS, MAX_STOPS = 16, 8, 1024, 4
IGNORED = {"user", "best_of", "frequency_penalty", "presence_penalty", "suffix", "stream_options"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """A request of the OpenAI API; `temperature` 0 is greedy search."""

    model: str
    prompts: list[str]
    max_tokens: int
    temperature: float
    top_p: float | None
    n: int
    seed: int
    echo: bool
    logprobs: int | None
    stream: bool
    stop: list[str]


def parse_completion(fields: Any, limits: Limits) -> CompletionRequest:
    """Check the fields of a JSON body."""
    if not isinstance(fields, dict):
        raise invalid("the body", "an object", fields)
    known = {*CompletionRequest.__dataclass_fields__, "prompt", *IGNORED} - {"prompts"}
    if unknown := fields.keys() - known:
        raise ApiError(400, f"unknown field {min(unknown)[:60]!r}", fix="leave it out")
    for name in IGNORED & fields.keys():
        if name != "user" and fields[name] not in (None, 0, 0.0, 1, "", {}):
            raise ApiError(400, f"{name} is not supported", fix="leave it out")
    prompts = fields.get("prompt", "")
    prompts = [prompts] if isinstance(prompts, str) else prompts
    stop = fields.get("stop") or []
    request = CompletionRequest(
        model=_texts("model", [fields.get("model")], 1, limits)[0],
        prompts=_texts("prompt", prompts, MAX_PROMPTS, limits),
        max_tokens=int(_number(fields, "max_tokens", 16, 0, MAX_TOKENS, whole=True)),
        temperature=_number(fields, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(fields, "top_p", 1.0, 1e-6, 1.0),
        n=int(_number(fields, "n", 1, 1, MAX_N, whole=True)),
        seed=int(_number(fields, "seed", 0, 0, 2**31, whole=True)),
        echo=_flag(fields, "echo"),
        logprobs=None
        if fields.get("logprobs") is None
        else int(_number(fields, "logprobs", 0, 0, 20, whole=True)),
        stream=_flag(fields, "stream"),
        stop=_texts("stop", [stop] if isinstance(stop, str) else stop, MAX_STOPS, limits),
    )
    is_single = len(request.prompts) == request.n == 1 and request.logprobs is None
    if request.stream and not is_single:
        raise ApiError(400, "stream: expected one prompt, n = 1 and no logprobs", fix="change it")
    return request


def _texts(name: str, values: Any, most: int, limits: Limits) -> list[str]:
    if not isinstance(values, list) or len(values) > most:
        raise invalid(name, f"a text or at most {most} texts", type(values).__name__)
    for value in values:
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise invalid(name, "texts", type(value).__name__)
        if len(value) > limits.text_characters:
            most_characters = f"at most {limits.text_characters:,} characters"
            problem = f"{name}: expected {most_characters}, got {len(value):,}"
            raise ApiError(413, problem, fix="shorten it")
    return values


def _number(
    fields: dict[str, Any],
    name: str,
    default: float,
    minimum: float,
    maximum: float,
    *,
    whole: bool = False,
) -> float:
    value = fields.get(name)
    value = default if value is None else value
    is_number = type(value) is int or (type(value) is float and not whole)
    if not is_number or not minimum <= value <= maximum:
        kind = "an integer" if whole else "a number"
        raise invalid(name, f"{kind} from {minimum} to {maximum}", value)
    return float(value)


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value not in (None, True, False):
        raise invalid(name, "true or false", value)
    return bool(value)
