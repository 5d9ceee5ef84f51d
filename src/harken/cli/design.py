"""`harken design`: construct, check, print and draw a designed head."""

import argparse
from collections.abc import Mapping
from typing import Any

import torch

from harken.cli.output import json_or_table, remark
from harken.design import designs
from harken.design.band import BandPlan, band_shape
from harken.design.content import MatchPlan, lookup_norm
from harken.design.designs import Design
from harken.design.shift import MAX_LENGTH, ShiftPlan, largest_length, sharpen, solve
from harken.design.waves import Waves
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
    designed, facts = _design(options)
    checked = designs.check(designed)
    record: Facts = {
        "kind": options.kind,
        "predicted": checked.predicted,
        "measured": checked.measured,
        "worst_query": checked.query,
        "sharpness": designed.sharpness,
        **facts,
    }
    if options.out is not None:
        offset = f", {options.offset} back" if options.kind in ("shift", "band") else ""
        draw_design(designed, options.out, title=f"{options.kind}{offset}")
        remark(f"figure: {options.out}")
    rows = [(TITLES.get(key, key.replace("_", " ")), _text(record[key])) for key in record]
    json_or_table(options, record, ("quantity", "value"), rows)


def _design(options: argparse.Namespace) -> tuple[Design, Facts]:
    """Return the design of the given kind, and facts about it that are printed."""
    match options.kind:
        case "shift":
            shift = ShiftPlan(order=options.mask, **_settings(options, "offset", "tolerance"))
            designed, reach = designs.designed_shift(shift), largest_length(shift)
            return designed, {
                "smallest_gap": sharpen(shift).gap,
                "pairs_used": list(designed.pairs),
                "largest_length_at_least" if reach == MAX_LENGTH else "largest_length": reach,
            }
        case "band":
            settings = _settings(options, "offset", "band", "sharpness")
            band = BandPlan(order=options.mask, **settings)
            shape = band_shape(band)
            return designs.designed_band(band), {
                "pairs_used": list(shape.pairs),
                "pairs_zeroed": shape.zeroed,
                "score_drop_at_half_a_band": options.sharpness * shape.drop_at_half,
                "score_drop_at_a_band": options.sharpness * shape.drop_at_band,
                "half_width": shape.half_width,
            }
        case "copy":
            designed = designs.designed_copy(options.keys, options.target[0], options.tolerance)
            return designed, {"keys": options.keys}
        case "average":
            left, right = options.target
            designed = designs.designed_average(options.keys, left, right, options.tolerance)
            return designed, {"keys": options.keys}
        case "lookup":
            directions = torch.eye(4, dtype=torch.float64)
            designed = designs.designed_lookup(directions, options.tolerance)
            return designed, {"norm": lookup_norm(options.tolerance)}
    match_plan = MatchPlan(**_settings(options, "symbols", "tolerance"))
    first = solve(match_plan.first)
    return designs.designed_match(match_plan), {
        "sharpness_of_the_first_layer": first.sharpness,
        "predicted_of_the_first_layer": first.predicted,
        "pairs_used": list(first.pairs),
    }


def _settings(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the arguments of a plan: positions, sizes, and the named options."""
    if options.position == "sinusoid":
        waves = Waves(width=options.width, base=options.base, span=options.span)
    else:
        span = options.span or options.length
        waves = Waves(kind="fourier", width=options.width, span=span)
    keys = ("length", "key_width", *names)
    return {"waves": waves, **{key: getattr(options, key) for key in keys}}


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
