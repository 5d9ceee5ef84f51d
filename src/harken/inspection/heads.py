"""Describe every head of a model by its attention on given inputs and by its parameters.

`head_statistics.py` measures attention; `offset_preferences.py` and `circuits.py` analyze
parameters. Heads of models without `MultiHead` have measured values only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.multihead import MultiHead
from harken.errors import UserError
from harken.inspection import circuits
from harken.inspection.head_statistics import (
    HeadStatistics,
    RunningMean,
    head_statistics,
    induction_score,
    mean_entropy,
    repeated_tokens,
)
from harken.inspection.offset_preferences import input_path, offset_preferences
from harken.inspection.record import record
from harken.inspection.refs import HeadRef, is_cross_attention
from harken.models.gpt import GPT
from harken.notebook import NotebookOutput

MIN_LENGTH, MAX_LENGTH = 8, 64  # of the sequences in the analysis of parameters
REPEATED_ROWS, REPEATED_TOKENS = 8, 16
MIN_PATTERN = 0.3  # smallest mean weight for which a head has a pattern name
NULL_WITHOUT_QUERIES = ("mean_offset", "mean_distance", "evenness", "first")  # in JSON
JSON_NAMES = {"previous_token": "previous", "next_token": "next"}


class HeadInput(NamedTuple):
    """A run of the model on one input or batch; `present` is false at padding."""

    run: Callable[[], object]
    present: Bool[Tensor, "B S"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSummary:
    """Statistics of one head; None for values that are not defined.

    `exact` to `copying` and `expected_offsets` are computed from parameters. `offset` to
    `measured_offsets` are measured, as means over queries.
    """

    module: str  # path of its attention layer
    head: int  # counted from 1
    pattern: str = ""  # where most of its attention is, such as "previous 0.93"
    score: str | None = None
    exact: bool | None = None  # whether the analysis of parameters is exact (first layer only)
    weights_offset: int | None = None  # number of tokens back with the highest score
    prefers: bool | None = None  # whether the score varies by more than a nat over the offsets
    weights_band: int | None = None  # number of offsets around `weights_offset` within one nat
    weights_share: float | None = None  # largest value of `expected_offsets`
    # Shares of the variance of the score; see `offset_preferences.py`.
    position: float | None = None  # due to positions alone
    mixed: float | None = None  # due to positions and the query token together
    content: float | None = None  # due to the key token
    query_key_rank: float | None = None
    output_value_rank: float | None = None
    copying: float | None = None  # of W_OV: 1 copies the input, -1 negates it
    queries: int | None = None  # number of measured queries
    offset: int | None = None  # number of tokens back with the most weight
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
    expected_offsets: Sequence[tuple[int, float]] = ()  # the same, from scores averaged over tokens

    @property
    def layer(self) -> int:
        return HeadRef(self.module, self.head).layer

    @property
    def label(self) -> str:
        return HeadRef(self.module, self.head).label

    def to_json(self) -> dict[str, Any]:
        """Return the defined values; means over no queries, and an unknown `exact`, are null."""
        omitted = ("module", "head", "measured_offsets", "expected_offsets")
        names = [field.name for field in fields(self) if field.name not in omitted]
        values = {JSON_NAMES.get(name, name): getattr(self, name) for name in names}
        is_measured = self.offset is not None
        nullable = {"exact", *(NULL_WITHOUT_QUERIES if is_measured else ())}
        return HeadRef(self.module, self.head).to_json() | {
            name: value for name, value in values.items() if value is not None or name in nullable
        }


class HeadTable(list[HeadSummary], NotebookOutput):
    """Heads in the order of the model; a notebook shows them as a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadAnalysis:
    """All heads of a model, in the order of the model."""

    inputs: int  # number of inputs that were run
    length: int  # of the sequences in the analysis of parameters
    heads: Sequence[HeadSummary]
    notes: Sequence[str]  # why some heads have no query-key or output-value matrix


def analyze_heads(
    model: nn.Module,
    inputs: Iterable[HeadInput],
    *,
    length: int | None = None,
    seed: int = 0,
) -> HeadAnalysis:
    """Measure the heads on each input, and analyze their parameters if possible."""
    measured: dict[str, HeadStatistics] = {}
    entropy: dict[str, RunningMean] = {}
    runs = longest = 0
    for run, present in inputs:
        runs += 1
        with torch.inference_mode(), record(model) as records:
            run()
        for call in records:
            weights = call.weights.float().cpu()
            if not _has_offsets(model, call.name, weights):
                _add(entropy, call.name, mean_entropy(weights))
                continue
            longest = max(longest, weights.shape[-1])
            new = head_statistics(weights, present)
            _add(measured, call.name, new)
            _add(entropy, call.name, new.entropy)
    induction = _measure_induction(model, seed)
    length = length or min(max(longest, MIN_LENGTH), MAX_LENGTH)
    heads: list[HeadSummary] = []
    notes: dict[str, None] = {}
    paths = [path for path, module in model.named_modules() if isinstance(module, MultiHead)]
    for name in paths or entropy:
        attention = model.get_submodule(name)
        columns: dict[str, Any] = {}
        if isinstance(attention, MultiHead):
            columns["score"] = attention.score_kind
            columns |= _preference_columns(model, name, attention, length, seed)
            columns |= _circuit_columns(attention, notes)
        if name in measured:
            columns |= _measured_columns(measured[name])
        if name in entropy:
            columns |= {"queries": entropy[name].count, "entropy": entropy[name].mean}
        if name in induction:
            columns["induction"] = induction[name].mean
        count = attention.heads if isinstance(attention, MultiHead) else len(entropy[name].total)
        for head in range(count):
            values = {key: _value_of_head(column, head) for key, column in columns.items()}
            pattern = pattern_name(values)
            heads.append(HeadSummary(module=name, head=head + 1, pattern=pattern, **values))
    return HeadAnalysis(inputs=runs, length=length, heads=heads, notes=list(notes))


