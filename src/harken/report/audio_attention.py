"""Attention over sound: the spectrogram, and below it the attention of each symbol over seconds.

    column i of a picture covers the seconds   first + (i ± 1/2) * step

Frames of the spectrogram and positions of the encoder have their own `first` and `step`; all share
one axis of seconds, so attention is below the sound that it attends to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.formats.examples import SpokenWord
from harken.report import canvas
from harken.report.axis import label, rounded, ticks, two_digits
from harken.report.canvas import Drawing, Heatmap, Label, Line, Mark, short, text_width
from harken.report.markup import prose, token, visible
from harken.report.page import render
from harken.report.palette import LEGEND, Weights
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import AudioView

_SOUND, _LINE = 120, 17  # pixels: the height of the spectrogram, and of a line of words
_LETTER, _WORD_GAP = 7.0, 6.0  # pixels of a letter and between words
_MAX_COLUMNS = 1000  # about as many as a screen can show
_QUIET = 5.0  # percentile of the spectrogram that is drawn as silence
_PLOT, _RIGHT, _TOP, _GAP = 900, 30, 8, 5  # pixels of the drawing


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Panel:
    """Weights [rows, columns], the first row on top, from `begin` to `end` in seconds."""

    name: str
    weights: Weights
    begin: float
    end: float


class TimeAxis(NamedTuple):
    """The seconds from the left to the right of every panel."""

    begin: float
    end: float

    def share(self, second: float) -> float:
        """Return the position of a second, from 0 at the left to 1 at the right."""
        return (second - self.begin) / (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        return [
            tick for tick in ticks(self.begin, self.end, about=10) if self.begin <= tick <= self.end
        ]


class PlacedWord(NamedTuple):
    """A word above the spectrogram, the line of its label, and whether the label ends with it."""

    spoken: SpokenWord
    line: int
    flipped: bool


class _Figure:
    """What the page and the file show."""

    def __init__(self, viewed: ViewedAttention) -> None:
        audio = viewed.view.sound
        assert audio is not None
        self.audio: AudioView = audio
        self.viewed, self.symbols = viewed, viewed.view.queries
        self.largest = max(float(layer.weights.max()) for layer in viewed.layers)
        self.axis = time_axis(audio, viewed.layers[0].weights.shape[-1])
        last = viewed.layers[-1]
        if len(last.heads) > 1:
            self.name = f"{last.name}, mean over {len(last.heads)} heads"
        else:
            self.name = last.head_name(0)
        self.weights = last.weights.astype(np.float64).mean(axis=0)
        self.large = self.panel(self.name, self.weights)
        # Few symbols are drawn high, and every label stays legible.
        self.row = min(max(240 // len(self.symbols), 14), 30)
        self.strip = max(len(self.symbols), min(max(720 // viewed.head_count, 24), 64))
        ends = (second for word in audio.words for second in (word.start, word.end))
        self.boundaries = sorted(set(ends))

    def second(self, position: int) -> float:
        return self.audio.first_place_seconds + position * self.audio.place_seconds

    def panel(self, name: str, weights: Weights) -> Panel:
        """Return one map; the largest weight of the figure has the last color."""
        share = weights / (self.largest or 1.0)
        return _panel(name, share, self.audio.first_place_seconds, self.audio.place_seconds)

    @property
    def layers(self) -> list[tuple[str, list[Panel]]]:
        """Every head of every layer; none if the large map shows the only one."""
        if self.viewed.head_count == 1:
            return []
        return [
            (
                layer.name,
                [
                    self.panel(f"H{head}", weights)
                    for head, weights in zip(layer.heads, layer.weights, strict=True)
                ],
            )
            for layer in self.viewed.layers
        ]

    @property
    def peaks(self) -> list[tuple[str, float, float]]:
        """Each symbol, the second of its largest weight, and this weight."""
        return [
            (raw, self.second(int(row.argmax())), float(row.max()))
            for raw, row in zip(self.symbols, self.weights, strict=True)
        ]

    @property
    def legend(self) -> list[tuple[str, float]]:
        """Weights below the color scale, at even steps of their square roots."""
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        return [(two_digits(self.largest * share**2), share) for share in shares]


def spectrogram_panel(audio: AudioView) -> Panel:
    """Return the spectrogram, low frequencies at the bottom; the quietest parts look the same."""
    bands = audio.spectrogram.T[::-1].astype(np.float64)
    quiet, loud = np.percentile(bands, _QUIET), bands.max()
    share = np.clip((bands - quiet) / (loud - quiet), 0, 1) if loud > quiet else 0 * bands
    # The color scale takes square roots, and logarithms need none.
    return _panel("sound", np.square(share), audio.first_frame_seconds, audio.frame_seconds)


def _panel(name: str, weights: Weights, first: float, step: float) -> Panel:
    """Return at most `_MAX_COLUMNS` columns, each the maximum of a block."""
    size = math.ceil(weights.shape[1] / _MAX_COLUMNS)
    weights = np.pad(weights, ((0, 0), (0, -weights.shape[1] % size)))
    weights = weights.reshape(len(weights), -1, size).max(axis=-1)
    begin = first - step / 2
    return Panel(
        name=name, weights=weights, begin=begin, end=begin + weights.shape[1] * size * step
    )


def time_axis(audio: AudioView, positions: int) -> TimeAxis:
    """Return the axis from 0, or from what is earlier, to the last end."""
    begins, ends = [0.0], [0.0]
    for first, step, count in (
        (audio.first_frame_seconds, audio.frame_seconds, len(audio.spectrogram)),
        (audio.first_place_seconds, audio.place_seconds, positions),
    ):
        begins.append(first - step / 2)
        ends.append(first + (count - 0.5) * step)
    return TimeAxis(
        min(*begins, *(word.start for word in audio.words)),
        max(*ends, *(word.end for word in audio.words)),
    )


def place_words(words: Sequence[SpokenWord], axis: TimeAxis, width: float) -> list[PlacedWord]:
    """Place words on as few lines as keep them apart on an axis of `width` pixels."""
    ends: list[float] = []  # of the last word of each line, in pixels
    placed = []
    for spoken in sorted(words, key=lambda word: word.start):
        start, end = (width * axis.share(second) for second in (spoken.start, spoken.end))
        size = _LETTER * len(visible(spoken.word))
        flipped = start + size > width
        left, right = (end - size, end) if flipped else (start, max(end, start + size))
        line = next((i for i, before in enumerate(ends) if before <= left), len(ends))
        ends[line : line + 1] = [right + _WORD_GAP]
        placed.append(PlacedWord(spoken, line, flipped))
    return placed


def audio_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return the spectrogram, the mean of the last layer large, and every head."""
    figure = _Figure(viewed)
    axis = figure.axis
    least = round(min(max(22 * (axis.end - axis.begin), 440), 900))
    placed = place_words(figure.audio.words, axis, least)
    lines = 1 + max((word.line for word in placed), default=0)
    told = ", ".join(f"{visible(raw)} at {second:.2f} s" for raw, second, _ in figure.peaks)
    return render(
        "audio_attention.html",
        title=title,
        note=note,
        axis=axis,
        figure=figure,
        least=least,
        height=_SOUND,
        spectrogram=spectrogram_panel(figure.audio),
        lane_height=_LINE * lines,
        words=[
            {
                "text": visible(word.spoken.word),
                "start": f"{axis.share(word.spoken.start):.4%}",
                "end": f"{axis.share(word.spoken.end):.4%}",
                "y": _LINE * (lines - word.line),
                "flipped": word.flipped,
            }
            for word in placed
        ],
        spoken=", ".join(
            f"{word.word} {word.start:.2f} to {word.end:.2f} s" for word in figure.audio.words
        ),
        boundaries=[f"{axis.share(second):.4%}" for second in figure.boundaries],
        seconds=[(label(tick), f"{axis.share(tick):.4%}") for tick in axis.ticks],
        description=f"{figure.name}, largest weights: {told}",
        legend=(LEGEND, figure.legend),
        peaks=[
            (token(raw), f"{second:.2f}", rounded(weight)) for raw, second, weight in figure.peaks
        ],
    )


