"""Read gold word alignments of sentence pairs, one line per pair.

    1-1 2-3 4p5

Words are counted from 1. `-` marks a sure link and `p` a possible one. Whether the first number is
a word of the source or of the target differs between files.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.text import Line, read_lines

Link = tuple[int, int]  # (word of the source, word of the target), counted from 0
Side = Literal["source", "target"]

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class GoldLinks:
    """The links of a pair; `possible` includes the sure links."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def read_links(path: Path, pairs: Sequence[Pair], first: Side = "source") -> list[GoldLinks]:
    """Read the links of all pairs; `first` is the side of the first number of a link."""
    lines = list(read_lines(path, keep_blank=True))
    if len(lines) != len(pairs):
        message = f"{path}: expected one line of links per pair ({len(pairs)}), got {len(lines)}"
        raise UserError(message, fix="line n of the links must belong to line n of both texts")
    return [_links(line, pair, first) for line, pair in zip(lines, pairs, strict=True)]


def _links(line: Line, pair: Pair, first: Side) -> GoldLinks:
    sure, possible = set(), set()
    counts = len(pair.source.split()), len(pair.target.split())
    for link_text in line.text.split():
        match = _LINK.fullmatch(link_text)
        if match is None:
            fix = "write a sure link with -, a possible one with p, and spaces between links"
            raise line.error(f"expected links such as 3-4 or 3p4, got {link_text[:40]!r}", fix)
        left, right = int(match[1]) - 1, int(match[3]) - 1
        link = (left, right) if first == "source" else (right, left)
        for number, count, side in zip(link, counts, ("source", "target"), strict=True):
            if not 0 <= number < count:
                raise line.error(
                    f"{link_text!r}: the {side} has no word {number + 1} (expected 1 to {count})",
                    "check the side of the first number (command line: --first); words are counted "
                    "from 1 and separated by spaces",
                )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))