def measured_heads(
    model: nn.Module, name: str, weights: Float[Tensor, "B k T S"]
) -> list[HeadSummary]:
    """Return the statistics of the heads of one attention layer, measured on these weights."""
    if _has_offsets(model, name, weights):
        measured = head_statistics(weights)
        entropy, columns = measured.entropy, _measured_columns(measured)
    else:
        entropy, columns = mean_entropy(weights), {}
    columns |= {"queries": entropy.count, "entropy": entropy.mean}
    summaries = []
    for head in range(weights.shape[1]):
        values = {key: _value_of_head(column, head) for key, column in columns.items()}
        pattern = pattern_name(values)
        summaries.append(HeadSummary(module=name, head=head + 1, pattern=pattern, **values))
    return summaries


def pattern_name(values: dict[str, Any]) -> str:
    """Return the name of the pattern with the most weight, and this weight: "previous 0.93".

    "first" is returned only if no other pattern reaches `MIN_PATTERN`, and "" if none does.
    """
    names = ("previous_token", "itself", "next_token", "induction")
    largest = max((values.get(name) or 0.0, JSON_NAMES.get(name, name)) for name in names)
    for weight, name in (largest, (values.get("first") or 0.0, "first")):
        if weight >= MIN_PATTERN:
            return f"{name} {weight:.2f}"
    return ""


def _add(totals: dict[str, Any], name: str, new: Any) -> None:
    totals[name] = totals[name] + new if name in totals else new


def _has_offsets(model: nn.Module, name: str, weights: Tensor) -> bool:
    """Whether queries and keys are in the same sequence: not cross-attention, not an image."""
    if input_path(model, name) is not None:
        return True
    parts = name.split(".")
    ancestors = [".".join(parts[:depth]) for depth in range(len(parts))]
    # `input_path` covers all stacks of Harken models, which have an attribute `position`.
    if any(hasattr(model.get_submodule(path), "position") for path in ancestors):
        return False
    return weights.shape[-2] == weights.shape[-1] and not is_cross_attention(name)


def _measure_induction(model: nn.Module, seed: int) -> dict[str, RunningMean]:
    """Measure the induction score of a language model on repeated random tokens."""
    if not isinstance(model, GPT):
        return {}
    period = min(REPEATED_TOKENS, model.max_length // 2)
    table = model.embedding
    tokens = repeated_tokens(table.num_embeddings, rows=REPEATED_ROWS, period=period, seed=seed)
    with torch.inference_mode(), record(model) as records:
        model.states(tokens.to(table.weight.device))
    return {call.name: induction_score(call.weights.float().cpu(), tokens) for call in records}


def _preference_columns(
    model: nn.Module, name: str, attention: MultiHead, length: int, seed: int
) -> dict[str, Any]:
    path = input_path(model, name)
    if path is None:
        return {}
    length = min(length, path.position.max_length or length)
    preferences = offset_preferences(attention, path, length=length, seed=seed)
    return {
        "exact": preferences.exact,
        "weights_offset": preferences.preferred,
        "prefers": preferences.has_preference,
        "weights_band": preferences.band,
        "weights_share": preferences.attention_by_position.amax(dim=-1),
        "position": preferences.position,
        "mixed": preferences.mixed,
        "content": preferences.content,
        "expected_offsets": _by_offset(
            preferences.offsets.tolist(), preferences.attention_by_position
        ),
    }


def _circuit_columns(attention: MultiHead, notes: dict[str, None]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, factorize in (
        ("query_key", circuits.query_key),
        ("output_value", circuits.output_value),
    ):
        try:
            product = factorize(attention)
        except UserError as error:
            notes[error.message] = None
            continue
        values = circuits.singular_values(product).detach()
        columns[f"{name}_rank"] = circuits.effective_rank(values)
        if name == "output_value" and product.left.shape[2] == product.right.shape[2]:
            columns["copying"] = circuits.copying_score(product).detach()
    return columns


def _measured_columns(measured: HeadStatistics) -> dict[str, Any]:
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


def _value_of_head(column: Any, head: int) -> Any:
    """Return the value of a head from a column; None for NaN, a mean over no queries."""
    if isinstance(column, list):
        return column[head]
    value = column[head].item() if isinstance(column, Tensor) else column
    return None if isinstance(value, float) and value != value else value
