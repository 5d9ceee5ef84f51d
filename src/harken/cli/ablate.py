"""`harken ablate`: print the metric without each part of a model."""

import argparse
from dataclasses import asdict, replace

from harken.cli.evaluate import data_files
from harken.cli.output import remark, result_json, table, value_and_interval
from harken.errors import UserError
from harken.measure.ablation_study import AblatedPart, AblationStudy, ablation_study
from harken.measure.interval import signed, signed_interval
from harken.run import Run, load


def run(options: argparse.Namespace) -> int:
    """Print a row for every part, the largest loss first."""

    def show(number: int, total: int, metric: str, ablated: AblatedPart) -> None:
        change = signed(ablated.difference.value, ablated.difference.unit)
        remark(f"{number}/{total}  {ablated.part.label}: {change} {metric}")

    _check(options)
    files = data_files(options)
    loaded = _greedy(load(options.folder, options.device))
    examples = loaded.examples(options.split or "dev", files)[: options.examples]
    study = ablation_study(
        loaded.model,
        lambda: loaded.predictor.evaluate(examples),
        options.what,
        options.how,
        seed=options.seed,
        on_part=show,
    )
    if not options.json:
        _print(study)
        return 0
    parts = [
        {
            "kind": ablated.kind,
            **ablated.part.to_json(),
            "value": asdict(ablated.value),
            "difference": asdict(ablated.difference),
        }
        for ablated in study.parts
    ]
    record = {"task": loaded.recipe.task, "n": study.n, "what": options.what, "how": options.how}
    record |= {"metric": study.metric, "whole": asdict(study.whole), "parts": parts}
    result_json(record)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.what == "positions" and options.how != "zero":
        raise UserError(
            f"--how {options.how}: --what positions has only zero", fix="leave out --how"
        )
    minimum = 2 if options.how == "resample" else 1
    if options.examples < minimum:
        raise UserError(
            f"--examples: expected {minimum} or more, got {options.examples}", fix="use more"
        )
    if not 0 <= options.seed < 1 << 63:
        raise UserError(
            f"--seed: expected 0 or more, below 2^63, got {options.seed}", fix="choose another"
        )


def _greedy(loaded: Run) -> Run:
    """Search greedily: with several hypotheses, another row would often be the same input."""
    if loaded.search is None:
        return loaded
    greedy = replace(loaded.search, beam=1, temperature=None, top_k=None, top_p=None)
    return loaded.searching(greedy)


def _print(study: AblationStudy) -> None:
    rows = [(f"nothing ({study.n})", value_and_interval(study.whole)[0], "", "", "")]
    for ablated in study.parts:
        change = ablated.difference
        value, _ = value_and_interval(ablated.value)
        interval = signed_interval(change.low, change.high, change.unit)
        difference = signed(change.value, change.unit)
        rows.append((ablated.part.label, value, difference, interval, f"{change.p:.4f}"))
    table(("without", study.metric.replace("_", " "), "difference", "95 % interval", "p"), rows)
