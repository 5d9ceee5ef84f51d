"""What commands print: results on stdout, progress and remarks on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harken.measure.interval import Estimate
    from harken.pipeline import Listener

QUIET_SECONDS = 10.0  # between lines of progress where there is no terminal to redraw


def remark(text: str) -> None:
    """A line for a person; never mixed with results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def result(text: str) -> None:
    """A line of the answer itself."""
    sys.stdout.write(text + "\n")


def result_json(record: Any) -> None:
    """One JSON object, the whole of stdout."""
    result(json.dumps(record, ensure_ascii=False, indent=1))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> None:
    """A table on stdout, its first column words and the others figures, or words too."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD)
    for number, name in enumerate(header):
        drawn.add_column(name, justify="right" if number and numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120).print(drawn)


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
            (_titled(name, one.unit), str(record["n"]), *spelled(one))
            for name, one in estimates.items()
        ],
    )


def _titled(name: str, unit: str) -> str:
    """A metric with the unit that its figures leave out, unless its name says it."""
    from harken.measure.interval import SHARES

    title = name.replace("_", " ")
    return title if unit in SHARES or unit in title else f"{title} ({unit})"


def spelled(estimate: "Estimate") -> tuple[str, str]:
    """A figure and its interval as a person reads them."""
    from harken.measure.interval import shown

    value, low, high = (
        shown(one, estimate.unit) for one in (estimate.value, estimate.low, estimate.high)
    )
    return value, f"{low} - {high}"


@contextmanager
def training_progress(title: str) -> Iterator["Listener"]:
    """A listener that draws one line with rate and time left, or logs one every ten seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    from harken.training.loop import Evaluated, Event, Stepped

    said = 0.0
    mean: float | None = None
    drawn = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[rate]:,.0f} tokens/s"),
        TimeLeft(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    bars: dict[str, Any] = {}

    def listen(event: Event) -> None:
        nonlocal said, mean
        if isinstance(event, Evaluated):
            remark(f"{title}: {event.stage} {event.step}: dev {event.value:.3f}")
        elif isinstance(event, Stepped):
            if event.stage not in bars:
                mean = None
                bars[event.stage] = drawn.add_task(
                    f"{title}: {event.stage}", total=event.steps, loss=0.0, rate=0.0
                )
            mean = event.loss if mean is None else mean + 0.05 * (event.loss - mean)
            rate = event.tokens / max(event.seconds, 1e-9)
            drawn.update(bars[event.stage], completed=event.step, loss=mean, rate=rate)
            now = time.monotonic()
            if drawn.disable and (now - said > QUIET_SECONDS or event.step == event.steps):
                said = now
                left = (event.steps - event.step) * event.seconds
                remark(
                    f"{title}: {event.stage} {event.step}/{event.steps}  loss {mean:.3f}  "
                    f"{rate:,.0f} tokens/s  {left:.0f} s left"
                )

    with drawn:
        yield listen


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
