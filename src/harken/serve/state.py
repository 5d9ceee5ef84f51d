"""The state that all requests share, and functions that read requests."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from harken.files import json_text
from harken.serve.errors import ApiError
from harken.serve.library import RunLibrary
from harken.serve.model_thread import Job, ModelThread
from harken.serve.settings import ServerSettings
from harken.serve.store import Store

Result = TypeVar("Result")
CLIENT = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(kw_only=True, slots=True)
class ServerState:
    """ServerSettings, runs, the model thread and stored results."""

    settings: ServerSettings
    library: RunLibrary
    models: ModelThread
    store: Store
    # of the dev set, by version of the run
    predictions: dict[tuple[str, int], Any] = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)  # by status
    streams: int = 0  # of events that are being sent
    stopping: threading.Event = field(default_factory=threading.Event)  # streams end

    def close(self) -> None:
        """Stop the model thread and remove uploads."""
        self.models.close()
        self.store.close()


def make_state(settings: ServerSettings) -> ServerState:
    """Return the state of a new server."""
    return ServerState(
        settings=settings,
        library=RunLibrary(settings.paths, settings.limits.runs),
        models=ModelThread(settings.limits.queue),
        store=Store(settings.limits),
    )


def server_state(request: Request) -> ServerState:
    """Return the state of the server of a request."""
    state: ServerState = request.app.state.server
    return state


def json_response(record: Mapping[str, Any], status: int = 200) -> Response:
    """Return JSON; numbers that are not finite become null."""
    return Response(json_text(record), status, media_type="application/json")


async def read_json_body(request: Request) -> Any:
    """Return the JSON of the body."""
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON", fix="send a JSON object") from None


def client_of(request: Request) -> str | None:
    """Return the name of the client, if it has one."""
    name = request.headers.get("x-harken-client")
    if name is not None and CLIENT.fullmatch(name) is None:
        fix = "use at most 64 letters, digits and -"
        raise ApiError(400, "X-Harken-Client is not a name", fix=fix)
    return name


async def run_job(request: Request, function: Callable[[Job], Result]) -> Result:
    """Call a function in the model thread; it is cancelled if the client disconnects.

    The body of the request must have been read.
    """
    state = server_state(request)
    limit = state.settings.limits.job_seconds
    job = asyncio.ensure_future(
        state.models.run(function, client=client_of(request), timeout=limit)
    )
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ApiError(503, "the client disconnected")
        return job.result()
    finally:
        for task in (job, gone):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
