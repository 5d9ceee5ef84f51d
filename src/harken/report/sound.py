"""Attention over sound: the spectrogram, and below it where each written symbol looked, in seconds.

    column i of a picture covers the seconds   first + (i ± 1/2) * step

Frames of sound and places of the encoder's memory have their own `first` and `step`; one axis of
seconds holds them all, so what stands below a sound is what looked at it. The same picture as a
file is in `sound_file.py`. Where words begin and end is found elsewhere (`decode/times.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harken.formats.examples import SpokenWord
from harken.report.axis import label, rounded, ticks
from harken.report.heatmap import AttentionMaps, Weights
from harken.report.markup import attribute, text, token, visible
from harken.report.palette import picture

SOUND_HEIGHT = 120  # pixels, as all sizes here
LINE = 17  # a line of words above the sound
_LETTER, _GAP = 7.0, 6.0  # width of a letter and of the space between two words
_MOST_COLUMNS = 1000  # about what a screen can show; more would be dropped by it, unseen
_QUIET = 5.0  # per cent of the spectrogram that is drawn as silence


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SoundMaps:
    """One utterance and what was looked at in it: `layers` are arrays [heads, symbols, places]."""

    spectrogram: NDArray[np.floating]  # [frames, bins], logarithms of energy
    frame_seconds: float  # from one frame to the next
    first_frame_seconds: float  # the centre of frame 0
    symbols: Sequence[str]
    layers: Sequence[Weights]
    layer_names: Sequence[str] = ()  # L1, L2, … when left out
    head_numbers: Sequence[Sequence[int]] = ()  # of each layer; 1, 2, … when left out
    place_seconds: float  # from one place of the memory to the next
    first_place_seconds: float  # the centre of place 0
    words: Sequence[SpokenWord] = ()  # as the model, or somebody, timed them
    gold: Sequence[SpokenWord] = ()  # as they were said

    def __post_init__(self) -> None:
        if self.spectrogram.ndim != 2 or self.spectrogram.size == 0:
            raise ValueError(
                f"spectrogram of shape {self.spectrogram.shape}, expected [frames, bins]"
            )
        if not np.isfinite(self.spectrogram).all():
            raise ValueError("spectrogram: values that are infinite, or NaN")
        for name in ("frame_seconds", "place_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, expected more than 0")
        for name in ("first_frame_seconds", "first_place_seconds"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, expected seconds")
        for word in (*self.words, *self.gold):
            if not -math.inf < word.start <= word.end < math.inf:
                raise ValueError(f"{word.word!r} lasts from {word.start} to {word.end} s")
        self.attention()  # checks the weights

    def attention(self) -> AttentionMaps:
        """The same weights, with places named by their seconds."""
        places = self.layers[0].shape[-1] if self.layers and self.layers[0].ndim else 0
        return AttentionMaps(
            query_tokens=self.symbols,
            key_tokens=[f"{self.second(place):.2f} s" for place in range(places)],
            layers=self.layers,
            layer_names=self.layer_names,
            head_numbers=self.head_numbers,
        )

    @property
    def strongest(self) -> float:
        return max(float(weights.max()) for weights in self.layers)

    def second(self, place: int) -> float:
        return self.first_place_seconds + place * self.place_seconds


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Panel:
    """A picture on the axis of time: weights [rows, columns], of which the first row is on top."""

    name: str
    weights: Weights
    begin: float  # seconds, the left edge of the first column
    end: float

    @property
    def head(self) -> str:
        """The part of a head's name that its layer does not say: H3 of L1.H3."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeAxis:
    """The seconds from the left to the right of every panel."""

    begin: float
    end: float

    def share(self, second: float) -> float:
        """Where a second stands, from 0 at the left to 1 at the right."""
        return (second - self.begin) / (self.end - self.begin)

    def marks(self, about: int = 10) -> list[float]:
        found = ticks(self.begin, self.end, about=about)
        return [mark for mark in found if self.begin <= mark <= self.end]


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """A word above the sound: on which line, and whether its text ends where the word does."""

    spoken: SpokenWord
    line: int
    flipped: bool


def sound_panel(maps: SoundMaps) -> Panel:
    """The spectrogram, low pitch at the bottom; the quietest parts are all drawn alike."""
    bands = maps.spectrogram.T[::-1].astype(np.float64)
    quiet, loud = np.percentile(bands, _QUIET), bands.max()
    share = np.clip((bands - quiet) / (loud - quiet), 0, 1) if loud > quiet else 0 * bands
    # The palette takes the root of what it draws, and logarithms need none.
    return _panel("sound", np.square(share), maps.first_frame_seconds, maps.frame_seconds)


def map_panel(maps: SoundMaps, name: str, weights: Weights) -> Panel:
    """One map [symbols, places]; the strongest weight of the whole figure gets the last colour."""
    share = weights / (maps.strongest or 1.0)
    return _panel(name, share, maps.first_place_seconds, maps.place_seconds)


