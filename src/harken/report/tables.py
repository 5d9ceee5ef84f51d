"""HTML tables: results with intervals, rows of text and numbers, settings, examples."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from markupsafe import Markup

from harken.measure.interval import UNDEFINED, Estimate
from harken.measure.scored_answers import exact_matches
from harken.report.axis import PlotAxis, format_measured, format_tick, round_axis
from harken.report.markup import group_digits
from harken.report.page import macro
from harken.tasks.prediction import Prediction


class ResultRow(NamedTuple):
    """A row of `result_table`: a value with its interval."""

    name: str
    n: int  # items that were counted, such as examples or words
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
    """Return a table of values with 95 % intervals, as numbers and on a common axis.

    With `percent`, values are proportions on an axis from 0 to 100.
    """
    factor = 100.0 if percent else 1.0
    estimates = [(row.metric.low, row.metric.value, row.metric.high) for row in rows]
    scaled = [
        [math.nan if number is None else factor * number for number in estimate]
        for estimate in estimates
    ]
    axis = PlotAxis(0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0))
    if not percent:
        finite = [0.0, *(number for number in chain(*scaled) if math.isfinite(number))]
        axis = round_axis(min(finite), max(finite) or 1.0, step_count=4)

    def x_percent(value: float) -> float | None:
        fraction = min(max(axis.fraction(value), 0.0), 1.0)
        return round(100 * fraction, 2) if math.isfinite(value) else None

    def text(value: float) -> str:
        return f"{value:.1f}".replace("-", "−") if percent else format_measured(value)

    def interval(low: float, high: float) -> dict[str, object]:
        if not math.isfinite(low + high):
            return {"interval": UNDEFINED, "bar": None}
        return {"interval": f"{text(low)}–{text(high)}", "bar": (x_percent(low), x_percent(high))}

    return macro(
        "tables.html",
        "results",
        caption=caption or "The dot is the measured value, the bar is its 95 % interval.",
        row_header=row_header,
        metric=metric,
        ticks=[(format_tick(tick), x_percent(tick)) for tick in axis.ticks],
        rows=[
            {
                "row": row,
                "value": text(value) + "\u202f%" * percent if math.isfinite(value) else UNDEFINED,
                "dot": x_percent(value),
                **interval(low, high),
            }
            for row, (low, value, high) in zip(rows, scaled, strict=True)
        ],
    )


def plain_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> Markup:
    """Return a table of text and numbers; columns of numbers are right-aligned."""
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
        return group_digits(cell)
    return format_measured(cell) if isinstance(cell, float) else str(cell)


def settings_table(settings: Mapping[str, object]) -> Markup:
    """Return a table of the settings of a recipe, with names such as training.steps."""
    return macro("tables.html", "settings", rows=list(_flatten(settings)))


def _flatten(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:  # as in a recipe: true, not True
            yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)


def examples_table(
    predictions: Sequence[Prediction], expected: Sequence[str], limit: int | None = None
) -> Markup:
    """Return the first `limit` incorrect and correct outputs, each group sorted by confidence."""
    correct = exact_matches([prediction.output for prediction in predictions], expected)
    groups = {}
    for name, is_wanted in (("Incorrect", False), ("Correct", True)):
        triples = zip(predictions, expected, correct, strict=True)
        pairs = [
            (prediction, target)
            for prediction, target, is_correct in triples
            if is_correct is is_wanted
        ]
        groups[name] = sorted(pairs[:limit], key=lambda pair: _sort_key(pair[0].confidence))
    return macro("tables.html", "examples", groups=groups)


def _sort_key(confidence: float) -> float:
    """Return a key that sorts in descending order, with NaN at the end."""
    return math.inf if math.isnan(confidence) else -confidence
