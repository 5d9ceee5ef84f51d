"""Read tab-separated pairs: questions with answers, and sentences with translations.

    questions.tsv   Where was Ada King born?<TAB>London
    train.tsv       a duck swims<TAB>eine Ente schwimmt

A translation may also be two files whose lines belong together (train.en, train.de). Training
leaves out pairs with a blank side; `keep_blank` keeps every line in its place, for measuring.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from harken.errors import UserError
from harken.formats import split
from harken.formats.examples import Pair, Question
from harken.formats.text import STDIN, Line, named, open_text, read_every_line, read_lines


class Parallel(NamedTuple):
    """Pairs in the order of the file, and how many were left out because a side was blank."""

    pairs: list[Pair]
    skipped: int


def read_questions(path: Path) -> list[Question]:
    """Read all questions of a file, in its order."""
    return [_question(line) for line in read_lines(path)]


def _question(line: Line) -> Question:
    cells = [cell.strip() for cell in line.text.split("\t")]
    if len(cells) != 2 or not all(cells):
        raise _not_a_pair(line, cells, "question<TAB>answer", "questions")
    return Question(*cells)


def hold_out_questions(
    questions: Sequence[Question], share: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Return (kept, held out); equal questions go to the same side, whatever their answers."""
    return split.hold_out(questions, share, seed, key=lambda question: question.question)


def read_parallel(source: Path, target: Path, *, keep_blank: bool = False) -> Parallel:
    """Read line n of one file with line n of the other."""
    if source == target == STDIN:
        raise UserError(
            "<stdin>: expected two texts, got standard input as both",
            fix="name a file for one of them",
        )
    where = f"{named(source)} and {named(target)}"
    return _gathered(_side_by_side(source, target), where, keep_blank)


def read_pairs_tsv(path: Path, *, keep_blank: bool = False) -> Parallel:
    """Read lines of `source<TAB>target`."""
    return _gathered((_pair(line) for line in _lines(path)), str(named(path)), keep_blank)


def _lines(path: Path) -> Iterator[Line]:
    with open_text(path) as file:
        yield from read_every_line(file, path)


def _side_by_side(source: Path, target: Path) -> Iterator[Pair]:
    counts = [0, 0]
    for ours, theirs in zip_longest(_lines(source), _lines(target)):
        counts = [counts[0] + (ours is not None), counts[1] + (theirs is not None)]
        if ours is not None and theirs is not None:
            yield Pair(ours.text, theirs.text)
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
    found = "an empty column" if len(cells) == 2 else f"{len(cells) - 1} tabs"
    return UserError(
        f"{line.where}: expected {expected}, got {found} in {line.text.strip()[:60]!r}", fix=fix
    )


def _gathered(found: Iterable[Pair], where: str, keep_blank: bool) -> Parallel:
    pairs, skipped, some = [], 0, False
    for pair in found:
        full = bool(pair.source.strip() and pair.target.strip())
        some = some or full
        if full or keep_blank:
            pairs.append(pair)
        else:
            skipped += 1
    if not some:
        raise UserError(
            f"{where}: no sentence with a translation (expected at least one)",
            fix="check that the files were written or downloaded completely",
        )
    return Parallel(pairs, skipped)
