"""Routes of the OpenAI API for texts: models and completions."""

import secrets
import time
from asyncio import Queue, get_running_loop
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from torch import Tensor

from harken.decode.search import SearchConfig
from harken.decode.stepper import LMStepper
from harken.files import json_text
from harken.run import Run
from harken.serve.completion_request import CompletionRequest, parse_completion
from harken.serve.errors import ApiError, api_error
from harken.serve.inspection import target_log_probs
from harken.serve.model_thread import Job
from harken.serve.state import (
    ServerState,
    json_response,
    read_json_body,
    run_job,
    server_state,
)
from harken.tasks.lm import LanguageModelPredictor
from harken.tasks.seq2seq import search_tokens

SERVED_TASKS = ("lm", "answer", "transcribe")
COMPLETED_TASKS = ("lm", "answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A generated text; log-probabilities are computed if they were requested."""

    text: str
    tokens: Sequence[str] = ()
    log_probs: Sequence[float] = ()
    top: Sequence[dict[str, float]] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False  # by the maximum number of tokens


class EmittingStepper(LMStepper):
    """Passes each generated token but the last to a function."""

    def __init__(self, model: Any, emit: Callable[[int], None]) -> None:
        super().__init__(model)
        self._emit = emit

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        self._emit(int(tokens[0]))
        return super().step(tokens, state)


def list_models(request: Request) -> Response:
    """GET /v1/models"""
    runs = server_state(request).library.list_json()
    names = [run["name"] for run in runs if run["task"] in SERVED_TASKS and is_ready(run)]
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "harken"} for name in names]
    return json_response({"object": "list", "data": models})


def is_ready(run: dict[str, Any]) -> bool:
    """Whether a listed run can be loaded."""
    return run["state"] == "finished" or run["parameters"] is not None


def run_of_model(state: ServerState, model: str, tasks: Sequence[str]) -> str:
    """Return the id of the run with this name or id and one of these tasks."""
    for run in state.library.list_json():
        if model in (run["id"], run["name"]):
            if run["task"] not in tasks:
                expected = " or ".join(tasks)
                problem = f"the model has the task {run['task']} (expected {expected})"
                raise ApiError(400, problem, fix="see /v1/models")
            return str(run["id"])
    raise ApiError(404, "there is no model of this name", fix="see /v1/models")


async def create_completion(request: Request) -> Response:
    """POST /v1/completions"""
    state = server_state(request)
    parsed = parse_completion(await read_json_body(request), state.settings.limits)
    run_id = run_of_model(state, parsed.model, COMPLETED_TASKS)
    record = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": parsed.model,
    }
    if parsed.stream:
        events = stream_completion(state, run_id, parsed, record)
        return StreamingResponse(events, media_type="text/event-stream")

    def complete_all(job: Job) -> list[Completion]:
        run = state.library.load(run_id)
        return [
            complete(run, prompt, parsed, sample, job)
            for prompt in parsed.prompts
            for sample in range(parsed.n)
        ]

    completions = await run_job(request, complete_all)
    prompt_tokens = sum(completion.prompt_tokens for completion in completions) // parsed.n
    generated = sum(completion.completion_tokens for completion in completions)
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": generated}
    return json_response(
        {
            **record,
            "choices": [
                choice_json(index, completion, parsed)
                for index, completion in enumerate(completions)
            ],
            "usage": {**usage, "total_tokens": prompt_tokens + generated},
        }
    )


def choice_json(index: int, completion: Completion, request: CompletionRequest) -> dict[str, Any]:
    """Return one choice of the answer."""
    log_probs = None
    if request.logprobs is not None:
        offsets, position = [], 0
        for token in completion.tokens:
            offsets.append(position)
            position += len(token)
        log_probs = {
            "tokens": list(completion.tokens),
            "token_logprobs": list(completion.log_probs),
            "top_logprobs": list(completion.top),
            "text_offset": offsets,
        }
    reason = "length" if completion.is_cut else "stop"
    return {
        "text": completion.text,
        "index": index,
        "logprobs": log_probs,
        "finish_reason": reason,
    }


def complete(
    run: Run,
    prompt: str,
    request: CompletionRequest,
    sample: int,
    job: Job,
    emit: Callable[[str], None] | None = None,
) -> Completion:
    """Return the completion of a prompt; `emit` receives the text so far."""
    search = SearchConfig(
        temperature=request.temperature or None,
        top_p=request.top_p if request.temperature else None,
        max_tokens=max(request.max_tokens, 1),
        seed=request.seed,
    )
    searched = run.with_search(search)
    if isinstance(searched.predictor, LanguageModelPredictor):
        return continue_text(searched.predictor, prompt, request, sample, job, emit)
    return answer_question(searched, prompt, request)


