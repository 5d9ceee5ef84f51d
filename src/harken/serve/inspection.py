"""Run a model on one input, and keep its output and attention for later requests."""

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from harken.inspection.ablation import ZERO, AblationMethod, Mean, ablated, mean_activations
from harken.inspection.heads import measured_heads
from harken.inspection.record import attention_layers, has_multihead
from harken.inspection.refs import HeadPattern, HeadRef, attention_kind, layer_of
from harken.models.gpt import GPT
from harken.report.viewed_attention import LayerAttention, ViewedAttention, view_attention
from harken.run import Run
from harken.serve.errors import ApiError
from harken.serve.inspect_request import InspectRequest, Method
from harken.serve.words import is_special, word_indices
from harken.tasks.attention_view import AttentionExample, AttentionView, AudioView, ImageView
from harken.tasks.prediction import Prediction, Truncation

MASK_TEXT = "<mask>"
TINY = 1e-300  # so that a probability of 0 has a finite logarithm
SHARES = ("share", "previous", "itself", "next", "first")
MEANS = ("mean_offset", "mean_distance", "entropy", "evenness")
STATISTICS = dict.fromkeys(("pattern", "queries", "offset", *MEANS, *SHARES))
LISTED_PREDICTIONS = ("classify", "tag", "transcribe")  # with labels, tags or word times


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """The result of one `inspect` request."""

    record: dict[str, Any]  # the JSON of the answer
    run: Run
    example: AttentionExample | None
    views: Sequence[ViewedAttention]
    disabled: Sequence[HeadRef]
    method: AblationMethod
    means: list[Mean] = field(default_factory=list)

    @property
    def weight_bytes(self) -> int:
        return sum(layer.weights.nbytes for viewed in self.views for layer in viewed.layers)

    def layer(self, name: str) -> LayerAttention:
        """Return the attention of a layer by its name, such as cross.L2."""
        for viewed in self.views:
            for layer in viewed.layers:
                if layer.name == name:
                    return layer
        raise ApiError(404, "the inspection has no layer of this name", fix="see its views")

    def without_disabled(self) -> AbstractContextManager[None]:
        """Remove the disabled heads inside a `with` block."""
        return ablated(self.run.model, self.disabled, self.method)

    def replacement(self, name: Method) -> AblationMethod:
        """Return what replaces the output of a removed head: zeros, or its mean over the input.

        The means are those of the model without the disabled heads, computed once.
        """
        if name == "zero":
            return ZERO
        if not self.means:
            assert self.example is not None
            self.means.append(mean_over_input(self.run, self.example))
        return self.means[0]


def inspect_input(run: Run, request: InspectRequest, source: str) -> Inspection:
    """Run the model on an input, which is a text or the name of a file."""
    start = time.perf_counter()
    disabled = find_heads(run, request.disabled)
    method = ablation_method(run, request.method, source, request.output) if disabled else ZERO
    scores: list[Tensor] = []
    with ablated(run.model, disabled, method):
        example = run.predictor.attention(source, request.output)
        views = []
        if example is not None:
            views = view_attention(run.model, recording_scores(example, scores))
            views = [viewed._replace(view=with_media(viewed.view, example)) for viewed in views]
            check_targets(example, scores)
        elif request.output is not None:
            fix = "leave output out, or choose a model with attention"
            raise ApiError(422, "the model cannot read a forced output", fix=fix)
        prediction = predict(run, request, source, example)
    truncation = prediction.truncation if prediction is not None else None
    if example is not None:
        truncation = example.truncation or truncation
    record = {
        "task": run.recipe.task,
        "output": output_json(example, prediction, scores, request),
        "nbest": nbest_json(prediction),
        "labels": [] if prediction is None else list(map(asdict, prediction.labels)),
        "tags": [] if prediction is None else list(map(asdict, prediction.tokens)),
        "words": [] if prediction is None else list(map(asdict, prediction.words)),
        "steps": [] if not scores else steps_json(example, scores[0], request.alternatives),
        "truncation": truncation_json(truncation),
        "disabled": [head.label for head in disabled],
        "method": request.method,
        "views": [view_json(run, viewed, disabled) for viewed in views],
        "milliseconds": round(1000 * (time.perf_counter() - start), 2),
    }
    outputs = len(scores[0]) if scores else 0
    record["focus"] = focus(run, views, outputs)
    return Inspection(record, run, example, views, disabled, method)


