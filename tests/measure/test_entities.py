"""Scores of entities compared with seqeval, for any tags, also ill-formed ones."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score

from harken.measure.entities import entity_samples, entity_sets, of_type
from harken.measure.paired import comparable, difference

TAGS = ["O", "O", *(f"{prefix}-{entity_type}" for prefix in "BIES" for entity_type in ("a", "b"))]
tags = st.sampled_from(TAGS)
rows = st.lists(st.lists(st.tuples(tags, tags), min_size=1, max_size=7), min_size=1, max_size=5)


@given(rows)
def test_scores_equal_seqeval(pairs: list[list[tuple[str, str]]]) -> None:
    expected, predicted = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
    true, found = entity_sets(expected), entity_sets(predicted)
    samples = entity_samples(true, found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scores with the denominator 0
        for name, score in (
            ("f1", f1_score),
            ("precision", precision_score),
            ("recall", recall_score),
        ):
            assert samples[name].value == pytest.approx(score(expected, predicted))
            assert samples[name].counts.shape[0] == len(pairs)
        if any(true):
            report = classification_report(expected, predicted, output_dict=True)
            for entity_type in {entity.type for row in true for entity in row}:
                some = entity_samples(of_type(true, entity_type), of_type(found, entity_type))
                assert some["f1"].value == pytest.approx(report[entity_type]["f1-score"])
                assert some["precision"].value == pytest.approx(report[entity_type]["precision"])
                assert some["recall"].estimate().n == report[entity_type]["support"]


def test_scores_by_hand() -> None:
    """Of three expected entities, one is found, one has a wrong end and one is missing."""
    expected = [["B-a", "I-a", "O", "B-b"], ["B-a", "O"]] * 6
    predicted = [["B-a", "I-a", "O", "O"], ["B-a", "I-a"]] * 6
    samples = entity_samples(entity_sets(expected), entity_sets(predicted))
    assert samples["f1"].counts[:2].tolist() == [[1, 1, 2], [0, 1, 1]]
    estimates = {name: sample.estimate() for name, sample in samples.items()}
    assert [estimates[name].value for name in ("precision", "recall")] == [1 / 2, 1 / 3]
    assert estimates["f1"].value == pytest.approx(2 / 5)
    assert [estimates[name].n for name in ("f1", "precision", "recall")] == [18, 12, 18]
    for estimate in estimates.values():
        assert 0 < estimate.low < estimate.value < estimate.high < 1


def test_runs_are_compared_although_they_predict_different_numbers() -> None:
    expected = entity_sets([["B-a", "I-a"], ["B-a", "O"]] * 9)
    few, all_found = entity_sets([["O", "O"], ["B-a", "O"]] * 9), expected
    first, second = entity_samples(expected, few), entity_samples(expected, all_found)
    for name in first:
        assert comparable(first[name], second[name])
        assert difference(first[name], second[name]).value == pytest.approx(
            {"f1": 1 / 3, "precision": 0.0, "recall": 1 / 2}[name]
        )
