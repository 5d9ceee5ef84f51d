"""Routes that describe the server: health, Prometheus metrics and the OpenAPI document."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from harken.serve.errors import TYPES
from harken.serve.state import json_response, server_state
from harken.version import __version__

PARAMETER = re.compile(r"{(\w+)(:int)?}")


async def healthz(request: Request) -> Response:
    """GET /healthz: whether the server answers; needs no token"""
    return json_response({"status": "ok"})


async def metrics(request: Request) -> Response:
    """GET /metrics: counts for Prometheus"""
    state = server_state(request)
    lines = ["# TYPE harken_answers_total counter"]
    lines += [
        f'harken_answers_total{{status="{status}"}} {count}'
        for status, count in sorted(state.answers.items())
    ]
    gauges = {"waiting_requests": state.models.waiting, "event_streams": state.streams}
    for name, value in {**gauges, **state.store.sizes}.items():
        lines += [f"# TYPE harken_{name} gauge", f"harken_{name} {value}"]
    return PlainTextResponse("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")


async def openapi(request: Request) -> Response:
    """GET /openapi.json: this API as an OpenAPI document"""
    paths: dict[str, dict[str, Any]] = {}
    for route in request.app.routes:
        if isinstance(route, Route):
            methods = (route.methods or set()) - {"HEAD"}
            path = PARAMETER.sub(r"{\1}", route.path)
            paths.setdefault(path, {}).update(
                {method.lower(): operation(route) for method in sorted(methods)}
            )
    error = {"properties": {name: {"type": "string"} for name in ("type", "message", "fix")}}
    schemas = {"Error": {"type": "object", "properties": {"error": error}}}
    return json_response(
        {
            "openapi": "3.1.0",
            "info": {"title": "Harken", "version": __version__},
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def operation(route: Route) -> dict[str, Any]:
    """Return the OpenAPI description of a route."""
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if number else "string"},
        }
        for name, number in PARAMETER.findall(route.path)
    ]
    schema = {"$ref": "#/components/schemas/Error"}
    problem = {"content": {"application/json": {"schema": schema}}}
    summary = (route.endpoint.__doc__ or "").splitlines()[0]
    return {
        "operationId": route.name,
        "summary": summary.partition(": ")[2] or route.name.replace("_", " "),
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer"},
            **{
                str(status): {"description": kind, **problem}
                for status, kind in TYPES.items()
                if status in (400, 401, 404, 503)
            },
        },
    }


ROUTES = (
    Route("/healthz", healthz),
    Route("/metrics", metrics),
    Route("/openapi.json", openapi),
)
