"""Describe every head of a model, by its attention on given inputs and by its weights.

Attention is measured by `head_statistics.py`, weights are read by `readout.py` and `circuits.py`.
Heads of other models than Harken's have measured values only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from harken.attention.multihead import MultiHead
from harken.errors import UserError
from harken.inspection import circuits
from harken.inspection.head_statistics import (
    HeadStatistics,
    RunningMean,
    entropies,
    head_statistics,
    induction,
    repeated_tokens,
)
from harken.inspection.readout import input_path, read_out
from harken.inspection.record import record
from harken.inspection.refs import HeadRef, is_cross_attention
from harken.models.gpt import GPT

MIN_LENGTH, MAX_LENGTH = 8, 64  # of the rows for the readout of weights
REPEATED_ROWS, REPEATED_TOKENS = 8, 16
MIN_PATTERN = 0.3  # mean weight from which a head is named after what it attends to
MEANS = ("mean_offset", "mean_distance", "evenness", "first")
JSON_NAMES = {"previous_token": "previous", "next_token": "next"}


class HeadInput(NamedTuple):
    """A run of the model on one input or batch; `present` is false at padding."""

    run: Callable[[], object]
    present: Bool[Tensor, "B S"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSummary:
    """One head; None for values that it does not have.

    Measured values are means over queries. `weights_…`, `position`, `mixed`, `content` and ranks
    are computed from the weights.
    """

    module: str  # the path of its attention
    head: int  # counted from 1
    pattern: str = ""  # the tokens with the most weight, such as "previous 0.93"
    score: str | None = None
    exact: bool | None = None  # whether the readout is exact, as in the first layer
    weights_offset: int | None = None  # steps back with the highest score
    prefers: bool | None = None  # whether the score depends on the offset at all
    weights_band: int | None = None  # offsets within one nat of the highest score
    weights_share: float | None = None
    position: float | None = None  # shares of the variance of the score
    mixed: float | None = None
    content: float | None = None
    query_key_rank: float | None = None
    output_value_rank: float | None = None
    copying: float | None = None  # of W_OV: 1 copies the input, -1 negates it
    queries: int | None = None
    offset: int | None = None  # steps back with the most weight
    share: float | None = None  # mean weight there
    mean_offset: float | None = None
    mean_distance: float | None = None
    evenness: float | None = None  # entropy divided by that of uniform attention
    previous_token: float | None = None  # mean weight on these tokens
    itself: float | None = None
    next_token: float | None = None
    first: float | None = None
    entropy: float | None = None  # nats
    induction: float | None = None  # weight on tokens after earlier copies of the query's token
    measured_offsets: Sequence[tuple[int, float]] = ()  # mean weight by offset
    expected_offsets: Sequence[tuple[int, float]] = ()  # the same from weights, by position only

    @property
    def layer(self) -> int:
        return HeadRef(self.module, self.head).layer

    @property
    def label(self) -> str:
        return HeadRef(self.module, self.head).label

    def to_json(self) -> dict[str, Any]:
        """Return the values that exist; null is a mean over no query."""
        names = [field.name for field in fields(self) if not field.name.endswith("_offsets")][2:]
        values = {JSON_NAMES.get(name, name): getattr(self, name) for name in names}
        nullable = {"exact", *(MEANS if self.offset is not None else ())}
        return HeadRef(self.module, self.head).to_json() | {
            name: value for name, value in values.items() if value is not None or name in nullable
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadAnalysis:
    """All heads of a model in its order."""

    inputs: int
    length: int  # of the rows for the readout of weights
    heads: Sequence[HeadSummary]
    notes: Sequence[str]  # why some heads have no query-key or output-value matrix


def analyze_heads(
    model: nn.Module,
    inputs: Iterable[HeadInput],
    *,
    length: int | None = None,
    seed: int = 0,
) -> HeadAnalysis:
    """Measure heads while each input runs the model, and read out their weights if possible."""
    measured: dict[str, HeadStatistics] = {}
    entropy: dict[str, RunningMean] = {}
    runs = longest = 0
    for run, present in inputs:
        runs += 1
        with torch.inference_mode(), record(model) as records:
            run()
        for call in records:
            weights = call.weights.float().cpu()
            if not _is_sequence(model, call.name, weights):
                _add(entropy, call.name, entropies(weights))
                continue
            longest = max(longest, weights.shape[-1])
            new = head_statistics(weights, present)
            _add(measured, call.name, new)
            _add(entropy, call.name, new.entropy)
    repeated = _induction(model, seed)
    length = length or min(max(longest, MIN_LENGTH), MAX_LENGTH)
    heads: list[HeadSummary] = []
    notes: dict[str, None] = {}
    own = [name for name, module in model.named_modules() if isinstance(module, MultiHead)]
    for name in own or entropy:
        attention = model.get_submodule(name)
        columns: dict[str, Any] = {}
        if isinstance(attention, MultiHead):
            columns["score"] = attention.score_kind
            columns |= _readout(model, name, attention, length, seed)
            columns |= _circuits(attention, notes)
        if name in measured:
            columns |= _measured(measured[name])
        if name in entropy:
            columns |= {"queries": entropy[name].count, "entropy": entropy[name].mean}
        if name in repeated:
            columns["induction"] = repeated[name].mean
        count = attention.heads if isinstance(attention, MultiHead) else len(entropy[name].total)
        for head in range(count):
            figures = {key: _figure(column, head) for key, column in columns.items()}
            pattern = pattern_name(figures)
            heads.append(HeadSummary(module=name, head=head + 1, pattern=pattern, **figures))
    return HeadAnalysis(inputs=runs, length=length, heads=heads, notes=list(notes))


def pattern_name(figures: dict[str, Any]) -> str:
    """Name a head after the tokens with much of its weight; the first token has least priority."""
    names = ("previous_token", "itself", "next_token", "induction")
    near = max((figures.get(name) or 0.0, JSON_NAMES.get(name, name)) for name in names)
    for weight, name in (near, (figures.get("first") or 0.0, "first")):
        if weight >= MIN_PATTERN:
            return f"{name} {weight:.2f}"
    return ""


def _add(totals: dict[str, Any], name: str, new: Any) -> None:
    totals[name] = totals[name] + new if name in totals else new


def _is_sequence(model: nn.Module, name: str, weights: Tensor) -> bool:
    """Whether queries and keys are the same sequence, not an encoder output or an image."""
    if input_path(model, name) is not None:
        return True
    parts = name.split(".")
    ancestors = [".".join(parts[:depth]) for depth in range(len(parts))]
    if any(hasattr(model.get_submodule(path), "position") for path in ancestors):
        return False  # a model of Harken, which `input_path` knows
    return weights.shape[-2] == weights.shape[-1] and not is_cross_attention(name)


def _induction(model: nn.Module, seed: int) -> dict[str, RunningMean]:
    """Measure induction of a language model on repeated random tokens."""
    if not isinstance(model, GPT):
        return {}
    period = min(REPEATED_TOKENS, model.max_length // 2)
    table = model.embedding
    tokens = repeated_tokens(table.num_embeddings, rows=REPEATED_ROWS, period=period, seed=seed)
    with torch.inference_mode(), record(model) as records:
        model.states(tokens.to(table.weight.device))
    return {call.name: induction(call.weights.float().cpu(), tokens) for call in records}


def _readout(
    model: nn.Module, name: str, attention: MultiHead, length: int, seed: int
) -> dict[str, Any]:
    path = input_path(model, name)
    if path is None:
        return {}
    length = min(length, path.position.max_length or length)
    read = read_out(attention, path, length=length, seed=seed)
    return {
        "exact": read.exact,
        "weights_offset": read.preferred,
        "prefers": read.has_preference,
        "weights_band": read.band,
        "weights_share": read.expected.amax(dim=-1),
        "position": read.position,
        "mixed": read.mixed,
        "content": read.content,
        "expected_offsets": _by_offset(read.offsets.tolist(), read.expected),
    }


def _circuits(attention: MultiHead, notes: dict[str, None]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, matrix in (
        ("query_key", circuits.query_key),
        ("output_value", circuits.output_value),
    ):
        try:
            product = matrix(attention)
        except UserError as error:
            notes[error.message] = None
            continue
        values = circuits.singular_values(product).detach()
        columns[f"{name}_rank"] = circuits.effective_rank(values)
        if name == "output_value" and product.left.shape[2] == product.right.shape[2]:
            columns["copying"] = circuits.copying(product).detach()
    return columns


def _measured(measured: HeadStatistics) -> dict[str, Any]:
    top_offset, max_offset = measured.top_offset(), measured.max_offset
    histogram = measured.histogram()
    return {
        "offset": top_offset,
        "share": histogram.gather(1, top_offset[:, None] + max_offset)[:, 0],
        "mean_offset": measured.offset.mean,
        "mean_distance": measured.distance.mean,
        "evenness": measured.evenness.mean,
        "previous_token": measured.mean_weight_at(1),
        "itself": measured.mean_weight_at(0),
        "next_token": measured.mean_weight_at(-1),
        "first": measured.first.mean,
        "measured_offsets": _by_offset(range(-max_offset, max_offset + 1), histogram),
    }


def _by_offset(offsets: Sequence[int], shares: Tensor) -> list[list[tuple[int, float]]]:
    return [list(zip(offsets, row, strict=True)) for row in shares.tolist()]


def _figure(column: Any, head: int) -> Any:
    """Return the value of one head from a column; NaN, a mean over no query, is None."""
    if isinstance(column, list):
        return column[head]
    value = column[head].item() if isinstance(column, Tensor) else column
    return None if isinstance(value, float) and value != value else value
