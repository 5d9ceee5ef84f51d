"""F1 of labels, compared with counts in loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.classification import (
    confusion_matrix,
    label_scores,
    macro_f1,
    members,
    micro_f1,
)

NAMES = ("bird", "cat", "dog", "eel")
label_sets = st.sets(st.sampled_from(NAMES[:3])).map(sorted)
pairs = st.lists(st.tuples(label_sets, label_sets), min_size=1, max_size=11)


@given(pairs)
def test_f1_equals_counts_in_loops(examples: list[tuple[list[str], list[str]]]) -> None:
    expected, predicted = zip(*examples, strict=True)
    truth, found = members(expected, NAMES), members(predicted, NAMES)
    scores, totals = {}, np.zeros(3)
    for name in NAMES:
        right = sum(name in true and name in output for true, output in examples)
        wrong = sum(name not in true and name in output for true, output in examples)
        missed = sum(name in true and name not in output for true, output in examples)
        totals += (right, wrong, missed)
        if right + wrong + missed:
            scores[name] = 2 * right / (2 * right + wrong + missed)
    assert [score.tag for score in label_scores(truth, found, NAMES)] == list(scores)
    assert [score.f1 for score in label_scores(truth, found, NAMES)] == list(scores.values())
    mean = sum(scores.values()) / max(len(scores), 1)
    assert macro_f1(truth, found).value == pytest.approx(mean)
    micro = micro_f1(truth, found).value
    right, wrong, missed = totals
    if totals.any():
        assert micro == pytest.approx(2 * right / (2 * right + wrong + missed))
    else:
        assert math.isnan(micro)


def test_f1_by_hand() -> None:
    expected = [["cat"], ["cat"], ["cat"], ["dog"], ["eel"]]
    predicted = [["cat"], ["cat"], ["dog"], ["dog"], ["cat"]]
    truth, found = members(expected, NAMES), members(predicted, NAMES)
    # cat: 2 right, 1 wrong, 1 missed; dog: 1 right, 1 wrong; eel: 1 missed; no bird anywhere.
    estimate = macro_f1(truth, found).estimate()
    assert estimate.value == pytest.approx((4 / 6 + 2 / 3 + 0) / 3)
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low < estimate.value < estimate.high
    assert label_scores(truth, found, NAMES)[0][:3] == ("cat", 2 / 3, 2 / 3)
    labels = [[name] for (name,) in expected], [[name] for (name,) in predicted]
    table = confusion_matrix(*([name for (name,) in rows] for rows in labels), NAMES[1:])
    assert table == [("cat", "2", "1", "0"), ("dog", "0", "1", "0"), ("eel", "1", "0", "0")]
