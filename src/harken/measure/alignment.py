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

from harken.data.links import GoldLinks, Link
from harken.measure.interval import Sample, ratio

Links = frozenset[Link]
Weights = Float[np.ndarray, "T S"]

_NEIGHBOURS = tuple((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0))


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


def looked_most(weights: Weights) -> Links:
    """Each target word with the source word that it looked most at; of equals the first."""
    return frozenset((int(best), t) for t, best in enumerate(weights.argmax(axis=1)))


def looked_at_most(weights: Weights) -> Links:
    """Each source word with the target word that looked most at it: the other direction."""
    return frozenset((s, int(best)) for s, best in enumerate(weights.argmax(axis=0)))


def above(weights: Weights, least: float) -> Links:
    """Every two words of which one looked at the other with at least this weight."""
    return frozenset((int(s), int(t)) for t, s in np.argwhere(weights >= least))


def grown(one: Links, other: Links) -> Links:
    """Grow-diag-final: what both directions have, its neighbours in either, then what is alone.

    Links are tried in the order of source, then target (Koehn and others, 2003).
    """
    either, found = one | other, set(one & other)
    sources, targets = {s for s, _ in found}, {t for _, t in found}

    def add(link: Link) -> None:
        if link[0] not in sources or link[1] not in targets:
            found.add(link)
            sources.add(link[0])
            targets.add(link[1])

    size = -1
    while size < len(found):
        size = len(found)
        for link in [(s + x, t + y) for s, t in sorted(found) for x, y in _NEIGHBOURS]:
            if link in either:
                add(link)
    for direction in (one, other):
        for link in sorted(direction):
            add(link)
    return frozenset(found)


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


def error_rate(sums: Float[np.ndarray, "resamples 4"]) -> Float[np.ndarray, "resamples"]:
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
        "aer": Sample(counts=counts, figure=error_rate, unit="error"),
        "precision": Sample(counts=counts[:, 1:3], figure=ratio, chosen=True),
        "recall": Sample(counts=counts[:, [0, 3]], figure=ratio),
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
