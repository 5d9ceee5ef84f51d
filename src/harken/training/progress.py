"""One line of training progress on stderr: step, loss, tokens per second, remaining time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from harken.training.loop import EvaluationDone, Event, StepDone
from harken.training.origins import WeightsLoaded

SECONDS_BETWEEN_LINES = 10.0  # outside of terminals


@contextmanager
def training_progress(title: str, show: bool | None = True) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that shows training events.

    On a terminal it redraws one line; elsewhere it prints a line every ten seconds and at the last
    step. Every evaluation is printed. With `show=None` nothing is printed unless stderr is a
    terminal or a notebook.
    """
    console = Console(stderr=True)
    terminal = sys.stderr.isatty()
    if show is False or (show is None and not terminal and not console.is_jupyter):
        yield lambda event: None
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
        console=console,
        disable=not terminal,
    )
    stages: dict[str, TaskID] = {}
    last_line, mean_loss = 0.0, 0.0

    def print_line(text: str) -> None:
        sys.stderr.write(f"{title}: {text}\n")
        sys.stderr.flush()

    def listen(event: Event) -> None:
        nonlocal last_line, mean_loss
        if isinstance(event, WeightsLoaded):
            print_line(f"weights from {event.folder}")
            for line in event.summary():
                print_line(f"  {line}")
        elif isinstance(event, EvaluationDone):
            print_line(f"{event.stage} {event.step}: dev {event.value:.3f}")
        elif isinstance(event, StepDone):
            if event.stage not in stages:
                mean_loss = event.loss
                stages[event.stage] = bar.add_task(
                    f"{title}: {event.stage}", total=event.steps, loss=0.0, rate=0.0
                )
            mean_loss += 0.05 * (event.loss - mean_loss)
            rate = event.tokens / max(event.seconds, 1e-9)
            bar.update(stages[event.stage], completed=event.step, loss=mean_loss, rate=rate)
            now = time.monotonic()
            due = now - last_line > SECONDS_BETWEEN_LINES or event.step == event.steps
            if bar.disable and due:
                last_line = now
                remaining = (event.steps - event.step) * event.seconds
                print_line(
                    f"{event.stage} {event.step}/{event.steps}  loss {mean_loss:.3f}  "
                    f"{rate:,.0f} tokens/s  {remaining:.0f} s left"
                )

    with bar:
        yield listen
