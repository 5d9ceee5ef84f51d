"""Word alignments from the cross-attention of a translation model, and their error rate (AER).

    A: predicted links, S: sure links, P: possible links, which include S; of a whole corpus

    precision = |A and P| / |A|      recall = |A and S| / |S|
    AER       = 1 - (|A and S| + |A and P|) / (|A| + |S|)            (Och and Ney, 2003)

Weights come from a teacher-forced pass. The weight of two words is the sum over the tokens of the
source word, and the mean over the tokens of the target word.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from harken.formats.links import GoldLinks, Link
from harken.inspection.record import Selection, cross_attention_layers, record
from harken.inspection.refs import HeadRef, layer_label
from harken.measure.interval import LOGIT, Estimate, Sample

Links = frozenset[Link]
Weights = Float[np.ndarray, "T S"]  # of target tokens or words to source tokens or words
LinkCounts = Float[np.ndarray, "pairs 4"]

# Offsets (target, source) in the order of Moses' symal: adjacent points, then diagonal ones.
NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

ALL_HEADS = "all heads"
DIAGONAL = "diagonal, no model"
CROSS_VALIDATED = "best head, cross-validated"

LinkMethod = Literal["argmax", "intersection", "union", "grow-diag-final", "threshold"]


class WordTokens(NamedTuple):
    """Tokens of a sentence, and the index of the word of each token."""

    tokens: list[int]
    words: list[int]


class AlignmentPair(NamedTuple):
    """A sentence, its translation, and the gold links of their words."""

    source: WordTokens
    target: WordTokens
    gold: GoldLinks


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionAlignment:
    """AER, precision and recall of every head, of means over heads, and of the diagonal."""

    n: int  # number of sentence pairs
    best: str  # label of the head with the lowest AER
    estimates: Mapping[str, Mapping[str, Estimate]]  # by label, then "aer", "precision", "recall"


def align_attention(
    model: nn.Module,
    pairs: Iterable[AlignmentPair],
    *,
    start: int,
    method: LinkMethod = "argmax",
    min_weight: float = 0.2,
    after_input: bool = False,
) -> AttentionAlignment | None:
    """Measure the alignments of every head; return None if there are no pairs.

    `start` is the token that begins a translation. With `after_input`, the attention of a word is
    that of the step that reads the word instead of the step that predicts it. `min_weight` is the
    smallest weight of a link for the method "threshold".
    """
    links: dict[str, list[Links]] = {}
    gold: list[GoldLinks] = []
    for source, target, gold_links in pairs:
        gold.append(gold_links)
        weights = cross_attention(
            model, source.tokens, target.tokens, start, after_input=after_input
        )
        for name, token_weights in _heads_and_means(weights):
            by_word = word_weights(token_weights, target.words, source.words)
            links.setdefault(name, []).append(extract_links(by_word, method, min_weight))
        baseline = diagonal(target.words[-1] + 1, source.words[-1] + 1)
        links.setdefault(DIAGONAL, []).append(baseline)
    if not gold:
        return None
    counts = {name: link_counts(predicted, gold) for name, predicted in links.items()}
    heads = {name: count for name, count in counts.items() if ".H" in name}
    if len(heads) > 1:
        counts[CROSS_VALIDATED] = cross_validated_counts(heads)
    return AttentionAlignment(
        n=len(gold),
        best=lowest_aer(heads),
        estimates={
            name: {metric: sample.estimate() for metric, sample in alignment_samples(count).items()}
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
    """Return weights [heads, target, source] of every cross-attention in a teacher-forced pass."""
    device = next(model.parameters()).device
    sources = torch.tensor([list(source)], device=device)
    targets = torch.tensor([[start, *target]], device=device)
    selection = Selection(paths=tuple(cross_attention_layers(model)))
    with torch.inference_mode(), record(model, selection) as records:
        model(sources, torch.ones_like(sources, dtype=torch.bool), targets)
    steps: dict[str, list[np.ndarray]] = {}
    for call in records:
        steps.setdefault(call.name, []).append(call.weights[0].double().cpu().numpy())
    first = 1 if after_input else 0
    return {
        name: np.concatenate(weights, axis=1)[:, first : first + len(target)]
        for name, weights in steps.items()
    }


def _heads_and_means(weights: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and weights of each head, of the mean of each layer, and of the mean of all."""
    for module, heads in weights.items():
        for number, head in enumerate(heads, start=1):
            yield HeadRef(module, number).label, head
        if len(heads) > 1:
            yield f"{layer_label(module)} mean", heads.mean(axis=0)
    if len(weights) > 1:
        yield ALL_HEADS, np.concatenate(list(weights.values())).mean(axis=0)