def _panel(name: str, weights: Weights, first: float, step: float) -> Panel:
    """At most `_MOST_COLUMNS`, each the strongest of those that it stands for."""
    together = math.ceil(weights.shape[1] / _MOST_COLUMNS)
    weights = np.pad(weights, ((0, 0), (0, -weights.shape[1] % together)))
    weights = weights.reshape(len(weights), -1, together).max(axis=-1)
    begin = first - step / 2
    end = begin + weights.shape[1] * together * step
    return Panel(name=name, weights=weights, begin=begin, end=end)


def enlarged(maps: SoundMaps, chosen: tuple[int, int] | None = None) -> tuple[str, Weights]:
    """Name and weights of the head `chosen` (layer, head) from 0, or of the last layer's mean."""
    layer, head = (len(maps.layers) - 1, 0) if chosen is None else chosen
    if not (0 <= layer < len(maps.layers) and 0 <= head < len(maps.layers[layer])):
        raise ValueError(f"no head {head} in layer {layer}")
    named = maps.attention()
    weights, name = maps.layers[layer].astype(np.float64), named.layer_name(layer)
    if chosen is None and len(weights) > 1:
        return f"{name}, mean of its {len(weights)} heads", weights.mean(axis=0)
    return named.head_label(layer, head), weights[head]


def small_panels(maps: SoundMaps) -> list[tuple[str, list[Panel]]]:
    """Every head of every layer, under the layer's name; none where the large map shows all."""
    if sum(map(len, maps.layers)) == 1:
        return []
    named = maps.attention()
    return [
        (
            named.layer_name(i),
            [map_panel(maps, named.head_label(i, j), head) for j, head in enumerate(heads)],
        )
        for i, heads in enumerate(maps.layers)
    ]


def time_axis(maps: SoundMaps) -> TimeAxis:
    """From 0, or from what is earlier, to the end of what is last."""
    frames, places = len(maps.spectrogram), maps.layers[0].shape[-1]
    words = (*maps.words, *maps.gold)
    return TimeAxis(
        begin=min(
            0.0,
            maps.first_frame_seconds - maps.frame_seconds / 2,
            maps.first_place_seconds - maps.place_seconds / 2,
            *(word.start for word in words),
        ),
        end=max(
            maps.first_frame_seconds + (frames - 0.5) * maps.frame_seconds,
            maps.first_place_seconds + (places - 0.5) * maps.place_seconds,
            *(word.end for word in words),
        ),
    )


