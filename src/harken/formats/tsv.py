"""Read tab-separated pairs: questions with answers, and sentences with translations.

    questions.tsv   Where was Ada King born?<TAB>London
    train.tsv       a duck swims<TAB>eine Ente schwimmt

A question without an answer is an error.
"""

from collections.abc import Iterator
from pathlib import Path

from harken.errors import UserError
from harken.formats.examples import Pair, Question
from harken.formats.text import Line, read_lines


def read_questions(path: Path) -> list[Question]:
    """Read all questions of a file in order."""
    expected, see = "question<TAB>answer", "see docs/formats.md#questions"
    return [Question(*split_pair(line, expected, see)) for line in read_lines(path)]


def read_tsv_pairs(path: Path) -> Iterator[Pair]:
    """Yield the pairs of lines of `source<TAB>target`; a blank line is a pair of empty texts."""
    for line in read_lines(path, keep_blank=True):
        cells = line.text.split("\t") if line.text.strip() else ["", ""]
        if len(cells) != 2:
            raise _not_a_pair(line, "source<TAB>target", "see docs/formats.md#parallel-text")
        yield Pair(*cells)


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
