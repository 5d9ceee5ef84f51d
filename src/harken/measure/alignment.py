"""Word alignments from attention, and how well they agree with those that people drew.

    A found links, S sure ones, P possible ones (S is a part of P), all of one corpus together:

    precision = |A and P| / |A|      recall = |A and S| / |S|
    AER       = 1 - (|A and S| + |A and P|) / (|A| + |S|)            (Och and Ney, 2003)

Weights [T, S] say how much each target word looked at each source word. Of tokens they become those
of words by the sum over a source word's tokens, for they share out one mass, and the mean over a
target word's, for each has a mass of its own. Which attention they come from is not here.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from harken.formats.links import GoldLinks, Link
from harken.measure.interval import LOGIT, Sample

Links = frozenset[Link]
Weights = Float[np.ndarray, "T S"]

# Steps of (target, source) in the order of Moses' symal: beside a point, then diagonal.
NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def over_words(
    weights: Weights, target_words: Sequence[int], source_words: Sequence[int]
) -> Float[np.ndarray, "T S"]:
    """Weights of words, from those of tokens and the number of each token's word."""
    # Rows of the identity, one a token: the product with them is the sum over a word's tokens.
    source = np.eye(max(source_words) + 1)[list(source_words)]
    target = np.eye(max(target_words) + 1)[list(target_words)]
    means = (target / np.maximum(target.sum(axis=0), 1)).T
    merged: np.ndarray = means @ weights @ source
    return merged


def argmax_source(weights: Weights) -> Links:
    """Each target word with the source word that it looked most at; of equals the first."""
    return frozenset((int(best), t) for t, best in enumerate(weights.argmax(axis=1)))


def argmax_target(weights: Weights) -> Links:
    """Each source word with the target word that looked most at it: the other direction."""
    return frozenset((s, int(best)) for s, best in enumerate(weights.argmax(axis=0)))


def above(weights: Weights, least: float) -> Links:
    """Every two words of which one looked at the other with at least this weight."""
    return frozenset((int(s), int(t)) for t, s in np.argwhere(weights >= least))


def grow_diag_final(by_target: Links, by_source: Links) -> Links:
    """Symmetrize two directed alignments by grow-diag-final (Koehn and others, 2003).

    The links of both directions grow by neighboring links of either one that link a new word; then
    every link of `by_target`, which has a source word for each target word, and of `by_source` is
    added that links a new word. The order decides the result. It is that of Moses' `symal`: points
    by target, then source, where a point that was just added counts in the same pass.
    """
    one_way, other_way = (sorted((t, s) for s, t in links) for links in (by_target, by_source))
    either, found = {*one_way, *other_way}, {*one_way} & {*other_way}
    targets, sources = {t for t, _ in found}, {s for _, s in found}

    def add(target: int, source: int) -> None:
        if target not in targets or source not in sources:
            found.add((target, source))
            targets.add(target)
            sources.add(source)

    size, scan = -1, sorted(either)
    while size < len(found):
        size = len(found)
        for target, source in scan:
            if (target, source) in found:
                for down, across in NEIGHBORS:
                    if (target + down, source + across) in either:
                        add(target + down, source + across)
    for point in (*one_way, *other_way):
        add(*point)
    return frozenset((s, t) for t, s in found)


def diagonal(target_words: int, source_words: int) -> Links:
    """What knows nothing: each target word with the source word as far along."""
    return frozenset((t * source_words // target_words, t) for t in range(target_words))


def link_counts(found: Sequence[Links], gold: Sequence[GoldLinks]) -> Float[np.ndarray, "pairs 4"]:
    """Of every pair: |A and S|, |A and P|, |A|, |S|."""
    counts = [
        (len(links & one.sure), len(links & one.possible), len(links), len(one.sure))
        for links, one in zip(found, gold, strict=True)
    ]
    return np.array(counts, dtype=np.float64).reshape(-1, 4)


def error_rate(sums: Float[np.ndarray, "rows 4"]) -> Float[np.ndarray, "rows"]:
    """AER of sums of `link_counts`; nothing found where nothing is sure is no error."""
    sure, possible, found, wanted = sums.T
    total = found + wanted
    agreed: np.ndarray = np.divide(sure + possible, total, out=np.ones_like(total), where=total > 0)
    return 1 - agreed


def alignment_samples(found: Sequence[Links], gold: Sequence[GoldLinks]) -> dict[str, Sample]:
    """AER, precision and recall, made of pairs of sentences."""
    return samples_of(link_counts(found, gold))


def samples_of(counts: Float[np.ndarray, "pairs 4"]) -> dict[str, Sample]:
    """The same from counts."""
    return {
        "aer": Sample(counts=counts, figure=error_rate, unit="error", link=LOGIT, averaged=False),
        "precision": Sample(counts=counts[:, 1:3], link=LOGIT, chosen=True),
        "recall": Sample(counts=counts[:, [0, 3]], link=LOGIT),
    }


def best_of(counts: Mapping[str, Float[np.ndarray, "pairs 4"]]) -> str:
    """The one of the lowest AER, of equals the first."""
    return min(counts, key=lambda name: float(error_rate(counts[name].sum(axis=0)[None])[0]))


def chosen_elsewhere(
    counts: Mapping[str, Float[np.ndarray, "pairs 4"]],
) -> Float[np.ndarray, "pairs 4"]:
    """Counts of the best, chosen for every second pair by the others, for the rest by these.

    The best of many on the pairs that it was chosen on looks better than it is; this does not.
    """
    some = next(iter(counts.values()))
    mixed = np.empty_like(some)
    for half in (0, 1):
        others = {name: one[1 - half :: 2] for name, one in counts.items()}
        mixed[half::2] = counts[best_of(others)][half::2]
    return mixed
