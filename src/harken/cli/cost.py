"""Print what a training step of a recipe costs: operations, memory, depth and time.

The step is traced without computing it. Only `--measure` runs anything.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harken.cost.breakeven import BreakEven
    from harken.cost.formula import Formula
    from harken.cost.workload import Workload

EPILOG = """examples:
  harken cost recipes/lm.toml
  harken cost recipes/lm.toml --length 128 512 2048 --set model.length=2048
  harken cost recipes/tag.toml --vocabulary 16000 --measure
  harken cost gpt2/ --length 1024 --batch 8        a Hugging Face folder
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken cost`."""
    parser.add_argument(
        "recipe", type=Path, metavar="RECIPE.toml", help="a recipe, or a Hugging Face folder"
    )
    parser.add_argument("--set", action="append", default=[], metavar="key.key=value", dest="sets")
    parser.add_argument(
        "--length", type=positive, nargs="+", metavar="N", help="tokens, words or frames of a row"
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="rows of a batch (default: the recipe's)"
    )
    parser.add_argument(
        "--vocabulary", type=positive, metavar="N", help="vocabulary size (default: the recipe's)"
    )
    parser.add_argument(
        "--measure", action="store_true", help="predict the time of a step, and run a few steps"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def positive(text: str) -> int:
    """Parse a count."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def run(options: argparse.Namespace) -> int:
    """Trace, print, and measure if asked to."""
    from harken.cli.output import result_json
    from harken.cost.breakeven import break_evens
    from harken.cost.workload import count_formulas, depth_formulas, model_letters, workload
    from harken.foreign import is_huggingface
    from harken.recipe import load_recipe

    if is_huggingface(options.recipe):
        return run_folder(options)
    recipe = load_recipe(options.recipe, options.sets)
    steps = [
        workload(recipe, length=length, batch=options.batch, vocabulary=options.vocabulary)
        for length in options.length or [None]
    ]
    columns = [column(step, options.measure) for step in steps]
    sizes = model_letters(recipe)
    pairs = break_evens(sizes["J"], sizes.get("L", 1), steps[0].vocabulary, timed=options.measure)
    formulas = depth_formulas(steps[0])
    if options.json:
        record = json_record(recipe.task, steps[0], columns, pairs)
        result_json({**record, **json_formulas({**count_formulas(steps[0]), **formulas})})
    else:
        show(steps[0], columns, formulas, pairs)
    return 0


def run_folder(options: argparse.Namespace) -> int:
    """The same for the model of a Hugging Face folder, without formulas."""
    from dataclasses import asdict

    import torch

    from harken.cli.output import result_json
    from harken.cost.step import cost
    from harken.errors import UserError
    from harken.models.huggingface import read_folder

    if options.measure or options.sets or options.vocabulary:
        raise UserError(
            f"{options.recipe}: --measure, --set and --vocabulary need a recipe (got a folder)",
            fix="leave them out, or give a recipe",
        )
    read = read_folder(options.recipe)
    rows, columns = options.batch or 1, []
    for length in options.length or [read.model.length]:
        if read.model.length is not None and length > read.model.length:
            raise UserError(
                f"length {length}: the model takes at most {read.model.length}",
                fix="choose a shorter --length",
            )
        tokens = torch.zeros(rows, length, dtype=torch.long)
        columns.append({"B": rows, "T": length, **asdict(cost(read.model, tokens))})
    if options.json:
        result_json({"folder": str(options.recipe), "lengths": columns})
    else:
        show_columns(columns)
    return 0


def column(step: "Workload", measure: bool) -> dict[str, float]:
    """All figures for one length."""
    from dataclasses import asdict

    from harken.cli.output import remark
    from harken.cost.workload import trace_workload

    figures: dict[str, float] = {**step.sizes, **asdict(trace_workload(step))}
    if measure:
        import torch

        from harken.cost.time import measured, predicted_seconds
        from harken.training.runtime import prepare

        remark("measuring this machine …")
        prepare(torch.device("cpu"))
        figures["predicted_seconds"] = predicted_seconds(step)
        run_here = measured(step)
        figures["measured_seconds"] = run_here.seconds
        figures["measured_kept"], figures["measured_peak"] = run_here.kept, run_here.peak
    return figures


ROWS = (
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
GROWTH = "TMSJVLD"  # letters whose growth is printed
LENGTHS = "TMSLD"
MEANINGS = {"J": "width", "L": "layers", "D": "decoder layers", "V": "vocabulary"}


def show(
    step: "Workload",
    columns: Sequence[Mapping[str, float]],
    formulas: "Mapping[str, Formula | None]",
    pairs: "Sequence[BreakEven]",
) -> None:
    """Print tables and sentences."""
    from harken.cli.output import remark, result

    show_columns(columns)
    sizes = step.letters
    for name, title in (("depth", "depth"), ("serial", "serial depth")):
        formula = formulas[name]
        if formula is None:
            result(f"{title}: not a sum of products of the sizes")
            continue
        is_exact = formula.value(sizes) == columns[0][name]
        result(f"{title} {'=' if is_exact else '≈'} {formula}")
        result(
            f"  grows as {formula.growth(GROWTH)}; in lengths and layers alone as "
            f"{formula.growth(LENGTHS)}"
        )
    known = [
        f"{letter} = {sizes[letter]} ({MEANINGS[letter]})" for letter in MEANINGS if letter in sizes
    ]
    result(f"where {', '.join(known)}; logarithms are rounded up")
    for pair in pairs:
        result(sentence(pair))
    for assumption in step.assumed:
        remark(f"assumed: {assumption}")


def show_columns(columns: Sequence[Mapping[str, float]]) -> None:
    """Print one column of figures per length."""
    from harken.cli.output import table

    rows = [
        (title, *(shown(figures[name], unit) for figures in columns))
        for name, title, unit in ROWS
        if name in columns[0]
    ]
    numbered = [f"({place + 1})" for place in range(len(columns))]
    table(("", *(numbered if len(columns) > 1 else ["cost"])), rows)


def sentence(pair: "BreakEven") -> str:
    """One break-even in words."""
    text = f"{pair.measure}: the {pair.one} needs less than the {pair.other}"
    if pair.length is None:
        return f"{text} at no length"
    return f"{text} at every length" if pair.length == 1 else f"{text} from T = {pair.length:,} on"


def shown(value: float, unit: str) -> str:
    """A figure with its unit."""
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
    raise AssertionError("the last unit has no upper limit")


def json_record(
    task: str,
    step: "Workload",
    columns: Sequence[Mapping[str, float]],
    pairs: "Sequence[BreakEven]",
) -> dict[str, Any]:
    """Figures and break-evens."""
    from dataclasses import asdict

    sizes = step.letters
    return {
        "task": task,
        "vocabulary": step.vocabulary,
        "assumed": list(step.assumed),
        "symbols": [[letter, sizes[letter]] for letter in MEANINGS if letter in sizes],
        "lengths": columns,
        "break_even": [asdict(pair) for pair in pairs],
    }


def json_formulas(formulas: "Mapping[str, Formula | None]") -> dict[str, Any]:
    """Formulas as text; null for a count that has none."""
    depths = {name: formulas[name] for name in ("depth", "serial")}
    return {
        "formulas": {name: formula and str(formula) for name, formula in formulas.items()},
        "growth": {name: formula and formula.growth(GROWTH) for name, formula in depths.items()},
    }
