"""Wrong answers that are right for the known name most similar to the one in the question.

    by string      | A and B | / | A or B |      A, B: trigrams of " name ", ignoring case
    by embedding   cosine of two vectors

A name is not its own neighbor. A name that shares no trigram with another, or whose vector is zero,
has no neighbor; of equals the first counts. Since a frequent answer belongs to many names, the
count is reported with its expected value for random neighbors.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.measure.scored_answers import Answer

MAX_EXAMPLES = 6  # the most confident
MAX_EMBEDDED = 2000  # known names to embed; all would take too long
BATCH_SIZE = 256  # rows of cosines
TRIGRAM = 3

Embed = Callable[[Sequence[str]], Float[np.ndarray, "names width"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAnswers:
    """Distinct names of the training questions, the answers of each, and counts of answers."""

    names: Sequence[str]
    answers: Sequence[frozenset[str]]
    times: Mapping[str, int]


class NearestNameError(NamedTuple):
    """A wrong answer that is right for the nearest name."""

    name: str
    nearest: str
    answer: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestNameErrors:
    """For every answer, whether it is wrong and right for the nearest name."""

    how: str  # "string" or "embedding"
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
        times=Counter(answer.strip() for answer in answers),
    )


def nearest_name_errors(
    answers: Sequence[Answer], right: Sequence[bool], known: KnownAnswers, embed: Embed, seed: int
) -> list[NearestNameErrors]:
    """Measure by both similarities; only wrong answers that are known need a neighbor."""
    wrong = [at for at, is_right in enumerate(right) if not is_right]
    texts = [answer.answer.strip() for answer in answers]
    names_with = Counter(answer for group in known.answers for answer in group)
    by_chance = 0.0
    for at in wrong:
        by_chance += names_with[texts[at]] / len(known.names)
    candidates = [at for at in wrong if texts[at] in known.times]
    names = [answers[at].name for at in candidates]
    neighbors = {
        "string": nearest_by_string(names, known.names),
        "embedding": _embedded_neighbors(names, known, embed, seed) if names else [],
    }
    results = []
    for how, nearest in neighbors.items():
        examples = {
            at: NearestNameError(
                answers[at].name, known.names[place], texts[at], answers[at].confidence
            )
            for at, place in zip(candidates, nearest, strict=True)
            if place is not None and texts[at] in known.answers[place]
        }
        by_confidence = sorted(examples.values(), key=lambda error: -error.confidence)
        results.append(
            NearestNameErrors(
                how=how,
                outcomes=[at in examples for at in range(len(right))],
                wrong=len(wrong),
                by_chance=by_chance,
                examples=by_confidence[:MAX_EXAMPLES],
            )
        )
    return results


def _embedded_neighbors(
    names: Sequence[str], known: KnownAnswers, embed: Embed, seed: int
) -> list[int | None]:
    count = min(MAX_EMBEDDED, len(known.names))
    drawn = np.random.default_rng(seed).choice(len(known.names), size=count, replace=False)
    places = np.sort(drawn).tolist()
    sample = [known.names[place] for place in places]
    nearest = nearest_by_embedding(names, embed(names), sample, embed(sample))
    return [None if at is None else places[at] for at in nearest]


def nearest_by_string(names: Sequence[str], known: Sequence[str]) -> list[int | None]:
    """Return for each name the index of the nearest known name, by shared trigrams."""
    trigrams = [name_trigrams(name) for name in known]
    sizes = np.array([len(group) for group in trigrams], dtype=np.float64)
    # An inverted index: a name is compared only with names that share a trigram.
    names_with: dict[str, list[int]] = {}
    for place, group in enumerate(trigrams):
        for trigram in group:
            names_with.setdefault(trigram, []).append(place)
    index = {trigram: np.array(group) for trigram, group in names_with.items()}
    places = {name: place for place, name in enumerate(known)}
    nearest: list[int | None] = []
    for name in names:
        own = name_trigrams(name)
        sharing = [np.zeros(0, dtype=np.int64), *(index[part] for part in own if part in index)]
        shared = np.bincount(np.concatenate(sharing), minlength=len(known))
        if name in places:
            shared[places[name]] = 0
        similarity = shared / (len(own) + sizes - shared)
        nearest.append(int(similarity.argmax()) if similarity.max(initial=0.0) > 0 else None)
    return nearest


def name_trigrams(name: str) -> set[str]:
    """Return the character trigrams of a name between two spaces."""
    padded = f" {name.casefold()} "
    return {padded[at : at + TRIGRAM] for at in range(max(1, len(padded) - TRIGRAM + 1))}


def nearest_by_embedding(
    names: Sequence[str],
    vectors: Float[np.ndarray, "names width"],
    known: Sequence[str],
    known_vectors: Float[np.ndarray, "known width"],
) -> list[int | None]:
    """Return for each name the index of the nearest known name, by the cosine of vectors."""
    directions, known_directions = _normalize(vectors), _normalize(known_vectors)
    places = {name: place for place, name in enumerate(known)}
    nearest: list[int | None] = []
    for start in range(0, len(names), BATCH_SIZE):
        cosines = directions[start : start + BATCH_SIZE] @ known_directions.T
        for at, row in enumerate(cosines, start):
            if names[at] in places:
                row[places[names[at]]] = -np.inf
            exists = row.max(initial=-np.inf) > -np.inf and directions[at].any()
            nearest.append(int(row.argmax()) if exists else None)
    return nearest


def _normalize(vectors: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: np.ndarray = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return units