def recording_scores(example: AttentionExample, scores: list[Tensor]) -> AttentionExample:
    """Return the example with a `run` that also stores the log-probabilities of its output."""
    if example.output is None:
        return example

    def run() -> None:
        result = example.run()
        assert isinstance(result, Tensor)
        scores.append(result.float().cpu())

    return replace(example, run=run)


def with_media(view: AttentionView, example: AttentionExample) -> AttentionView:
    """Return the view with the sound or image of another view that has the same keys."""
    for other in example.views:
        if other.keys == view.keys and (other.sound or other.picture):
            return replace(view, sound=other.sound, picture=other.picture)
    return view


def predict(
    run: Run, request: InspectRequest, source: str, example: AttentionExample | None
) -> Prediction | None:
    """Return the prediction with its n-best list, labels, tags or words; None if not needed."""
    task = run.recipe.task
    is_scored = example is not None and example.output is not None
    # The output of a language model is its next token, but it predicts a sampled continuation.
    is_listed = task in LISTED_PREDICTIONS or (request.nbest > 1 and task != "lm")
    if is_scored and not is_listed:
        return None
    nbest = 1 if task == "tag" else request.nbest  # a tagger has one output
    (prediction,) = run.predict([source], nbest, times=task == "transcribe")
    return prediction


def find_heads(run: Run, patterns: Sequence[HeadPattern]) -> list[HeadRef]:
    """Return the heads with these names."""
    if not patterns:
        return []
    known = model_heads(run)
    heads: list[HeadRef] = []
    for pattern in patterns:
        matching = [head for head in known if head.label == str(pattern)]
        if not matching:
            expected = f"{known[0].label} to {known[-1].label}" if known else "none"
            message = f"disabled: the model has no head {pattern} (it has {expected})"
            raise ApiError(400, message, fix="see the views of an inspection")
        heads += matching
    return heads


def model_heads(run: Run) -> list[HeadRef]:
    """Return every head of a model, in order."""
    if not has_multihead(run.model):
        return []
    return [
        HeadRef(path, head)
        for path, layer in attention_layers(run.model).items()
        for head in range(1, layer.heads + 1)
    ]


def ablation_method(run: Run, name: Method, source: str, output: str | None) -> AblationMethod:
    """Return what replaces the outputs of removed heads: zeros, or their means over the input."""
    if name == "zero":
        return ZERO
    example = run.predictor.attention(source, output)
    return ZERO if example is None else mean_over_input(run, example)


def mean_over_input(run: Run, example: AttentionExample) -> Mean:
    """Return the mean output of each head over the positions of an input."""
    with torch.inference_mode():
        means, _ = mean_activations(run.model, example.run)
    return Mean(means)


def output_json(
    example: AttentionExample | None,
    prediction: Prediction | None,
    scores: Sequence[Tensor],
    request: InspectRequest,
) -> dict[str, Any]:
    """Return the output with its log-probability."""
    if example is not None and example.output is not None:
        text = example.output.text
        total = float(target_log_probs(scores[0], example.output.targets).sum())
    else:
        assert prediction is not None
        text, total = prediction.output, math.log(max(prediction.confidence, TINY))
    return {"text": text, **probability_json(total), "forced": request.output is not None}


def target_log_probs(log_probs: Float[Tensor, "T V"], targets: Sequence[int]) -> Float[Tensor, "T"]:
    """Return the log-probability of the target in each row."""
    return log_probs.double().gather(1, torch.tensor(targets)[:, None])[:, 0]


def steps_json(
    example: AttentionExample | None, log_probs: Float[Tensor, "T V"], count: int
) -> list[dict[str, Any]]:
    """Return the log-probability of each output token, and the most probable alternatives."""
    output = None if example is None else example.output
    if output is None or output.token_texts is None:
        return []
    best = log_probs.topk(min(count, log_probs.shape[1]), dim=1)
    steps = []
    for row, target in enumerate(output.targets):
        ids, values = best.indices[row].tolist(), best.values[row].tolist()
        listed = zip(output.token_texts(ids), values, strict=True)
        (token,) = output.token_texts([target])
        steps.append(
            {
                "token": token,
                **probability_json(float(log_probs[row, target])),
                "alternatives": [{"token": text, **probability_json(log)} for text, log in listed],
            }
        )
    return steps


