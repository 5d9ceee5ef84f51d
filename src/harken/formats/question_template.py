"""What a question asks about: the words that it does not share with all the others.

    Where was Ada King born?       the frame is  Where was … born?
    Where was Alan Turing born?    the names are  Ada King,  Alan Turing

The frame is found, not told: the words with which all questions begin, and those with which all of
them end. Questions of several forms share nothing; then the frame is empty, and a name is the whole
question. Words are what white space parts, so a script that has none between its words has no frame
either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

GAP = "…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The words before and after a name."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def name(self, question: str) -> str:
        """What stands in the gap; the whole of a question that does not fit."""
        words = tuple(question.split())
        start, end = len(self.before), len(words) - len(self.after)
        fits = start < end and words[:start] == self.before and words[end:] == self.after
        return " ".join(words[start:end] if fits else words)

    def ask(self, name: str) -> str:
        """The question about a name."""
        return " ".join((*self.before, name, *self.after))

    def __str__(self) -> str:
        return self.ask(GAP)


def frame_of(questions: Sequence[str]) -> Frame:
    """What all of them share; each keeps at least one word as its name."""
    distinct = {tuple(question.split()) for question in questions}
    if len(distinct) < 2:
        return Frame()  # one question alone does not tell its name from its frame
    shortest = min(map(len, distinct))
    before = _shared(distinct)[: shortest - 1]
    after = _shared({words[::-1] for words in distinct})[: shortest - 1 - len(before)][::-1]
    return Frame(before=before, after=after)


def _shared(lines: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The words with which all begin."""
    # Whatever the first and the last in order share, all between them share too.
    pairs = zip(min(lines), max(lines), strict=False)
    return tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
