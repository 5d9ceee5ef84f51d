"""The table of the heads of a model, one row per head."""

from collections.abc import Sequence
from dataclasses import asdict

from harken.inspection.heads import HeadSummary

COLUMNS = {
    "offset\nweights": "weights_offset",
    "band": "weights_band",
    "position": "position",
    "content": "content",
    "copies": "copying",
    "offset\nmeasured": "offset",
    "weight": "share",
    "before": "previous_token",
    "itself": "itself",
    "after": "next_token",
    "first": "first",
    "entropy": "entropy",
    "induction": "induction",
}


def head_rows(heads: Sequence[HeadSummary]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows, without columns in which every value is 0 or missing."""
    titles = [title for title in COLUMNS if any(getattr(head, COLUMNS[title]) for head in heads)]
    rows = []
    for head in heads:
        values = asdict(head)
        if head.prefers is False:  # the score varies by at most a nat over the offsets
            values |= {"weights_offset": "any", "weights_band": "all"}
        label = head.label + ("~" if head.exact is False else "")  # explained in `heads --help`
        rows.append([label, *(_cell(values[COLUMNS[title]]) for title in titles)])
    return ["head", *titles], rows


def _cell(value: float | str | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
