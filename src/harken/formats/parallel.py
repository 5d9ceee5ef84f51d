"""Sentences and their translations: two files whose lines stand side by side, or one with tabs.

    train.en   a duck swims        train.tsv   a duck swims<TAB>eine Ente schwimmt
    train.de   eine Ente schwimmt

Training leaves out the pairs of which one side is blank, as real corpora have them, and says how
many; where lines are measured one by one, `keep_blank` keeps every line in its place.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.text import STDIN, Line, named, open_text, read_every_line


class Parallel(NamedTuple):
    """Pairs in the order of the file, and how many were left out because a side was blank."""

    pairs: list[Pair]
    skipped: int


def read_parallel(source: Path, target: Path, *, keep_blank: bool = False) -> Parallel:
    """Line n of one file with line n of the other."""
    if source == target == STDIN:
        raise UserError(
            "<stdin>: found it as source and as target, wanted two texts",
            fix="name a file for one of them",
        )
    return _gathered(
        _side_by_side(source, target), f"{named(source)} and {named(target)}", keep_blank
    )


def read_pairs_tsv(path: Path, *, keep_blank: bool = False) -> Parallel:
    """Lines of `source<TAB>target`."""
    return _gathered((_pair(line) for line in _lines(path)), str(named(path)), keep_blank)


def _lines(path: Path) -> Iterator[Line]:
    with open_text(path) as file:
        yield from read_every_line(file, path)


def _side_by_side(source: Path, target: Path) -> Iterator[Pair]:
    counts = [0, 0]
    for both in zip_longest(_lines(source), _lines(target)):
        for side, line in enumerate(both):
            counts[side] += line is not None
        ours, theirs = both
        if ours is not None and theirs is not None:
            yield Pair(ours.text, theirs.text)
    if counts[0] != counts[1]:
        raise UserError(
            f"found {counts[0]} lines in {named(source)} and {counts[1]} in {named(target)}, "
            "wanted as many in both",
            fix="line n of one must be the translation of line n of the other",
        )


def _pair(line: Line) -> Pair:
    if not line.text.strip():
        return Pair("", "")
    cells = line.text.split("\t")
    if len(cells) != 2:
        fix = "see docs/formats.md#parallel-text"
        if len(cells) > 2:
            fix = "keep two columns, for example with `cut -f1,2`"
        elif "  " in line.text.strip():
            fix = "replace the run of spaces by one tab"
        raise UserError(
            f"{line.where}: found {len(cells) - 1} tabs in {line.text[:60]!r}, "
            "wanted source<TAB>target",
            fix=fix,
        )
    return Pair(*cells)


def _gathered(found: Iterable[Pair], where: str, keep_blank: bool) -> Parallel:
    pairs, skipped = [], 0
    some = False
    for pair in found:
        full = bool(pair.source.strip() and pair.target.strip())
        some = some or full
        if full or keep_blank:
            pairs.append(pair)
        else:
            skipped += 1
    if not some:
        raise UserError(
            f"{where}: found no sentence with a translation, wanted at least one",
            fix="check that the files were written or downloaded whole",
        )
    return Parallel(pairs, skipped)
