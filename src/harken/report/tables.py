"""Tables: measured results with intervals, plain rows, settings and examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from harken.measure.interval import UNDEFINED, Estimate
from harken.report.axis import label, rounded, ticks
from harken.report.markup import grouped
from harken.report.page import macro


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One measured value."""

    name: str
    n: int  # examples measured
    metric: Estimate
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One input with the expected output and the model's output."""

    input: str
    expected: str
    output: str
    correct: bool
    confidence: float | None = None  # 0..1, the model's own
    note: str = ""  # about the input, such as that it was truncated

    @property
    def bar(self) -> int | None:
        """The confidence in per cent, if there is one."""
        if self.confidence is None or not math.isfinite(self.confidence):
            return None
        return round(100 * min(max(self.confidence, 0.0), 1.0))


class _Row(NamedTuple):
    name: str
    note: str
    n: int
    value: str
    interval: str
    bar: tuple[float, float] | None
    dot: float | None


def result_table(
    rows: Sequence[ResultRow],
    *,
    metric: str,
    percent: bool = True,
    caption: str = "",
    named: str = "system",
) -> Markup:
    """Return values and intervals as numbers, and drawn on one axis.

    With `percent`, values are proportions on an axis from 0 to 100; without, the axis ends at a
    round number above all of them.
    """
    factor, unit = (100.0, "\u202f%") if percent else (1.0, "")
    ends = [(row.metric.low, row.metric.value, row.metric.high) for row in rows]
    known = [end for row in ends for end in row if end is not None and math.isfinite(end)]
    axis = (
        [0.0, 25.0, 50.0, 75.0, 100.0]
        if percent
        else ticks(min([0.0, *known]), max([0.0, *known]) or 1.0, about=4)
    )

    def place(value: float) -> float:
        share = (value - axis[0]) / (axis[-1] - axis[0])
        return round(100 * min(max(share, 0.0), 1.0), 2)

    def text(value: float) -> str:
        # One decimal for all percentages aligns the column.
        return f"{value:.1f}".replace("-", "−") if percent else rounded(value)

    def cells(row: ResultRow) -> _Row:
        low, value, high = (
            math.nan if end is None else factor * end
            for end in (row.metric.low, row.metric.value, row.metric.high)
        )
        bounded, finite = math.isfinite(low) and math.isfinite(high), math.isfinite(value)
        return _Row(
            row.name,
            row.note,
            row.n,
            text(value) + unit if finite else UNDEFINED,
            f"{text(low)}–{text(high)}" if bounded else UNDEFINED,
            (place(low), place(high)) if bounded else None,
            place(value) if finite else None,
        )

    table = {
        "caption": caption
        or f"{metric}: the dot is the measured value, the bar its 95 % interval.",
        "named": named,
        "metric": metric,
        "ticks": [(label(tick), place(tick)) for tick in axis],
        "rows": [cells(row) for row in rows],
    }
    return macro("tables.html", "results", table)


def plain_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> Markup:
    """Return rows of text and numbers; columns of numbers are aligned to the right."""
    numeric = [
        bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(header))
    ]
    cells = [list(zip(map(_cell, row), numeric, strict=True)) for row in rows]
    table = {"header": header, "numeric": numeric, "rows": cells, "caption": caption}
    return macro("tables.html", "plain", table)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return grouped(cell)
    return rounded(cell) if isinstance(cell, float) else str(cell)


def settings_table(settings: Mapping[str, object]) -> Markup:
    """Return the settings of a recipe; nested tables are written with dots: training.steps."""
    return macro("tables.html", "settings", _flat(settings, ""))


def _flat(settings: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows.extend(_flat(value, f"{prefix}{name}."))
        else:
            # As the recipe writes it: true, not True.
            text = str(value).lower() if isinstance(value, bool) else str(value)
            rows.append((prefix + name, text))
    return rows


def examples_table(examples: Sequence[Example]) -> Markup:
    """Return incorrect examples, then correct ones, each in descending order of confidence."""

    def confidence(example: Example) -> float:
        return 1.0 if example.confidence is None else -example.confidence

    groups = [
        (name, sorted((e for e in examples if e.correct == correct), key=confidence))
        for name, correct in (("Incorrect", False), ("Correct", True))
    ]
    return macro("tables.html", "examples", [(name, group) for name, group in groups if group])
