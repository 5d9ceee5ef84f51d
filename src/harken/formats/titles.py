"""Find the title of a text: the name that it begins with, as in an encyclopedia.

    Ada G. Byron. Born in London, she …        the title is `Ada G. Byron.`

It ends at the first full stop after a word of three letters or more, so that neither an initial nor
"Jr." ends it. A text without such a stop in its first 80 characters has no title.
"""

import re

TITLE = re.compile(r"\A.{0,79}?[^\W\d_]{3,}\.(?=\s)")


def title_of(text: str) -> str:
    """Return the title with its full stop; empty if there is none."""
    found = TITLE.match(text)
    return found.group() if found else ""
