"""Precision, recall and F1 of entities, as conlleval and seqeval count them.

    correct      entities of the prediction with the words and the type of an expected entity
    precision    correct / predicted          recall  correct / expected
    F1           2 correct / (predicted + expected)

All are 0 where the denominator is 0.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from harken.formats.entity_tags import Entity, entities_of
from harken.measure.interval import LOGIT, Counts, Sample
from harken.measure.tagging import Tags

Entities = Sequence[set[Entity]]  # of each sentence


def entity_sets(tags: Tags) -> Entities:
    """Return the entities of each sentence."""
    return [set(entities_of(sentence)) for sentence in tags]


def of_type(entities: Entities, entity_type: str) -> Entities:
    """Return the entities of one type."""
    return [{entity for entity in row if entity.type == entity_type} for row in entities]


def entity_samples(expected: Entities, predicted: Entities) -> dict[str, Sample]:
    """Return precision, recall and F1, whose counts are those of the sentences."""
    rows = zip(expected, predicted, strict=True)
    counts = np.array(
        [(len(true & found), len(found), len(true)) for true, found in rows], dtype=np.float64
    ).reshape(-1, 3)
    return {
        "f1": Sample(counts=counts, metric=f1_score, link=LOGIT),
        # The number of predicted entities depends on the model.
        "precision": Sample(counts=counts[:, :2], metric=quotient, link=LOGIT, selective=True),
        "recall": Sample(counts=counts[:, ::2], metric=quotient, link=LOGIT),
    }


def f1_score(sums: Counts) -> Float[np.ndarray, "rows"]:
    """Return F1 of each row of correct, predicted and expected entities."""
    return quotient(np.stack((2 * sums[:, 0], sums[:, 1] + sums[:, 2]), axis=1))


def quotient(sums: Counts) -> Float[np.ndarray, "rows"]:
    """Return the first sum divided by the second; 0 where the second is 0."""
    result: np.ndarray = sums[:, 0] / np.maximum(sums[:, 1], 1.0)
    return result
