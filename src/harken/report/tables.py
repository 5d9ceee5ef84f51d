"""Tables: measured results with their intervals, settings, and plain rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harken.measure.interval import UNDEFINED, Estimate
from harken.report.axis import label, rounded, ticks
from harken.report.markup import attribute, grouped, text


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One system on one test set."""

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
    named: str = "system",
) -> str:
    """Values, intervals in figures, and both drawn on one axis.

    With `percent`, estimates are shares 0..1 shown on an axis of 0-100; without, they are shown as
    they are, on an axis from zero to a round number above them all.
    """
    factor = 100.0 if percent else 1.0
    marks = [0.0, 25.0, 50.0, 75.0, 100.0] if percent else _marks(rows)
    unit = "\u202f%" if percent else ""
    caption = caption or f"{metric}: the dot is the value measured, the bar its 95 % interval."
    body = "".join(_result_row(row, factor, marks, unit) for row in rows)
    return (
        f'<div class="results"><table><caption>{text(caption)}</caption>'
        f'<thead><tr><th scope="col">{text(named)}</th><th scope="col" class="number">n</th>'
        f'<th scope="col" class="number">{text(metric)} '
        '<span class="muted">95 % interval</span></th>'
        f'<th scope="col" class="drawn"><span class="unseen">drawn</span>{_axis(marks)}</th>'
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _marks(rows: Sequence[ResultRow]) -> list[float]:
    ends = [e for row in rows for e in (row.metric.low, row.metric.value, row.metric.high)]
    known = [end for end in ends if end is not None and math.isfinite(end)]
    return ticks(min([0.0, *known]), max([0.0, *known]) or 1.0, about=4)


def _axis(marks: Sequence[float]) -> str:
    places = (f'<text x="{_place(m, marks):g}%" y="14">{label(m)}</text>' for m in marks)
    return f'<svg height="18" aria-hidden="true">{"".join(places)}</svg>'


def _place(value: float, marks: Sequence[float]) -> float:
    share = (value - marks[0]) / (marks[-1] - marks[0])
    return round(100 * min(max(share, 0.0), 1.0), 2)


def _result_row(row: ResultRow, factor: float, marks: Sequence[float], unit: str) -> str:
    note = f'<span class="note">{text(row.note)}</span>' if row.note else ""
    value, low, high = (
        math.nan if end is None else factor * end
        for end in (row.metric.value, row.metric.low, row.metric.high)
    )
    grid = "".join(
        f'<line class="grid" x1="{x:g}%" x2="{x:g}%" y2="100%"/>'
        for x in (_place(m, marks) for m in marks)
    )
    bar = dot = ""
    shown = interval = UNDEFINED
    if math.isfinite(low) and math.isfinite(high):
        start, end = _place(low, marks), _place(high, marks)
        bar = f'<line class="interval" x1="{start:g}%" x2="{end:g}%" y1="50%" y2="50%"/>'
        interval = f"{_figure(low, unit)}–{_figure(high, unit)}"
    if math.isfinite(value):
        dot = f'<circle cx="{_place(value, marks):g}%" cy="50%" r="4.5"/>'
        shown = _figure(value, unit) + unit
    return (
        f'<tr><th scope="row">{text(row.name)}{note}</th>'
        f'<td class="number">{grouped(row.n)}</td>'
        f'<td class="number"><b>{shown}</b> <span class="muted">{interval}</span></td>'
        f'<td class="drawn"><svg height="30" aria-hidden="true">{grid}{bar}{dot}</svg></td></tr>'
    )


def _figure(value: float, unit: str) -> str:
    if unit:
        return f"{value:.1f}".replace("-", "−")  # one decimal for all, so that the column aligns
    return rounded(value)


def plain_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> str:
    """Rows of text and numbers; numbers are set flush right."""
    title = f"<caption>{text(caption)}</caption>" if caption else ""
    numeric = [
        bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(header))
    ]
    head = "".join(
        f'<th scope="col"{_number_class(is_number)}>{text(name)}</th>'
        for name, is_number in zip(header, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_number_class(is_number)}>{text(_cell(cell))}</td>"
            for cell, is_number in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    name = attribute(caption or "table")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label={name}>'
        f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _number_class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return grouped(cell)
    return rounded(cell) if isinstance(cell, float) else str(cell)


def settings_table(settings: Mapping[str, object]) -> str:
    """A recipe's settings, nested tables written with dots: training.steps."""
    rows = "".join(
        f'<tr><th scope="row"><code>{text(name)}</code></th>'
        f"<td><code>{text(shown)}</code></td></tr>"
        for name, shown in _flat(settings, "")
    )
    return (
        '<div class="scroll settings" tabindex="0" role="region" aria-label="settings">'
        f"<table><tbody>{rows}</tbody></table></div>"
    )


def _flat(settings: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found.extend(_flat(value, f"{prefix}{name}."))
        else:
            # As the recipe writes it: true, not True.
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((f"{prefix}{name}", shown))
    return found
