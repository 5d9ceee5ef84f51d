"""Wrong answers that belong to somebody else: to the known name most like the one asked about.

A model that has forgotten a person, or never met them, often answers for a neighbour. How many of
its wrong answers are such says little alone, since a common answer is everybody's: so beside it
stands how many would be if the neighbour were any known name.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.measure.nearest import nearest_by_embedding, nearest_by_string
from harken.measure.scored_answers import Answer

SHOWN = 6  # examples, the surest
MAX_EMBEDDED = 2000  # known names that a model is asked for its vector of; all are too dear

Embed = Callable[[Sequence[str]], Float[np.ndarray, "names width"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAnswers:
    """What training asked about."""

    names: Sequence[str]  # all different
    answers: Sequence[frozenset[str]]  # to each of them: a name may be asked about twice
    times: Mapping[str, int]  # that each answer occurs


class NearestNameError(NamedTuple):
    """A wrong answer about a name that is the right one for another."""

    name: str
    nearest: str
    answer: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestNameErrors:
    """Of every answer, whether it is wrong and its neighbour's."""

    how: str  # likeness was measured
    outcomes: Sequence[bool]
    wrong: int
    by_chance: float  # how many would be, were each neighbour any known name
    examples: Sequence[NearestNameError]


def known_answers(names: Sequence[str], answers: Sequence[str]) -> KnownAnswers:
    """From training questions, line by line."""
    told: dict[str, set[str]] = {}
    for name, answer in zip(names, answers, strict=True):
        told.setdefault(name, set()).add(answer.strip())
    return KnownAnswers(
        names=list(told),
        answers=[frozenset(some) for some in told.values()],
        times=Counter(answer.strip() for answer in answers),
    )


def nearest_name_errors(
    said: Sequence[Answer], right: Sequence[bool], known: KnownAnswers, embed: Embed, seed: int
) -> list[NearestNameErrors]:
    """By either likeness; only names whose answer may be somebody else's are looked at."""
    asking = [
        place
        for place, (one, fine) in enumerate(zip(said, right, strict=True))
        if not fine and one.answer.strip() in known.times
    ]
    names = [said[place].name for place in asking]
    found = {
        "string": nearest_by_string(names, known.names),
        "embedding": _by_embedding(names, known, embed, seed) if names else [],
    }
    return [
        _borrowed(how, said, right, known, dict(zip(asking, nearest, strict=True)))
        for how, nearest in found.items()
    ]


def _by_embedding(
    names: Sequence[str], known: KnownAnswers, embed: Embed, seed: int
) -> list[int | None]:
    count = min(MAX_EMBEDDED, len(known.names))
    drawn = np.random.default_rng(seed).choice(len(known.names), size=count, replace=False)
    places = np.sort(drawn).tolist()
    some = [known.names[place] for place in places]
    nearest = nearest_by_embedding(names, embed(names), some, embed(some))
    return [None if at is None else places[at] for at in nearest]


def _borrowed(
    how: str,
    said: Sequence[Answer],
    right: Sequence[bool],
    known: KnownAnswers,
    nearest: Mapping[int, int | None],
) -> NearestNameErrors:
    having = Counter(answer for answers in known.answers for answer in answers)
    outcomes, found, by_chance = [], [], 0.0
    for at, (one, fine) in enumerate(zip(said, right, strict=True)):
        answer, place = one.answer.strip(), nearest.get(at)
        borrowed = place is not None and answer in known.answers[place]
        outcomes.append(borrowed)
        if borrowed and place is not None:
            found.append(NearestNameError(one.name, known.names[place], answer, one.confidence))
        if not fine:
            by_chance += having[answer] / len(known.names)
    return NearestNameErrors(
        how=how,
        outcomes=outcomes,
        wrong=len(right) - sum(right),
        by_chance=by_chance,
        examples=sorted(found, key=lambda one: -one.confidence)[:SHOWN],
    )
