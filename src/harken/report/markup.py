"""Make every character of untrusted text visible.

Escaping HTML is not enough: a NUL is not allowed in a document, a lone surrogate cannot be encoded
as UTF-8, and a right-to-left override reorders the rest of the line. Such characters are shown as
Python escapes: \\x00, \\u202e. (Unicode's control pictures, ␊ and ␀, are boxes on many machines.)
"""

import re
import unicodedata

from markupsafe import Markup, escape

# Characters that are invisible, reorder the text or are not allowed in XML (U+FFFE, U+FFFF); not
# ZWJ and ZWNJ, which scripts and emoji need.
_HIDDEN = frozenset(
    "\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)


def _visible_character(character: str) -> str:
    if character in _HIDDEN or unicodedata.category(character) in ("Cc", "Cs"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def visible(raw: str) -> str:
    """Return one token with every character visible; outer spaces become ␣, and "" becomes ∅."""
    if not raw:
        return "∅"
    core = raw.lstrip(" ")
    lead = "␣" * (len(raw) - len(core))
    trail = "␣" * (len(core) - len(core.rstrip(" ")))
    shown = "".join(map(_visible_character, core.rstrip(" ")))
    if shown and unicodedata.category(shown[0]).startswith("M"):
        shown = "◌" + shown  # a combining mark needs a base
    return lead + shown + trail


def prose(raw: str) -> str:
    """Return running text with every character visible; line feeds and tabs stay."""
    lines = raw.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" else _visible_character(c) for c in lines)


def token(raw: str) -> Markup:
    """Return one token as HTML; `bdi` keeps right-to-left text from moving its neighbors."""
    marked = re.sub("␣+", r"<i>\g<0></i>", str(escape(visible(raw))))  # page.css fades it
    return Markup(f"<bdi>{marked}</bdi>")


def grouped(value: int) -> str:
    """Format 12345 as 12 345, with a space that does not break."""
    return f"{value:,}".replace(",", "\u202f").replace("-", "−")
