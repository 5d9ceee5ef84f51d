"""The page and the image files of `harken inspect`."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from markupsafe import Markup

from harken.report.audio_attention import audio_drawing, audio_figure
from harken.report.canvas import escape_missing_glyphs
from harken.report.image_attention import image_drawing, image_figure
from harken.report.page import Section, page
from harken.report.text_attention import text_drawing, text_figure
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AttentionExample, AttentionView

MAX_TITLE = 120  # characters
Choice = TypeVar("Choice")


def example_title(example: AttentionExample) -> str:
    """Return the shortened input, with a note if the model read only a part of it."""
    title = textwrap.shorten(example.title, MAX_TITLE, placeholder=" …")
    return title if example.truncation is None else f"{title} [{example.truncation}]"


def _select(view: AttentionView, audio: Choice, image: Choice, text: Choice) -> Choice:
    """Return the argument for the kind of keys that the view has."""
    return audio if view.sound is not None else image if view.picture is not None else text


def attention_figure(viewed: ViewedAttention, title: str, *, note: str = "") -> Markup:
    """Return the figure of a view for a page."""
    figure = _select(viewed.view, audio_figure, image_figure, text_figure)
    return figure(viewed, title=title, note=note)


def attention_files(viewed: ViewedAttention, title: str) -> dict[str, bytes]:
    """Return the image files of a view by suffix: svg and png."""
    view, title = viewed.view, f"{viewed.view.title}: {title}"
    draw = _select(view, audio_drawing, image_drawing, text_drawing)
    queries, keys = (list(map(escape_missing_glyphs, texts)) for texts in (view.queries, view.keys))
    escaped = viewed._replace(view=replace(view, queries=queries, keys=keys))
    png = draw(escaped, escape_missing_glyphs(title)).png()
    return {"svg": draw(viewed, title).svg(), "png": png}


def attention_page(title: str, views: Sequence[ViewedAttention], facts: Mapping[str, str]) -> str:
    """Return an HTML page with every view of one input."""
    sections = [Section(viewed.view.title, attention_figure(viewed, title)) for viewed in views]
    return page("Attention", subtitle=title, facts=facts, sections=sections)