def word_weights(
    weights: Weights, target_words: Sequence[int], source_words: Sequence[int]
) -> Weights:
    """Return weights of words, from weights of tokens and the index of each token's word."""
    # The product with one-hot rows is the sum over a word's tokens.
    source = np.eye(max(source_words) + 1)[list(source_words)]
    target = np.eye(max(target_words) + 1)[list(target_words)]
    means = (target / np.maximum(target.sum(axis=0), 1)).T
    merged: np.ndarray = means @ weights @ source
    return merged


def extract_links(weights: Weights, method: LinkMethod, min_weight: float) -> Links:
    """Return links (source word, target word) from the weights of words.

    "threshold" links words with at least `min_weight`, "argmax" each target word to the source word
    with the largest weight. The other methods combine "argmax" with the reverse direction.
    """
    if method == "threshold":
        return frozenset((int(s), int(t)) for t, s in np.argwhere(weights >= min_weight))
    # Of equal weights, argmax takes the first.
    by_target = frozenset((int(s), t) for t, s in enumerate(weights.argmax(axis=1)))
    by_source = frozenset((s, int(t)) for s, t in enumerate(weights.argmax(axis=0)))
    if method == "intersection":
        return by_target & by_source
    if method == "union":
        return by_target | by_source
    return by_target if method == "argmax" else grow_diag_final(by_target, by_source)


def grow_diag_final(by_target: Links, by_source: Links) -> Links:
    """Symmetrize two directed alignments by grow-diag-final (Koehn et al., 2003)."""
    # The result depends on the order. As in Moses' `symal`, points are visited by target, then
    # source, and a point that was just added counts in the same pass.
    forward, backward = (sorted((t, s) for s, t in links) for links in (by_target, by_source))
    union, points = {*forward, *backward}, {*forward} & {*backward}
    targets, sources = {t for t, _ in points}, {s for _, s in points}

    def add(target: int, source: int) -> None:
        if target not in targets or source not in sources:
            points.add((target, source))
            targets.add(target)
            sources.add(source)

    size, scan = -1, sorted(union)
    while size < len(points):
        size = len(points)
        for target, source in scan:
            if (target, source) in points:
                for down, right in NEIGHBORS:
                    if (target + down, source + right) in union:
                        add(target + down, source + right)
    for point in (*forward, *backward):
        add(*point)
    return frozenset((s, t) for t, s in points)


def diagonal(target_words: int, source_words: int) -> Links:
    """Link each target word to the source word at the same relative position (the baseline)."""
    return frozenset((t * source_words // target_words, t) for t in range(target_words))


def link_counts(predicted: Sequence[Links], gold: Sequence[GoldLinks]) -> LinkCounts:
    """Return |A and S|, |A and P|, |A|, |S| of every pair."""
    counts = [
        (len(found & links.sure), len(found & links.possible), len(found), len(links.sure))
        for found, links in zip(predicted, gold, strict=True)
    ]
    return np.array(counts, dtype=np.float64).reshape(-1, 4)


def alignment_error_rate(sums: LinkCounts) -> Float[np.ndarray, "rows"]:
    """Return the AER of sums of `link_counts`; 0 if there are neither predicted nor sure links."""
    sure, possible, predicted, expected = sums.T
    total = predicted + expected
    agreed: np.ndarray = np.divide(sure + possible, total, out=np.ones_like(total), where=total > 0)
    return 1 - agreed


def alignment_samples(counts: LinkCounts) -> dict[str, Sample]:
    """Return AER, precision and recall of `link_counts`."""
    return {
        "aer": Sample(
            counts=counts, metric=alignment_error_rate, unit="error", link=LOGIT, averaged=False
        ),
        "precision": Sample(counts=counts[:, 1:3], link=LOGIT, selective=True),
        "recall": Sample(counts=counts[:, [0, 3]], link=LOGIT),
    }


def lowest_aer(counts: Mapping[str, LinkCounts]) -> str:
    """Return the name with the lowest AER, the first if tied."""
    return min(counts, key=lambda name: alignment_samples(counts[name])["aer"].value)


def cross_validated_counts(counts: Mapping[str, LinkCounts]) -> LinkCounts:
    """Return the counts of the best head, chosen for each half of the pairs on the other half."""
    chosen = np.empty_like(next(iter(counts.values())))
    for half in (0, 1):
        others = {name: count[1 - half :: 2] for name, count in counts.items()}
        chosen[half::2] = counts[lowest_aer(others)][half::2]
    return chosen
