"""The page and the figures of `harken inspect`."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from harken.report.audio_attention import audio_drawing, audio_figure
from harken.report.canvas import Drawing, escape_missing_glyphs
from harken.report.image_attention import image_drawing, image_figure
from harken.report.page import FOOTER, Section, page
from harken.report.text_attention import text_drawing, text_figure
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AttentionExample, AttentionView

MAX_TITLE = 120  # characters


def example_title(example: AttentionExample) -> str:
    """Return the shortened input, and how much of it the model read if not all."""
    title = textwrap.shorten(example.title, MAX_TITLE, placeholder=" …")
    return title if example.truncation is None else f"{title} [{example.truncation}]"


def _functions(view: AttentionView) -> tuple[Callable[..., Markup], Callable[..., Drawing]]:
    """Return the functions that draw a view in a page and in a file."""
    if view.sound is not None:
        return audio_figure, audio_drawing
    return (text_figure, text_drawing) if view.picture is None else (image_figure, image_drawing)


def attention_figure(viewed: ViewedAttention, title: str, *, note: str = "") -> Markup:
    """Return the figure of a view for a page."""
    return _functions(viewed.view)[0](viewed, title=title, note=note)


def attention_files(viewed: ViewedAttention, title: str) -> dict[str, bytes]:
    """Return the files of a view by suffix: svg and png."""
    view, title = viewed.view, f"{viewed.view.title}: {title}"
    draw, clean = _functions(view)[1], escape_missing_glyphs
    queries, keys = (list(map(clean, names)) for names in (view.queries, view.keys))
    in_png = viewed._replace(view=replace(view, queries=queries, keys=keys))
    return {"svg": draw(viewed, title).svg(), "png": draw(in_png, clean(title)).png()}


def attention_page(title: str, views: Sequence[ViewedAttention], facts: Mapping[str, str]) -> str:
    """Return one self-contained HTML document with every view of one input."""
    sections = [Section(viewed.view.title, attention_figure(viewed, title)) for viewed in views]
    footer = f"{FOOTER} Rows are queries, columns are keys."
    return page("Attention", subtitle=title, facts=facts, sections=sections, footer=footer)
