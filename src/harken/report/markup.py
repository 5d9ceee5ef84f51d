"""Text that came from data, made safe and visible in HTML.

Every string that is not written in this folder passes through `text`, `attribute` or `token`.
Escaping the five characters of HTML is not enough: a NUL cannot stand in a document at all, a
lone surrogate cannot be written as UTF-8, and a right-to-left override would turn the rest of the
line. Such characters are shown as Python writes them: \\n, \\x00, \\u202e. (Unicode's own pictures
of them, ␊ and ␀, are boxes on many machines.)
"""

import html
import re
import unicodedata

# Invisible, or able to reorder what follows. ZWJ and ZWNJ stay: scripts and emoji need them.
_UNSEEN = frozenset(
    "\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\ufeff"
)


def _seen(character: str) -> str:
    if character in _UNSEEN or unicodedata.category(character) in ("Cc", "Cs"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def visible(raw: str) -> str:
    """One token as a reader should see it: nothing in it is invisible, and it is never empty."""
    if not raw:
        return "∅"
    core = raw.strip(" ")
    lead = len(raw) - len(raw.lstrip(" "))
    trail = len(raw) - lead - len(core)
    shown = "".join(map(_seen, core))
    if shown and unicodedata.category(shown[0]).startswith("M"):
        shown = "◌" + shown  # a mark without a base would sit on the neighbour
    return "␣" * lead + shown + "␣" * trail


def prose(raw: str) -> str:
    """Running text: line ends and tabs stay what they are."""
    lines = raw.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" else _seen(c) for c in lines)


def text(raw: str) -> str:
    """Running text as HTML, for element content."""
    return html.escape(prose(raw))


def attribute(raw: str) -> str:
    """Text as a quoted HTML attribute value, quotes included."""
    return f'"{html.escape(prose(raw))}"'


def token(raw: str) -> str:
    """One token as HTML; `bdi` keeps right-to-left text from moving its neighbours."""
    marked = re.sub("␣+", r"<i>\g<0></i>", html.escape(visible(raw)))  # page.css makes it quiet
    return f"<bdi>{marked}</bdi>"


def grouped(value: int) -> str:
    """12345 as 12 345, with a space that does not break."""
    return f"{value:,}".replace(",", "\u202f").replace("-", "−")
