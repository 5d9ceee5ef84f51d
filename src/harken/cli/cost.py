"""`harken cost`: print FLOPs, memory and depth of a training step, time it, or plan processes."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from harken.cli.output import print_json, print_note, print_result, print_table
from harken.cost import time
from harken.cost.breakeven import MAX_LENGTH, BreakEven, compare_costs
from harken.cost.formula import Formula
from harken.cost.scaling import Network, ParallelStep, measure_micro_batch, predict_scaling
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
from harken.models.huggingface import read_text_folder
from harken.recipe import load_recipe
from harken.training.distributed import set_threads
from harken.training.loop import check_micro_batches, stage_configs
from harken.training.runtime import configure_process


def run(options: argparse.Namespace) -> None:
    """Print the cost of a traced training step; with --measure, also time it."""
    if options.processes is not None or options.bandwidth is not None:
        _print_scaling(options)
        return
    if is_huggingface(options.recipe):
        _print_huggingface_cost(options)
        return
    recipe = load_recipe(options.recipe, options.sets)
    steps = [
        workload(recipe, length=length, batch=options.batch, vocabulary=options.vocabulary)
        for length in options.length or [None]
    ]
    columns = [_column(step, options.measure) for step in steps]
    sizes = steps[0].letters
    width, layers, vocabulary = sizes["J"], sizes.get("L", 1), steps[0].vocabulary
    break_evens = compare_costs(width, layers, vocabulary, timed=options.measure)
    formulas = depth_formulas(steps[0])
    if options.json:
        formulas = {**count_formulas(steps[0]), **formulas}
        print_json(_record(recipe.task, steps[0], columns, break_evens, formulas))
    else:
        _print(steps[0], columns, formulas, break_evens)


def _print_huggingface_cost(options: argparse.Namespace) -> None:
    """Print the cost of a Hugging Face model, without formulas."""
    if options.measure or options.sets or options.vocabulary:
        problem = "--measure, --set and --vocabulary need a recipe (got a folder)"
        raise UserError(f"{options.recipe}: {problem}", fix="leave them out, or give a recipe")
    model = read_text_folder(options.recipe)[1]
    rows, columns = options.batch or 1, []
    for length in options.length or [model.max_length]:
        if model.max_length is not None and length > model.max_length:
            problem = f"--length: expected at most {model.max_length} for this model, got {length}"
            raise UserError(problem, fix="choose a shorter --length")
        tokens = torch.zeros(rows, length, dtype=torch.long)
        columns.append({"B": rows, "T": length, **asdict(cost(model, tokens))})
    if options.json:
        print_json({"folder": str(options.recipe), "lengths": columns})
    else:
        _print_columns(columns)


def _print_scaling(options: argparse.Namespace) -> None:
    """Print the predicted step of 1, 2, 4, … processes for each reduction of the gradients."""
    if options.processes is None or options.bandwidth is None:
        given = "--bandwidth" if options.processes is None else "--processes"
        raise UserError(
            f"cost: expected --processes together with --bandwidth, got {given}",
            fix="give both, for example --processes 8 --bandwidth 10",
        )
    lengths = options.length or [None]
    is_folder = is_huggingface(options.recipe)
    if is_folder or options.measure or len(lengths) > 1:
        length_or_measure = "--measure" if options.measure else f"{len(lengths)} lengths"
        got = "a Hugging Face folder" if is_folder else length_or_measure
        raise UserError(
            f"cost: --processes expects a recipe, at most one --length and no --measure, got {got}",
            fix="give a recipe, leave out --measure, and plan each length with its own command",
        )
    recipe = load_recipe(options.recipe, options.sets)
    step = workload(recipe, length=lengths[0], batch=options.batch, vocabulary=options.vocabulary)
    stages = stage_configs(recipe.training)
    used = [(name, stage) for name, stage in stages if stage.steps > 0 or stage is step.stage]
    check_micro_batches(used, options.processes)
    configure_process(torch.device("cpu"))
    set_threads(recipe.training.runtime.threads)
    print_note("timing the kernels of a step …")
    network = Network(bandwidth=options.bandwidth * 1e9 / 8, latency=options.latency * 1e-6)
    plans = predict_scaling(measure_micro_batch(step), network, options.processes)
    micro_batches, threads = step.stage.micro_batches, torch.get_num_threads()
    if options.json:
        print_json(
            {
                "task": recipe.task,
                "vocabulary": step.vocabulary,
                "assumed": list(step.assumed),
                "sizes": step.sizes,
                "micro_batches": micro_batches,
                "bandwidth_gbps": options.bandwidth,
                "latency_us": options.latency,
                "threads": threads,
                "steps": [asdict(plan) for plan in plans],
            }
        )
        return
    _print_plans(plans)
    print_result(
        f"assumed: {micro_batches} micro-batches per step; one process per machine like this one, "
        f"with {threads} threads; links of {options.bandwidth:g} Gbit/s and {options.latency} µs"
    )
    for assumption in step.assumed:
        print_note(f"assumed: {assumption}")


def _print_plans(plans: Sequence[ParallelStep]) -> None:
    """Print all figures for the largest number of processes; time and efficiency for each."""
    times: dict[int, list[str]] = {}  # by number of processes
    figures: dict[str, tuple[str, ...]] = {}  # by reduction, for the most processes
    for plan in plans:
        seconds, efficiency = _format_figure(plan.seconds, "seconds"), f"{plan.efficiency:.0%}"
        times.setdefault(plan.processes, []).extend((seconds, efficiency))
        sizes = (_format_figure(size, "bytes") for size in (plan.sent_bytes, plan.memory_bytes))
        figures[plan.reduction] = (seconds, *sizes, efficiency)
    columns = ("step", "sent per process", "memory per process", "efficiency")
    header = (f"{plans[-1].processes} processes", *columns)
    print_table(header, [(reduction, *row) for reduction, row in figures.items()])
    titles = (title for name in figures for title in (f"{name}: step", "efficiency"))
    print_table(("processes", *titles), [(str(count), *row) for count, row in times.items()])


def _column(step: Workload, measure: bool) -> dict[str, float]:
    figures: dict[str, float] = {**step.sizes, **asdict(trace_workload(step))}
    if measure:
        print_note("timing the kernels of a step …")
        configure_process(torch.device("cpu"))
        figures["predicted_seconds"] = time.predict_seconds(step)
        seconds, memory = time.measure_step(step)
        figures |= {"measured_seconds": seconds}
        figures |= {f"measured_{key}": value for key, value in memory._asdict().items()}
    return figures


ROWS = (  # key, title, unit
    ("B", "rows (B)", "count"),
    ("T", "tokens per row (T)", "count"),
    ("M", "source tokens per row (M)", "count"),
    ("S", "frames per row (S)", "count"),
    ("parameters", "parameters", "count"),
    ("forward", "FLOPs, forward pass", "FLOPs"),
    ("step", "FLOPs, training step", "FLOPs"),
    ("traffic", "memory traffic of a step", "bytes"),
    ("state_bytes", "weights, gradients, optimizer state", "bytes"),
    ("saved_bytes", "activations saved for the backward pass", "bytes"),
    ("measured_saved_bytes", "  measured", "bytes"),
    ("peak", "peak memory of activations and temporary tensors", "bytes"),
    ("measured_peak", "  measured", "bytes"),
    ("depth", "depth (a sum of n terms takes log n steps)", "count"),
    ("serial", "depth with serial inner products", "count"),
    ("predicted_seconds", "training step, predicted", "seconds"),
    ("measured_seconds", "  measured", "seconds"),
)
DEPTHS = {"depth": "depth", "serial": "serial depth"}
GROWTH = "TMSJVLD"  # sizes whose asymptotic growth is printed
LENGTHS = "TMSLD"  # lengths and numbers of layers
MEANINGS = {"J": "width", "L": "layers", "D": "decoder layers", "V": "vocabulary"}


def _print(
    step: Workload,
    columns: Sequence[Mapping[str, float]],
    formulas: Mapping[str, Formula | None],
    break_evens: Sequence[BreakEven],
) -> None:
    _print_columns(columns)
    sizes = step.letters
    for name, title in DEPTHS.items():
        formula = formulas[name]
        if formula is None:
            print_result(f"{title}: no formula fits")
            continue
        sign = "=" if formula.value(sizes) == columns[0][name] else "≈"
        lengths = formula.growth(LENGTHS)
        print_result(f"{title} {sign} {formula}")
        print_result(f"  grows as {formula.growth(GROWTH)} (in lengths and layers: {lengths})")
    known = (f"{key} = {sizes[key]} ({word})" for key, word in MEANINGS.items() if key in sizes)
    print_result(f"where {', '.join(known)}; logarithms are rounded up")
    print_result("language models with this width, number of layers and vocabulary:")
    for pair in break_evens:
        text = f"  {pair.measure}: the {pair.kind} needs less than the {pair.baseline}"
        where = f"from T = {pair.length:,} on" if pair.length else f"at no T up to {MAX_LENGTH:,}"
        print_result(f"{text} {'at every length' if pair.length == 1 else where}")
    for assumption in step.assumed:
        print_note(f"assumed: {assumption}")


def _print_columns(columns: Sequence[Mapping[str, float]]) -> None:
    rows = [
        (title, *(_format_figure(figures[name], unit) for figures in columns))
        for name, title, unit in ROWS
        if name in columns[0]
    ]
    numbers = [f"({number})" for number in range(1, len(columns) + 1)]
    print_table(("", *(numbers if len(columns) > 1 else ["cost"])), rows)


def _format_figure(value: float, unit: str) -> str:
    if unit == "seconds":
        return f"{1000 * value:.1f} ms"
    if unit == "count":
        return f"{value:,.0f}"
    base = 1024.0 if unit == "bytes" else 1000.0
    prefixes = ["B", "KiB", "MiB", "GiB", "TiB"] if unit == "bytes" else ["", *"KMGTP"]
    while value >= base and len(prefixes) > 1:
        value /= base
        prefixes.pop(0)
    return f"{value:.3g} {prefixes[0]}".rstrip()


def _record(
    task: str,
    step: Workload,
    columns: Sequence[Mapping[str, float]],
    break_evens: Sequence[BreakEven],
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
        "break_even": [
            {
                "measure": pair.measure,
                "one": pair.kind,
                "other": pair.baseline,
                "length": pair.length,
            }
            for pair in break_evens
        ],
        "formulas": {name: formula and str(formula) for name, formula in formulas.items()},
        "growth": {name: formula and formula.growth(GROWTH) for name, formula in depths.items()},
    }
