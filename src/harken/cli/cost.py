"""Say what a recipe costs before it is trained: work, memory, depth, and time.

Nothing is read but the recipe, and no tensor is made unless --measure is asked for.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harken.cost.breakeven import BreakEven
    from harken.cost.machine import Machine
    from harken.cost.subject import Subject
    from harken.cost.walk import Cost

EPILOG = """examples:
  harken cost recipes/lm.toml
  harken cost recipes/lm.toml --length 128 512 2048 --set model.length=2048
  harken cost recipes/tag.toml --vocabulary 16000 --measure
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken cost`."""
    parser.add_argument("recipe", type=Path, metavar="RECIPE.toml")
    parser.add_argument("--set", action="append", default=[], metavar="key.key=value", dest="sets")
    parser.add_argument(
        "--length", type=positive, nargs="+", metavar="N", help="tokens, words or frames of a row"
    )
    parser.add_argument("--batch", type=positive, metavar="N", help="rows; the recipe's if absent")
    parser.add_argument(
        "--vocabulary", type=positive, metavar="N", help="entries; the recipe's if absent"
    )
    parser.add_argument(
        "--measure", action="store_true", help="run a few steps here, beside what was predicted"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def positive(text: str) -> int:
    """A count."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}, wanted 1 or more")
    return number


def run(options: argparse.Namespace) -> int:
    """Walk, print, and measure where asked."""
    from harken.cli.output import remark, result_json
    from harken.cost.breakeven import break_evens
    from harken.cost.subject import subject_of
    from harken.cost.walk import cost_of
    from harken.recipe import load_recipe

    recipe = load_recipe(options.recipe, options.sets)
    subjects = [
        subject_of(recipe, length=one, batch=options.batch, vocabulary=options.vocabulary)
        for one in options.length or [None]
    ]
    cost = cost_of(subjects[0].model, recipe)
    columns = [column_of(one, cost) for one in subjects]
    machine = None
    if options.measure:
        remark("measuring this machine …")
        machine = measure(subjects, columns)
    known = {one.name: one.known for one in symbols_of(cost) if one.known is not None}
    evens = break_evens(known["J"], known.get("L", 1), subjects[0].vocabulary, machine)
    if options.json:
        result_json(record_of(recipe.task, subjects, cost, columns, evens))
    else:
        show(subjects, cost, columns, evens)
    return 0


def symbols_of(cost: "Cost") -> list[Any]:
    """Every letter of the formulas, the wide ones first."""
    found = set().union(*(getattr(cost, name).symbols() for name in cost.__slots__))
    return sorted(found, key=lambda one: (one.name, one.known or 0))


def column_of(subject: "Subject", cost: "Cost") -> dict[str, float]:
    """The figures for one length."""
    from harken.cost.walk import held_bytes

    figures: dict[str, float] = {**subject.sizes, **cost.numbers(subject.sizes)}
    figures["held"] = held_bytes(subject)
    return figures


def measure(subjects: "list[Subject]", columns: list[dict[str, float]]) -> "Machine":
    """Add predicted and measured time, and measured memory; say how fast the machine is."""
    import torch

    from harken.cost.machine import calibrate
    from harken.cost.predict import measured, predicted_seconds
    from harken.training.machine import prepare

    prepare(torch.device("cpu"))
    machine = calibrate()
    for subject, column in zip(subjects, columns, strict=True):
        found = measured(subject)
        column["predicted_seconds"] = predicted_seconds(subject, machine)
        column["measured_seconds"] = found.seconds
        column["measured_kept"], column["measured_peak"] = found.kept, found.peak
    return machine


ROWS = (
    ("B", "rows", "count"),
    ("T", "T", "count"),
    ("M", "M", "count"),
    ("S", "S", "count"),
    ("parameters", "parameters", "count"),
    ("forward", "products, forward (FLOP)", "large"),
    ("step", "products, training step (FLOP)", "large"),
    ("traffic", "memory traffic of a step", "bytes"),
    ("held", "weights, gradients, momenta", "bytes"),
    ("kept", "kept for the backward pass", "bytes"),
    ("measured_kept", "  measured", "bytes"),
    ("peak", "peak of these and of the backward pass", "bytes"),
    ("measured_peak", "  measured", "bytes"),
    ("depth", "depth, logarithmic sums", "count"),
    ("serial", "depth, serial inner products", "count"),
    ("predicted_seconds", "a training step, predicted", "seconds"),
    ("measured_seconds", "  measured", "seconds"),
)


def show(
    subjects: "list[Subject]",
    cost: "Cost",
    columns: list[dict[str, float]],
    evens: "list[BreakEven]",
) -> None:
    """For a person."""
    from harken.cli.output import remark, result, table
    from harken.cost.expression import growth

    rows = [
        (title, *(shown(column[name], unit) for column in columns))
        for name, title, unit in ROWS
        if name in columns[0]
    ]
    numbered = [f"({place + 1})" for place in range(len(columns))]
    table(("", *(numbered if len(columns) > 1 else ["cost"])), rows)
    letters = ", ".join(f"{one.name} = {one.known}" for one in symbols_of(cost) if one.known)
    for title, formula in (("depth", cost.depth), ("serial depth", cost.serial)):
        result(f"{title}: {formula}")
        short = growth(formula, LENGTHS)
        result(f"  grows as {growth(formula, LETTERS)}; in lengths and layers alone as {short}")
    result(f"where {letters}")
    for one in evens:
        result(sentence(one))
    for assumption in subjects[0].assumed:
        remark(f"assumed: {assumption}")


LETTERS, LENGTHS = "TMSJXYVLFk", "TMSXYL"


def sentence(even: "BreakEven") -> str:
    """One break-even in words."""
    what = f"{even.measure}: the {even.one} needs less than the {even.other}"
    if even.length is None:
        return f"{what} at no length"
    return f"{what} at every length" if even.length == 1 else f"{what} from T = {even.length:,} on"


def shown(value: float, unit: str) -> str:
    """A figure as a person reads it."""
    if unit == "seconds":
        return f"{1000 * value:.1f} ms"
    if unit == "count":
        return f"{value:,.0f}"
    step, names = (
        (1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))
        if unit == "bytes"
        else (1000.0, ("", "K", "M", "G", "T", "P"))
    )
    for name in names:
        if value < step or name == names[-1]:
            return f"{value:.3g} {name}".rstrip()
        value /= step
    raise AssertionError("the last name takes the rest")


def record_of(
    task: str,
    subjects: "list[Subject]",
    cost: "Cost",
    columns: list[dict[str, float]],
    evens: "list[BreakEven]",
) -> dict[str, Any]:
    """For a script."""
    from dataclasses import asdict

    from harken.cost.expression import growth

    return {
        "task": task,
        "vocabulary": subjects[0].vocabulary,
        "assumed": list(subjects[0].assumed),
        "formulas": {name: str(getattr(cost, name)) for name in cost.__slots__},
        "growth": {name: growth(getattr(cost, name), LETTERS) for name in ("depth", "serial")},
        "symbols": [[one.name, one.known] for one in symbols_of(cost) if one.known],
        "lengths": columns,
        "break_even": [asdict(one) for one in evens],
    }
