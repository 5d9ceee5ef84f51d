"""Metrics and tables of the task `classify`."""

from collections import Counter
from collections.abc import Sequence

from harken.formats.labels import join_labels, split_labels
from harken.measure.calibration import calibration_error, error_by_chance, reliability
from harken.measure.classification import (
    Labels,
    Members,
    confusion_matrix,
    label_scores,
    macro_f1,
    members,
    micro_f1,
)
from harken.measure.interval import format_interval, share
from harken.measure.scored_answers import ScoredAnswers, exact_matches
from harken.measure.tagging import confusions
from harken.tasks.prediction import Evaluation, Prediction, Table

MAX_LABELS = 12  # of a confusion matrix; with more labels, the most frequent confusions are listed
MAX_CONFUSIONS = 20  # rows of the table


def label_evaluation(
    predictions: Sequence[Prediction],
    expected: Labels,
    *,
    known: Sequence[str],
    majority: str,
    multiple: bool,
) -> Evaluation:
    """Return the metrics of predictions.

    Arguments:
        known: the labels of the training data.
        majority: the most frequent output in training, which is the baseline.
        multiple: whether an example may have several labels.
    """
    references = list(map(join_labels, expected))
    outputs = [prediction.output for prediction in predictions]
    correct = exact_matches(outputs, references)
    scored = ScoredAnswers([prediction.confidence for prediction in predictions], correct)
    names = sorted({*known, *(label for labels in expected for label in labels)})
    truth = members(expected, names)
    found = members([split_labels(item) if multiple else [item] for item in outputs], names)
    accuracy = "exact_match" if multiple else "accuracy"
    samples = {accuracy: share(correct), "macro_f1": macro_f1(truth, found)}
    if multiple:
        samples["micro_f1"] = micro_f1(truth, found)
    samples["majority_labels" if multiple else "majority_label"] = share(
        [reference == majority for reference in references]
    )
    samples["calibration_error"] = calibration_error(scored)
    return Evaluation(
        n=len(expected),
        samples=samples,
        notes=_notes(scored, expected, known, majority, multiple=multiple),
        predictions=predictions,
        expected=references,
        tables=[
            *_confusion_tables(references, outputs, names, multiple=multiple),
            _score_table(truth, found, names),
            _calibration_table(scored),
        ],
    )


def _notes(
    scored: ScoredAnswers,
    expected: Labels,
    known: Sequence[str],
    majority: str,
    *,
    multiple: bool,
) -> dict[str, str]:
    """Return explanations of the metrics."""
    notes = {
        "exact_match": "examples with exactly the expected labels",
        "accuracy": "examples with the expected label",
        "macro_f1": "mean F1 of the labels",
        "micro_f1": "F1 of all labels together",
        "majority_label": f"baseline: always {majority!r}, the most frequent training label",
        "majority_labels": f"baseline: always {majority!r}, the most frequent training output",
        "calibration_error": "expected calibration error (ECE); a calibrated model has, by chance, "
        f"{100 * error_by_chance(scored):.1f} %",
    }
    counts = Counter(label for labels in expected for label in labels if label not in known)
    if counts:
        notes["unseen_labels"] = (
            f"{counts.total()} labels do not occur in training and are never predicted: "
            f"{', '.join(sorted(counts))}"
        )
    return notes


def _confusion_tables(
    expected: Sequence[str], outputs: Sequence[str], names: Sequence[str], *, multiple: bool
) -> list[Table]:
    if not multiple and len(names) <= MAX_LABELS:
        rows = confusion_matrix(expected, outputs, names)
        title = "Confusion matrix: expected labels (rows), predicted labels (columns)"
        return [Table(title=title, header=("expected", *names), rows=rows)]
    pairs = Counter(zip(expected, outputs, strict=True))
    wrong = [
        (pair.expected or "–", pair.predicted or "–", pair.words, f"{pair.share:.1%}")
        for pair in confusions(pairs, MAX_CONFUSIONS)
    ]
    header = ("expected", "predicted", "examples", "share of expected")
    return [Table(title="Confusions", header=header, rows=wrong)]


def _score_table(truth: Members, found: Members, names: Sequence[str]) -> Table:
    rows = [
        (label, *(f"{share:.1%}" for share in shares), count)
        for label, *shares, count in label_scores(truth, found, names)
    ]
    header = ("label", "precision", "recall", "F1", "examples")
    return Table(title="Scores by label", header=header, rows=rows)


def _calibration_table(scored: ScoredAnswers) -> Table:
    rows = [
        (
            f"{group.confidence:.1%}",
            f"{group.correct.value or 0.0:.1%}",
            format_interval(group.correct),
            group.n,
        )
        for group in reliability(scored)
    ]
    header = ("mean confidence", "correct", "95 % interval", "examples")
    return Table(title="Calibration", header=header, rows=rows)
