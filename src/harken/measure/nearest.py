"""The known name that is most like another: by its letters, or by what a model made of it.

    by string      | A and B | / | A or B |      A, B: trigrams of " name ", whatever the case
    by embedding   cosine of two vectors

A name is no neighbour of itself; a name that shares no trigram with any other has none, nor has a
vector without a direction. Of equally near ones the first is taken.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

LENGTH = 3  # of the pieces of a name
TOGETHER = 256  # rows of cosines at a time
NOBODY = np.zeros(0, dtype=np.int64)


def nearest_by_string(names: Sequence[str], known: Sequence[str]) -> list[int | None]:
    """For each name, where the nearest of the known ones stands; those are all different."""
    pieces = [pieces_of(name) for name in known]
    sizes = np.array([len(one) for one in pieces], dtype=np.float64)
    listed: dict[str, list[int]] = {}
    for place, some in enumerate(pieces):
        for piece in some:
            listed.setdefault(piece, []).append(place)
    # Who has each trigram: a name then meets only those that share one with it.
    holders = {piece: np.array(places) for piece, places in listed.items()}
    places = {name: place for place, name in enumerate(known)}
    found: list[int | None] = []
    for name in names:
        own = pieces_of(name)
        sharing = [NOBODY, *(holders[piece] for piece in own if piece in holders)]
        shared = np.bincount(np.concatenate(sharing), minlength=len(known))
        if name in places:
            shared[places[name]] = 0
        found.append(_first_best(shared / (len(own) + sizes - shared)))
    return found


def _first_best(likeness: Float[np.ndarray, "known"]) -> int | None:
    return int(likeness.argmax()) if likeness.max(initial=0.0) > 0 else None


def pieces_of(name: str) -> set[str]:
    """Three letters in a row, the ends of the name among them."""
    padded = f" {name.casefold()} "
    return {padded[at : at + LENGTH] for at in range(max(1, len(padded) - LENGTH + 1))}


def nearest_by_embedding(
    names: Sequence[str],
    vectors: Float[np.ndarray, "names width"],
    known: Sequence[str],
    known_vectors: Float[np.ndarray, "known width"],
) -> list[int | None]:
    """The same, by a vector of each of them."""
    directions, known_directions = _unit(vectors), _unit(known_vectors)
    places = {name: place for place, name in enumerate(known)}
    found: list[int | None] = []
    for start in range(0, len(names), TOGETHER):
        cosines = directions[start : start + TOGETHER] @ known_directions.T
        for at, row in enumerate(cosines, start):
            if names[at] in places:
                row[places[names[at]]] = -np.inf
            someone = row.max(initial=-np.inf) > -np.inf and directions[at].any()
            found.append(int(row.argmax()) if someone else None)
    return found


def _unit(vectors: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: np.ndarray = np.divide(
        vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0
    )
    return directions
