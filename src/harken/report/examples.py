"""Examples that were answered, the wrong ones first: they teach more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harken.report.markup import text


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One input with the answer wanted and the answer given."""

    input: str
    expected: str
    answer: str
    confidence: float | None = None  # 0..1, the model's own
    right: bool | None = None  # the measure's verdict; None: whether the texts are equal
    note: str = ""  # about the input, such as that it was truncated


def examples_table(examples: Sequence[Example]) -> str:
    """Wrong and right apart, each from the surest to the least sure."""
    if not examples:
        return '<p class="muted">No examples were kept.</p>'
    groups = [
        ("Wrong", [e for e in examples if not _is_right(e)]),
        ("Right", [e for e in examples if _is_right(e)]),
    ]
    body = "".join(_group(name, found) for name, found in groups if found)
    return (
        '<div class="scroll examples" tabindex="0" role="region" aria-label="examples"><table>'
        '<thead><tr><th scope="col">input</th><th scope="col">answer</th>'
        '<th scope="col">expected</th><th scope="col">confidence</th></tr></thead>'
        f"{body}</table></div>"
    )


def _is_right(example: Example) -> bool:
    if example.right is not None:
        return example.right
    return example.answer.strip() == example.expected.strip()


def _group(name: str, found: Sequence[Example]) -> str:
    surest_first = sorted(found, key=lambda e: -1.0 if e.confidence is None else e.confidence)[::-1]
    rows = "".join(map(_row, surest_first))
    return (
        f'<tbody class="{name.lower()}"><tr class="group"><th scope="rowgroup" colspan="4">'
        f'{name} <span class="muted">{len(found)}</span></th></tr>{rows}</tbody>'
    )


def _row(example: Example) -> str:
    note = f'<br><small class="muted">{text(example.note)}</small>' if example.note else ""
    return (
        f'<tr><td class="prose"><bdi>{text(example.input)}</bdi>{note}</td>'
        f'<td class="prose answer"><bdi>{text(example.answer)}</bdi></td>'
        f'<td class="prose"><bdi>{text(example.expected)}</bdi></td>'
        f'<td class="sure">{_confidence(example.confidence)}</td></tr>'
    )


def _confidence(confidence: float | None) -> str:
    if confidence is None or not math.isfinite(confidence):
        return '<span class="muted">–</span>'
    width = 100 * min(max(confidence, 0.0), 1.0)
    return (
        f'<span class="figure">{confidence:.2f}</span>'
        '<svg height="8" aria-hidden="true"><rect class="rail" width="100%" height="100%"/>'
        f'<rect width="{width:.0f}%" height="100%"/></svg>'
    )
