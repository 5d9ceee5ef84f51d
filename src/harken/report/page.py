"""Self-contained HTML documents from `templates/`, whose values are escaped after `prose`.

The content security policy allows the one script by its hash and nothing from the network.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from harken.report import axis, markup, palette
from harken.version import __version__

FOOTER = f"Written by Harken {__version__}."


class Section(NamedTuple):
    """One part of a page."""

    title: str
    body: Markup
    lead: str = ""


def render(template: str, **values: object) -> Markup:
    """Return a template with these values as HTML."""
    return Markup(_environment().get_template(template).render(**values))


def macro(template: str, name: str, **values: object) -> Markup:
    """Return the output of one macro of a template as HTML."""
    return Markup(getattr(_environment().get_template(template).module, name)(**values))


def page(
    title: str,
    *,
    subtitle: str,
    sections: Sequence[Section],
    facts: Mapping[str, str],
    footer: str = FOOTER,
) -> str:
    """Return a complete HTML document."""
    folder = files("harken.report").joinpath("templates")
    # In text mode line ends become \n, as in the browser before it hashes the script.
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return render(
        "page.html",
        title=title,
        subtitle=subtitle,
        facts=facts,
        sections=list(zip(_anchors(sections), sections, strict=True)),
        footer=footer,
        policy="default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harken.report"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else markup.prose(str(value)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        markup.token, markup.visible, markup.grouped, palette.heatmap, palette.data_uri,
        axis.label, axis.rounded, axis.two_digits,
    )  # fmt: skip
    environment.globals["LEGEND"] = palette.LEGEND
    environment.filters |= {function.__name__: function for function in functions}
    return environment


def _anchors(sections: Sequence[Section]) -> list[str]:
    anchors: list[str] = []
    for number, section in enumerate(sections, start=1):
        latin = unicodedata.normalize("NFKD", section.title).encode("ascii", "ignore").decode()
        slug = re.sub(r"[^a-z0-9]+", "-", latin.lower()).strip("-")
        # The number distinguishes equal titles, and names those without Latin letters.
        anchors.append(slug if slug and slug not in anchors else f"{slug or 'section'}-{number}")
    return anchors
