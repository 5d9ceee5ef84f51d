"""Routes of runs."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.serve.state import json_response, server_state


def list_served_runs(request: Request) -> Response:
    """GET /api/runs"""
    return json_response({"runs": server_state(request).library.list_json()})


def describe_run(request: Request) -> Response:
    """GET /api/runs/{run}"""
    return json_response(server_state(request).library.describe(request.path_params["run"]))


ROUTES = (
    Route("/api/runs", list_served_runs),
    Route("/api/runs/{run}", describe_run),
)
