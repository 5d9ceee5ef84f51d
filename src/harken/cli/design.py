"""`harken design`: construct, check, print and draw a designed head."""

import argparse
from collections.abc import Mapping
from typing import Any

import torch

from harken.attention.sinusoids import Sinusoids
from harken.cli.output import json_or_table, print_note
from harken.design.band import BandPlan, band_shape
from harken.design.content import MatchPlan, lookup_norm
from harken.design.designs import (
    Design,
    check,
    design_band,
    design_copy,
    design_lookup,
    design_match,
    design_shift,
)
from harken.design.shift import MAX_LENGTH, ShiftPlan, largest_length, solve
from harken.report.canvas import check_suffix
from harken.report.design_figure import draw_design

Facts = Mapping[str, str | float | int | list[int] | None]
TITLES = {
    "predicted": "attention to the right keys, predicted",
    "measured": "attention to the right keys, measured",
    "worst_query": "at the worst query",
    "half_width": "half-width of the attention",
}


def run(options: argparse.Namespace) -> None:
    """Print the settings of the head, its predicted and its measured attention."""
    if options.out is not None:
        check_suffix(options.out)
    designed, facts = DESIGNS[options.kind](options)
    measured, worst_query = check(designed)
    record: Facts = {
        "kind": options.kind,
        "predicted": designed.predicted,
        "measured": measured,
        "worst_query": worst_query,
        "sharpness": designed.sharpness,
        **facts,
    }
    if options.out is not None:
        offset = f", {options.offset} back" if options.kind in ("shift", "band") else ""
        draw_design(designed, options.out, title=f"{options.kind}{offset}")
        print_note(f"figure: {options.out}")
    rows = [(TITLES.get(key, key.replace("_", " ")), _text(record[key])) for key in record]
    json_or_table(options, record, ("quantity", "value"), rows)


def _shift(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = ShiftPlan(**_settings(options, "offset", "tolerance", "mask_kind"))
    designed, reach = design_shift(plan), largest_length(plan)
    return designed, {
        "smallest_gap": solve(plan).gap,
        "pairs_used": list(designed.pairs),
        "largest_length_at_least" if reach == MAX_LENGTH else "largest_length": reach,
    }


def _band(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = BandPlan(**_settings(options, "offset", "band", "sharpness", "mask_kind"))
    shape = band_shape(plan)
    return design_band(plan), {
        "pairs_used": list(shape.pairs),
        "pairs_zeroed": shape.zeroed,
        "score_drop_at_half_a_band": options.sharpness * shape.drop_at_half,
        "score_drop_at_a_band": options.sharpness * shape.drop_at_band,
        "half_width": shape.half_width,
    }


def _copy(options: argparse.Namespace) -> tuple[Design, Facts]:
    return design_copy(options.keys, options.target, options.tolerance), {"keys": options.keys}


def _lookup(options: argparse.Namespace) -> tuple[Design, Facts]:
    directions = torch.eye(4, dtype=torch.float64)
    return design_lookup(directions, options.tolerance), {"norm": lookup_norm(options.tolerance)}


def _previous_match(options: argparse.Namespace) -> tuple[Design, Facts]:
    plan = MatchPlan(**_settings(options, "symbols", "tolerance"))
    first = solve(plan.first_layer)
    return design_match(plan), {
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
    "previous-match": _previous_match,
}


def _settings(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the arguments of a plan: positions, sizes, and the named options."""
    if options.position == "sinusoid":
        basis = Sinusoids(width=options.width, base=options.base, span=options.span)
    else:
        span = options.span or options.length
        basis = Sinusoids(kind="fourier", width=options.width, span=span)
    keys = ("length", "key_width", *names)
    return {"basis": basis, **{key: getattr(options, key) for key in keys}}


def _text(value: object) -> str:
    """Format a value; a list of integers as ranges: 0-7, 9, 12-14."""
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
