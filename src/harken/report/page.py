"""HTML documents from the templates in `templates/`, with style sheet and script inside.

Templates escape every value. `prose` makes invisible characters visible first. The content security
policy allows the one script by its hash and nothing from the network.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from harken.report import axis, markup, palette
from harken.version import __version__

FOOTER = f"Written by Harken {__version__}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a page."""

    title: str
    body: Markup
    lead: str = ""


def render(template: str, **values: object) -> Markup:
    """Return a template with these values as HTML."""
    return Markup(_environment().get_template(template).render(**values))


def macro(template: str, name: str, *values: object) -> Markup:
    """Return the output of one macro of a template as HTML."""
    return Markup(getattr(_environment().get_template(template).module, name)(*values))


def page(
    title: str,
    *,
    subtitle: str,
    sections: Sequence[Section],
    facts: Mapping[str, str],
    footer: str = FOOTER,
) -> str:
    """Return a complete HTML document."""
    script = _resource("page.js")
    return render(
        "page.html",
        title=title,
        subtitle=subtitle,
        facts=facts,
        sections=list(
            zip(_anchors([section.title for section in sections]), sections, strict=True)
        ),
        footer=footer,
        policy=_policy(script),
        style=Markup(_resource("page.css")),
        script=Markup(script),
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harken.report"),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "token": markup.token,
        "visible": markup.visible,
        "grouped": markup.grouped,
        "heatmap": palette.heatmap,
        "label": axis.label,
        "rounded": axis.rounded,
        "two_digits": axis.two_digits,
    }
    return environment


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else markup.prose(str(value))


def _resource(name: str) -> str:
    # The hash is computed over the line ends that the browser's parser makes.
    source = files("harken.report").joinpath("templates", name).read_text(encoding="utf-8")
    return source.replace("\r\n", "\n")


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _anchors(titles: Sequence[str]) -> list[str]:
    anchors: list[str] = []
    for number, title in enumerate(titles, start=1):
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode("ascii")
        slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
        # The number distinguishes equal titles, and names those without Latin letters.
        anchors.append(slug if slug and slug not in anchors else f"{slug or 'section'}-{number}")
    return anchors
