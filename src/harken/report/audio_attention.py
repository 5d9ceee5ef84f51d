"""Attention over audio: the spectrogram, and the attention of each token on the same time axis.

A panel is the spectrogram, or the weights of a head. Its column i covers `step` seconds around
first + i * step. Frames of the spectrogram and encoder states have different `first` and `step`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.formats.examples import SpokenWord
from harken.report import canvas
from harken.report.axis import (
    PlotAxis,
    exact_axis,
    format_measured,
    format_tick,
    format_weight,
    stack_labels,
)
from harken.report.canvas import Drawing, Heatmap, Label, Mark, Polyline, shorten, text_width
from harken.report.markup import token_html, visible_text, visible_token
from harken.report.page import render
from harken.report.palette import Weights, block_size, max_pool
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AudioView

_SPECTROGRAM, _LINE = 120, 17  # heights in pixels of the spectrogram and of a line of words
_LETTER, _WORD_GAP = 7.0, 6.0  # pixels of a letter and between words
_MAX_COLUMNS = 1000  # approximately the pixels of a screen
_MIN_PIXELS_PER_SECOND = 22  # of a page; a narrower screen scrolls
_QUIET = 5.0  # percentile of the spectrogram that is drawn as silence
_PLOT, _RIGHT, _TOP, _GAP = 900, 30, 8, 5  # pixels of the drawing


class Panel(NamedTuple):
    """Weights [rows, columns], the first row on top, from `start` to `end` in seconds."""

    name: str
    weights: Weights
    start: float
    end: float


class _AudioFigure:
    """The content of both the HTML figure and the image file."""

    def __init__(self, viewed: ViewedAttention) -> None:
        assert viewed.view.sound is not None
        self.audio, self.tokens = viewed.view.sound, viewed.view.queries
        self.largest = max(float(layer.weights.max()) for layer in viewed.layers)
        self.axis = time_axis(self.audio, viewed.layers[0].weights.shape[-1])
        # The mean over the heads of the last layer, or its only head.
        name, weights = viewed.layers[-1].mean_and_heads()[0]
        first, step = self.audio.first_state_seconds, self.audio.state_seconds

        def attention_panel(name: str, weights: Weights) -> Panel:
            return _pooled_panel(name, weights / (self.largest or 1.0), first, step)

        self.spectrogram = _spectrogram(self.audio)
        self.large = attention_panel(name, weights)
        # All heads of all layers; empty if there is only one head, which the large map shows.
        self.layers = [
            (
                layer.name,
                [
                    attention_panel(f"H{head}", layer.weights[i])
                    for i, head in enumerate(layer.heads)
                ],
            )
            for layer in viewed.layers
            if viewed.head_count > 1
        ]
        # Each token, the time of its largest weight in seconds, and this weight.
        self.peaks = [
            (text, first + int(row.argmax()) * step, float(row.max()))
            for text, row in zip(self.tokens, weights, strict=True)
        ]
        # Labels of the color scale, at equal steps of the square root of the weight.
        positions = (0.0, 0.25, 0.5, 0.75, 1.0)
        self.legend = [
            (format_weight(self.largest * position**2), position) for position in positions
        ]
        # Heights in pixels, of a token and of a head.
        self.token_height = min(max(240 // len(self.tokens), 14), 30)
        self.head_height = max(len(self.tokens), min(max(720 // viewed.head_count, 24), 64))
        words = self.audio.words
        self.boundaries = sorted({edge for word in words for edge in (word.start, word.end)})


def _spectrogram(audio: AudioView) -> Panel:
    """Return the spectrogram, low frequencies at the bottom, clipped at the `_QUIET` percentile."""
    bands = audio.spectrogram.T[::-1].astype(np.float64)
    quiet, loud = np.percentile(bands, _QUIET), bands.max()
    level = np.clip((bands - quiet) / (loud - quiet), 0, 1) if loud > quiet else 0 * bands
    # Squared, since the color scale takes square roots.
    return _pooled_panel("audio", np.square(level), audio.first_frame_seconds, audio.frame_seconds)


def _pooled_panel(name: str, weights: Weights, first: float, step: float) -> Panel:
    """Return a panel of at most `_MAX_COLUMNS` columns, each the maximum of a block."""
    size = block_size(weights.shape[1], _MAX_COLUMNS)
    pooled, start = max_pool(weights, _MAX_COLUMNS), first - step / 2
    return Panel(name, pooled, start, start + pooled.shape[1] * size * step)


def time_axis(audio: AudioView, states: int) -> PlotAxis:
    """Return a time axis in seconds that covers 0, all words, frames and encoder states."""
    seconds = [0.0, *(second for word in audio.words for second in (word.start, word.end))]
    for first, step, count in (
        (audio.first_frame_seconds, audio.frame_seconds, len(audio.spectrogram)),
        (audio.first_state_seconds, audio.state_seconds, states),
    ):
        seconds += [first - step / 2, first + (count - 0.5) * step]
    return exact_axis(min(seconds), max(seconds), step_count=10)


def place_words(
    words: Sequence[SpokenWord], axis: PlotAxis, width: float
) -> list[tuple[SpokenWord, int, bool]]:
    """Return each word, the line of its label, and whether the label is aligned with its end.

    Labels on one line do not overlap if the axis has `width` pixels.
    """
    words = sorted(words, key=lambda spoken: spoken.start)
    spans = [
        (
            width * axis.fraction(spoken.start),
            width * axis.fraction(spoken.end),
            _LETTER * len(visible_token(spoken.word)),
        )
        for spoken in words
    ]
    rows = stack_labels(spans, width, _WORD_GAP)
    return [(word, *row) for word, row in zip(words, rows, strict=True)]


def audio_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return the spectrogram, a large map of the mean of the last layer, and all heads."""
    figure = _AudioFigure(viewed)
    seconds = figure.axis.end - figure.axis.start
    width = round(min(max(_MIN_PIXELS_PER_SECOND * seconds, 440), 900))
    return render(
        "audio_attention.html",
        title=title,
        note=note,
        axis=figure.axis,
        figure=figure,
        min_width=width,
        spectrogram_height=_SPECTROGRAM,
        line_height=_LINE,
        words=place_words(figure.audio.words, figure.axis, width),
        peaks=[
            (token_html(token), f"{second:.2f}", format_measured(weight))
            for token, second, weight in figure.peaks
        ],
    )


