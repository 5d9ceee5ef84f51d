"""`harken cost`: print FLOPs, memory, depth and time of a training step."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from harken.cli.output import print_note, result, result_json, table
from harken.cost import time
from harken.cost.breakeven import BreakEven, compare_costs
from harken.cost.formula import Formula
from harken.cost.step import cost
from harken.cost.workload import (
    Workload,
    count_formulas,
    depth_formulas,
    trace_workload,
    workload,
)
from harken.errors import UserError
from harken.foreign import is_huggingface
from harken.models.huggingface import read_folder
from harken.recipe import load_recipe
from harken.training.runtime import prepare


def run(options: argparse.Namespace) -> None:
    """Print the cost of a traced training step; with --measure, also time it."""
    if is_huggingface(options.recipe):
        _run_folder(options)
        return
    recipe = load_recipe(options.recipe, options.sets)
    steps = [
        workload(recipe, length=length, batch=options.batch, vocabulary=options.vocabulary)
        for length in options.length or [None]
    ]
    columns = [_column(step, options.measure) for step in steps]
    sizes = steps[0].letters
    pairs = compare_costs(sizes["J"], sizes.get("L", 1), steps[0].vocabulary, timed=options.measure)
    formulas = depth_formulas(steps[0])
    if options.json:
        formulas = {**count_formulas(steps[0]), **formulas}
        result_json(_record(recipe.task, steps[0], columns, pairs, formulas))
    else:
        _print(steps[0], columns, formulas, pairs)


def _run_folder(options: argparse.Namespace) -> None:
    """Print the cost of a Hugging Face model, without formulas."""
    if options.measure or options.sets or options.vocabulary:
        problem = "--measure, --set and --vocabulary need a recipe (got a folder)"
        raise UserError(f"{options.recipe}: {problem}", fix="leave them out, or give a recipe")
    model = read_folder(options.recipe).model
    rows, columns = options.batch or 1, []
    for length in options.length or [model.max_length]:
        if model.max_length is not None and length > model.max_length:
            problem = f"--length: expected at most {model.max_length} for this model, got {length}"
            raise UserError(problem, fix="choose a shorter --length")
        tokens = torch.zeros(rows, length, dtype=torch.long)
        columns.append({"B": rows, "T": length, **asdict(cost(model, tokens))})
    if options.json:
        result_json({"folder": str(options.recipe), "lengths": columns})
    else:
        _print_columns(columns)


def _column(step: Workload, measure: bool) -> dict[str, float]:
    figures: dict[str, float] = {**step.sizes, **asdict(trace_workload(step))}
    if measure:
        print_note("measuring this machine …")
        prepare(torch.device("cpu"))
        figures["predicted_seconds"] = time.predict_seconds(step)
        seconds, memory = time.measure_step(step)
        figures |= {"measured_seconds": seconds}
        figures |= {f"measured_{key}": value for key, value in memory._asdict().items()}
    return figures


ROWS = (  # key, title, unit
    ("B", "rows", "count"),
    ("T", "T", "count"),
    ("M", "M", "count"),
    ("S", "S", "count"),
    ("parameters", "parameters", "count"),
    ("forward", "products, forward (FLOP)", "large"),
    ("step", "products, training step (FLOP)", "large"),
    ("traffic", "memory traffic of a step", "bytes"),
    ("held", "weights, gradients, optimizer state", "bytes"),
    ("kept", "activations kept for the backward pass", "bytes"),
    ("measured_kept", "  measured", "bytes"),
    ("peak", "peak of activations and temporary tensors", "bytes"),
    ("measured_peak", "  measured", "bytes"),
    ("depth", "depth, logarithmic sums", "count"),
    ("serial", "depth, serial inner products", "count"),
    ("predicted_seconds", "training step, predicted", "seconds"),
    ("measured_seconds", "  measured", "seconds"),
)
DEPTHS = {"depth": "depth", "serial": "serial depth"}
GROWTH = "TMSJVLD"  # letters whose growth is printed
LENGTHS = "TMSLD"  # letters of lengths and layers
MEANINGS = {"J": "width", "L": "layers", "D": "decoder layers", "V": "vocabulary"}


def _print(
    step: Workload,
    columns: Sequence[Mapping[str, float]],
    formulas: Mapping[str, Formula | None],
    pairs: Sequence[BreakEven],
) -> None:
    _print_columns(columns)
    sizes = step.letters
    for name, title in DEPTHS.items():
        formula = formulas[name]
        if formula is None:
            result(f"{title}: not a sum of products of the sizes")
            continue
        sign = "=" if formula.value(sizes) == columns[0][name] else "≈"
        lengths = formula.growth(LENGTHS)
        result(f"{title} {sign} {formula}")
        result(f"  grows as {formula.growth(GROWTH)}; in lengths and layers alone as {lengths}")
    known = (f"{key} = {sizes[key]} ({word})" for key, word in MEANINGS.items() if key in sizes)
    result(f"where {', '.join(known)}; logarithms are rounded up")
    for pair in pairs:
        text = f"{pair.measure}: the {pair.one} needs less than the {pair.other}"
        where = "at no length" if pair.length is None else f"from T = {pair.length:,} on"
        result(f"{text} {'at every length' if pair.length == 1 else where}")
    for assumption in step.assumed:
        print_note(f"assumed: {assumption}")


def _print_columns(columns: Sequence[Mapping[str, float]]) -> None:
    rows = [
        (title, *(_figure(figures[name], unit) for figures in columns))
        for name, title, unit in ROWS
        if name in columns[0]
    ]
    numbers = [f"({number})" for number in range(1, len(columns) + 1)]
    table(("", *(numbers if len(columns) > 1 else ["cost"])), rows)


def _figure(value: float, unit: str) -> str:
    if unit == "seconds":
        return f"{1000 * value:.1f} ms"
    if unit == "count":
        return f"{value:,.0f}"
    step = 1024.0 if unit == "bytes" else 1000.0
    prefixes = ["B", "KiB", "MiB", "GiB", "TiB"] if unit == "bytes" else ["", *"KMGTP"]
    while value >= step and len(prefixes) > 1:
        value /= step
        prefixes.pop(0)
    return f"{value:.3g} {prefixes[0]}".rstrip()


def _record(
    task: str,
    step: Workload,
    columns: Sequence[Mapping[str, float]],
    pairs: Sequence[BreakEven],
    formulas: Mapping[str, Formula | None],
) -> dict[str, Any]:
    """Return the JSON object; a count that has no formula is null."""
    sizes, depths = step.letters, {name: formulas[name] for name in DEPTHS}
    return {
        "task": task,
        "vocabulary": step.vocabulary,
        "assumed": list(step.assumed),
        "symbols": [[letter, sizes[letter]] for letter in MEANINGS if letter in sizes],
        "lengths": columns,
        "break_even": [asdict(pair) for pair in pairs],
        "formulas": {name: formula and str(formula) for name, formula in formulas.items()},
        "growth": {name: formula and formula.growth(GROWTH) for name, formula in depths.items()},
    }
