"""Read tab-separated pairs: questions with answers, and sentences with translations.

    questions.tsv   Where was Ada King born?<TAB>London
    train.tsv       a duck swims<TAB>eine Ente schwimmt

A translation can also be two files with corresponding lines (train.en, train.de). Pairs with a
blank side are skipped, unless `keep_blank` keeps every line in its place for evaluation.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from harken.errors import UserError
from harken.formats.examples import Pair, Question
from harken.formats.text import STDIN, Line, named, open_text, read_every_line, read_lines


class Parallel(NamedTuple):
    """Pairs in the order of the file, and the number of pairs that were skipped."""

    pairs: list[Pair]
    skipped: int


def read_questions(path: Path) -> list[Question]:
    """Read all questions of a file in order."""
    questions = []
    for line in read_lines(path):
        cells = [cell.strip() for cell in line.text.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise _not_a_pair(line, cells, "question<TAB>answer", "questions")
        questions.append(Question(*cells))
    return questions


def read_parallel(source: Path, target: Path, *, keep_blank: bool = False) -> Parallel:
    """Read pairs of line n of one file and line n of the other."""
    if source == target == STDIN:
        message = "<stdin>: expected two texts, got standard input as both"
        raise UserError(message, fix="name a file for one of them")
    where = f"{named(source)} and {named(target)}"
    return _collect(_zip_lines(source, target), where, keep_blank)


def read_pairs_tsv(path: Path, *, keep_blank: bool = False) -> Parallel:
    """Read lines of `source<TAB>target`."""
    return _collect((_pair(line) for line in _lines(path)), str(named(path)), keep_blank)


def _lines(path: Path) -> Iterator[Line]:
    with open_text(path) as file:
        yield from read_every_line(file, path)


def _zip_lines(source: Path, target: Path) -> Iterator[Pair]:
    counts = [0, 0]
    for left, right in zip_longest(_lines(source), _lines(target)):
        counts = [counts[0] + (left is not None), counts[1] + (right is not None)]
        if left is not None and right is not None:
            yield Pair(left.text, right.text)
    if counts[0] != counts[1]:
        raise UserError(
            f"expected as many lines in {named(source)} as in {named(target)}, "
            f"got {counts[0]} and {counts[1]}",
            fix="line n of one must be the translation of line n of the other",
        )


def _pair(line: Line) -> Pair:
    if not line.text.strip():
        return Pair("", "")
    cells = line.text.split("\t")
    if len(cells) != 2:
        raise _not_a_pair(line, cells, "source<TAB>target", "parallel-text")
    return Pair(*cells)


def _not_a_pair(line: Line, cells: Sequence[str], expected: str, section: str) -> UserError:
    fix = f"see docs/formats.md#{section}"
    if len(cells) > 2:
        fix = "keep two columns, for example with `cut -f1,2`"
    elif len(cells) == 1 and "  " in line.text.strip():
        fix = "replace the run of spaces by one tab"
    got = "an empty column" if len(cells) == 2 else f"{len(cells) - 1} tabs"
    text = line.text.strip()[:60]
    return line.error(f"expected {expected}, got {got} in {text!r}", fix)


def _collect(pairs: Iterable[Pair], where: str, keep_blank: bool) -> Parallel:
    selected, skipped, complete = [], 0, 0
    for pair in pairs:
        is_complete = bool(pair.source.strip() and pair.target.strip())
        complete += is_complete
        if is_complete or keep_blank:
            selected.append(pair)
        else:
            skipped += 1
    if not complete:
        message = f"{where}: no sentence with a translation (expected at least one)"
        raise UserError(message, fix="check that the files were written or downloaded completely")
    return Parallel(selected, skipped)
