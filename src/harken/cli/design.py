"""Write a head down instead of learning it, and check it against its promise."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harken.design.designs import Design
    from harken.design.waves import Waves

EPILOG = """examples:
  harken design shift --offset 3 --width 64 --tolerance 0.01 --length 512
  harken design band --offset 40 --band 16 --sharpness 2 --length 256 --out band.svg
  harken design copy --keys 16 --wanted 3
  harken design average --keys 16 --wanted 3 5
  harken design lookup --tolerance 0.001
  harken design previous-match --symbols 11 --length 64 --json
"""

Facts = Mapping[str, str | float | int | list[int] | None]


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken design`, a set for each kind of head."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True, dest="kind")
    for kind, summary in (
        ("shift", "looks exactly so many steps back"),
        ("band", "looks about so many steps back"),
        ("copy", "looks at the one token with a content"),
        ("average", "looks at two tokens alike"),
        ("lookup", "the Q, K and V that move a part of one token into another"),
        ("previous-match", "looks at what followed this token before: two layers"),
    ):
        one = kinds.add_parser(kind, help=summary, description=f"A head that {summary}.")
        if kind in ("shift", "band", "previous-match"):
            _place_options(one)
        if kind in ("shift", "band"):
            one.add_argument("--offset", type=int, default=1, help="steps back (1)")
            one.add_argument("--order", choices=("causal", "strict", "any"), default="causal")
        if kind == "band":
            one.add_argument("--band", type=float, default=8.0, help="about so many offsets (8)")
            one.add_argument("--sharpness", type=float, default=1.0, help="narrows the band (1)")
        else:
            one.add_argument("--tolerance", type=float, default=0.01, help="elsewhere (0.01)")
        if kind in ("copy", "average"):
            one.add_argument("--keys", type=int, default=16, help="orthonormal tokens (16)")
            count, default = (1, [0]) if kind == "copy" else (2, [0, 1])
            one.add_argument("--wanted", type=int, nargs=count, default=default, metavar="KEY")
        if kind == "previous-match":
            one.add_argument("--symbols", type=int, default=11, help="with the start (11)")
        one.add_argument("--out", type=Path, metavar="FILE", help="draw it: .svg or .png")
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.set_defaults(parser=one)


def _place_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=64, help="of the positions (64)")
    parser.add_argument("--key-width", type=int, help="of the head; two hold one wave")
    parser.add_argument("--length", type=int, default=256, help="of the longest text (256)")
    parser.add_argument("--position", choices=("sinusoid", "fourier"), default="sinusoid")
    parser.add_argument("--base", type=float, default=10000.0, help="of the sinusoids (10000)")
    parser.add_argument("--span", type=int, help="of the Fourier basis; the length if not given")


def run(options: argparse.Namespace) -> int:
    """Print what was designed, predicted and measured; draw it where asked to."""
    from harken.cli.output import remark, result_json, table
    from harken.design.designs import check
    from harken.report.canvas import check_suffix
    from harken.report.design_figure import draw_design

    if options.out is not None:
        check_suffix(options.out)
    designed, facts = DESIGNS[options.kind](options)
    checked = check(designed, [designed.length])[0]
    whole: Facts = {
        "kind": options.kind,
        "predicted": checked.predicted,
        "measured": checked.measured,
        "worst_query": checked.query,
        "sharpness": designed.sharpness,
        **facts,
    }
    if options.out is not None:
        draw_design(designed, options.out, title=_title(options))
        remark(f"{options.out}: drawn")
    if options.json:
        result_json(whole)
    else:
        table(("what", "figure"), [(_worded(name), _shown(one)) for name, one in whole.items()])
    return 0


def _shift(options: argparse.Namespace) -> "tuple[Design, Facts]":
    from harken.design.designs import designed_shift
    from harken.design.shift import MAX_LENGTH, ShiftPlan, largest_length, sharpen

    plan = ShiftPlan(
        waves=_waves(options),
        offset=options.offset,
        length=options.length,
        tolerance=options.tolerance,
        key_width=options.key_width,
        order=options.order,
    )
    designed, reach = designed_shift(plan), largest_length(plan)
    return designed, {
        "smallest_gap": sharpen(plan).gap,
        "pairs_used": list(designed.pairs),
        "largest_length_at_least" if reach == MAX_LENGTH else "largest_length": reach,
    }


def _band(options: argparse.Namespace) -> "tuple[Design, Facts]":
    from harken.design.band import BandPlan, band_shape
    from harken.design.designs import designed_band

    plan = BandPlan(
        waves=_waves(options),
        offset=options.offset,
        band=options.band,
        sharpness=options.sharpness,
        length=options.length,
        key_width=options.key_width,
        order=options.order,
    )
    shape = band_shape(plan)
    return designed_band(plan), {
        "pairs_used": list(shape.pairs),
        "pairs_zeroed": shape.zeroed,
        "score_drop_at_half_a_band": options.sharpness * shape.drop_at_half,
        "score_drop_at_a_band": options.sharpness * shape.drop_at_band,
        "half_width": shape.half_width,
    }


def _copy(options: argparse.Namespace) -> "tuple[Design, Facts]":
    from harken.design.designs import designed_copy

    return designed_copy(options.keys, options.wanted[0], options.tolerance), {"keys": options.keys}


def _average(options: argparse.Namespace) -> "tuple[Design, Facts]":
    from harken.design.designs import designed_average

    one, other = options.wanted
    return designed_average(options.keys, one, other, options.tolerance), {"keys": options.keys}


def _lookup(options: argparse.Namespace) -> "tuple[Design, Facts]":
    import torch

    from harken.design.content import lookup_norm
    from harken.design.designs import designed_lookup

    directions = torch.eye(4, dtype=torch.float64)
    return designed_lookup(directions, options.tolerance), {"norm": lookup_norm(options.tolerance)}


def _previous_match(options: argparse.Namespace) -> "tuple[Design, Facts]":
    from harken.design.designs import designed_match
    from harken.design.matching import MatchPlan
    from harken.design.shift import solve

    plan = MatchPlan(
        waves=_waves(options),
        symbols=options.symbols,
        length=options.length,
        tolerance=options.tolerance,
        key_width=options.key_width,
    )
    first = solve(plan.first)
    return designed_match(plan), {
        "sharpness_of_the_first_layer": first.sharpness,
        "predicted_of_the_first_layer": first.predicted,
        "pairs_used": list(first.pairs),
    }


DESIGNS = {
    "shift": _shift,
    "band": _band,
    "copy": _copy,
    "average": _average,
    "lookup": _lookup,
    "previous-match": _previous_match,
}


def _waves(options: argparse.Namespace) -> "Waves":
    from harken.design.waves import Waves

    if options.position == "sinusoid":
        return Waves(width=options.width, base=options.base, span=options.span)
    return Waves(kind="fourier", width=options.width, span=options.span or options.length)


def _title(options: argparse.Namespace) -> str:
    if options.kind in ("shift", "band"):
        return f"{options.kind}, {options.offset} back"
    return str(options.kind)


def _worded(name: str) -> str:
    return {
        "predicted": "attention to the right keys, predicted",
        "measured": "attention to the right keys, measured",
        "worst_query": "at the worst query",
        "half_width": "half-width of the attention",
    }.get(name, name.replace("_", " "))


def _shown(figure: object) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, list):
        return _ranges(figure)
    return f"{figure:.6g}" if isinstance(figure, float) else str(figure)


def _ranges(numbers: list[int]) -> str:
    """0-7, 9, 12-14."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
