"""Routes that run a model on one input and return its attention."""

import io
from typing import Any

import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from harken.report.palette import max_pool
from harken.run import Run
from harken.serve.errors import ApiError
from harken.serve.inspect_request import (
    InspectRequest,
    invalid,
    parse_json_request,
    parse_upload_request,
)
from harken.serve.inspection import Inspection, inspect_input
from harken.serve.model_thread import Job
from harken.serve.state import (
    ServerState,
    json_response,
    read_json_body,
    run_job,
    server_state,
)
from harken.tasks.attention_view import AttentionView

MEDIA = ("audio/", "image/", "application/octet-stream", "video/webm", "video/ogg")
MAX_ROWS = 2**31


async def inspect_run(request: Request) -> Response:
    """POST /api/runs/{run}/inspect"""
    state, run_id = server_state(request), request.path_params["run"]
    state.library.find(run_id)
    parsed = await parse_request(request, state)

    def inspect(job: Job) -> Inspection:
        run = state.library.load(run_id)
        job.check()
        return inspect_input(run, parsed, source_of(state, run, parsed))

    inspection = await run_job(request, inspect)
    identifier = state.store.add_inspection(inspection)
    form = inspection.run.input_form
    inspection.record.update(
        id=identifier,
        run=run_id,
        input={
            "form": form,
            "text": parsed.text,
            "media": parsed.media,
            "example": parsed.example,
            "url": media_url(run_id, form, parsed),
        },
    )
    for number, view in enumerate(inspection.record["views"]):
        url = f"/api/inspections/{identifier}/views/{number}"
        if view["sound"] is not None:
            view["sound"]["url"] = f"{url}/spectrogram"
        if view["picture"] is not None:
            view["picture"]["url"] = f"{url}/image" if view["picture"]["width"] else None
    return json_response(inspection.record)


async def parse_request(request: Request, state: ServerState) -> InspectRequest:
    """Return the request in a JSON body, or that of an upload."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    limits = state.settings.limits
    if media_type == "application/json":
        return parse_json_request(await read_json_body(request), limits)
    if not media_type.startswith(MEDIA):
        fix = "send JSON, or a sound or image with its type"
        raise ApiError(415, f"unsupported type of body {media_type[:60]!r}", fix=fix)
    parse_upload_request(request.query_params, "", limits)  # before the body is read
    content = await request.body()
    if not content:
        raise ApiError(400, "the body is empty", fix="send the bytes of a sound or image")
    media = state.store.add_upload(content, media_type)
    return parse_upload_request(request.query_params, media, limits)


def source_of(state: ServerState, run: Run, request: InspectRequest) -> str:
    """Return the input of `Run.predict`: a text, or the name of a file that the server chose."""
    if request.example is not None:
        examples = run.examples("dev")
        if request.example >= len(examples):
            raise ApiError(404, f"the dev set has {len(examples):,} examples", fix="choose one")
        if not (source := run.task.input(examples[request.example])):
            raise ApiError(422, "the example has no input", fix="choose another")
        return source
    if request.text is not None:
        if run.input_form != "lines":
            fix = "send the bytes of a file, media or example"
            raise ApiError(400, f"the run reads {run.input_form}, not texts", fix=fix)
        if not request.text.strip() and run.recipe.task != "lm":
            raise ApiError(422, "the text is empty", fix="enter a text")
        return request.text
    if run.input_form == "lines":
        raise ApiError(400, "the run reads texts, not files", fix="send a text")
    assert request.media is not None
    return str(state.store.upload(request.media).path)


def media_url(run_id: str, form: str, request: InspectRequest) -> str | None:
    """Return the address of the sound or image of a request."""
    if form == "lines":
        return None
    if request.media is not None:
        return f"/api/media/{request.media}"
    return f"/api/runs/{run_id}/examples/{request.example}/media"


def get_inspection(request: Request) -> Response:
    """GET /api/inspections/{inspection}"""
    return json_response(stored_inspection(request).record)


def get_weights(request: Request) -> Response:
    """GET /api/inspections/{inspection}/weights/{layer}/{head}"""
    layer = stored_inspection(request).layer(request.path_params["layer"])
    head = request.path_params["head"]
    if head == "mean":
        weights = layer.weights.astype(np.float64).mean(axis=0)
    elif head.isdecimal() and len(head) < 6 and int(head) in layer.heads:
        weights = layer.weights[layer.heads.index(int(head))]
    else:
        last = layer.heads[-1]
        raise ApiError(
            404, f"{layer.name} has no such head (expected 1 to {last}, or mean)", fix="choose one"
        )
    first = query_number(request, "first", 0, 0, MAX_ROWS)
    weights = weights[first : first + query_number(request, "count", len(weights), 1, MAX_ROWS)]
    if "size" in request.query_params and weights.size:
        weights = max_pool(weights[None], query_number(request, "size", 128, 1, MAX_ROWS))[0]
    sizes = {"X-Rows": str(weights.shape[0]), "X-Columns": str(weights.shape[1])}
    return binary(weights, sizes)


def get_spectrogram(request: Request) -> Response:
    """GET /api/inspections/{inspection}/views/{view}/spectrogram"""
    sound = stored_view(request).sound
    if sound is None:
        raise ApiError(404, "the view has no sound", fix="see its JSON")
    frames, bins = sound.spectrogram.shape
    return binary(sound.spectrogram, {"X-Rows": str(frames), "X-Columns": str(bins)})


def get_image(request: Request) -> Response:
    """GET /api/inspections/{inspection}/views/{view}/image"""
    picture = stored_view(request).picture
    if picture is None or picture.image is None:
        raise ApiError(404, "the view has no image", fix="see its JSON")
    pixels, file = picture.image, io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")


def get_media(request: Request) -> Response:
    """GET /api/media/{media}"""
    upload = server_state(request).store.upload(request.path_params["media"])
    return FileResponse(upload.path, media_type=upload.media_type)


def stored_inspection(request: Request) -> Inspection:
    """Return the inspection that the path names."""
    return server_state(request).store.inspection(request.path_params["inspection"])


def stored_view(request: Request) -> AttentionView:
    """Return the view that the path names."""
    views, number = stored_inspection(request).views, request.path_params["view"]
    if number >= len(views):
        raise ApiError(404, f"the inspection has {len(views)} views", fix="choose one")
    view: AttentionView = views[number].view
    return view


def query_number(request: Request, name: str, default: int, minimum: int, maximum: int) -> int:
    """Return an integer of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 12 or not minimum <= int(text) <= maximum:
        raise invalid(name, f"an integer from {minimum} to {maximum}", text)
    return int(text)


def binary(values: np.ndarray[Any, Any], headers: dict[str, str]) -> Response:
    """Return an array as little-endian float32."""
    content = np.ascontiguousarray(values, dtype="<f4").tobytes()
    return Response(content, media_type="application/octet-stream", headers=headers)


INSPECTION = "/api/inspections/{inspection}"
ROUTES = (
    Route("/api/runs/{run}/inspect", inspect_run, methods=["POST"]),
    Route("/api/media/{media}", get_media),
    Route(INSPECTION, get_inspection),
    Route(f"{INSPECTION}/weights/{{layer}}/{{head}}", get_weights),
    Route(f"{INSPECTION}/views/{{view:int}}/spectrogram", get_spectrogram),
    Route(f"{INSPECTION}/views/{{view:int}}/image", get_image),
)
