"""What a model does not know: is it as sure as it may be, what does it say, what should it not say.

Every figure has one sentence on how to read it.
"""

from collections.abc import Mapping, Sequence

from harken.measure.abstention import PROBABILITY, RiskCoverage, RiskGuarantee
from harken.measure.borrowing import Borrowed
from harken.measure.calibration import Bin
from harken.measure.honesty import MARKED, Group, Honesty, Invented
from harken.measure.interval import Estimate, shown, shown_interval
from harken.report.markup import text
from harken.report.page import Section
from harken.report.shares import Dot, Mark, dots_plot, line_plot, parts_bar
from harken.report.tables import ResultRow, plain_table, result_table

SHOWN = 6  # invented names, the surest
LIKENESS = {"string": "by its letters", "embedding": "by the model's own state"}


def honesty_section(honesty: Honesty) -> Section:
    """The whole of it, as one part of the page."""
    parts = [
        f'<div class="pair">{_reliability(honesty.bins)}{_risk(honesty)}</div>',
        _guarantees(honesty.guarantees),
        _figure(
            "What is said",
            "All answers together, with 95 % intervals. A known answer is one of training or of "
            "the key; anything else is made up.",
            parts_bar(honesty.kinds),
        ),
        *(_borrowed(one) for one in honesty.borrowed if one.wrong),
        *([] if honesty.invented is None else [_invented(honesty.invented)]),
        _groups(honesty.groups),
    ]
    return Section(
        title="What it does not know",
        lead="The model says something to every question. Here is whether its confidence tells "
        "what it knows from what it makes up. A name is what differs between the training "
        f"questions: {honesty.frame}",
        body="".join(parts),
    )


def _figure(title: str, reading: str, body: str) -> str:
    return (
        f"<figure><figcaption><strong>{text(title)}.</strong> <span>{text(reading)}</span>"
        f"</figcaption>{body}</figure>"
    )


def _reliability(bins: Sequence[Bin]) -> str:
    most = max(one.n for one in bins)
    spoken = "; ".join(
        f"{one.n} answers {shown(one.confidence, 'share')} sure: {_value(one.right)} right"
        for one in bins
    )
    return _figure(
        "How sure, and how often right",
        "A dot is all answers of like confidence, larger where there are more. On the dashed line "
        "confidence would be true; below it the model is too sure of itself.",
        dots_plot(
            [Dot(x=one.confidence, y=one.right, weight=one.n / most) for one in bins],
            x_label="confidence",
            y_label="right",
            spoken=spoken,
        ),
    )


def _risk(honesty: Honesty) -> str:
    curve = honesty.curve
    marks = [
        Mark(
            x=_coverage(curve, one.threshold),
            name=f"at most {_rate(one.max_error)} errors, from {one.threshold:.2f} on",
        )
        for one in honesty.guarantees
        if one.max_error == MARKED and one.threshold is not None
    ]
    reading = (
        "The surest answers stand at the left; the further right, the more questions are "
        "answered. The line should rise from zero, and late."
    )
    return _figure(
        "What silence would buy",
        reading
        if marks
        else f"{reading} Half of the questions cannot guarantee at most {_rate(MARKED)} errors.",
        line_plot(
            curve.coverage.tolist(),
            curve.risk.tolist(),
            marks=marks,
            x_label="questions answered",
            y_label="wrong among the answered",
            spoken=f"{shown(curve.risk[-1], 'error')} are wrong when all are answered, "
            f"{shown(_risk_at(curve, 0.5), 'error')} when the surest half is.",
        ),
    )


def _coverage(curve: RiskCoverage, threshold: float) -> float:
    passing = int((curve.thresholds >= threshold).sum())
    return float(curve.coverage[passing - 1]) if passing else 0.0


def _risk_at(curve: RiskCoverage, coverage: float) -> float:
    return float(curve.risk[int((curve.coverage < coverage).sum())])


