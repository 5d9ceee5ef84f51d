"""Word alignments from the cross-attention of a translation model, head by head.

The model reads each pair by one teacher-forced pass. Weights between tokens become weights between
words (`alignment.py`), these become links, and links are compared with those that people drew.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from harken.formats.links import GoldLinks
from harken.inspection.record import record
from harken.inspection.refs import HeadRef, is_cross_attention, layer_label
from harken.measure.alignment import (
    Links,
    Weights,
    above,
    argmax_source,
    argmax_target,
    best_of,
    chosen_elsewhere,
    diagonal,
    grow_diag_final,
    link_counts,
    over_words,
    samples_of,
)
from harken.measure.interval import Estimate

ALL_HEADS = "all heads"
DIAGONAL = "diagonal, no model"
CHOSEN_ELSEWHERE = "best head, chosen elsewhere"

LinkMethod = Literal["looked", "intersection", "union", "grow-diag-final", "threshold"]
METHODS: Mapping[str, Callable[[Weights, float], Links]] = {
    "looked": lambda weights, _: argmax_source(weights),
    "intersection": lambda weights, _: argmax_source(weights) & argmax_target(weights),
    "union": lambda weights, _: argmax_source(weights) | argmax_target(weights),
    "grow-diag-final": lambda weights, _: grow_diag_final(
        argmax_source(weights), argmax_target(weights)
    ),
    "threshold": above,
}


class WordTokens(NamedTuple):
    """Tokens of a sentence, and the index of the word of each token."""

    tokens: list[int]
    words: list[int]


class AlignmentPair(NamedTuple):
    """A sentence, its translation, and their links."""

    source: WordTokens
    target: WordTokens
    gold: GoldLinks


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionAlignment:
    """AER, precision and recall of every head, of means over heads, and of the diagonal."""

    n: int
    best: str  # the label of the best head
    estimates: Mapping[str, Mapping[str, Estimate]]


def align_attention(
    model: nn.Module,
    pairs: Iterable[AlignmentPair],
    *,
    start: int,
    method: LinkMethod = "looked",
    min_weight: float = 0.2,
    after_input: bool = False,
) -> AttentionAlignment | None:
    """Measure the alignments of every head; None without any pair.

    `start` is the token that begins a translation. With `after_input` a word gets the attention of
    the step that reads it instead of the step that predicts it.
    """
    found: dict[str, list[Links]] = {}
    gold: list[GoldLinks] = []
    for pair in pairs:
        gold.append(pair.gold)
        target, source = pair.target.words, pair.source.words
        weights = cross_attention(
            model, pair.source.tokens, pair.target.tokens, start, after_input=after_input
        )
        for name, table in _candidates(weights):
            links = METHODS[method](over_words(table, target, source), min_weight)
            found.setdefault(name, []).append(links)
        found.setdefault(DIAGONAL, []).append(diagonal(target[-1] + 1, source[-1] + 1))
    if not gold:
        return None
    counts = {name: link_counts(links, gold) for name, links in found.items()}
    heads = {name: count for name, count in counts.items() if ".H" in name}
    if len(heads) > 1:
        counts[CHOSEN_ELSEWHERE] = chosen_elsewhere(heads)
    return AttentionAlignment(
        n=len(gold),
        best=best_of(heads),
        estimates={
            name: {metric: sample.estimate() for metric, sample in samples_of(count).items()}
            for name, count in counts.items()
        },
    )


def cross_attention(
    model: nn.Module,
    source: Sequence[int],
    target: Sequence[int],
    start: int,
    *,
    after_input: bool = False,
) -> dict[str, np.ndarray]:
    """Return weights [heads, target, source] of every cross-attention, by a teacher-forced pass."""
    device = next(model.parameters()).device
    read = torch.tensor([list(source)], device=device)
    written = torch.tensor([[start, *target]], device=device)
    with torch.inference_mode(), record(model) as records:
        model(read, torch.ones_like(read, dtype=torch.bool), written)
    calls: dict[str, list[np.ndarray]] = {}
    for call in records:
        if is_cross_attention(call.name):
            calls.setdefault(call.name, []).append(call.weights[0].double().cpu().numpy())
    first = 1 if after_input else 0
    return {
        name: np.concatenate(parts, axis=1)[:, first : first + len(target)]
        for name, parts in calls.items()
    }


def _candidates(weights: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each head, the mean of each layer's heads, and the mean of all."""
    for module, heads in weights.items():
        yield from (
            (HeadRef(module, number).label, table) for number, table in enumerate(heads, start=1)
        )
        if len(heads) > 1:
            yield f"{layer_label(module)} mean", heads.mean(axis=0)
    if len(weights) > 1:
        yield ALL_HEADS, np.concatenate(list(weights.values())).mean(axis=0)
