"""The effect of each head on the output of an inspection, sent as events while they are computed.

The effect of a head is the change in the log-probability of the output, in a pass with teacher
forcing, when the head is removed as `harken ablate` removes it.
"""

import time
from collections.abc import AsyncIterator, Sequence

import torch
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from torch import Tensor

from harken.inspection.ablation import ablated
from harken.inspection.refs import HeadRef
from harken.serve.errors import ApiError
from harken.serve.events import event_stream, format_event
from harken.serve.inspect_request import Method, parse_method
from harken.serve.inspection import Inspection, target_log_probs
from harken.serve.inspections import stored_inspection
from harken.serve.model_thread import Job
from harken.serve.state import server_state

SLICE_SECONDS = 0.05  # of the model thread, after which other requests have a turn


async def stream_effects(request: Request) -> Response:
    """GET /api/inspections/{inspection}/effects"""
    inspection = stored_inspection(request)
    method = parse_method(request.query_params.get("method"))
    if inspection.example is None or inspection.example.output is None:
        raise ApiError(422, "the model has no attention", fix="choose another run")
    return event_stream(request, effect_events(request, inspection, method))


async def effect_events(
    request: Request, inspection: Inspection, method: Method
) -> AsyncIterator[str]:
    """Yield the events of all heads that ran, in the order of the views."""
    state, start = server_state(request), time.perf_counter()
    heads = recorded_heads(inspection)
    log_probability = await state.models.run(
        lambda job: output_log_probability(inspection, [], method), continues=True
    )
    facts = {"heads": len(heads), "method": method, "log_probability": log_probability}
    yield format_event("start", facts)
    done = 0
    while done < len(heads):
        remaining = heads[done:]

        def measure(job: Job, remaining: Sequence[HeadRef] = remaining) -> list[float]:
            end, values = time.perf_counter() + SLICE_SECONDS, list[float]()
            for head in remaining:
                job.check()
                values.append(output_log_probability(inspection, [head], method))
                if time.perf_counter() > end:
                    break
            return values

        values = await state.models.run(measure, continues=True)
        for head, value in zip(remaining, values, strict=False):
            change = value - log_probability
            yield format_event(
                "effect", {"head": head.label, "log_probability": value, "change": change}
            )
        done += len(values)
    milliseconds = round(1000 * (time.perf_counter() - start), 2)
    yield format_event("done", {"milliseconds": milliseconds})


def recorded_heads(inspection: Inspection) -> list[HeadRef]:
    """Return the heads of all views that are not disabled."""
    heads = (
        HeadRef(layer.module, head)
        for viewed in inspection.views
        for layer in viewed.layers
        for head in layer.heads
    )
    return [head for head in dict.fromkeys(heads) if head not in inspection.disabled]


@torch.inference_mode()
def output_log_probability(
    inspection: Inspection, heads: Sequence[HeadRef], method: Method
) -> float:
    """Return the log-probability of the output without these heads and the disabled ones."""
    example, model = inspection.example, inspection.run.model
    assert example is not None and example.output is not None
    with inspection.without_disabled():
        replacement = inspection.replacement(method)
        with ablated(model, heads, replacement):
            log_probs = example.run()
    assert isinstance(log_probs, Tensor)
    return float(target_log_probs(log_probs.float().cpu(), example.output.targets).sum())


ROUTES = (Route("/api/inspections/{inspection}/effects", stream_effects),)
