"""Attention as lines: queries on the left, keys on the right, a line for each weight worth one.

    drawn: weight >= threshold, the lowest of THRESHOLDS that at most 4 weights a query reach
    opacity = sqrt(weight), width = 1 + 2 weight

For the page; page.js draws the same for another head. The same as a file is in `attention_file.py`.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harken.report.markup import attribute, grouped, text, token, visible

# As page.js has them too.
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.5)
LINES_A_QUERY = 4
_DECIMALS = 4  # of the weights that page.js knows
_LETTERS, _LETTER = 16, 7.0  # of a label in a drawing, and about the width of one


class Link(NamedTuple):
    """One line; both ends are counted from 0."""

    query: int
    key: int
    weight: float

    @property
    def opacity(self) -> float:
        return math.sqrt(self.weight)

    @property
    def width(self) -> float:
        return 1 + 2 * self.weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """What is drawn of one head, the weakest first, so that strong lines lie on top."""

    drawn: tuple[Link, ...]
    threshold: float
    reached: int  # by this many weights, of which more may be left out
    largest: float

    @property
    def sentence(self) -> str:
        """What was drawn and what was left out."""
        if not self.drawn:
            return f"no line: the largest weight is {self.largest:.2f}, below {self.threshold:g}"
        if len(self.drawn) < self.reached:
            shown, reached = grouped(len(self.drawn)), grouped(self.reached)
            return f"the strongest {shown} of {reached} weights of at least {self.threshold:g}"
        return f"a line for every weight of at least {self.threshold:g}"


def links(weights: NDArray[np.floating]) -> Links:
    """The lines of one head, weights [queries, keys]."""
    known = np.round(np.clip(weights.astype(np.float64), 0, 1), _DECIMALS)
    most = LINES_A_QUERY * len(known)
    threshold = next(
        (least for least in THRESHOLDS if np.count_nonzero(known >= least) <= most), THRESHOLDS[-1]
    )
    queries, keys = np.nonzero(known >= threshold)
    strengths = known[queries, keys]
    # Reversed, so that among equals the earlier ones are kept, as in a sort of page.js.
    kept = np.argsort(-strengths, kind="stable")[:most][::-1]
    return Links(
        drawn=tuple(Link(int(queries[i]), int(keys[i]), float(strengths[i])) for i in kept),
        threshold=threshold,
        reached=len(queries),
        largest=float(known.max()),
    )


def labels(tokens: Sequence[str]) -> str:
    """Items of a list; what is cut off on the screen can be pointed at."""
    return "".join(f"<li title={attribute(visible(raw))}>{token(raw)}</li>" for raw in tokens)


def short(words: str) -> str:
    """What has room beside a drawing, and at most three marks for each letter of it."""
    if width_of(words) <= _LETTERS * _LETTER and len(words) <= 4 * _LETTERS:
        return words
    widths = accumulate(map(_columns, words[: 4 * _LETTERS]))
    return words[: sum(width < _LETTERS for width in widths)] + "…"


def width_of(words: str) -> float:
    """About how many pixels wide a drawing writes them."""
    return _LETTER * sum(map(_columns, words))


def _columns(letter: str) -> int:
    """Marks stand on their letter; Chinese and Japanese are twice as wide as Latin."""
    if unicodedata.category(letter).startswith("M"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def lines_figure(
    query_tokens: Sequence[str], key_tokens: Sequence[str], weights: NDArray[np.floating], name: str
) -> str:
    """The lines of the head `name`, weights [queries, keys], the last query's marked."""
    found, last = links(weights), len(query_tokens) - 1
    rows = max(weights.shape)
    taken = ' class="taken"'
    drawn = "".join(
        f'<path{taken * (one.query == last)} d="M0 {one.query}.5L100 {one.key}.5" '
        f'stroke-opacity="{one.opacity:.2f}" stroke-width="{one.width:.2f}"/>'
        for one in found.drawn
    )
    return (
        f'<div class="links"><p><b class="name">{text(name)}</b> '
        f'<span class="muted">each token on the left looks to the right: '
        f'<span class="said">{text(found.sentence)}</span></span></p>'
        '<div class="sides" tabindex="0" role="region" '
        'aria-label="lines from token to token; the strongest are in the table below" '
        f'style="--rows:{rows}"><ol class="from">{labels(query_tokens)}</ol>'
        f'<svg viewBox="0 0 100 {rows}" preserveAspectRatio="none" aria-hidden="true">'
        f'{drawn}</svg><ol class="to">{labels(key_tokens)}</ol></div></div>'
    )
