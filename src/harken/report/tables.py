"""Tables: measured results with intervals, plain rows, settings and examples."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from harken.measure.interval import UNDEFINED, Estimate
from harken.measure.scored_answers import exact_matches
from harken.report.axis import PlotAxis, label, round_axis, rounded
from harken.report.markup import grouped
from harken.report.page import macro
from harken.tasks.prediction import Prediction


class ResultRow(NamedTuple):
    """One measured value."""

    name: str
    n: int  # examples measured
    metric: Estimate
    note: str = ""


def result_table(
    rows: Sequence[ResultRow],
    *,
    metric: str,
    percent: bool = True,
    caption: str = "",
    row_header: str = "system",
) -> Markup:
    """Return values and intervals as numbers, and drawn on one axis.

    With `percent`, values are proportions on an axis from 0 to 100.
    """
    factor = 100.0 if percent else 1.0
    estimates = [(row.metric.low, row.metric.value, row.metric.high) for row in rows]
    values = [[math.nan if end is None else factor * end for end in ends] for ends in estimates]
    axis = PlotAxis(0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0))
    if not percent:
        finite = [0.0, *(value for row in values for value in row if math.isfinite(value))]
        axis = round_axis(min(finite), max(finite) or 1.0, about=4)

    def place(value: float) -> float | None:
        share = min(max(axis.share(value), 0.0), 1.0)
        return round(100 * share, 2) if math.isfinite(value) else None

    def text(value: float) -> str:
        return f"{value:.1f}".replace("-", "−") if percent else rounded(value)

    def interval(low: float, high: float) -> dict[str, object]:
        if not math.isfinite(low + high):
            return {"interval": UNDEFINED, "bar": None}
        return {"interval": f"{text(low)}–{text(high)}", "bar": (place(low), place(high))}

    return macro(
        "tables.html",
        "results",
        caption=caption or "The dot is the measured value, the bar its 95 % interval.",
        row_header=row_header,
        metric=metric,
        ticks=[(label(tick), place(tick)) for tick in axis.ticks],
        rows=[
            {
                "row": row,
                "value": text(value) + "\u202f%" * percent if math.isfinite(value) else UNDEFINED,
                "dot": place(value),
                **interval(low, high),
            }
            for row, (low, value, high) in zip(rows, values, strict=True)
        ],
    )


def plain_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> Markup:
    """Return rows of text and numbers; columns of numbers are aligned to the right."""
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    cells = [list(zip(map(_cell, row), numeric, strict=True)) for row in rows]
    return macro(
        "tables.html", "plain", header=header, numeric=numeric, rows=cells, caption=caption
    )


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return grouped(cell)
    return rounded(cell) if isinstance(cell, float) else str(cell)


def settings_table(settings: Mapping[str, object]) -> Markup:
    """Return the settings of a recipe with names such as training.steps."""
    return macro("tables.html", "settings", rows=list(_flatten(settings)))


def _flatten(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:  # as the recipe writes it: true, not True
            yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)


def examples_table(
    predictions: Sequence[Prediction], expected: Sequence[str], limit: int | None = None
) -> Markup:
    """Return the first incorrect outputs, then correct ones, each sorted by confidence."""
    correct = exact_matches([prediction.output for prediction in predictions], expected)
    groups = {}
    for name, kind in (("Incorrect", False), ("Correct", True)):
        triples = zip(predictions, expected, correct, strict=True)
        pairs = [(prediction, target) for prediction, target, right in triples if right is kind]
        groups[name] = sorted(pairs[:limit], key=lambda pair: _rank(pair[0].confidence))
    return macro("tables.html", "examples", groups=groups)


def _rank(confidence: float) -> float:
    return math.inf if math.isnan(confidence) else -confidence
