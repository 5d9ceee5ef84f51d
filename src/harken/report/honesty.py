"""The "Confidence and unknown questions" section: calibration, abstention, made-up answers."""

from collections.abc import Sequence

from harken.measure.abstention import PROBABILITY, RiskCoverage, RiskGuarantee
from harken.measure.calibration import Bin
from harken.measure.honesty import MARKED, Group, Honesty
from harken.measure.interval import Estimate, shown, shown_interval
from harken.report.chart import Mark, Series, chart, stacked_bar
from harken.report.page import Section, render
from harken.report.tables import ResultRow, plain_table, result_table

TITLE = "Confidence and unknown questions"
EXAMPLES = 6  # fictional names with the highest confidence
SIMILARITY = {"string": "by spelling", "embedding": "by the model's hidden state"}


def honesty_section(honesty: Honesty) -> Section:
    """Return the section of the run page."""
    borrowed = [
        {
            "similarity": SIMILARITY[borrowing.how],
            "count": sum(borrowing.outcomes),
            "wrong": borrowing.wrong,
            "by_chance": f"{borrowing.by_chance:.1f}",
            "table": plain_table(
                ("asked about", "nearest known name", "answer for both", "confidence"),
                [(e.name, e.nearest, e.answer, f"{e.confidence:.2f}") for e in borrowing.examples],
            )
            if borrowing.examples
            else "",
        }
        for borrowing in honesty.borrowed
        if borrowing.wrong
    ]
    has_threshold = any(
        promise.max_error == MARKED and promise.threshold is not None
        for promise in honesty.guarantees
    )
    body = render(
        "honesty.html",
        calibration=_calibration(honesty.bins),
        risk=_risk(honesty),
        has_threshold=has_threshold,
        marked=_rate(MARKED),
        probability=_rate(PROBABILITY),
        guarantees=honesty.guarantees,
        guarantee_table=plain_table(
            ("error rate", "confidence threshold", "answered", "wrong among answered"),
            [_guarantee(promise) for promise in honesty.guarantees],
        ),
        kinds=stacked_bar(honesty.kinds),
        borrowed=borrowed,
        fictional=honesty.invented,
        fictional_tables=_fictional_tables(honesty),
        # A single group repeats the overall result.
        groups=[
            _group_table(title, groups) for title, groups in honesty.groups.items() if groups[1:]
        ],
    )
    lead = (
        "The model answers every question. This section shows whether its confidence separates "
        "what it knows from what it makes up. A name is the part that differs between training "
        f"questions: {honesty.frame}"
    )
    return Section(title=TITLE, lead=lead, body=body)


def _calibration(bins: Sequence[Bin]) -> str:
    most = max(group.n for group in bins)
    points = Series(
        name="accuracy",
        x=[group.confidence for group in bins],
        y=[float("nan") if group.right.value is None else group.right.value for group in bins],
        intervals=[
            None
            if group.right.low is None or group.right.high is None
            else (group.right.low, group.right.high)
            for group in bins
        ],
        radii=[3 + 6 * (group.n / most) ** 0.5 for group in bins],
    )
    return chart(
        [points],
        x_label="confidence",
        y_label="accuracy",
        percent=True,
        diagonal=True,
        description="; ".join(
            f"{group.n} answers with confidence {shown(group.confidence, 'share')}: "
            f"{shown(group.right.value, group.right.unit)} correct"
            for group in bins
        ),
    )


def _risk(honesty: Honesty) -> str:
    curve = honesty.curve
    marks = [
        Mark(
            _coverage(curve, promise.threshold),
            f"at most {_rate(promise.max_error)} errors: confidence ≥ {promise.threshold:.2f}",
        )
        for promise in honesty.guarantees
        if promise.max_error == MARKED and promise.threshold is not None
    ]
    half = float(curve.risk[int((curve.coverage < 0.5).sum())])
    return chart(
        [Series(name="error rate", x=curve.coverage.tolist(), y=curve.risk.tolist())],
        x_label="questions answered",
        y_label="error rate of answered questions",
        percent=True,
        marks=marks,
        description=f"{shown(curve.risk[-1], 'error')} wrong if all questions are answered, "
        f"{shown(half, 'error')} for the most confident half.",
    )


def _coverage(curve: RiskCoverage, threshold: float) -> float:
    passing = int((curve.thresholds >= threshold).sum())
    return float(curve.coverage[passing - 1]) if passing else 0.0


def _guarantee(promise: RiskGuarantee) -> tuple[str, ...]:
    error_rate = f"at most {_rate(promise.max_error)}"
    if promise.threshold is None or promise.coverage is None:
        return (error_rate, "not supported by the questions", "–", "–")
    wrong = "–" if promise.error is None else _with_interval(promise.error)
    return (error_rate, f"{promise.threshold:.3f}", _with_interval(promise.coverage), wrong)


def _fictional_tables(honesty: Honesty) -> list[str]:
    fictional = honesty.invented
    if fictional is None:
        return []
    has_threshold = any(group.above is not None for group in fictional.sureness)
    answers = sorted(fictional.said, key=lambda answer: -answer.confidence)[:EXAMPLES]
    return [
        plain_table(
            ("asked about", "n", "median confidence", "above the threshold"),
            [
                (
                    group.name,
                    group.n,
                    f"{group.median:.2f}",
                    "no threshold" if group.above is None else shown(group.above, "share"),
                )
                for group in fictional.sureness
            ],
            caption=f"The threshold is that for at most {_rate(MARKED)} errors."
            if has_threshold
            else "",
        ),
        plain_table(
            ("most frequent answers", "count", "count in training"),
            [tuple(answer) for answer in fictional.commonest],
        ),
        plain_table(
            ("fictional name", "answer", "confidence"),
            [(answer.name, answer.answer, f"{answer.confidence:.2f}") for answer in answers],
            caption="Answers with the highest confidence.",
        ),
    ]


def _group_table(title: str, groups: Sequence[Group]) -> str:
    return result_table(
        [
            ResultRow(
                name=group.name,
                n=group.n,
                metric=group.right,
                note=f"mean confidence {shown(group.confidence, 'share')}",
            )
            for group in groups
        ],
        metric="accuracy",
        caption=f"By {title}: the dot is the measured value, the bar its 95 % interval.",
        named=title,
    )


def _with_interval(estimate: Estimate) -> str:
    return f"{shown(estimate.value, estimate.unit)} ({shown_interval(estimate)})"


def _rate(rate: float) -> str:
    return f"{100 * rate:g} %"