def row_height(symbols: int) -> int:
    """Of a symbol in the large map: few are drawn thick, and the label of each stays legible."""
    return min(max(240 // symbols, 14), 30)


def strip_height(maps: SoundMaps) -> int:
    """Of a small map: the more there are the thinner, but never less than a pixel a symbol."""
    return max(len(maps.symbols), min(max(720 // sum(map(len, maps.layers)), 24), 64))


def arranged(words: Sequence[SpokenWord], axis: TimeAxis, width: float) -> list[Label]:
    """Words on as few lines as keep them apart when the axis is `width` pixels wide."""
    ends: list[float] = []  # where the last word of each line ends, in pixels
    found = []
    for spoken in sorted(words, key=lambda one: one.start):
        start, end = (width * axis.share(second) for second in (spoken.start, spoken.end))
        size = _LETTER * len(visible(spoken.word))
        flipped = start + size > width
        left, right = (end - size, end) if flipped else (start, max(end, start + size))
        line = next((i for i, before in enumerate(ends) if before <= left), len(ends))
        ends[line : line + 1] = [right + _GAP]
        found.append(Label(spoken=spoken, line=line, flipped=flipped))
    return found


def sound_figure(
    maps: SoundMaps, *, title: str, note: str = "", chosen: tuple[int, int] | None = None
) -> str:
    """Sound, one large map, every head: the mean of the last layer large, or the head `chosen`."""
    axis = time_axis(maps)
    name, weights = enlarged(maps, chosen)
    least = round(min(max(22 * (axis.end - axis.begin), 440), 900))
    marks = _marks(maps, axis)
    symbols = "".join(
        f"<li title={attribute(visible(raw))}>{token(raw)}</li>" for raw in maps.symbols
    )
    remark = f" <span>{text(note)}</span>" if note else ""
    return (
        f'<figure class="sound"><figcaption><strong>{text(title)}</strong>{remark}</figcaption>'
        '<div class="panels" tabindex="0" role="region" aria-label="attention over time" '
        f'style="--least:{least}px;--sound:{SOUND_HEIGHT}px;--strip:{strip_height(maps)}px;'
        f'--row:{row_height(len(maps.symbols))}px;--symbols:{len(maps.symbols)}">'
        f"{_lane('words', maps.words, axis, least)}{_lane('gold', maps.gold, axis, least)}"
        '<p class="side">sound</p>'
        f"{_window('heard', sound_panel(maps), axis, alt='spectrogram', marks=marks)}"
        f'<p class="layer"><b>{text(name)}</b>: each symbol looks at the sound above it</p>'
        f'<ol class="side">{symbols}</ol>'
        + _window(
            "large",
            map_panel(maps, name, weights),
            axis,
            alt=_told(maps, name, weights),
            marks=marks,
        )
        + f"{_seconds(axis)}{_scale(maps.strongest)}{_heads(maps, axis)}</div>"
        f"{_table(maps, name, weights)}</figure>"
    )


def _heads(maps: SoundMaps, axis: TimeAxis) -> str:
    strips = [
        f'<p class="layer">{text(layer)}</p>'
        + "".join(
            f'<p class="side">{text(panel.head)}</p>'
            + _window("strip", panel, axis, alt=panel.name)
            for panel in panels
        )
        for layer, panels in small_panels(maps)
    ]
    return "".join([*strips, _seconds(axis)]) if strips else ""


def _window(kind: str, panel: Panel, axis: TimeAxis, *, alt: str, marks: str = "") -> str:
    left, right = axis.share(panel.begin), axis.share(panel.end)
    return (
        f'<div class="window {kind}"><span style="left:{left:.4%};width:{right - left:.4%}">'
        f"{picture(panel.weights, alt=alt)}</span>{marks}</div>"
    )


def _lane(kind: str, words: Sequence[SpokenWord], axis: TimeAxis, width: float) -> str:
    """Words with a bar below each from its start to its end."""
    if not words:
        return ""
    placed = arranged(words, axis, width)
    lines = 1 + max(one.line for one in placed)
    drawn = []
    for one in placed:
        start, end = axis.share(one.spoken.start), axis.share(one.spoken.end)
        y = LINE * (lines - one.line)
        anchor = f'x="{end:.4%}" text-anchor="end"' if one.flipped else f'x="{start:.4%}"'
        drawn.append(
            f'<line x1="{start:.4%}" x2="{end:.4%}" y1="{y - 2}" y2="{y - 2}"/>'
            f'<text {anchor} y="{y - 6}">{text(visible(one.spoken.word))}</text>'
        )
    spoken = ", ".join(f"{one.word} {one.start:.2f} to {one.end:.2f} s" for one in words)
    return (
        f'<p class="side">{kind}</p><svg class="lane {kind}" role="img" height="{LINE * lines}" '
        f"aria-label={attribute(f'{kind}: {spoken}')}>{''.join(drawn)}</svg>"
    )


def _marks(maps: SoundMaps, axis: TimeAxis) -> str:
    """Thin lines through a window, where words begin and end."""
    lines = "".join(
        f'<line class="{kind}" x1="{x:.4%}" x2="{x:.4%}" y2="100%"/>'
        for kind, words in (("words", maps.words), ("gold", maps.gold))
        for x in sorted({axis.share(second) for word in words for second in (word.start, word.end)})
    )
    return f'<svg class="marks" aria-hidden="true">{lines}</svg>' if lines else ""


def _seconds(axis: TimeAxis) -> str:
    drawn = "".join(
        f'<line x1="{x:.4%}" x2="{x:.4%}" y2="5"/>'
        f'<text class="x" x="{x:.4%}" y="18">{label(mark)}</text>'
        for mark, x in ((mark, axis.share(mark)) for mark in axis.marks())
    )
    return (
        '<p class="side unit">seconds</p>'
        f'<svg class="seconds" aria-hidden="true"><line x2="100%"/>{drawn}</svg>'
    )


def weight_marks(strongest: float) -> list[tuple[str, float]]:
    """Weights to write below the scale of colours, at even steps of their roots."""
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    return [(label(float(f"{strongest * share**2:.2g}")), share) for share in shares]


def _scale(strongest: float) -> str:
    # The strip is even in strength, so its weights are squares.
    strip = picture(np.square(np.linspace(0, 1, 128))[None], alt="")
    marks = "".join(
        f'<span style="left:{share:.0%}">{weight}</span>'
        for weight, share in weight_marks(strongest)
    )
    return f'<div class="scale"><span>weight</span><div>{strip}{marks}</div></div>'


def _peaks(maps: SoundMaps, weights: Weights) -> list[tuple[str, float, float]]:
    """Each symbol, the second that it looks most at, and with which weight."""
    return [
        (raw, maps.second(int(row.argmax())), float(row.max()))
        for raw, row in zip(maps.symbols, weights, strict=True)
    ]


def _told(maps: SoundMaps, name: str, weights: Weights) -> str:
    """The large map in words, for those who cannot see it."""
    looks = (
        f"symbol {visible(raw)} looks most at {second:.2f} s"
        for raw, second, _ in _peaks(maps, weights)
    )
    return f"{name}: {', '.join(looks)}"


def _table(maps: SoundMaps, name: str, weights: Weights) -> str:
    rows = "".join(
        f'<tr><td>{token(raw)}</td><td class="number">{second:.2f}</td>'
        f'<td class="number">{rounded(weight)}</td></tr>'
        for raw, second, weight in _peaks(maps, weights)
    )
    return (
        '<details class="strongest"><summary>Where each symbol looks most, in figures: '
        f"{text(name)}</summary><table><thead><tr>"
        '<th scope="col">symbol</th><th scope="col" class="number">second</th>'
        f'<th scope="col" class="number">weight</th></tr></thead><tbody>{rows}</tbody></table>'
        "</details>"
    )