def audio_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw the same as rows that share the axis of seconds."""
    figure = _Figure(viewed)
    names = [short(visible(raw)) for raw in figure.symbols]
    left = 24 + max(56.0, *map(text_width, names))
    width = left + _PLOT + _RIGHT
    marks: list[Mark] = [*canvas.heading(title, [], left, width)]
    y = _TOP + canvas.MARGIN + canvas.TITLE_LINE * len(marks)

    def x(second: float) -> float:
        return left + _PLOT * figure.axis.share(second)

    def side(text: str, middle: float) -> Label:
        return Label(left - 8, middle + 4, text, anchor="end")

    def draw_panel(panel: Panel, names: Sequence[str], height: float) -> None:
        marks.append(
            Heatmap(x(panel.begin), y, x(panel.end) - x(panel.begin), height, panel.weights)
        )
        for i, name in enumerate(names):
            marks.append(side(name, y + (i + 0.5) * height / len(names)))

    def draw_boundaries(height: float) -> None:
        for second in figure.boundaries:
            marks.append(Line(((x(second), y), (x(second), y + height)), "word", opacity=0.6))

    def draw_seconds() -> None:
        marks.append(Line(((left, y + 4), (left + _PLOT, y + 4))))
        for tick in figure.axis.ticks:
            marks.append(Line(((x(tick), y + 4), (x(tick), y + 9))))
            marks.append(Label(x(tick), y + 22, label(tick), anchor="middle"))
        marks.append(side("seconds", y + 18))

    placed = place_words(figure.audio.words, figure.axis, _PLOT)
    if placed:
        height = _LINE * (1 + max(word.line for word in placed))
        marks.append(side("words", y + height / 2))
        for spoken, line, flipped in placed:
            base = y + height - _LINE * line
            marks.append(Line(((x(spoken.start), base - 2), (x(spoken.end), base - 2)), "word", 2))
            at, anchor = (spoken.end, "end") if flipped else (spoken.start, "start")
            marks.append(Label(x(at), base - 6, visible(spoken.word), "ink", anchor))  # type: ignore[arg-type]
        y += height + _GAP
    draw_panel(spectrogram_panel(figure.audio), ["sound"], _SOUND)
    draw_boundaries(_SOUND)
    y += _SOUND + 32
    marks.append(Label(left, y - 10, prose(figure.name), "ink"))
    height = figure.row * len(names)
    draw_panel(figure.large, names, height)
    draw_boundaries(height)
    y += height
    draw_seconds()
    y += 32
    marks += canvas.legend(left, y + 6, figure.legend)
    y += 36
    for name, panels in figure.layers:
        y += 32
        marks.append(Label(left, y - 10, prose(name)))
        for panel in panels:
            draw_panel(panel, [panel.name], figure.strip)
            y += figure.strip + _GAP
    if figure.layers:
        draw_seconds()
        y += 32
    return Drawing(width=width, height=y + _TOP, title=title, description=figure.name, marks=marks)
