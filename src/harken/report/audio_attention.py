"""Attention over sound: the spectrogram, and the attention of each symbol on the same time axis.

Column i covers the seconds first + (i ± 1/2) * step. Frames of the spectrogram and encoder states
have different values of `first` and `step`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.formats.examples import SpokenWord
from harken.report import canvas
from harken.report.axis import PlotAxis, exact_axis, label, rounded, stack_labels, two_digits
from harken.report.canvas import Drawing, Heatmap, Label, Mark, Polyline, short, text_width
from harken.report.markup import prose, token, visible
from harken.report.page import render
from harken.report.palette import Weights, block_size, max_pool
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AudioView

_SPECTROGRAM, _LINE = 120, 17  # heights in pixels, of the spectrogram and of a line of words
_LETTER, _WORD_GAP = 7.0, 6.0  # pixels of a letter and between words
_MAX_COLUMNS = 1000  # about as many as a screen can show
_QUIET = 5.0  # percentile of the spectrogram that is drawn as silence
_PLOT, _RIGHT, _TOP, _GAP = 900, 30, 8, 5  # pixels of the drawing


class Panel(NamedTuple):
    """Weights [rows, columns], the first row on top, from `start` to `end` in seconds."""

    name: str
    weights: Weights
    start: float
    end: float


class _Figure:
    """What both the page and the file show."""

    def __init__(self, viewed: ViewedAttention) -> None:
        assert viewed.view.sound is not None
        self.audio, self.symbols = viewed.view.sound, viewed.view.queries
        self.largest = max(float(layer.weights.max()) for layer in viewed.layers)
        self.axis = time_axis(self.audio, viewed.layers[0].weights.shape[-1])
        self.name, weights = viewed.layers[-1].mean_and_heads()[0]
        first, step = self.audio.first_state_seconds, self.audio.state_seconds

        def panel(name: str, weights: Weights) -> Panel:
            return _panel(name, weights / (self.largest or 1.0), first, step)

        self.spectrogram = _spectrogram(self.audio)
        self.large = panel(self.name, weights)
        # Every head of every layer; none if the large map shows the only one.
        self.layers = [
            (
                layer.name,
                [panel(f"H{head}", layer.weights[i]) for i, head in enumerate(layer.heads)],
            )
            for layer in viewed.layers
            if viewed.head_count > 1
        ]
        # Each symbol, the second of its largest weight, and this weight.
        self.peaks = [
            (symbol, first + int(row.argmax()) * step, float(row.max()))
            for symbol, row in zip(self.symbols, weights, strict=True)
        ]
        # Labels of the color scale, at equal steps of the square root of the weight.
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        self.legend = [(two_digits(self.largest * share**2), share) for share in shares]
        # Pixels per symbol and per head.
        self.row = min(max(240 // len(self.symbols), 14), 30)
        self.strip = max(len(self.symbols), min(max(720 // viewed.head_count, 24), 64))
        self.boundaries = sorted({at for word in self.audio.words for at in (word.start, word.end)})


def _spectrogram(audio: AudioView) -> Panel:
    """Return the spectrogram, low frequencies at the bottom, clipped at the `_QUIET` percentile."""
    bands = audio.spectrogram.T[::-1].astype(np.float64)
    quiet, loud = np.percentile(bands, _QUIET), bands.max()
    share = np.clip((bands - quiet) / (loud - quiet), 0, 1) if loud > quiet else 0 * bands
    # Squared, because the color scale takes square roots.
    return _panel("sound", np.square(share), audio.first_frame_seconds, audio.frame_seconds)


def _panel(name: str, weights: Weights, first: float, step: float) -> Panel:
    """Return at most `_MAX_COLUMNS` columns, each the maximum of a block."""
    size = block_size(weights.shape[1], _MAX_COLUMNS)
    pooled, start = max_pool(weights, _MAX_COLUMNS), first - step / 2
    return Panel(name, pooled, start, start + pooled.shape[1] * size * step)


def time_axis(audio: AudioView, states: int) -> PlotAxis:
    """Return the axis of seconds that covers 0, all words, frames and encoder states."""
    seconds = [0.0, *(second for word in audio.words for second in (word.start, word.end))]
    for first, step, count in (
        (audio.first_frame_seconds, audio.frame_seconds, len(audio.spectrogram)),
        (audio.first_state_seconds, audio.state_seconds, states),
    ):
        seconds += [first - step / 2, first + (count - 0.5) * step]
    return exact_axis(min(seconds), max(seconds), about=10)


def place_words(
    words: Sequence[SpokenWord], axis: PlotAxis, width: float
) -> list[tuple[SpokenWord, int, bool]]:
    """Return each word, the line of its label, and whether the label ends with the word.

    Labels on one line do not overlap if the axis has `width` pixels.
    """
    words = sorted(words, key=lambda spoken: spoken.start)
    spans = [
        (
            width * axis.share(spoken.start),
            width * axis.share(spoken.end),
            _LETTER * len(visible(spoken.word)),
        )
        for spoken in words
    ]
    rows = stack_labels(spans, width, _WORD_GAP)
    return [(word, *row) for word, row in zip(words, rows, strict=True)]


def audio_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return the spectrogram, the mean of the last layer large, and every head."""
    figure = _Figure(viewed)
    width = round(min(max(22 * (figure.axis.end - figure.axis.start), 440), 900))
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
        peaks=[(token(raw), f"{at:.2f}", rounded(weight)) for raw, at, weight in figure.peaks],
    )


