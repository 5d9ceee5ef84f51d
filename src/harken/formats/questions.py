"""Questions with answers: one a line, `question<TAB>answer`.

A share can be held out by person: questions with the same words go to the same side, however often
and with whichever answers they occur, so that nobody asked about in training is asked about again.
"""

from collections.abc import Sequence
from pathlib import Path

from harken.errors import UserError
from harken.formats import split
from harken.formats.examples import Question
from harken.formats.text import read_lines


def read_questions(path: Path) -> list[Question]:
    """All questions of a file, in its order."""
    return [_question(line.where, line.text) for line in read_lines(path)]


def _question(where: str, text: str) -> Question:
    cells = text.split("\t")
    if len(cells) != 2 or not cells[0].strip() or not cells[1].strip():
        found = "an empty column" if len(cells) == 2 else f"{len(cells) - 1} tabs"
        spaces = len(cells) == 1 and "  " in text.strip()
        raise UserError(
            f"{where}: found {found} in {text.strip()[:60]!r}, wanted question<TAB>answer",
            fix="replace the run of spaces by one tab"
            if spaces
            else "see docs/formats.md#questions",
        )
    return Question(cells[0].strip(), cells[1].strip())


def hold_out(
    questions: Sequence[Question], share: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """(kept, held out), `share` of the distinct questions held out; neither side is left empty."""
    return split.hold_out(questions, share, seed, key=lambda question: question.question)
