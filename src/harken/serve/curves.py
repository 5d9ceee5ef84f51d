"""Routes of learning curves, and of the keys in which two recipes differ."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken import config
from harken.files import is_locked
from harken.inputs import is_file, open_input
from harken.run_folder import LOG, RECIPE, read_events
from harken.run_list import list_run
from harken.serve.events import event_stream, format_event
from harken.serve.inspections import query_number
from harken.serve.library import RunFolder
from harken.serve.state import json_response, server_state

POLL_SECONDS = 0.5
MAX_PART = 2**22  # bytes of a log that are read at once
MAX_POSITION = 10**12


def get_curves(request: Request) -> Response:
    """GET /api/runs/{run}/curves"""
    run = server_state(request).library.find(request.path_params["run"])
    events, position = list[dict[str, Any]](), 0
    while True:
        new, end = read_log_part(run.folder / LOG, position)
        events += (event for event, _ in new)
        if end == position:
            break
        position = end
    return json_response({"state": state_of(run), "events": events, "position": position})


async def stream_curves(request: Request) -> Response:
    """GET /api/runs/{run}/curves/events"""
    run = server_state(request).library.find(request.path_params["run"])
    position = query_number(request, "position", 0, 0, MAX_POSITION)
    last = request.headers.get("last-event-id", "")
    if last.isdecimal() and len(last) <= 12:
        position = int(last)
    return event_stream(request, curve_events(request, run, position))


async def curve_events(request: Request, run: RunFolder, position: int) -> AsyncIterator[str]:
    """Yield the events after a position of the log, and changes of the state of the run."""
    stopping, shown, idle = server_state(request).stopping, None, 0.0
    while not stopping.is_set():
        new, position = await run_in_threadpool(read_log_part, run.folder / LOG, position)
        for event, end in new:
            yield format_event("log", event, end)
        state = await run_in_threadpool(state_of, run)
        if state != shown:
            shown, idle = state, 0.0
            yield format_event("state", {"state": state})
        elif idle >= 15:
            idle = 0.0
            yield ": still here\n\n"  # a comment, which ends the wait for a client that is gone
        await asyncio.sleep(POLL_SECONDS)
        idle += POLL_SECONDS


def read_log_part(path: Path, position: int) -> tuple[list[tuple[dict[str, Any], int]], int]:
    """Return events after a position of a log, each with its end, and the new position.

    A line that is not complete yet is read later. If the log became shorter, as when a run is
    resumed from a checkpoint, it is read from its start.
    """
    if not is_file(path):
        return [], 0
    with open_input(path, "a log of training") as file:
        size = path.stat().st_size
        position = 0 if position > size else position
        file.seek(position)
        content = file.read(MAX_PART)
    complete = content[: content.rfind(b"\n") + 1]
    events, end = [], position
    for line in complete.splitlines(keepends=True):
        end += len(line)
        events += [(event, end) for event in read_events(io.BytesIO(line))]
    return events, end


def state_of(run: RunFolder) -> str:
    """Return the state of a run: training, finished, interrupted or damaged."""
    if is_locked(run.folder):
        return "training"
    return list_run(run.folder, run.name).state


def compare_recipes(request: Request) -> Response:
    """GET /api/recipes/diff"""
    library = server_state(request).library
    first, second = (
        library.find(request.query_params.get(name, "")) for name in ("first", "second")
    )
    values = [flat(config.load_source(run.folder / RECIPE).tree) for run in (first, second)]
    keys = dict.fromkeys([*values[0], *values[1]])
    rows = [
        {"key": key, "first": values[0].get(key), "second": values[1].get(key)}
        for key in keys
        if values[0].get(key) != values[1].get(key)
    ]
    names = [{"id": run.id, "name": run.name} for run in (first, second)]
    return json_response({"first": names[0], "second": names[1], "rows": rows})


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their full keys."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values


ROUTES = (
    Route("/api/runs/{run}/curves", get_curves),
    Route("/api/runs/{run}/curves/events", stream_curves),
    Route("/api/recipes/diff", compare_recipes),
)
