"""Comparison of runs: a check for equal examples, and a table by two recipe keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harken.errors import UserError
from harken.measure.interval import Estimate, Sample


def require_same_examples(examples: Iterable[tuple[str, Sequence[object]]]) -> None:
    """Raise unless all (run, examples) have the same examples in the same order."""
    first: tuple[str, Sequence[object]] | None = None
    for name, run_examples in examples:
        first = first or (name, run_examples)
        if run_examples != first[1]:
            raise UserError(
                f"{name}: expected {_mismatch(first[1], run_examples, first[0])}",
                fix="evaluate all runs on the same file (command line: --data FILE)",
            )


def _mismatch(expected: Sequence[object], actual: Sequence[object], first: str) -> str:
    """Describe the first difference, as the end of "expected …"."""
    if len(expected) != len(actual):
        return f"the {len(expected)} examples of {first}, got {len(actual)}"
    pairs = enumerate(zip(expected, actual, strict=True), start=1)
    number, pair = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    texts = [repr(str(example)[:80]) for example in pair]
    return f"{texts[0]} as example {number}, as in {first}, got {texts[1]}"


class EvaluationResult(Protocol):
    """Metrics on n examples, the main metric first, and the counts of every example."""

    @property
    def n(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, Estimate]: ...
    @property
    def samples(self) -> Mapping[str, Sample]: ...


class PivotCell(NamedTuple):
    """A run: the values of both recipe keys, and the metric (`figure`) on `n` examples."""

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
    """Evaluate runs (name, recipe as a dict, evaluation); return the metric and the cells."""
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
                f"{name}: expected a metric of {', '.join(evaluation.metrics)}, got {metric!r}",
                fix="choose a metric that every run has",
            )
        figure = evaluation.metrics[metric]
        cells[row, column] = PivotCell(row, column, name, evaluation.n, figure)
    assert metric is not None, "there is at least one run"
    return metric, list(cells.values())


def _recipe_value(recipe: Any, key: str, run: str) -> str:
    """Return the value of a recipe key; for a file in `data`, the name of its folder."""
    value, parts = recipe, key.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(value, dict) or part not in value:
            names = value if isinstance(value, dict) else ()
            known = ", ".join(".".join([*parts[:depth], name]) for name in names)
            raise UserError(
                f"{run}: no key {key!r} in its recipe",
                fix=f"choose one of {known}" if known else "choose a shorter key",
            )
        value = value[part]
    is_file = key.startswith("data.") and isinstance(value, str)
    return (Path(value).parent.name if is_file else "") or str(value)
