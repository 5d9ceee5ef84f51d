"""The route of the OpenAI API for speech."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from harken.formats.examples import SpokenWord
from harken.formats.sound import sound_seconds
from harken.serve.completions import run_of_model
from harken.serve.errors import ApiError
from harken.serve.inspect_request import invalid
from harken.serve.model_thread import Job
from harken.serve.state import json_response, run_job, server_state
from harken.tasks.prediction import Prediction

FORMATS = ("json", "text", "verbose_json", "srt", "vtt")
IGNORED = ("language", "prompt", "temperature", "timestamp_granularities[]")
PAUSE_SECONDS, CAPTION_SECONDS, CAPTION_WORDS = 0.8, 7.0, 12


class Caption(NamedTuple):
    """Words that are shown together."""

    start: float
    end: float
    text: str


async def create_transcription(request: Request) -> Response:
    """POST /v1/audio/transcriptions"""
    state = server_state(request)
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise ApiError(415, "expected multipart/form-data", fix="send file and model as a form")
    async with request.form(max_files=1, max_fields=16, max_part_size=2**16) as form:
        if unknown := form.keys() - {"file", "model", "response_format", *IGNORED}:
            raise ApiError(400, f"unknown field {min(unknown)[:60]!r}", fix="leave it out")
        file, model = form.get("file"), form.get("model")
        style = form.get("response_format", "json")
        if not isinstance(file, UploadFile) or not isinstance(model, str):
            raise ApiError(400, "expected file and model", fix="send both")
        if style not in FORMATS:
            raise invalid("response_format", ", ".join(FORMATS), style)
        content = await file.read()
    run_id = run_of_model(state, model, ("transcribe",))
    media = state.store.add_upload(content, "application/octet-stream")
    path = state.store.upload(media).path

    def transcribe(job: Job) -> tuple[Prediction, float]:
        run = state.library.load(run_id)
        job.check()
        (prediction,) = run.predict([path], times=style not in ("json", "text"))
        return prediction, sound_seconds(Path(path))

    prediction, seconds = await run_job(request, transcribe)
    return transcription_response(str(style), prediction, seconds)


def transcription_response(style: str, prediction: Prediction, seconds: float) -> Response:
    """Return a transcript in one of the formats."""
    text, words = prediction.output, prediction.words
    if style == "text":
        return PlainTextResponse(f"{text}\n")
    if style == "json":
        return json_response({"text": text})
    cues = captions(words)
    if style == "srt":
        blocks = [
            f"{number}\n{timestamp(cue.start, ',')} --> {timestamp(cue.end, ',')}\n{cue.text}\n"
            for number, cue in enumerate(cues, start=1)
        ]
        return PlainTextResponse("\n".join(blocks), media_type="application/x-subrip")
    if style == "vtt":
        blocks = [
            f"{timestamp(cue.start, '.')} --> {timestamp(cue.end, '.')}\n{escaped_cue(cue.text)}\n"
            for cue in cues
        ]
        return PlainTextResponse("\n".join(["WEBVTT\n", *blocks]), media_type="text/vtt")
    record: dict[str, Any] = {"task": "transcribe", "language": "", "duration": seconds}
    record |= {"text": text, "words": list(map(asdict, words))}
    record["segments"] = [{"id": index, **cue._asdict()} for index, cue in enumerate(cues)]
    return json_response(record)


def captions(words: Sequence[SpokenWord]) -> list[Caption]:
    """Group words into captions, which end at pauses or when they are long."""
    groups: list[list[SpokenWord]] = []
    for word in words:
        group = groups[-1] if groups else []
        is_full = len(group) >= CAPTION_WORDS or (
            bool(group) and word.end - group[0].start > CAPTION_SECONDS
        )
        if not group or is_full or word.start - group[-1].end > PAUSE_SECONDS:
            groups.append([word])
        else:
            group.append(word)
    return [
        Caption(group[0].start, group[-1].end, " ".join(word.word for word in group))
        for group in groups
    ]


def timestamp(seconds: float, mark: str) -> str:
    """Return hours, minutes, seconds and milliseconds; `mark` is before the last."""
    milliseconds = round(1000 * seconds)
    minutes, rest = divmod(milliseconds, 60_000)
    whole, thousandths = divmod(rest, 1000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{whole:02}{mark}{thousandths:03}"


def escaped_cue(text: str) -> str:
    """Return the text of a WebVTT caption, in which < and & have a meaning."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


ROUTES = (Route("/v1/audio/transcriptions", create_transcription, methods=["POST"]),)
