"""The section "Confidence and unknown questions": calibration, abstention, made-up answers."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from harken.measure.abstention import PROBABILITY, RiskCoverage, RiskGuarantee
from harken.measure.calibration import AnswerGroup
from harken.measure.honesty import MARKED, FictionalNames, Honesty
from harken.measure.interval import Estimate, format_interval, format_value
from harken.report.chart import Series, VerticalLine, chart, stacked_bar
from harken.report.page import Section, render
from harken.report.tables import ResultRow, plain_table, result_table

EXAMPLES = 6  # fictional names with the highest confidence
SIMILARITY = {"string": "by spelling", "embedding": "by the model's hidden state"}


def honesty_section(honesty: Honesty) -> Section:
    """Return the section of the run page."""
    thresholds = {guarantee.max_error: guarantee.threshold for guarantee in honesty.guarantees}
    names = ("asked about", "nearest known name", "answer for both", "confidence")
    body = render(
        "honesty.html",
        calibration=_calibration(honesty.bins),
        risk=_risk(honesty.curve, thresholds.get(MARKED)),
        has_threshold=thresholds.get(MARKED) is not None,
        marked=_rate(MARKED),
        probability=_rate(PROBABILITY),
        guarantees=honesty.guarantees,
        guarantee_table=plain_table(
            ("error rate", "confidence threshold", "answered", "wrong among answered"),
            list(map(_guarantee, honesty.guarantees)),
        ),
        kinds=stacked_bar(honesty.kinds),
        nearest=[
            (
                SIMILARITY[errors.similarity],
                errors,
                plain_table(
                    names,
                    [(e.name, e.nearest, e.answer, f"{e.confidence:.2f}") for e in errors.examples],
                ),
            )
            for errors in honesty.nearest_names
            if errors.wrong
        ],
        fictional=honesty.fictional,
        fictional_tables=_fictional_tables(honesty.fictional) if honesty.fictional else [],
        # A single group repeats the overall result.
        groups=[_group_table(title, g) for title, g in honesty.groups.items() if len(g) > 1],
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


def _risk(curve: RiskCoverage, threshold: float | None) -> Markup:
    marks = []
    if threshold is not None:
        coverage = max(curve.coverage[curve.thresholds >= threshold].tolist(), default=0.0)
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


def _fictional_tables(fictional: FictionalNames) -> list[Markup]:
    caption, confidences = "", []
    for group in fictional.confidence_summaries:
        above = "no threshold"
        if group.above is not None:
            above = format_value(group.above, "share")
            caption = f"The threshold is that for at most {_rate(MARKED)} errors."
        confidences.append((group.name, group.n, f"{group.median:.2f}", above))
    answers = sorted(fictional.answers, key=lambda answer: -answer.confidence)[:EXAMPLES]
    examples = [(answer.name, answer.answer, f"{answer.confidence:.2f}") for answer in answers]
    header = ("asked about", "n", "median confidence", "above the threshold")
    frequent = ("most frequent answers", "count", "count in training")
    columns = ("fictional name", "answer", "confidence")
    return [
        plain_table(header, confidences, caption=caption),
        plain_table(frequent, fictional.most_frequent),
        plain_table(columns, examples, caption="The most confident answers."),
    ]


def _with_interval(estimate: Estimate) -> str:
    return f"{format_value(estimate.value, estimate.unit)} ({format_interval(estimate)})"


def _rate(rate: float) -> str:
    return f"{100 * rate:g} %"
