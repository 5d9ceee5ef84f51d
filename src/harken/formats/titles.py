"""Find the title at the start of a text.

    Ada G. Byron. Born in London, she …        the title is `Ada G. Byron.`

The title ends at the first period after a word of at least three letters, so neither an initial nor
"Jr." ends it. A text without such a period in its first 80 characters has no title.
"""

import re

TITLE = re.compile(r"\A.{0,79}?[^\W\d_]{3,}\.(?=\s)")


def title_of(text: str) -> str:
    """Return the title with its period; empty if there is none."""
    title = TITLE.match(text)
    return title.group() if title else ""
