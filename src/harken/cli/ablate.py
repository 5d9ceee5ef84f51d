"""Remove each head, layer or position kind of a run in turn, and measure what is lost.

The task's own metric on the same examples with and without the part, paired: the difference, its
95 % interval and the chance of it among equals. Nothing is trained again.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harken.cli.evaluate import files_of
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.measure.ablation_study import AblatedPart, AblationStudy
    from harken.run import Run

EXAMPLES = 100
EPILOG = """what is written in place of a part:
  zero       nothing
  mean       what it writes on average over the same examples
  resample   what it writes for another example of the same batch

A run that searches does so greedily here. Parts are listed by what their loss costs, the dearest
first; p is of each alone: of twenty parts that do nothing, one may seem to.

Parts are named as in `harken heads` and `harken inspect`: L1.H3 is head 3 of layer 1, both counted
from 1; encoder., decoder. and cross. say which attention it is where a model has several.

examples:
  harken ablate runs/tagger
  harken ablate runs/translate --what layers --examples 50
  harken ablate runs/gpt --how mean --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken ablate`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument(
        "--what",
        choices=("heads", "layers", "positions"),
        default="heads",
        help="layers are blocks, and in each its attention and its feed-forward layer",
    )
    parser.add_argument("--how", choices=("zero", "mean", "resample"), default="zero")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, metavar="N", help=f"the first N, else {EXAMPLES}"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of resample")
    parser.add_argument("--split", choices=("dev", "test"), help="of the recipe; dev if absent")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a file of the task's own form")
    parser.add_argument("--source", type=Path, metavar="PATH", help="sentences, one a line")
    parser.add_argument("--target", type=Path, metavar="PATH", help="their translations")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print a row for every part, the worst loss first."""
    from dataclasses import asdict

    from harken.cli.output import remark, result_json
    from harken.measure.ablation_study import ablation_study
    from harken.measure.interval import signed
    from harken.run import load

    def show(number: int, total: int, metric: str, ablated: "AblatedPart") -> None:
        change = signed(ablated.difference.value, ablated.difference.unit)
        remark(f"{number}/{total}  {ablated.part.label}: {change} {metric}")

    _check(options)
    files = files_of(options)
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
    result_json(
        {
            "task": loaded.recipe.task,
            "n": study.n,
            "what": options.what,
            "how": options.how,
            "metric": study.metric,
            "whole": asdict(study.whole),
            "parts": [
                {
                    "kind": ablated.kind,
                    **ablated.part.to_json(),
                    "value": asdict(ablated.value),
                    "difference": asdict(ablated.difference),
                }
                for ablated in study.parts
            ],
        }
    )
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.what == "positions" and options.how != "zero":
        raise UserError(
            f"--how {options.how}: --what positions has only zero", fix="leave out --how"
        )
    least = 2 if options.how == "resample" else 1
    if options.examples < least:
        raise UserError(
            f"--examples: expected {least} or more, got {options.examples}", fix="use more"
        )
    if not 0 <= options.seed < 1 << 63:
        raise UserError(
            f"--seed: expected 0 or more, below 2^63, got {options.seed}", fix="choose another"
        )


def _greedy(loaded: "Run") -> "Run":
    """Search greedily: with several hypotheses, another row would often be the same input."""
    from dataclasses import replace

    if loaded.search is None:
        return loaded
    return loaded.searching(
        replace(loaded.search, beam=1, temperature=None, top_k=None, top_p=None)
    )


def _print(study: "AblationStudy") -> None:
    from harken.cli.output import spelled, table
    from harken.measure.interval import signed, signed_interval

    rows = [(f"nothing ({study.n})", spelled(study.whole)[0], "", "", "")]
    for ablated in study.parts:
        change = ablated.difference
        rows.append(
            (
                ablated.part.label,
                spelled(ablated.value)[0],
                signed(change.value, change.unit),
                signed_interval(change.low, change.high, change.unit),
                f"{change.p:.4f}",
            )
        )
    table(("without", study.metric.replace("_", " "), "difference", "95 % interval", "p"), rows)
