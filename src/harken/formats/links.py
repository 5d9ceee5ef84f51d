"""Links between words of a sentence and words of its translation, drawn by people.

    1-1 2-3 4p5       the 4th word of one side is possibly linked to the 5th of the other

One line a pair, numbers from 1. A `-` is a sure link, which nobody doubts; a `p` a possible one,
which may be drawn or not. Files differ in whose words the first number counts, so a reader is told.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.text import Line, open_text, read_every_line

Link = tuple[int, int]
"""(word of the source, word of the target), from 0."""
Side = Literal["source", "target"]

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class GoldLinks:
    """Of one pair; every sure link is a possible one too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def read_links(path: Path, pairs: Sequence[Pair], first: Side = "source") -> list[GoldLinks]:
    """Line n for pair n; `first` is the side that the first number of a link counts."""
    with open_text(path) as file:
        lines = list(read_every_line(file, path))
    if len(lines) != len(pairs):
        raise UserError(
            f"{path}: found {len(lines)} lines of links for {len(pairs)} pairs of sentences, "
            "wanted one for each",
            fix="line n of the links must belong to line n of both texts",
        )
    return [_links(line, pair, first) for line, pair in zip(lines, pairs, strict=True)]


def _links(line: Line, pair: Pair, first: Side) -> GoldLinks:
    sure, possible = set(), set()
    counts = len(pair.source.split()), len(pair.target.split())
    for cell in line.text.split():
        match = _LINK.fullmatch(cell)
        if match is None:
            raise UserError(
                f"{line.where}: found {cell[:40]!r}, wanted links such as 3-4 or 3p4",
                fix="write a sure link with -, a possible one with p, and spaces between links",
            )
        one, other = int(match[1]) - 1, int(match[3]) - 1
        link = (one, other) if first == "source" else (other, one)
        for number, count, side in zip(link, counts, ("source", "target"), strict=True):
            if not 0 <= number < count:
                raise UserError(
                    f"{line.where}: found word {number + 1} of the {side} in {cell!r}, "
                    f"wanted one of 1 to {count}",
                    fix="check which side the first number of a link counts (command line: "
                    "--first); words are counted from 1 and separated by spaces",
                )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))
