"""Errors of the API: a status and a JSON object with type, message and fix."""

import re
from collections.abc import Mapping

from starlette.responses import JSONResponse

from harken.errors import HarkenError, UserError

_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/:'\"`]+/)+")  # of absolute paths in messages
RETRY_AFTER = 1  # seconds
TYPES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "superseded",
    410: "expired",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_input",
    431: "too_large",
    500: "internal",
    503: "busy",
}


class ApiError(Exception):
    """An answer with an error status."""

    def __init__(
        self, status: int, message: str, *, fix: str = "see the API", kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.fix = status, message, fix
        self.kind = kind or TYPES[status]

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(RETRY_AFTER)} if self.status == 503 else {}

    def to_json(self) -> dict[str, object]:
        return {"error": {"type": self.kind, "message": self.message, "fix": self.fix}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status, headers=dict(self.headers))


def api_error(error: Exception) -> ApiError:
    """Return the answer to an exception; unexpected exceptions are not described.

    Paths are shortened to their last part, because clients need not know the folders.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HarkenError):
        kind = "invalid_input" if isinstance(error, UserError) else "damaged"
        message, fix = (_FOLDERS.sub("", text) for text in (error.message, error.fix))
        return ApiError(422, message, fix=fix, kind=kind)
    return ApiError(500, "the server failed to answer", fix="see the output of the server")
