"""Checks and tables for runs that are compared: equal examples, and a table by recipe keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harken.errors import UserError
from harken.measure.interval import Estimate


def require_same_examples(examples: Iterable[tuple[str, Sequence[object]]]) -> None:
    """Raise unless all runs, given with their names, have the same examples in the same order."""
    first: tuple[str, Sequence[object]] | None = None
    for name, own in examples:
        first = first or (name, own)
        if own != first[1]:
            raise UserError(
                f"{name}: expected {_difference(first[1], own, first[0])}",
                fix="evaluate all runs on the same file (command line: --data FILE)",
            )


def _difference(expected: Sequence[object], actual: Sequence[object], first: str) -> str:
    if len(expected) != len(actual):
        return f"the {len(expected)} examples of {first}, got {len(actual)}"
    for number, pair in enumerate(zip(expected, actual, strict=True), start=1):
        if pair[0] != pair[1]:
            example, got = (repr(str(text)[:80]) for text in pair)
            return f"{example} as example {number}, as in {first}, got {got}"
    return f"the images of {first}, got others with the same captions"


class EvaluatedRun(Protocol):
    """The metrics of a run on n examples, the main one first."""

    @property
    def n(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, Estimate]: ...


class PivotCell(NamedTuple):
    """A run with its values of both recipe keys and its metric."""

    row: str
    column: str
    run: str
    n: int
    figure: Estimate


def pivot_table(
    runs: Iterable[tuple[str, Any, Callable[[], EvaluatedRun]]],
    rows: str,
    columns: str,
    metric: str | None = None,
) -> tuple[str, list[PivotCell]]:
    """Evaluate runs, given as name, plain recipe and evaluation, for a table by two recipe keys.

    Returns the metric (by default the first of the first run) and the cells.
    """
    cells: dict[tuple[str, str], PivotCell] = {}
    for name, recipe, evaluate in runs:
        row, column = (_recipe_value(recipe, key, name) for key in (rows, columns))
        if (row, column) in cells:
            raise UserError(
                f"{name}: expected one run per cell, got {row} and {column} as in "
                f"{cells[row, column].run}",
                fix="leave one out, or choose other keys",
            )
        evaluation = evaluate()
        metric = metric or next(iter(evaluation.metrics))
        if metric not in evaluation.metrics:
            raise UserError(
                f"metric: expected one of {', '.join(evaluation.metrics)}, got {metric!r}",
                fix="choose one that every run has",
            )
        figure = evaluation.metrics[metric]
        cells[row, column] = PivotCell(row, column, name, evaluation.n, figure)
    assert metric is not None, "there is at least one run"
    return metric, list(cells.values())


def _recipe_value(recipe: Any, key: str, run: str) -> str:
    """Return the value of a recipe key; of a file, its folder, which names the corpus."""
    value = recipe
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(value) if isinstance(value, dict) else ""
            raise UserError(
                f"{run}: no key {key!r} in its recipe",
                fix=f"choose one of {known}" if known else "name a key above it",
            )
        value = value[part]
    return Path(value).parent.name if key.startswith("data.") else str(value)
