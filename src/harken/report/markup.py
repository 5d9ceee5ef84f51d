"""Make all characters of untrusted text visible.

Escaping HTML is not enough: a NUL is not allowed in a document, a lone surrogate cannot be encoded
as UTF-8, and a right-to-left override reorders the rest of the line. Such characters are shown as
Python escapes: \\x00, \\u202e. (Unicode's control pictures, ␊ and ␀, are boxes on many machines.)
"""

import re
import unicodedata

from markupsafe import Markup, escape

# Characters that are invisible, reorder text or are not allowed in XML (U+FFFE, U+FFFF). ZWJ and
# ZWNJ are not included, since some scripts and emoji need them.
_HIDDEN = frozenset(
    "\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)


def _visible_character(character: str) -> str:
    if character in _HIDDEN or unicodedata.category(character) in ("Cc", "Cs"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def visible_token(raw: str) -> str:
    """Return a token with all characters visible; outer spaces become ␣, and "" becomes ∅."""
    if not raw:
        return "∅"
    core = raw.lstrip(" ")
    lead = "␣" * (len(raw) - len(core))
    trail = "␣" * (len(core) - len(core.rstrip(" ")))
    shown = "".join(map(_visible_character, core.rstrip(" ")))
    if shown and unicodedata.category(shown[0]).startswith("M"):
        shown = "◌" + shown  # a combining mark needs a base character
    return lead + shown + trail


def visible_text(raw: str) -> str:
    """Return text with all characters visible, except line feeds and tabs."""
    lines = raw.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" else _visible_character(c) for c in lines)


def token_html(raw: str) -> Markup:
    """Return a token as HTML; `bdi` isolates right-to-left text from its neighbors."""
    marked = re.sub("␣+", r"<i>\g<0></i>", str(escape(visible_token(raw))))  # page.css fades it
    return Markup(f"<bdi>{marked}</bdi>")


def group_digits(value: int) -> str:
    """Format 12345 as 12 345, with a narrow no-break space."""
    return f"{value:,}".replace(",", "\u202f").replace("-", "−")
