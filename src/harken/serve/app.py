"""The application: routes, static files and the state that requests share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from harken.errors import HarkenError
from harken.serve import (
    completions,
    curves,
    effects,
    examples,
    inspections,
    runs,
    status,
    transcriptions,
)
from harken.serve.errors import ApiError, api_error
from harken.serve.guard import Guard
from harken.serve.state import ServerState

STATIC = Path(__file__).parent / "static"


def build_app(state: ServerState) -> ASGIApp:
    """Return the application behind its guard."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        state.close()

    app = Starlette(
        routes=[
            Route("/", index),
            *runs.ROUTES,
            *inspections.ROUTES,
            *effects.ROUTES,
            *examples.ROUTES,
            *curves.ROUTES,
            *completions.ROUTES,
            *transcriptions.ROUTES,
            *status.ROUTES,
            Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
        ],
        exception_handlers={
            HTTPException: http_error,
            ApiError: any_error,
            HarkenError: any_error,
            Exception: any_error,
        },
        lifespan=lifespan,
    )
    app.state.server = state
    return Guard(app, state.settings, state.answers)


async def index(request: Request) -> Response:
    """Return the page of the workbench."""
    page = STATIC / "index.html"
    if not page.is_file():
        raise ApiError(404, "this installation has no workbench", fix="use the API")
    return FileResponse(page, headers={"Cache-Control": "no-cache"})


async def http_error(request: Request, error: Exception) -> Response:
    """Return the JSON of an error that the router raised."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return ApiError(405, "this address has other methods", fix="see /openapi.json").response()
    return ApiError(404, "there is nothing at this address", fix="see /openapi.json").response()


async def any_error(request: Request, error: Exception) -> Response:
    """Return the JSON of an exception; `Guard` logs unexpected ones."""
    return api_error(error).response()
