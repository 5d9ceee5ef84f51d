"""The whole document: header, key facts, contents, sections; styles and script inside.

The policy in the head allows the one script by its hash and nothing from anywhere else, so a
report stays harmless even where a token should slip through the escaping.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from harken.report.markup import attribute, text


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of the page. `body` is HTML from this folder; title and lead are plain text."""

    title: str
    body: str
    lead: str = ""


def page(
    title: str,
    *,
    subtitle: str,
    sections: Sequence[Section],
    facts: Mapping[str, str],
    footer: str,
) -> str:
    """A complete HTML document; everything but the bodies of sections is plain text."""
    style = _resource("page.css") + _resource("picture.css")
    script = _resource("page.js")
    anchors = _anchors([section.title for section in sections])
    contents = "".join(
        f'<li><a href="#{anchor}">{text(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    strip = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in facts.items())
    main = "".join(map(_section, anchors, sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content={attribute(_policy(script))}>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'  # else a server would be asked for favicon.ico
        f"<title>{text(title)}</title>\n<style>{style}</style></head>\n<body>"
        f"<header><h1>{text(title)}</h1>"
        + (f'<p class="subtitle">{text(subtitle)}</p>' if subtitle else "")
        + (f'<dl class="facts">{strip}</dl>' if strip else "")
        + (f'<nav aria-label="Contents"><ol>{contents}</ol></nav>' if len(sections) > 1 else "")
        + f"</header>\n<main>{main}</main>\n<footer>{text(footer)}</footer>\n"
        f"<script>{script}</script></body></html>\n"
    )


def _resource(name: str) -> str:
    # Line ends as the browser's parser makes them, or the hash would not match.
    source = files("harken.report").joinpath(name).read_text(encoding="utf-8")
    return source.replace("\r\n", "\n")


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _anchors(titles: Sequence[str]) -> list[str]:
    found: list[str] = []
    for number, title in enumerate(titles, start=1):
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode("ascii")
        slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
        # The number makes a second "Results" differ, and names what has no Latin letters.
        found.append(slug if slug and slug not in found else f"{slug or 'section'}-{number}")
    return found


def _section(anchor: str, section: Section) -> str:
    lead = f'<p class="lead">{text(section.lead)}</p>' if section.lead else ""
    return f'<section id="{anchor}"><h2>{text(section.title)}</h2>{lead}{section.body}</section>\n'
