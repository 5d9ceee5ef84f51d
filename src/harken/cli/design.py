"""`harken design`: construct a head from a formula, check its attention and draw it."""

import argparse
from collections.abc import Mapping
from typing import Any

import torch

from harken.attention.sinusoids import Sinusoids
from harken.cli.output import print_json_or_table, print_note
from harken.design.band import BandPlan, band_shape
from harken.design.content import InductionPlan, lookup_norm
from harken.design.designs import (
    Design,
    design_band,
    design_copy,
    design_induction,
    design_lookup,
    design_shift,
    measure_worst_query,
)
from harken.design.shift import MAX_LENGTH, ShiftPlan, largest_length, solve_shift
from harken.report.canvas import check_suffix
from harken.report.design_figure import draw_design

Facts = Mapping[str, str | float | int | list[int] | None]
TITLES = {
    "predicted": "attention to the target keys, predicted",
    "measured": "attention to the target keys, measured",
    "worst_query": "query with the least measured attention",
    "half_width": "half-width of the attention",
    "smallest_gap": "smallest score difference between target and other keys, at sharpness 1",
    "largest_length": "largest length for this tolerance",
    "largest_length_at_least": f"largest length for this tolerance (up to {MAX_LENGTH} searched)",
    "pairs_used": "(sin, cos) pairs used",
    "pairs_zeroed": "(sin, cos) pairs with too high a frequency",
}


def run(options: argparse.Namespace) -> None:
    """Print the predicted and the measured attention of the head, and facts about its kind."""
    if options.out is not None:
        check_suffix(options.out)
    design, facts = DESIGNS[options.kind](options)
    measured, worst_query = measure_worst_query(design)
    record: Facts = {
        "kind": options.kind,
        "predicted": design.predicted,
        "measured": measured,
        "worst_query": worst_query,
        "sharpness": design.sharpness,
        **facts,
    }
    if options.out is not None:
        offset = f", {options.offset} back" if options.kind in ("shift", "band") else ""
        draw_design(design, options.out, title=f"{options.kind}{offset}")
        print_note(f"figure: {options.out}")
    rows = [(TITLES.get(key, key.replace("_", " ")), _format_value(record[key])) for key in record]
    print_json_or_table(options, record, ("quantity", "value"), rows)


def _shift(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = ShiftPlan(**_settings(options, "offset", "tolerance", "mask_kind"))
    design, length = design_shift(plan), largest_length(plan)
    return design, {
        "smallest_gap": solve_shift(plan).gap,
        "pairs_used": list(design.pairs),
        # The search for the largest length ends at MAX_LENGTH.
        "largest_length_at_least" if length == MAX_LENGTH else "largest_length": length,
    }


def _band(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = BandPlan(**_settings(options, "offset", "band", "sharpness", "mask_kind"))
    shape = band_shape(plan)
    return design_band(plan), {
        "pairs_used": list(shape.pairs),
        "pairs_zeroed": shape.above_limit,
        "score_drop_at_half_a_band": options.sharpness * shape.drop_at_half,
        "score_drop_at_a_band": options.sharpness * shape.drop_at_band,
        "half_width": shape.half_width,
    }


def _copy(options: argparse.Namespace) -> tuple[Design, Facts]:
    return design_copy(options.keys, options.target, options.tolerance), {"keys": options.keys}


def _lookup(options: argparse.Namespace) -> tuple[Design, Facts]:
    directions = torch.eye(4, dtype=torch.float64)  # of u_a, u_b, u_c and u_d in design/content.py
    return design_lookup(directions, options.tolerance), {"norm": lookup_norm(options.tolerance)}


def _induction(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = InductionPlan(**_settings(options, "vocabulary", "tolerance"))
    first = solve_shift(plan.first_layer)
    return design_induction(plan), {
        "sharpness_of_the_first_layer": first.sharpness,
        "predicted_of_the_first_layer": first.predicted,
        "pairs_used": list(first.pairs),
    }


DESIGNS = {
    "shift": _shift,
    "band": _band,
    "copy": _copy,
    "average": _copy,
    "lookup": _lookup,
    "induction": _induction,
}


def _settings(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the keyword arguments of a plan: the position basis, sizes and the named options."""
    if options.position == "sinusoid":
        basis = Sinusoids(width=options.width, base=options.base, span=options.span)
    else:
        span = options.span or options.length
        basis = Sinusoids(kind="fourier", width=options.width, span=span)
    keys = ("length", "key_width", *names)
    return {"basis": basis, **{key: getattr(options, key) for key in keys}}


def _format_value(value: object) -> str:
    """Format a value; a list of integers becomes ranges such as 0-7, 9, 12-14."""
    if value is None:
        return "-"
    if not isinstance(value, list):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    ranges: list[list[int]] = []
    for number in value:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in ranges)
