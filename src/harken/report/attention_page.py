"""The page and the picture files of `harken inspect`."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from harken.report.audio_attention import audio_drawing, audio_figure
from harken.report.canvas import Drawing, printable
from harken.report.image_attention import image_drawing, image_figure
from harken.report.page import FOOTER, Section, page
from harken.report.text_attention import text_drawing, text_figure
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AttentionExample, AttentionView

MAX_TITLE = 120  # characters of an input above its pictures


def example_title(example: AttentionExample) -> str:
    """Return the input, shortened, and how much of it the model read."""
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
    """Return the contents of the picture files of a view by suffix."""
    view, title = viewed.view, f"{viewed.view.title}: {title}"
    draw = _functions(view)[1]
    queries, keys = (list(map(printable, names)) for names in (view.queries, view.keys))
    in_png = viewed._replace(view=replace(view, queries=queries, keys=keys))
    return {"svg": draw(viewed, title).svg(), "png": draw(in_png, printable(title)).png()}


def attention_page(title: str, views: Sequence[ViewedAttention], facts: Mapping[str, str]) -> str:
    """Return one self-contained HTML document with every view of one input."""
    return page(
        "Attention",
        subtitle=title,
        facts=facts,
        sections=[
            Section(title=viewed.view.title, body=attention_figure(viewed, title))
            for viewed in views
        ],
        footer=f"{FOOTER} Rows are queries, columns are keys.",
    )
