"""Comparison of runs: a check for equal examples, and a table by two recipe keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harken.errors import UserError
from harken.measure.interval import Estimate, Sample


def require_same_examples(examples: Iterable[tuple[str, Sequence[object]]]) -> None:
    """Raise unless all (run, examples) have the same examples in the same order."""
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
            texts = [repr(str(example)[:80]) for example in pair]
            return f"{texts[0]} as example {number}, as in {first}, got {texts[1]}"
    return f"the images of {first}, got others with the same captions"


class EvaluationResult(Protocol):
    """Metrics on n examples, the main one first, and their counts of every example."""

    @property
    def n(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, Estimate]: ...
    @property
    def samples(self) -> Mapping[str, Sample]: ...


class PivotCell(NamedTuple):
    """A run with its values of both recipe keys and its metric."""

    row: str
    column: str
    run: str
    n: int
    figure: Estimate


def pivot_table(
    runs: Iterable[tuple[str, Any, Callable[[], EvaluationResult]]],
    rows: str,
    columns: str,
    metric: str | None = None,
) -> tuple[str, list[PivotCell]]:
    """Evaluate runs (name, plain recipe, evaluation); return the metric and the cells."""
    cells: dict[tuple[str, str], PivotCell] = {}
    for name, recipe, evaluate in runs:
        row, column = (_recipe_value(recipe, key, name) for key in (rows, columns))
        if (row, column) in cells:
            raise UserError(
                f"{name}: the cell {row}, {column} already has the run {cells[row, column].run}",
                fix="leave out one of them, or choose other keys",
            )
        evaluation = evaluate()
        metric = metric or next(iter(evaluation.metrics))
        if metric not in evaluation.metrics:
            raise UserError(
                f"metric: expected one of {', '.join(evaluation.metrics)}, got {metric!r}",
                fix="choose a metric that every run has",
            )
        figure = evaluation.metrics[metric]
        cells[row, column] = PivotCell(row, column, name, evaluation.n, figure)
    assert metric is not None, "there is at least one run"
    return metric, list(cells.values())


def _recipe_value(recipe: Any, key: str, run: str) -> str:
    """Return the value of a recipe key; for a file, the name of its folder (the corpus)."""
    value = recipe
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(value) if isinstance(value, dict) else ""
            raise UserError(
                f"{run}: no key {key!r} in its recipe",
                fix=f"choose one of {known}" if known else "choose a key above it",
            )
        value = value[part]
    return Path(value).parent.name if key.startswith("data.") else str(value)
