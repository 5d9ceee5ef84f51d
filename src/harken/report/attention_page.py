"""The page and the picture files of `harken inspect`."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from harken.report.audio_attention import audio_drawing, audio_figure
from harken.report.canvas import Drawing, printable
from harken.report.image_attention import image_drawing, image_figure
from harken.report.page import FOOTER, Section, page
from harken.report.text_attention import text_drawing, text_figure
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AttentionExample

MAX_TITLE = 120  # characters of an input above its pictures


def title_of(example: AttentionExample) -> str:
    """Return the input, shortened, and how much of it the model read."""
    title = textwrap.shorten(example.title, MAX_TITLE, placeholder=" …")
    return title if example.truncation is None else f"{title} [{example.truncation}]"


def attention_figure(viewed: ViewedAttention, title: str, *, note: str = "") -> Markup:
    """Return the figure of a view for a page."""
    if viewed.view.sound is not None:
        return audio_figure(viewed, title=title, note=note)
    if viewed.view.picture is not None:
        return image_figure(viewed, title=title, note=note)
    return text_figure(viewed, title=title, note=note)


def attention_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Return the figure of a view for a file."""
    if viewed.view.sound is not None:
        return audio_drawing(viewed, title)
    if viewed.view.picture is not None:
        return image_drawing(viewed, title)
    return text_drawing(viewed, title)


def attention_files(viewed: ViewedAttention, title: str) -> dict[str, bytes]:
    """Return the contents of the picture files of a view by suffix."""
    title = f"{viewed.view.title}: {title}"
    queries, keys = (
        list(map(printable, names)) for names in (viewed.view.queries, viewed.view.keys)
    )
    in_png = viewed._replace(view=replace(viewed.view, queries=queries, keys=keys))
    return {
        "svg": attention_drawing(viewed, title).svg(),
        "png": attention_drawing(in_png, printable(title)).png(),
    }


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
