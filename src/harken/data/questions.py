"""Questions with answers: one a line, `question<TAB>answer`.

A share can be held out by person: questions with the same words go to the same side, however often
and with whichever answers they occur, so that nobody asked about in training is asked about again.
"""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from harken.data.examples import Question
from harken.data.text import read_lines
from harken.errors import UserError


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
    distinct = sorted({question.question for question in questions})
    if len(distinct) < 2:
        raise UserError(
            f"found {len(distinct)} distinct question, wanted at least 2 to hold some out",
            fix="add questions, or name a file in data.dev",
        )
    count = min(max(math.floor(share * len(distinct) + 0.5), 1), len(distinct) - 1)
    # Ranking by a hash keeps most of the held-out side the same when questions are added.
    ranked = sorted(distinct, key=lambda text: hashlib.sha256(f"{seed}\0{text}".encode()).digest())
    held = set(ranked[:count])
    return (
        [question for question in questions if question.question not in held],
        [question for question in questions if question.question in held],
    )