def audio_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw the content of `audio_figure` for an image file."""
    figure = _AudioFigure(viewed)
    names = [shorten(visible_token(text)) for text in figure.tokens]
    left = 24 + max(56.0, *map(text_width, names))
    width = left + _PLOT + _RIGHT
    title_lines = canvas.heading(title, [], left, width)
    marks: list[Mark] = [*title_lines]
    y = _TOP + canvas.MARGIN + canvas.TITLE_LINE * len(title_lines)

    def x(second: float) -> float:
        return left + _PLOT * figure.axis.fraction(second)

    def left_label(text: str, middle: float) -> Label:
        return Label(left - 8, middle + 4, text, anchor="end")

    def draw_panel(panel: Panel, names: Sequence[str], height: float) -> Iterator[Mark]:
        start, end = x(panel.start), x(panel.end)
        yield Heatmap(start, y, end - start, height, panel.weights)
        for i, name in enumerate(names):
            yield left_label(name, y + (i + 0.5) * height / len(names))

    def word_boundaries(height: float) -> Iterator[Mark]:
        for pixel in map(x, figure.boundaries):
            yield Polyline(((pixel, y), (pixel, y + height)), "word", opacity=0.6)

    def time_ticks() -> Iterator[Mark]:
        yield Polyline(((left, y + 4), (left + _PLOT, y + 4)))
        for tick in figure.axis.ticks:
            yield Polyline(((x(tick), y + 4), (x(tick), y + 9)))
            yield Label(x(tick), y + 22, format_tick(tick), anchor="middle")
        yield left_label("seconds", y + 18)

    words = place_words(figure.audio.words, figure.axis, _PLOT)
    if words:
        height = _LINE * (1 + max(line for _, line, _ in words))
        marks.append(left_label("words", y + height / 2))
        for spoken, line, flipped in words:
            start, end, base = x(spoken.start), x(spoken.end), y + height - _LINE * line
            marks.append(Polyline(((start, base - 2), (end, base - 2)), "word", 2))
            word = Label(start, base - 6, visible_token(spoken.word), "text")
            marks.append(word._replace(x=end, anchor="end") if flipped else word)
        y += height + _GAP
    marks += [
        *draw_panel(figure.spectrogram, ["audio"], _SPECTROGRAM),
        *word_boundaries(_SPECTROGRAM),
    ]
    y += _SPECTROGRAM + 32
    marks.append(Label(left, y - 10, visible_text(figure.large.name), "text"))
    height = figure.token_height * len(names)
    marks += [*draw_panel(figure.large, names, height), *word_boundaries(height)]
    y += height
    marks += time_ticks()
    y += 32
    marks += canvas.legend(left, y + 6, figure.legend)
    y += 36
    for name, heads in figure.layers:
        y += 32
        marks.append(Label(left, y - 10, visible_text(name)))
        for head in heads:
            marks += draw_panel(head, [head.name], figure.head_height)
            y += figure.head_height + _GAP
    if figure.layers:
        marks += time_ticks()
        y += 32
    return Drawing(
        width=width,
        height=y + _TOP,
        title=title,
        description=figure.large.name,
        marks=marks,
    )
