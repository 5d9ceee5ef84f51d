"""The "Confidence and unknown questions" section: calibration, abstention, made-up answers."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from harken.measure.abstention import PROBABILITY, RiskGuarantee
from harken.measure.calibration import AnswerGroup
from harken.measure.honesty import MARKED, Honesty
from harken.measure.interval import Estimate, format_interval, format_value
from harken.measure.nearest_name_errors import NearestNameErrors
from harken.report.chart import Series, VerticalLine, chart, stacked_bar
from harken.report.page import Section, render
from harken.report.tables import ResultRow, plain_table, result_table

EXAMPLES = 6  # fictional names with the highest confidence
SIMILARITY = {"string": "by spelling", "embedding": "by the model's hidden state"}


def honesty_section(honesty: Honesty) -> Section:
    """Return the section of the run page."""
    guarantee_header = ("error rate", "confidence threshold", "answered", "wrong among answered")
    thresholds = [
        guarantee.threshold
        for guarantee in honesty.guarantees
        if guarantee.max_error == MARKED and guarantee.threshold is not None
    ]
    body = render(
        "honesty.html",
        calibration=_calibration(honesty.bins),
        risk=_risk(honesty, thresholds),
        has_threshold=bool(thresholds),
        marked=_rate(MARKED),
        probability=_rate(PROBABILITY),
        guarantees=honesty.guarantees,
        guarantee_table=plain_table(guarantee_header, list(map(_guarantee, honesty.guarantees))),
        kinds=stacked_bar(honesty.kinds),
        nearest=[
            (SIMILARITY[errors.similarity], errors, _nearest_table(errors))
            for errors in honesty.nearest_names
            if errors.wrong
        ],
        fictional=honesty.fictional,
        fictional_tables=_fictional_tables(honesty),
        # A single group repeats the overall result.
        groups=[
            _group_table(title, groups)
            for title, groups in honesty.groups.items()
            if len(groups) > 1
        ],
    )
    lead = (
        "The model answers every question. This section shows whether its confidence separates "
        "what it knows from what it makes up. A name is the part that differs between training "
        f"questions: {honesty.template}"
    )
    return Section(title="Confidence and unknown questions", lead=lead, body=body)


def _group_table(title: str, groups: Sequence[AnswerGroup]) -> Markup:
    rows = [
        ResultRow(g.name, g.n, g.correct, f"mean confidence {format_value(g.confidence, 'share')}")
        for g in groups
    ]
    caption = f"By {title}: the dot is the measured value, the bar its 95 % interval."
    return result_table(rows, metric="accuracy", caption=caption, row_header=title)


def _calibration(bins: Sequence[AnswerGroup]) -> Markup:
    accuracies = [group.correct for group in bins]
    largest = max(group.n for group in bins)
    points = Series(
        name="accuracy",
        x=[group.confidence for group in bins],
        y=[math.nan if right.value is None else right.value for right in accuracies],
        intervals=[
            None if right.low is None or right.high is None else (right.low, right.high)
            for right in accuracies
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


def _risk(honesty: Honesty, thresholds: Sequence[float]) -> Markup:
    curve = honesty.curve
    marks = []
    for threshold in thresholds:
        answered = int((curve.thresholds >= threshold).sum())
        coverage = float(curve.coverage[answered - 1]) if answered else 0.0
        name = f"at most {_rate(MARKED)} errors: confidence ≥ {threshold:.2f}"
        marks.append(VerticalLine(coverage, name))
    half = float(curve.risk[int((curve.coverage < 0.5).sum())])
    return chart(
        [Series(name="error rate", x=curve.coverage.tolist(), y=curve.risk.tolist())],
        x_label="questions answered",
        y_label="error rate of answered questions",
        percent=True,
        marks=marks,
        description=f"{format_value(curve.risk[-1], 'error')} wrong if all questions are answered, "
        f"{format_value(half, 'error')} for the most confident half.",
    )


def _guarantee(guarantee: RiskGuarantee) -> tuple[str, ...]:
    error_rate = f"at most {_rate(guarantee.max_error)}"
    if guarantee.threshold is None or guarantee.coverage is None:
        return (error_rate, "not supported by the questions", "–", "–")
    wrong = "–" if guarantee.error is None else _with_interval(guarantee.error)
    return (error_rate, f"{guarantee.threshold:.3f}", _with_interval(guarantee.coverage), wrong)


def _nearest_table(borrowed: NearestNameErrors) -> Markup:
    rows = [(e.name, e.nearest, e.answer, f"{e.confidence:.2f}") for e in borrowed.examples]
    header = ("asked about", "nearest known name", "answer for both", "confidence")
    return plain_table(header, rows) if rows else Markup()


def _fictional_tables(honesty: Honesty) -> list[Markup]:
    fictional = honesty.fictional
    if fictional is None:
        return []
    has_threshold = any(group.above is not None for group in fictional.confidence_summaries)
    caption = f"The threshold is that for at most {_rate(MARKED)} errors."
    confidences = []
    for group in fictional.confidence_summaries:
        above = "no threshold" if group.above is None else format_value(group.above, "share")
        confidences.append((group.name, group.n, f"{group.median:.2f}", above))
    answers = sorted(fictional.answers, key=lambda answer: -answer.confidence)[:EXAMPLES]
    examples = [(answer.name, answer.answer, f"{answer.confidence:.2f}") for answer in answers]
    header = ("asked about", "n", "median confidence", "above the threshold")
    columns = ("fictional name", "answer", "confidence")
    return [
        plain_table(header, confidences, caption=caption if has_threshold else ""),
        plain_table(
            ("most frequent answers", "count", "count in training"), fictional.most_frequent
        ),
        plain_table(columns, examples, caption="The most confident answers."),
    ]


def _with_interval(estimate: Estimate) -> str:
    return f"{format_value(estimate.value, estimate.unit)} ({format_interval(estimate)})"


def _rate(rate: float) -> str:
    return f"{100 * rate:g} %"
