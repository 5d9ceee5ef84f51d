"""Server-sent events."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from harken.files import json_text
from harken.serve.errors import ApiError, api_error
from harken.serve.state import server_state


def format_event(name: str, data: Mapping[str, Any], identifier: object = None) -> str:
    """Return one event; its data is one line of JSON."""
    line = "" if identifier is None else f"id: {identifier}\n"
    return f"{line}event: {name}\ndata: {json_text(data)}\n\n"


def event_stream(request: Request, events: AsyncIterator[str]) -> Response:
    """Return a response that sends events; an exception becomes the event `failure`."""
    state = server_state(request)
    if state.streams >= state.settings.limits.streams:
        raise ApiError(503, "the server has too many streams of events", fix="close some")

    async def guarded() -> AsyncIterator[str]:
        state.streams += 1
        try:
            async for event in events:
                yield event
        except Exception as error:
            yield format_event("failure", api_error(error).to_json())
        finally:
            state.streams -= 1

    return StreamingResponse(guarded(), media_type="text/event-stream")
