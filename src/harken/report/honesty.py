"""The section "Confidence and unknown names": calibration, abstention, kinds of answers."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from harken.measure.abstention import PROBABILITY, RiskCoverage, RiskGuarantee
from harken.measure.calibration import AnswerGroup
from harken.measure.honesty import MARKED, FictionalNames, Honesty
from harken.measure.interval import Estimate, format_interval, format_value
from harken.measure.nearest_name_errors import NearestNameError
from harken.report.chart import Series, VerticalLine, chart, stacked_bar
from harken.report.page import Section, render
from harken.report.tables import ResultRow, plain_table, result_table

EXAMPLES = 6  # fictional names with the highest confidence
SIMILARITY = {"string": "by spelling", "embedding": "by the model's hidden state"}


def honesty_section(honesty: Honesty) -> Section:
    """Return the section of the run page."""
    thresholds = {guarantee.max_error: guarantee.threshold for guarantee in honesty.guarantees}
    marked_threshold = thresholds.get(MARKED)
    names = ("name", "most similar known name", "answer", "confidence")
    body = render(
        "honesty.html",
        calibration=_calibration_chart(honesty.bins),
        risk=_risk_chart(honesty.curve, marked_threshold),
        has_threshold=marked_threshold is not None,
        marked=_percent(MARKED),
        probability=_percent(PROBABILITY),
        guarantees=honesty.guarantees,
        guarantee_table=plain_table(
            ("guaranteed error rate", "confidence threshold", "answered", "error rate of answered"),
            list(map(_guarantee_row, honesty.guarantees)),
        ),
        kinds=stacked_bar(honesty.kinds),
        nearest=[
            (
                SIMILARITY[errors.similarity],
                errors,
                plain_table(names, [_error_row(error) for error in errors.examples]),
            )
            for errors in honesty.nearest_names
            if errors.wrong
        ],
        fictional=honesty.fictional,
        fictional_tables=_fictional_tables(honesty.fictional) if honesty.fictional else [],
        # A single group would repeat the overall result.
        groups=[_group_table(*item) for item in honesty.groups.items() if len(item[1]) > 1],
    )
    lead = (
        "The model answers every question. This section shows whether its confidence is lower for "
        "wrong answers and unknown names. The name is the part in which training questions differ: "
        f"{honesty.template}"
    )
    return Section(title="Confidence and unknown names", lead=lead, body=body)


def _error_row(error: NearestNameError) -> tuple[str, ...]:
    return error.name, error.nearest, error.answer, f"{error.confidence:.2f}"


def _group_table(title: str, groups: Sequence[AnswerGroup]) -> Markup:
    rows = []
    for group in groups:
        note = f"mean confidence {format_value(group.confidence, 'share')}"
        rows.append(ResultRow(group.name, group.n, group.correct, note))
    caption = f"By {title}: the dot is the measured value, the bar is its 95 % interval."
    return result_table(rows, metric="accuracy", caption=caption, row_header=title)


def _calibration_chart(bins: Sequence[AnswerGroup]) -> Markup:
    largest = max(group.n for group in bins)
    accuracies = [group.correct for group in bins]
    points = Series(
        name="accuracy",
        x=[group.confidence for group in bins],
        y=[math.nan if accuracy.value is None else accuracy.value for accuracy in accuracies],
        intervals=[
            None if accuracy.low is None or accuracy.high is None else (accuracy.low, accuracy.high)
            for accuracy in accuracies
        ],
        radii=[3 + 6 * (group.n / largest) ** 0.5 for group in bins],
    )
    text = "; ".join(
        f"{group.n} answers with confidence {format_value(group.confidence, 'share')}: "
        f"{format_value(group.correct.value, group.correct.unit)} correct"
        for group in bins
    )
    return chart(
        [points],
        x_label="confidence",
        y_label="accuracy",
        percent=True,
        diagonal=True,
        description=text,
    )


def _risk_chart(curve: RiskCoverage, threshold: float | None) -> Markup:
    vertical_lines = []
    if threshold is not None:
        coverage = max(curve.coverage[curve.thresholds >= threshold].tolist(), default=0.0)
        name = f"at most {_percent(MARKED)} errors: confidence ≥ {threshold:.2f}"
        vertical_lines.append(VerticalLine(coverage, name))
    half = int(np.searchsorted(curve.coverage, 0.5))  # the first point that covers half
    return chart(
        [Series(name="error rate", x=curve.coverage.tolist(), y=curve.risk.tolist())],
        x_label="answered questions",
        y_label="error rate of answered questions",
        percent=True,
        vertical_lines=vertical_lines,
        description=f"{format_value(curve.risk[-1], 'error')} wrong if all questions are answered, "
        f"{format_value(curve.risk[half], 'error')} for the most confident half.",
    )


def _guarantee_row(guarantee: RiskGuarantee) -> tuple[str, ...]:
    error_rate = f"at most {_percent(guarantee.max_error)}"
    if guarantee.threshold is None or guarantee.coverage is None:
        return (error_rate, "no threshold", "–", "–")
    wrong = "–" if guarantee.error is None else _with_interval(guarantee.error)
    return (error_rate, f"{guarantee.threshold:.3f}", _with_interval(guarantee.coverage), wrong)


def _fictional_tables(fictional: FictionalNames) -> list[Markup]:
    summaries = fictional.confidence_summaries
    # Without a threshold, no group has a share above it.
    has_threshold = any(group.above is not None for group in summaries)
    caption = (
        f"The threshold guarantees at most {_percent(MARKED)} errors." if has_threshold else ""
    )
    confidences = []
    for group in summaries:
        above = "–" if group.above is None else format_value(group.above, "share")
        confidences.append((group.name, group.n, f"{group.median:.2f}", above))
    answers = sorted(fictional.answers, key=lambda answer: -answer.confidence)[:EXAMPLES]
    examples = [(answer.name, answer.answer, f"{answer.confidence:.2f}") for answer in answers]
    header = ("questions about", "n", "median confidence", "above the threshold")
    frequent = ("most frequent answers", "count", "occurrences in training")
    columns = ("fictional name", "answer", "confidence")
    return [
        plain_table(header, confidences, caption=caption),
        plain_table(frequent, fictional.most_frequent),
        plain_table(columns, examples, caption="The most confident answers."),
    ]


def _with_interval(estimate: Estimate) -> str:
    return f"{format_value(estimate.value, estimate.unit)} ({format_interval(estimate)})"


def _percent(rate: float) -> str:
    return f"{100 * rate:g} %"
