"""Count wrong answers that would be correct for the most similar known name.

    string      Jaccard similarity of the character trigrams of " name ", ignoring case
    embedding   cosine similarity

A name is not its own neighbor. A name that shares no trigram with another known name, or whose
vector is zero, has no neighbor. The first of equally similar names is the neighbor. Since a
frequent answer belongs to many names, the count is reported with its expected value for random
neighbors.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.measure.interval import Values
from harken.measure.scored_answers import Answer

MAX_EXAMPLES = 6  # errors listed, the most confident ones
MAX_EMBEDDED = 2000  # known names to embed, drawn at random; all would take too long
BATCH_SIZE = 256  # rows of cosines

Embed = Callable[[Sequence[str]], Float[np.ndarray, "names width"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAnswers:
    """Names in training questions, the answers of each name, and counts of answers."""

    names: Sequence[str]
    answers: Sequence[frozenset[str]]
    counts: Mapping[str, int]


class NearestNameError(NamedTuple):
    """A wrong answer that is correct for the nearest name."""

    name: str
    nearest: str
    answer: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestNameErrors:
    """Errors by one similarity; `outcomes` tells for each answer whether it is such an error."""

    similarity: str  # "string" or "embedding"
    outcomes: Sequence[bool]
    wrong: int
    by_chance: float  # expected count for random neighbors
    examples: Sequence[NearestNameError]


def known_answers(names: Sequence[str], answers: Sequence[str]) -> KnownAnswers:
    """Collect the names and answers of training questions."""
    by_name: dict[str, set[str]] = {}
    for name, answer in zip(names, answers, strict=True):
        by_name.setdefault(name, set()).add(answer.strip())
    return KnownAnswers(
        names=list(by_name),
        answers=[frozenset(group) for group in by_name.values()],
        counts=Counter(answer.strip() for answer in answers),
    )


def nearest_name_errors(
    answers: Sequence[Answer], right: Sequence[bool], known: KnownAnswers, embed: Embed, seed: int
) -> list[NearestNameErrors]:
    """Find the errors by both similarities."""
    wrong = [index for index, is_right in enumerate(right) if not is_right]
    texts = [answer.answer.strip() for answer in answers]
    name_counts = Counter(answer for group in known.answers for answer in group)
    by_chance = 0.0
    for index in wrong:
        by_chance += name_counts[texts[index]] / len(known.names)
    # Answers that are not in training are not correct for any known name.
    candidates = [index for index in wrong if texts[index] in known.counts]
    names = [answers[index].name for index in candidates]
    neighbors = {
        "string": nearest_names(names, known.names, string_similarities(names, known.names)),
        "embedding": [],
    }
    if names:
        count = min(MAX_EMBEDDED, len(known.names))
        drawn = np.random.default_rng(seed).choice(len(known.names), size=count, replace=False)
        indices = np.sort(drawn).tolist()
        sample = [known.names[index] for index in indices]
        in_sample = nearest_names(names, sample, cosine_similarities(embed(names), embed(sample)))
        neighbors["embedding"] = [None if row is None else indices[row] for row in in_sample]
    results = []
    for similarity, nearest in neighbors.items():
        errors = {
            index: NearestNameError(
                answers[index].name, known.names[neighbor], texts[index], answers[index].confidence
            )
            for index, neighbor in zip(candidates, nearest, strict=True)
            if neighbor is not None and texts[index] in known.answers[neighbor]
        }
        by_confidence = sorted(errors.values(), key=lambda error: -error.confidence)
        results.append(
            NearestNameErrors(
                similarity=similarity,
                outcomes=[index in errors for index in range(len(right))],
                wrong=len(wrong),
                by_chance=by_chance,
                examples=by_confidence[:MAX_EXAMPLES],
            )
        )
    return results


def nearest_names(
    names: Sequence[str], known: Sequence[str], similarities: Iterable[Values]
) -> list[int | None]:
    """Return the index of the known name nearest to each name; None if it has no neighbor."""
    indices = {name: index for index, name in enumerate(known)}
    nearest: list[int | None] = []
    for name, row in zip(names, similarities, strict=True):
        if name in indices:
            row[indices[name]] = -np.inf
        nearest.append(int(row.argmax()) if row.max(initial=-np.inf) > -np.inf else None)
    return nearest


def string_similarities(names: Sequence[str], known: Sequence[str]) -> Iterator[Values]:
    """Yield the Jaccard similarities of each name and all known names."""
    trigrams = [name_trigrams(name) for name in known]
    sizes = np.array([len(group) for group in trigrams], dtype=np.float64)
    # An inverted index: a name is compared only with names that share a trigram.
    names_with: dict[str, list[int]] = defaultdict(list)
    for index, group in enumerate(trigrams):
        for trigram in group:
            names_with[trigram].append(index)
    arrays = {trigram: np.array(indices) for trigram, indices in names_with.items()}
    for name in names:
        group = name_trigrams(name)
        matches = [np.zeros(0, dtype=np.int64), *(arrays[t] for t in group if t in arrays)]
        shared = np.bincount(np.concatenate(matches), minlength=len(known))
        yield np.where(shared > 0, shared / (len(group) + sizes - shared), -np.inf)


def name_trigrams(name: str) -> set[str]:
    """Return the character trigrams of " name ", ignoring case."""
    padded = f" {name.casefold()} "
    return {padded[start : start + 3] for start in range(max(1, len(padded) - 2))}


def cosine_similarities(
    vectors: Float[np.ndarray, "names width"], known: Float[np.ndarray, "known width"]
) -> Iterator[Values]:
    """Yield the cosines of each vector with every known vector."""
    directions, known_directions = _normalize(vectors), _normalize(known)
    for start in range(0, len(directions), BATCH_SIZE):
        batch = directions[start : start + BATCH_SIZE]
        is_zero = ~batch.any(axis=1, keepdims=True)
        yield from np.where(is_zero, -np.inf, batch @ known_directions.T)


def _normalize(vectors: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: np.ndarray = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return units
