"""`harken ablate`: print the metric without each part of a model."""

import argparse
from dataclasses import asdict, replace

from harken.cli.evaluate import data_files
from harken.cli.output import print_json_or_table, print_note
from harken.errors import UserError
from harken.measure.ablation_study import AblatedPart, ablation_study
from harken.measure.interval import (
    format_difference,
    format_difference_interval,
    format_value,
    metric_name,
)
from harken.run import load


def run(options: argparse.Namespace) -> None:
    """Print a row for each part, sorted by effect."""

    def show(number: int, total: int, metric: str, ablated: AblatedPart) -> None:
        change = format_difference(ablated.difference.value, ablated.difference.unit)
        name = metric_name(metric)
        print_note(f"{number}/{total}  {ablated.part.label}: {change} {name}")

    method, count = options.method, options.examples
    if options.parts == "positions" and method != "zero":
        problem = f"--method: expected 'zero' for --parts positions, got {method!r}"
        raise UserError(problem, fix="leave out --method")
    if method == "resample" and count < 2:
        problem = f"--examples: expected 2 or more for --method resample, got {count}"
        raise UserError(problem, fix="use --examples 2 or more")
    files = data_files(options)
    loaded = load(options.folder, options.device)
    if (search := loaded.search) is not None:
        # `resample` takes the output of another row of the batch. With a beam, the other row would
        # often belong to another hypothesis of the same input.
        greedy = replace(search, beam=1, temperature=None, top_k=None, top_p=None)
        loaded = loaded.with_search(greedy)
    examples = loaded.examples(options.split or "dev", files)[:count]
    study = ablation_study(
        loaded.model,
        lambda: loaded.predictor.evaluate(examples),
        options.parts,
        method,
        seed=options.seed,
        on_part=show,
    )
    whole = format_value(study.whole.value, study.whole.unit)
    rows = [(f"nothing (n = {study.n})", whole, "", "", "")]
    parts = []
    for ablated in study.parts:
        value, change = ablated.value, ablated.difference
        figures = {"value": asdict(value), "difference": asdict(change)}
        parts.append({"kind": ablated.kind, **ablated.part.to_json(), **figures})
        interval = format_difference_interval(change.low, change.high, change.unit)
        cells = (
            format_value(value.value, value.unit),
            format_difference(change.value, change.unit),
            interval,
        )
        rows.append((ablated.part.label, *cells, f"{change.p:.4f}"))
    record = {"task": loaded.recipe.task, "n": study.n, "what": options.parts, "how": method}
    record |= {"metric": study.metric, "whole": asdict(study.whole), "parts": parts}
    header = ("removed", metric_name(study.metric), "difference", "95 % interval", "p")
    print_json_or_table(options, record, header, rows)