def audio_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw the content of `audio_figure`."""
    figure = _Figure(viewed)
    names = [short(visible(symbol)) for symbol in figure.symbols]
    left = 24 + max(56.0, *map(text_width, names))
    width = left + _PLOT + _RIGHT
    marks: list[Mark] = [*canvas.heading(title, [], left, width)]
    y = _TOP + canvas.MARGIN + canvas.TITLE_LINE * len(marks)

    def x(second: float) -> float:
        return left + _PLOT * figure.axis.share(second)

    def side(text: str, middle: float) -> Label:
        return Label(left - 8, middle + 4, text, anchor="end")

    def panel(content: Panel, names: Sequence[str], height: float) -> Iterator[Mark]:
        start, end = x(content.start), x(content.end)
        yield Heatmap(start, y, end - start, height, content.weights)
        for i, name in enumerate(names):
            yield side(name, y + (i + 0.5) * height / len(names))

    def boundaries(height: float) -> Iterator[Mark]:
        for at in map(x, figure.boundaries):
            yield Polyline(((at, y), (at, y + height)), "word", opacity=0.6)

    def seconds() -> Iterator[Mark]:
        yield Polyline(((left, y + 4), (left + _PLOT, y + 4)))
        for tick in figure.axis.ticks:
            yield Polyline(((x(tick), y + 4), (x(tick), y + 9)))
            yield Label(x(tick), y + 22, label(tick), anchor="middle")
        yield side("seconds", y + 18)

    words = place_words(figure.audio.words, figure.axis, _PLOT)
    if words:
        height = _LINE * (1 + max(line for _, line, _ in words))
        marks.append(side("words", y + height / 2))
        for spoken, line, flipped in words:
            start, end, base = x(spoken.start), x(spoken.end), y + height - _LINE * line
            marks.append(Polyline(((start, base - 2), (end, base - 2)), "word", 2))
            word = Label(start, base - 6, visible(spoken.word), "text")
            marks.append(word._replace(x=end, anchor="end") if flipped else word)
        y += height + _GAP
    marks += [*panel(figure.spectrogram, ["sound"], _SPECTROGRAM), *boundaries(_SPECTROGRAM)]
    y += _SPECTROGRAM + 32
    marks.append(Label(left, y - 10, prose(figure.name), "text"))
    height = figure.row * len(names)
    marks += [*panel(figure.large, names, height), *boundaries(height)]
    y += height
    marks += seconds()
    y += 32
    marks += canvas.legend(left, y + 6, figure.legend)
    y += 36
    for name, heads in figure.layers:
        y += 32
        marks.append(Label(left, y - 10, prose(name)))
        for head in heads:
            marks += panel(head, [head.name], figure.strip)
            y += figure.strip + _GAP
    if figure.layers:
        marks += seconds()
        y += 32
    return Drawing(width=width, height=y + _TOP, title=title, description=figure.name, marks=marks)