@torch.inference_mode()
def continue_text(
    predictor: LanguageModelPredictor,
    prompt: str,
    request: CompletionRequest,
    sample: int,
    job: Job,
    emit: Callable[[str], None] | None,
) -> Completion:
    """Continue a text with a language model."""
    model, stream, vocabulary = predictor.model.eval(), predictor.stream, predictor.vocabulary
    tokens, count = stream.encode_prompt(prompt), request.max_tokens
    if model.max_length is not None and len(tokens) + count > model.max_length + 1:
        problem = f"{len(tokens) - 1:,} tokens of the prompt and {count:,} new ones"
        limit = f"the model reads {model.max_length:,}"
        raise ApiError(400, f"{problem} are too many ({limit})", fix="shorten the prompt")
    generated: list[int] = []

    def on_token(token: int) -> None:
        job.check()
        generated.append(token)
        if emit is not None:
            emit(stream.continuations(tokens, [generated])[0])

    output: list[int] = []
    if count:
        stepper, keys = EmittingStepper(model, on_token), [(sample,)]
        special = vocabulary.special
        beams = search_tokens(
            stepper, [tokens], predictor.device, predictor.recipe.search, count, 1, keys, special
        )
        output = list(beams[0][0].tokens)
    text, is_stopped = cut_at_stop(stream.continuations(tokens, [output])[0], request.stop)
    whole = [*tokens.tolist(), *output]
    names: list[str] = []
    values: list[float] = []
    top: list[dict[str, float]] = []
    first = 1 if request.echo else len(tokens)
    if request.logprobs is not None and len(whole) > first:
        inputs = torch.tensor([whole[:-1]], device=predictor.device)
        log_probs = model(inputs)[0, first - 1 :].float().log_softmax(dim=-1)
        targets = whole[first:]
        values = target_log_probs(log_probs, targets).tolist()
        names, top = vocabulary.token_texts(targets), top_log_probs(log_probs, request, vocabulary)
    return Completion(
        text=prompt + text if request.echo else text,
        tokens=names,
        log_probs=values,
        top=top,
        prompt_tokens=len(tokens) - 1,
        completion_tokens=len(output),
        is_cut=len(output) == count and not is_stopped,
    )


def top_log_probs(
    log_probs: Tensor, request: CompletionRequest, vocabulary: Any
) -> list[dict[str, float]]:
    """Return the most probable tokens of each step."""
    best = log_probs.topk(min(request.logprobs or 0, log_probs.shape[1]), dim=1)
    return [
        dict(zip(vocabulary.token_texts(ids), values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def answer_question(run: Run, question: str, request: CompletionRequest) -> Completion:
    """Answer a question; log-probabilities are those of the answer with <end>."""
    if request.echo:
        raise ApiError(400, "echo: the model answers questions", fix="leave echo out")
    example = run.attention(question)
    assert example is not None and example.output is not None
    output, token_texts = example.output, example.output.token_texts
    assert token_texts is not None
    with torch.inference_mode():
        log_probs = example.run()
    assert isinstance(log_probs, Tensor)
    text, _ = cut_at_stop(output.text, request.stop)
    return Completion(
        text=text,
        tokens=token_texts(output.targets),
        log_probs=target_log_probs(log_probs, output.targets).tolist(),
        top=top_log_probs(log_probs, request, run.vocabulary),
        prompt_tokens=len(example.views[0].queries) + 1 - len(output.targets),
        completion_tokens=len(output.targets),
    )


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return the text before the first stop sequence, and whether there is one."""
    found = [index for sequence in stop if (index := text.find(sequence)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


async def stream_completion(
    state: ServerState, run_id: str, request: CompletionRequest, record: dict[str, Any]
) -> AsyncIterator[str]:
    """Yield the parts of a completion as they are generated."""
    loop, parts = get_running_loop(), Queue[str | None]()

    def emit(text: str) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, text)

    def generate(job: Job) -> Completion:
        try:
            return complete(state.library.load(run_id), request.prompts[0], request, 0, job, emit)
        finally:
            loop.call_soon_threadsafe(parts.put_nowait, None)

    def chunk(text: str, reason: str | None) -> str:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        return f"data: {json_text({**record, 'choices': [choice]})}\n\n"

    job = loop.create_task(state.models.run(generate, timeout=state.settings.limits.job_seconds))
    job.add_done_callback(lambda _: parts.put_nowait(None))
    sent = request.prompts[0] if request.echo else ""
    if sent:
        yield chunk(sent, None)
    shown = ""
    held = max(map(len, request.stop), default=0)  # a stop sequence may begin in the last part
    try:
        while (text := await parts.get()) is not None:
            text = cut_at_stop(text, request.stop)[0]
            text = text[: len(text) - held] if held else text
            if len(text) > len(shown) and not text.endswith("�"):
                yield chunk(text[len(shown) :], None)
                shown = text
        completion = await job
        rest = completion.text.removeprefix(sent)[len(shown) :]
        yield chunk(rest, "length" if completion.is_cut else "stop")
    except Exception as error:
        yield f"data: {json_text(api_error(error).to_json())}\n\n"
    finally:
        job.cancel()
    yield "data: [DONE]\n\n"


ROUTES = (
    Route("/v1/models", list_models),
    Route("/v1/completions", create_completion, methods=["POST"]),
)