def _guarantees(guarantees: Sequence[RiskGuarantee]) -> str:
    title = "Guaranteed error rates"
    if not guarantees:
        return _figure(title, "", "<p>All questions are about one name: none is left to ask.</p>")
    first = guarantees[0]
    return _figure(
        title,
        "The confidence from which on to answer was chosen on the questions about one half of the "
        f"people ({first.chosen_on}): with probability at least {_rate(PROBABILITY)} over these "
        "questions, the error rate among answered questions is at most the one given. It was "
        f"measured on the other half ({first.n}); in brackets the 95 % intervals.",
        plain_table(
            ("error rate", "answers from", "answered", "wrong of these"),
            [_guarantee(one) for one in guarantees],
        ),
    )


def _guarantee(one: RiskGuarantee) -> tuple[str, ...]:
    error_rate = f"at most {_rate(one.max_error)}"
    if one.threshold is None or one.coverage is None:
        return (error_rate, "not supported by the questions", "–", "–")
    wrong = "–" if one.error is None else _with_interval(one.error)
    return (error_rate, f"{one.threshold:.3f}", _with_interval(one.coverage), wrong)


def _borrowed(one: Borrowed) -> str:
    count = sum(one.outcomes)
    table = plain_table(
        ("asked about", "nearest known name", "said of both", "confidence"),
        [(e.name, e.nearest, e.answer, f"{e.confidence:.2f}") for e in one.examples],
    )
    return _figure(
        f"Borrowed from the nearest name, {LIKENESS[one.how]}",
        f"{count} of {one.wrong} wrong answers are the answer of the known name that is most like "
        f"the one asked about; of names drawn blindly, {one.by_chance:.1f} would be.",
        table if one.examples else "",
    )


def _invented(invented: Invented) -> str:
    count = len(invented.said)
    surest = sorted(invented.said, key=lambda one: -one.confidence)[:SHOWN]
    silent = any(one.above is not None for one in invented.sureness)
    return _figure(
        "Names that nobody bears",
        f"{count} names were made of the first words of one person's name and the last word of "
        "another's; they are in no question. A model that knows whom it knows is less sure of "
        f"them. {invented.known} of the {count} answers are known ones, {invented.of_first} the "
        f"answer of somebody with the same first words, {invented.of_last} with the same last.",
        plain_table(
            ("asked about", "n", "median confidence", "passes the threshold"),
            [
                (
                    one.name,
                    one.n,
                    f"{one.median:.2f}",
                    "no threshold" if one.above is None else shown(one.above, "share"),
                )
                for one in invented.sureness
            ],
            caption=f"The threshold is that for at most {_rate(MARKED)} errors." if silent else "",
        )
        + plain_table(
            ("said most often", "times", "times in training"),
            [tuple(one) for one in invented.commonest],
        )
        + plain_table(
            ("invented name", "said", "confidence"),
            [(one.name, one.answer, f"{one.confidence:.2f}") for one in surest],
            caption="The surest of them.",
        ),
    )


def _groups(groups: Mapping[str, Sequence[Group]]) -> str:
    # What has one group only says nothing that was not said above.
    telling = {title: some for title, some in groups.items() if len(some) > 1}
    if not telling:
        return ""
    return _figure(
        "Who is known",
        "The share of right answers by how often the expected answer is one of training, and by "
        "what the name is like. A model that guesses common answers is right on these alone.",
        "".join(
            result_table(
                [
                    ResultRow(
                        name=one.name,
                        n=one.n,
                        metric=one.right,
                        note=f"{shown(one.confidence, 'share')} sure on average",
                    )
                    for one in some
                ],
                metric="right",
                caption=f"By {title}: the dot is the value measured, the bar its 95 % interval.",
                named=title,
            )
            for title, some in telling.items()
        ),
    )


def _value(estimate: Estimate) -> str:
    return shown(estimate.value, estimate.unit)


def _with_interval(estimate: Estimate) -> str:
    return f"{_value(estimate)} ({shown_interval(estimate)})"


def _rate(rate: float) -> str:
    return f"{100 * rate:g} %"
