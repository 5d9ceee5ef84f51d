"""Output of the commands: results on stdout, progress and notes on stderr."""

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harken.measure.interval import Estimate

PIPE_WIDTH = 10_000  # characters, so that a table in a pipe has one line per row
MIN_TEXT_WIDTH = 12  # minimum width of a text column, in characters
MIN_HEADER_WIDTH = 14  # shorter headers are not wrapped


def print_note(text: str) -> None:
    """Print a line on stderr, with control characters escaped."""
    sys.stderr.write(escaped(text) + "\n")
    sys.stderr.flush()


def print_result(text: str) -> None:
    """Print a line on stdout; on a terminal, with control characters escaped."""
    sys.stdout.write((escaped(text) if sys.stdout.isatty() else text) + "\n")


def escaped(text: str) -> str:
    """Return the text with control and invisible characters as escapes such as \\x1b."""
    from harken.report.markup import visible_text

    return visible_text(text)


def print_json(record: Any) -> None:
    """Print one JSON object on stdout."""
    from harken.files import json_text

    print_result(json_text(record, indent=1))


def print_json_or_table(
    options: argparse.Namespace,
    record: Any,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Collection[int] = (0,),
) -> None:
    """Print the record as JSON with --json, otherwise the table."""
    if options.json:
        print_json(record)
    else:
        print_table(header, rows, text_columns=text_columns)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text_columns: Collection[int] = (0,),
    pipe_width: int = PIPE_WIDTH,
) -> None:
    """Print a table on stdout; only `text_columns` wrap.

    A table wider than the terminal is printed in blocks of columns. Each block repeats the columns
    before the first column of figures. In a pipe, the width is `pipe_width` unless COLUMNS is set.
    """
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else pipe_width
    screen = Console(file=sys.stdout, width=width, markup=False, emoji=False)

    def draw(columns: Sequence[int], max_text_width: int | None = None) -> Table:
        drawn = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            title, is_text = escaped(header[column]), column in text_columns
            if not is_text:  # a long title must not widen a column of short figures
                widest = max((len(row[column]) for row in rows), default=0)
                wrap = textwrap.TextWrapper(max(widest, MIN_HEADER_WIDTH)).wrap
                title = "\n".join(part for line in title.split("\n") for part in wrap(line) or [""])
            drawn.add_column(
                title,
                justify="left" if is_text else "right",
                overflow="fold",
                no_wrap=not is_text,
                max_width=max_text_width if is_text else None,
            )
        for row in rows:
            drawn.add_row(*(escaped(row[column]) for column in columns))
        return drawn

    def fits(columns: Sequence[int]) -> bool:
        narrow = draw(columns, max_text_width=MIN_TEXT_WIDTH)
        return Measurement.get(screen, screen.options, narrow).maximum < screen.width

    figure_columns = (column for column in range(len(header)) if column not in text_columns)
    repeated = list(range(next(figure_columns, 1)))
    blocks = [[*repeated]]
    for column in range(len(repeated), len(header)):
        if len(blocks[-1]) > len(repeated) and not fits([*blocks[-1], column]):
            blocks.append([*repeated])
        blocks[-1].append(column)
    for columns in blocks:
        screen.print(draw(columns), highlight=False)


def print_metrics(record: Mapping[str, Any]) -> None:
    """Print a record with the structure of `metrics.json` as a table."""
    from harken.measure.interval import PERCENT_UNITS, Estimate, metric_name

    rows = []
    for name, fields in record["metrics"].items():
        estimate, title = Estimate(**fields), metric_name(name)
        if estimate.unit not in PERCENT_UNITS and estimate.unit not in title:
            title = f"{title} ({estimate.unit})"
        n = record["n"] if estimate.n is None else estimate.n
        rows.append((title, str(n), *estimate_cells(estimate)))
    print_table(("metric", "n", "value", "95 % interval"), rows)


def estimate_cells(estimate: "Estimate") -> tuple[str, str]:
    """Return the cells of a table for a value and its interval."""
    from harken.measure.interval import format_interval, format_value

    return format_value(estimate.value, estimate.unit), format_interval(estimate)


def format_estimate(estimate: "Estimate | None") -> str:
    """Return a value with its interval in brackets, or a dash for None."""
    if estimate is None:
        return "–"
    value, interval = estimate_cells(estimate)
    return value if estimate.value is None else f"{value} ({interval})"


@contextmanager
def progress_bar(title: str, count: Callable[[], int] | None) -> Iterator[Callable[[], None]]:
    """Yield a function that advances a bar on stderr; call it after each of `count()` items.

    The bar is drawn, and `count` is called, only if stderr is a terminal, stdout is not one (there
    the results show the progress), and `count` is not None.
    """
    if count is None or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), redirect_stdout=False) as bars:
        bar = bars.add_task(title, total=count())
        yield lambda: bars.advance(bar)
