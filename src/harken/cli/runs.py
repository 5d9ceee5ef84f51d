"""`harken runs`: print a table of the runs below a folder."""

import argparse
from dataclasses import asdict

from harken.cli.output import format_estimate, print_json_or_table, print_note
from harken.measure.interval import metric_name
from harken.run_list import ListedRun, list_runs

HEADER = ("run", "task", "state", "metric", "value (95 % interval)", "parameters", "size", "date")
UNITS = ("B", "kB", "MB", "GB", "TB")


def run(options: argparse.Namespace) -> None:
    """Print a row per run; problems of damaged runs go to stderr."""
    runs = list(list_runs(options.folder))
    for listed in runs:
        if listed.problem is not None:
            print_note(f"harken: {listed.problem}")
    if not runs:
        print_note(f"no runs in {options.folder}")
    if runs or options.json:
        record = {"folder": str(options.folder), "runs": [asdict(listed) for listed in runs]}
        rows = [_cells(listed) for listed in runs]
        print_json_or_table(options, record, HEADER, rows, text_columns=(0, 1, 2, 3))


def _cells(listed: ListedRun) -> tuple[str, ...]:
    state = f"{listed.state}, {_step(listed)}" if listed.step is not None else listed.state
    return (
        listed.run,
        listed.task or "–",
        state,
        "–" if listed.metric is None else metric_name(listed.metric),
        format_estimate(listed.estimate),
        "–" if listed.parameters is None else f"{listed.parameters:,}",
        file_size_text(listed.bytes),
        listed.date[:16],  # without seconds
    )


def _step(listed: ListedRun) -> str:
    of = "" if listed.steps is None else f"/{listed.steps}"
    return f"{listed.stage} {listed.step}{of}"


def file_size_text(size: float) -> str:
    """Return a number of bytes with a decimal unit, such as 1.5 MB."""
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {UNITS[-1]}"
