"""Metrics of classification, for one label or several labels per example.

F1 of a label  =  2 tp / (2 tp + fp + fn)

macro F1   the mean over the labels that occur in the references or in the predictions
micro F1   the same formula with tp, fp and fn summed over all labels
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from harken.measure.interval import LOGIT, Sample
from harken.measure.tagging import TagScore

Labels = Sequence[Sequence[str]]  # of each example
Members = Bool[np.ndarray, "examples labels"]  # label indicator matrix


def members(examples: Labels, names: Sequence[str]) -> Members:
    """Return the label indicator matrix: whether each example has each of the named labels."""
    index = {name: column for column, name in enumerate(names)}
    table = np.zeros((len(examples), len(names)), dtype=np.bool_)
    for row, labels in zip(table, examples, strict=True):
        row[[index[label] for label in labels]] = True
    return table


def macro_f1(expected: Members, predicted: Members) -> Sample:
    """Return the mean of the F1 of all labels that occur."""
    correct, total = (expected & predicted), expected.astype(np.int64) + predicted
    counts = np.hstack((correct, total)).astype(np.float64)
    return Sample(counts=counts, metric=_mean_f1, link=LOGIT, averaged=False)


def micro_f1(expected: Members, predicted: Members) -> Sample:
    """Return the F1 of all labels together."""
    correct = (expected & predicted).sum(axis=1)
    total = expected.sum(axis=1) + predicted.sum(axis=1)
    counts = np.stack((2 * correct, total), axis=1).astype(np.float64)
    return Sample(counts=counts, link=LOGIT, averaged=False)


def _mean_f1(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    correct, total = np.split(sums, 2, axis=1)
    f1 = np.divide(2 * correct, total, out=np.zeros_like(total), where=total > 0)
    mean: np.ndarray = f1.sum(axis=1) / np.maximum((total > 0).sum(axis=1), 1)
    return mean


def label_scores(expected: Members, predicted: Members, names: Sequence[str]) -> list[TagScore]:
    """Return precision, recall and F1 of each label that was expected or predicted."""
    scores = []
    for name, truth, output in zip(names, expected.T, predicted.T, strict=True):
        right, found, count = int((truth & output).sum()), int(output.sum()), int(truth.sum())
        if found or count:
            precision, recall = right / found if found else 0.0, right / count if count else 0.0
            scores.append(TagScore(name, precision, recall, 2 * right / (found + count), count))
    return scores


def confusion_matrix(
    expected: Sequence[str], predicted: Sequence[str], names: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return a row for each expected label: its name, and the count of each predicted label."""
    pairs = Counter(zip(expected, predicted, strict=True))
    return [(row, *(str(pairs[row, column]) for column in names)) for row in names]
