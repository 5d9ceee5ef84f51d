"""Find the names in questions, and the title of a text.

    Where was Ada King born?       the template is  Where was … born?
    Where was Alan Turing born?    the names are    Ada King,  Alan Turing

The template consists of the words with which all questions begin and those with which all end. If
they share none, the template is empty and the name is the whole question.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

GAP = "…"
TITLE = re.compile(r"\A.{0,79}?[^\W\d_]{3,}\.(?=\s)")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionTemplate:
    """The words before and after a name."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def name(self, question: str) -> str:
        """Return the name in a question; the whole question if it does not match the template."""
        words = tuple(question.split())
        start, end = len(self.before), len(words) - len(self.after)
        matches = start < end and words[:start] == self.before and words[end:] == self.after
        return " ".join(words[start:end] if matches else words)

    def ask(self, name: str) -> str:
        """Return the question about a name."""
        return " ".join((*self.before, name, *self.after))

    def __str__(self) -> str:
        return self.ask(GAP)


def question_template(questions: Sequence[str]) -> QuestionTemplate:
    """Return the shared template; the name in each question has at least one word."""
    distinct = {tuple(question.split()) for question in questions}
    if len(distinct) < 2:
        return QuestionTemplate()  # one question does not determine its template
    shortest = min(map(len, distinct))
    before = _common_prefix(distinct)[: shortest - 1]
    after = _common_prefix({words[::-1] for words in distinct})[: shortest - 1 - len(before)][::-1]
    return QuestionTemplate(before=before, after=after)


def _common_prefix(questions: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the prefix that the first and the last question in sorted order share."""
    pairs = zip(min(questions), max(questions), strict=False)
    return tuple(word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def title_of(text: str) -> str:
    """Return the title of a text with its period: `Ada G. Byron.` of "Ada G. Byron. Born in …".

    The title ends at the first period that follows a word of at least three letters (not an initial
    or "Jr.") and precedes white space. It is "" if no such word is in the first 80 characters.
    """
    title = TITLE.match(text)
    return title.group() if title else ""