def check_targets(example: AttentionExample, scores: Sequence[Tensor]) -> None:
    """Raise an error if a forced output has another number of parts than the model's."""
    if example.output is None or not scores:
        return
    expected, given = len(scores[0]), len(example.output.targets)
    if expected != given:
        raise ApiError(422, f"output: expected {expected} tokens, got {given}", fix="change it")


def probability_json(log_probability: float) -> dict[str, float]:
    """Return a log-probability and its exponential."""
    return {"log_probability": log_probability, "probability": math.exp(min(log_probability, 0.0))}


def nbest_json(prediction: Prediction | None) -> list[dict[str, Any]]:
    """Return the n-best list; empty if one output was requested."""
    outputs = () if prediction is None else prediction.nbest
    return [
        {"output": ranked.output, **probability_json(ranked.log_probability)} for ranked in outputs
    ]


def truncation_json(truncation: Truncation | None) -> dict[str, Any] | None:
    """Return how much of the input the model read; None for all of it."""
    if truncation is None:
        return None
    text = f"read {truncation.kept:,} of {truncation.total:,} {truncation.unit}"
    return {**asdict(truncation), "text": text}


def view_json(run: Run, viewed: ViewedAttention, disabled: Sequence[HeadRef]) -> dict[str, Any]:
    """Return the labels of a view, and the statistics of its heads."""
    view = viewed.view
    return {
        "title": view.title,
        "queries": list(view.queries),
        "keys": list(view.keys),
        "query_words": word_indices(view.queries),
        "key_words": word_indices(view.keys),
        "query_special": list(map(is_special, view.queries)),
        "key_special": list(map(is_special, view.keys)),
        "sound": None if view.sound is None else sound_json(view.sound),
        "picture": None if view.picture is None else picture_json(view.picture),
        "layers": [layer_json(run, layer, disabled) for layer in viewed.layers],
    }


def layer_json(run: Run, layer: LayerAttention, disabled: Sequence[HeadRef]) -> dict[str, Any]:
    """Return the heads of a layer with their statistics."""
    summaries = measured_heads(run.model, layer.module, torch.from_numpy(layer.weights)[None])
    heads = []
    for summary in summaries:
        ref = HeadRef(layer.module, summary.head)
        heads.append(
            {"name": ref.label, **STATISTICS, **summary.to_json(), "disabled": ref in disabled}
        )
    names = {"name": layer.name, "layer": layer_of(layer.module), "module": layer.module}
    return {**names, "attention": attention_kind(layer.module), "heads": heads}


def sound_json(sound: AudioView) -> dict[str, Any]:
    """Return the times of frames and encoder states."""
    frames, bins = sound.spectrogram.shape
    return {
        "frame_seconds": sound.frame_seconds,
        "first_frame_seconds": sound.first_frame_seconds,
        "frames": frames,
        "bins": bins,
        "state_seconds": sound.state_seconds,
        "first_state_seconds": sound.first_state_seconds,
    }


def picture_json(picture: ImageView) -> dict[str, Any]:
    """Return the grid of encoder states, and the size of the image."""
    rows, columns = (None, None) if picture.image is None else picture.image.shape[:2]
    grid = {"columns": picture.columns, "rows": picture.rows}
    return {
        **grid,
        "offset": picture.offset,
        "stride": picture.stride,
        "width": columns,
        "height": rows,
    }


def focus(run: Run, views: Sequence[ViewedAttention], outputs: int) -> dict[str, int] | None:
    """Return the query of the first output token, where a display should start."""
    if not views:
        return None
    queries, query = views[0].view.queries, 0
    if isinstance(run.model, GPT):
        query = max(len(queries) - outputs, 0)
    elif MASK_TEXT in queries:
        query = queries.index(MASK_TEXT)
    return {"view": 0, "query": query}
