"""The head of a text: the name or title that it begins with, as in an encyclopaedia.

    Ada G. Byron. Born in London, she …        the head is `Ada G. Byron.`

It ends at the first full stop behind a word of three letters or more, so that neither an initial
nor "Jr." ends it. A text that comes to no such stop soon has no head.
"""

import re

HEAD = re.compile(r"\A.{0,79}?[^\W\d_]{3,}\.(?=\s)")


def head_of(text: str) -> str:
    """The head with its full stop; empty where there is none."""
    found = HEAD.match(text)
    return found.group() if found else ""
