"""Remove each head, layer or position kind of a run in turn, and measure what is lost.

The task's own metric on the same examples with and without the part, paired: the difference, its
95 % interval and the chance of it among equals. Nothing is trained again.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.cli.evaluate import files_of
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.inspection.ablation import How, Means, Part
    from harken.measure.interval import Estimate
    from harken.measure.paired import Difference
    from harken.run import Run
    from harken.tasks.prediction import Evaluation

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
    """Print a row for every part, the dearest first."""
    from dataclasses import asdict

    from harken.cli.output import remark, result_json
    from harken.inspection.ablation import means_over, removed
    from harken.measure.paired import difference
    from harken.run import load

    _check(options)
    files = files_of(options)
    loaded = _greedy(load(options.folder, options.device))
    examples = loaded.examples(options.split or "dev", files)[: options.examples]
    means, before = means_over(loaded.model, lambda: _evaluate(loaded, examples))
    parts = _parts(loaded, means, options.what)
    metric, sample = next(iter(before.samples.items()))
    how = _how(options, means)
    rows: list[tuple[Part, Estimate, Difference]] = []
    for number, part in enumerate(parts, start=1):
        with removed(loaded.model, [part], how):
            after = _evaluate(loaded, examples)
        found = difference(sample, after.samples[metric])
        rows.append((part, after.metrics[metric], found))
        remark(f"{number}/{len(parts)}  {part.label}: {_signed(found)} {metric}")
    rows.sort(key=lambda row: _gain(row[2]))
    if options.json:
        result_json(
            {
                "task": loaded.recipe.task,
                "n": before.n,
                "what": options.what,
                "how": options.how,
                "metric": metric,
                "whole": asdict(before.metrics[metric]),
                "parts": [
                    {
                        "kind": _kind(part),
                        **part.to_json(),
                        "value": asdict(value),
                        "difference": asdict(found),
                    }
                    for part, value, found in rows
                ],
            }
        )
    else:
        _print(metric, before, rows)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.what == "positions" and options.how != "zero":
        raise UserError(
            f"--how {options.how}: found it with --what positions, wanted zero",
            fix="positions are told or not; leave out --how",
        )
    least = 2 if options.how == "resample" else 1
    if options.examples < least:
        raise UserError(
            f"--examples {options.examples}: found too few, wanted {least} or more",
            fix="choose such a number",
        )
    if not 0 <= options.seed < 1 << 63:
        raise UserError(
            f"--seed {options.seed}: wanted 0 or more, below 2^63", fix="choose such a number"
        )


def _greedy(loaded: "Run") -> "Run":
    """The cheapest search; with several hypotheses, another row would often be the same input."""
    from dataclasses import replace

    if loaded.search is None:
        return loaded
    plain = replace(loaded.search, beam=1, temperature=None, top_k=None, top_p=None)
    return loaded.searching(plain)


def _evaluate(loaded: "Run", examples: Any) -> "Evaluation":
    return loaded.predictor.evaluate(examples)


def _parts(loaded: "Run", means: "Means", what: str) -> Sequence["Part"]:
    """Those that ran: a model may have some that no example of this task wakes."""
    from harken.inspection.ablation import layer_parts, position_parts

    found: Sequence[Part]
    if what == "heads":
        found = means.heads()
    elif what == "layers":
        found = [part for part in layer_parts(loaded.model) if part.module in means.written]
    else:
        found = position_parts(loaded.model)
    if not found:
        raise UserError(
            f"{loaded.folder}: found no {what} in its model, wanted some to remove",
            fix="choose another --what, or a run whose model has attention",
        )
    return found


def _how(options: argparse.Namespace, means: "Means") -> "How":
    from harken.inspection.ablation import Mean, Resample, Zero

    if options.how == "zero":
        return Zero()
    return Mean(means) if options.how == "mean" else Resample(options.seed)


def _gain(found: "Difference") -> float:
    """What the metric gains without the part; mostly it loses."""
    from harken.measure.interval import LOWER_IS_BETTER

    return -found.value if found.unit in LOWER_IS_BETTER else found.value


def _kind(part: "Part") -> str:
    """head, attention, feedforward, layer or position."""
    return type(part).__name__.removesuffix("Ref").lower()


def _signed(found: "Difference") -> str:
    from harken.measure.interval import signed

    return signed(found.value, found.unit)


def _print(
    metric: str, before: "Evaluation", rows: Sequence[tuple["Part", "Estimate", "Difference"]]
) -> None:
    from harken.cli.output import spelled, table
    from harken.measure.interval import signed_interval

    whole = before.metrics[metric]
    table(
        ("without", metric.replace("_", " "), "difference", "95 % interval", "p"),
        [
            (f"nothing ({before.n})", spelled(whole)[0], "", "", ""),
            *(
                (
                    part.label,
                    spelled(value)[0],
                    _signed(found),
                    signed_interval(found.low, found.high, found.unit),
                    f"{found.p:.4f}",
                )
                for part, value, found in rows
            ),
        ],
    )
