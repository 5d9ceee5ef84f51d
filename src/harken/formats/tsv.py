"""Read tab-separated pairs: questions with answers, and sentences with translations.

    questions.tsv   Where was Ada King born?<TAB>London
    train.tsv       a duck swims<TAB>eine Ente schwimmt

A translation can also be two files with corresponding lines (train.en, train.de). Pairs with a
blank side are skipped, unless `keep_blank` keeps a pair per line for evaluation.
"""

from pathlib import Path

from harken.errors import UserError
from harken.formats.examples import Pair, Question
from harken.formats.text import STDIN, Line, display_path, read_lines


def read_questions(path: Path) -> list[Question]:
    """Read all questions of a file in order."""
    expected, see = "question<TAB>answer", "see docs/formats.md#questions"
    return [Question(*split_pair(line, expected, see)) for line in read_lines(path)]


def read_parallel(source: Path, target: Path, *, keep_blank: bool = False) -> list[Pair]:
    """Read pairs of line n of one file and line n of the other."""
    if source == target == STDIN:
        message = "<stdin>: expected two texts, got standard input as both"
        raise UserError(message, fix="name a file for one of them")
    sources = [line.text for line in read_lines(source, keep_blank=True)]
    targets = [line.text for line in read_lines(target, keep_blank=True)]
    if len(sources) != len(targets):
        raise UserError(
            f"expected as many lines in {display_path(source)} as in {display_path(target)}, "
            f"got {len(sources)} and {len(targets)}",
            fix="line n of one must be the translation of line n of the other",
        )
    pairs = [Pair(*texts) for texts in zip(sources, targets, strict=True)]
    return _checked_pairs(pairs, f"{display_path(source)} and {display_path(target)}", keep_blank)


def read_pairs_tsv(path: Path, *, keep_blank: bool = False) -> list[Pair]:
    """Read lines of `source<TAB>target`."""
    pairs = []
    for line in read_lines(path, keep_blank=True):
        cells = line.text.split("\t") if line.text.strip() else ["", ""]
        if len(cells) != 2:
            raise _not_a_pair(line, "source<TAB>target", "see docs/formats.md#parallel-text")
        pairs.append(Pair(*cells))
    return _checked_pairs(pairs, str(display_path(path)), keep_blank)


def split_pair(line: Line, expected: str, see: str) -> list[str]:
    """Return the two cells of a line without white space around them; none may be empty."""
    cells = [cell.strip() for cell in line.text.split("\t")]
    if len(cells) != 2 or not all(cells):
        raise _not_a_pair(line, expected, see)
    return cells


def _not_a_pair(line: Line, expected: str, see: str) -> UserError:
    tabs, text = line.text.count("\t"), line.text.strip()
    fix = "keep two columns, for example with `cut -f1,2`" if tabs > 1 else see
    if not tabs and "  " in text:
        fix = "replace the run of spaces by one tab"
    got = "an empty column" if tabs == 1 else f"{tabs} tabs"
    return line.error(f"expected {expected}, got {got} in {text[:60]!r}", fix)


def _checked_pairs(pairs: list[Pair], where: str, keep_blank: bool) -> list[Pair]:
    complete = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    if not complete:
        message = f"{where}: no sentence with a translation (expected at least one)"
        raise UserError(message, fix="check that the files were written or downloaded completely")
    return pairs if keep_blank else complete
