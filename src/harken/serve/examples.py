"""Routes of the examples of a run: dev set, predictions, and the sound or image of an example."""

import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.formats.sound import load_signal
from harken.measure.scored_answers import exact_matches
from harken.run import Run
from harken.serve.errors import ApiError
from harken.serve.inspect_request import invalid
from harken.serve.inspections import query_number
from harken.serve.model_thread import Job
from harken.serve.state import json_response, run_job, server_state

MAX_EXAMPLES, MAX_PAGE = 500, 200
BATCH = 16  # examples predicted between two checks whether the client still waits
PREDICTING_SECONDS = 10.0  # of one request
UNCERTAIN = 0.5
LONG_SHARE = 0.1
PREVIEW_RATE = 16_000  # samples per second of the sound of an example


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedExample:
    """An example of the dev set with the model's output."""

    number: int
    input: str
    expected: str | None
    output: str
    confidence: float
    correct: bool | None
    length: int  # words of a text, 0 for files
    is_truncated: bool


FILTERS: dict[str, Callable[[PredictedExample, int], bool]] = {
    "all": lambda example, long: True,
    "wrong": lambda example, long: example.correct is False,
    "uncertain": lambda example, long: example.confidence < UNCERTAIN,
    "long": lambda example, long: example.is_truncated or example.length >= max(long, 1),
}
SORTS: dict[str, Callable[[PredictedExample], float]] = {
    "index": lambda example: example.number,
    "confidence": lambda example: example.confidence,
    "length": lambda example: -example.length,
}


async def list_examples(request: Request) -> Response:
    """GET /api/runs/{run}/examples"""
    state, run_id = server_state(request), request.path_params["run"]
    state.library.find(run_id)
    chosen, order = _choice(request, "filter", FILTERS), _choice(request, "sort", SORTS)
    page, size = (
        query_number(request, name, default, 1, limit)
        for name, default, limit in (("page", 1, 2**31), ("size", 50, MAX_PAGE))
    )

    def predicted(job: Job) -> tuple[str, int, list[PredictedExample], bool]:
        run, version = state.library.load(run_id), state.library.version(run_id)
        if version not in state.predictions:
            while len(state.predictions) >= state.settings.limits.runs:
                del state.predictions[next(iter(state.predictions))]
            state.predictions[version] = []
        done = state.predictions[version]
        is_complete = predict_examples(run, job, done)
        return run.input_form, len(run.examples("dev")), list(done), is_complete

    form, total, examples, is_complete = await run_job(request, predicted)
    lengths = sorted(example.length for example in examples)
    long = lengths[math.ceil((1 - LONG_SHARE) * (len(lengths) - 1))] if lengths else 0
    matching = [example for example in examples if FILTERS[chosen](example, long)]
    matching.sort(key=SORTS[order])
    listed = matching[(page - 1) * size : page * size]
    return json_response(
        {
            "total": len(matching),
            "page": page,
            "pages": max(1, math.ceil(len(matching) / size)),
            "size": size,
            "predicted": len(examples),
            "available": total,
            "complete": is_complete,
            "has_targets": any(example.correct is not None for example in examples),
            "examples": [example_json(run_id, form, example) for example in listed],
        }
    )


def predict_examples(run: Run, job: Job, done: list[PredictedExample]) -> bool:
    """Predict the first examples of the dev set that have an input, and append them to `done`.

    Stops after `PREDICTING_SECONDS`, and continues in the next call. Returns whether all are done.
    """
    end = time.monotonic() + PREDICTING_SECONDS
    examples = run.examples("dev")[:MAX_EXAMPLES]
    texts_of = enumerate(map(run.task.input, examples))
    inputs = [(number, text) for number, text in texts_of if text]
    while len(done) < len(inputs):
        job.check()
        batch = inputs[len(done) : len(done) + BATCH]
        numbers, texts = [number for number, _ in batch], [text for _, text in batch]
        predictions = run.predict(texts, indices=numbers)
        for number, prediction in zip(numbers, predictions, strict=True):
            expected = run.task.target(examples[number])
            correct = None
            if expected is not None:
                correct = bool(exact_matches([prediction.output], [expected])[0])
            is_text = run.input_form == "lines"
            done.append(
                PredictedExample(
                    number=number,
                    input=prediction.input if is_text else Path(prediction.input).name,
                    expected=expected,
                    output=prediction.output,
                    confidence=prediction.confidence,
                    correct=correct,
                    length=len(prediction.input.split()) if is_text else 0,
                    is_truncated=prediction.truncation is not None,
                )
            )
        if time.monotonic() > end:
            break
    return len(done) == len(inputs)


def example_json(run_id: str, form: str, example: PredictedExample) -> dict[str, Any]:
    """Return an example for the API."""
    names = ("number", "input", "expected", "output", "confidence", "correct", "length")
    record = {name: getattr(example, name) for name in names}
    url = f"/api/runs/{run_id}/examples/{example.number}/media"
    return {**record, "media": None if form == "lines" else url}


async def get_example_media(request: Request) -> Response:
    """GET /api/runs/{run}/examples/{number}/media: a WAV file, or a PNG file."""
    state, run_id = server_state(request), request.path_params["run"]
    number = request.path_params["number"]
    state.library.find(run_id)

    def read(job: Job) -> Response:
        run = state.library.load(run_id)
        examples = run.examples("dev")
        if number >= len(examples) or run.input_form == "lines":
            raise ApiError(404, "the example has no sound or image", fix="see its JSON")
        name = run.task.input(examples[number])
        return sound_response(name) if run.input_form == "sounds" else image_response(run, name)

    return await run_job(request, read)


def sound_response(name: str) -> Response:
    """Return a sound, or the segment of a sound that an example names, as WAV."""
    file = io.BytesIO()
    signal = load_signal(name, PREVIEW_RATE, 600.0)
    soundfile.write(file, signal, PREVIEW_RATE, format="WAV", subtype="PCM_16")
    return Response(file.getvalue(), media_type="audio/wav")


def image_response(run: Run, name: str) -> Response:
    """Return the image that the model reads, as PNG."""
    example = run.predictor.attention(name)
    pictures = [] if example is None else [view.picture for view in example.views]
    pixels = next((view.image for view in pictures if view is not None), None)
    if pixels is None:
        raise ApiError(404, "the input is not an image", fix="see the weights")
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")


def _choice(request: Request, name: str, choices: dict[str, Any]) -> str:
    value = request.query_params.get(name, next(iter(choices)))
    if value not in choices:
        raise invalid(name, " or ".join(choices), value)
    return value


ROUTES = (
    Route("/api/runs/{run}/examples", list_examples),
    Route("/api/runs/{run}/examples/{number:int}/media", get_example_media),
)
