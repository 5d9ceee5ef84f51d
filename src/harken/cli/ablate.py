"""`harken ablate`: print the metric without each part of a model."""

import argparse
from dataclasses import asdict, replace

from harken.cli.evaluate import data_files
from harken.cli.output import json_or_table, print_note, value_and_interval
from harken.errors import UserError
from harken.measure.ablation_study import AblatedPart, ablation_study
from harken.measure.interval import format_difference, format_difference_interval
from harken.run import load


def run(options: argparse.Namespace) -> None:
    """Print a row for every part, the largest effect first."""

    def show(number: int, total: int, metric: str, ablated: AblatedPart) -> None:
        change = format_difference(ablated.difference.value, ablated.difference.unit)
        print_note(f"{number}/{total}  {ablated.part.label}: {change} {metric}")

    how, examples = options.how, options.examples
    if options.what == "positions" and how != "zero":
        raise UserError(f"--how {how}: --what positions has only zero", fix="leave out --how")
    if how == "resample" and examples < 2:
        raise UserError(f"--examples: expected 2 or more, got {examples}", fix="use more")
    files = data_files(options)
    loaded = load(options.folder, options.device)
    if (search := loaded.search) is not None:
        # In a beam, `resample` would often pick another hypothesis of the same input.
        greedy = replace(search, beam=1, temperature=None, top_k=None, top_p=None)
        loaded = loaded.with_search(greedy)
    examples = loaded.examples(options.split or "dev", files)[:examples]
    study = ablation_study(
        loaded.model,
        lambda: loaded.predictor.evaluate(examples),
        options.what,
        how,
        seed=options.seed,
        on_part=show,
    )
    rows = [(f"nothing ({study.n})", value_and_interval(study.whole)[0], "", "", "")]
    parts = []
    for ablated in study.parts:
        value, change = ablated.value, ablated.difference
        figures = {"value": asdict(value), "difference": asdict(change)}
        parts.append({"kind": ablated.kind, **ablated.part.to_json(), **figures})
        interval = format_difference_interval(change.low, change.high, change.unit)
        cells = (
            value_and_interval(value)[0],
            format_difference(change.value, change.unit),
            interval,
        )
        rows.append((ablated.part.label, *cells, f"{change.p:.4f}"))
    record = {"task": loaded.recipe.task, "n": study.n, "what": options.what, "how": how}
    record |= {"metric": study.metric, "whole": asdict(study.whole), "parts": parts}
    header = ("without", study.metric.replace("_", " "), "difference", "95 % interval", "p")
    json_or_table(options, record, header, rows)
