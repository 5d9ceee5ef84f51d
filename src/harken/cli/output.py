"""What commands print: results on stdout, progress and remarks on stderr."""

import os
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from harken.measure.interval import Estimate

QUIET_SECONDS = 10.0  # between lines of progress where there is no terminal to redraw
PIPE_WIDTH = 10_000  # characters: a table in a pipe has one line per row
MIN_TEXT_WIDTH = 12  # characters to which a column of words may shrink
MIN_HEADER_WIDTH = 14  # characters of a header that are not wrapped


def remark(text: str) -> None:
    """Print a line for a person on stderr, with control characters escaped."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def result(text: str) -> None:
    """Print a line of the result on stdout: exact in a pipe, escaped on a terminal."""
    sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")


def printable(text: str) -> str:
    """Return the text with control and invisible characters as escapes such as \\x1b."""
    from harken.report.markup import prose

    return prose(text)


def result_json(record: Any) -> None:
    """One JSON object, the whole of stdout."""
    from harken.files import json_text

    result(json_text(record, indent=1))


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text_columns: Collection[int] = (0,),
) -> None:
    """Print a table on stdout; columns that are not `text_columns` hold figures and never wrap.

    A table that is wider than the terminal is printed in blocks of columns, each of which repeats
    the text columns on the left. In a pipe it is as wide as it needs to be, unless COLUMNS is set.
    """
    from rich.console import Console
    from rich.measure import Measurement

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(
        file=sys.stdout, width=PIPE_WIDTH if piped else None, markup=False, emoji=False
    )

    def fits(columns: Sequence[int]) -> bool:
        drawn = _drawn(header, rows, columns, text_columns, narrow=True)
        return Measurement.get(console, console.options, drawn).maximum < console.width

    figures = (column for column in range(len(header)) if column not in text_columns)
    keys = list(range(next(figures, 1)))
    blocks = [list(keys)]
    for column in range(len(keys), len(header)):
        if len(blocks[-1]) > len(keys) and not fits([*blocks[-1], column]):
            blocks.append(list(keys))
        blocks[-1].append(column)
    for columns in blocks:
        console.print(_drawn(header, rows, columns, text_columns), highlight=False)


def _drawn(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: Sequence[int],
    text_columns: Collection[int],
    *,
    narrow: bool = False,
) -> "Table":
    """Some columns as a Rich table; `narrow` is as narrow as text columns may become."""
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        is_text = column in text_columns
        title = printable(header[column])
        if not is_text:  # a long run name must not widen a column of short figures
            widest = max((len(row[column]) for row in rows), default=0)
            title = "\n".join(
                part
                for line in title.split("\n")
                for part in textwrap.wrap(line, max(widest, MIN_HEADER_WIDTH)) or [""]
            )
        drawn.add_column(
            title,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
            max_width=MIN_TEXT_WIDTH if is_text and narrow else None,
        )
    for row in rows:
        drawn.add_row(*(printable(row[column]) for column in columns))
    return drawn


def figures(record: Mapping[str, Any], *, as_json: bool) -> None:
    """What `metrics.json` holds, as it is or as a table."""
    if as_json:
        result_json(record)
        return
    from harken.measure.interval import Estimate

    estimates = {name: Estimate(**one) for name, one in record["metrics"].items()}
    table(
        ("metric", "n", "value", "95 % interval"),
        [
            (_titled(name, one.unit), str(record["n"] if one.n is None else one.n), *spelled(one))
            for name, one in estimates.items()
        ],
    )


def _titled(name: str, unit: str) -> str:
    """A metric with the unit that its figures leave out, unless its name says it."""
    from harken.measure.interval import SHARES

    title = name.replace("_", " ")
    return title if unit in SHARES or unit in title else f"{title} ({unit})"


def spelled(estimate: "Estimate") -> tuple[str, str]:
    """A value and its interval as text."""
    from harken.measure.interval import shown, shown_interval

    return shown(estimate.value, estimate.unit), shown_interval(estimate)


def spelled_together(estimate: "Estimate") -> str:
    """A value with its interval in brackets."""
    value, interval = spelled(estimate)
    return value if estimate.value is None else f"{value} ({interval})"


@contextmanager
def counting_progress(what: str, count: Callable[[], int] | None) -> Iterator[Callable[[], None]]:
    """A call for each thing done, of a `count` that is known; drawn as one line with time left.

    Only where stderr is a terminal and stdout is not: on one screen the results would break the
    line, and they show themselves how far it is.
    """
    if count is None or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Left to itself it would take stdout's lines for its own console.
    with Progress(console=Console(stderr=True), redirect_stdout=False) as drawn:
        bar = drawn.add_task(what, total=count())
        yield lambda: drawn.advance(bar)
