"""Attention over a picture: the picture once for each written word, clear where the word looked.

    the centre of place (x, y) is the pixel   offset + stride * (x, y)
    a pixel belongs to the place whose centre is nearest
    its veil is   1 - sqrt(weight of the place / largest weight of the word)

What was not looked at lies under a veil, so that no colour hides what was. The veil is neither
black nor white: on a black picture, looking at black is seen too. Each word has its own measure,
because one that looks at a whole thing gives each place little; the number beside it says how much.
Places are drawn as they are, not smoothed. The same as a file is in `picture_file.py`; how much of
the attention lies in a box is counted by `measure/boxes.py`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from harken.formats.examples import Box
from harken.measure.boxes import Centres, grid_centres, hit, inside
from harken.report.axis import label
from harken.report.heatmap import AttentionMaps, Weights
from harken.report.markup import attribute, text, token, visible
from harken.report.palette import picture, strength
from harken.report.png import data_uri

VEIL = 70, 94, 138  # red, green, blue
_OPAQUE = 0.8  # the veil where nothing was looked at: the picture stays recognisable under it
_MOST_PIXELS = 512  # along a side; a screen that draws a row of pictures shows no more
_RING = 0.035  # radius of the ring, of the longer side


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PictureMaps:
    """One picture and what was looked at in it: `layers` are arrays [heads, symbols, places]."""

    image: NDArray[np.uint8] | None  # [Y, X, 3] or [Y, X, 1]; None where only a map is at hand
    symbols: Sequence[str]
    layers: Sequence[Weights]
    layer_names: Sequence[str] = ()  # L1, L2, … when left out
    head_numbers: Sequence[Sequence[int]] = ()  # of each layer; 1, 2, … when left out
    columns: int  # of places, which come row by row
    rows: int
    offset: float  # the pixel at the centre of place (0, 0), along both axes
    stride: float  # pixels from one place to the next
    boxes: Sequence[Box | None] = ()  # where each symbol's thing is; None where nobody knows

    def __post_init__(self) -> None:
        if self.image is not None:
            shape, kind = self.image.shape, self.image.dtype
            if kind != np.uint8 or len(shape) != 3 or shape[2] not in (1, 3) or 0 in shape:
                raise ValueError(
                    f"image of {kind} {shape}, expected uint8 [Y, X, 3] or uint8 [Y, X, 1]"
                )
        if self.columns < 1 or self.rows < 1:
            raise ValueError(f"{self.columns} columns, {self.rows} rows, expected one at least")
        for number, weights in enumerate(self.layers, start=1):
            if weights.ndim and weights.shape[-1] != self.columns * self.rows:
                raise ValueError(
                    f"layer {number}: weights of {weights.shape[-1]} places, "
                    f"expected {self.columns} columns x {self.rows} rows"
                )
        self.attention()  # checks the weights
        if not 0 < self.stride < math.inf:
            raise ValueError(f"stride is {self.stride}, expected more than 0")
        if not math.isfinite(self.offset):
            raise ValueError(f"offset is {self.offset}, expected pixels")
        self._check_reach()
        if self.boxes and len(self.boxes) != len(self.symbols):
            raise ValueError(f"{len(self.boxes)} boxes for {len(self.symbols)} symbols")
        for symbol, box in zip(self.symbols, self.boxes, strict=False):
            if box is not None and not (
                math.isfinite(box.x + box.y)
                and 0 < box.width < math.inf
                and 0 < box.height < math.inf
            ):
                raise ValueError(f"{symbol!r} has {box}, expected a width and a height")

    def _check_reach(self) -> None:
        """No place is outside the picture, and none of its pixels is far from all places."""
        x, y = self.centre(-1)
        before, right, below = self.centre(0)[0], self.frame.width - x, self.frame.height - y
        if self.image is not None and not all(
            0 <= gap <= self.stride for gap in (before, right, below)
        ):
            raise ValueError(
                f"{self.columns} x {self.rows} places, {self.stride:g} pixels apart from pixel "
                f"{self.offset:g}, expected them to cover a picture of "
                f"{self.frame.width:g} x {self.frame.height:g} pixels"
            )

    def attention(self) -> AttentionMaps:
        """The same weights, with places named by column and row."""
        return AttentionMaps(
            query_tokens=self.symbols,
            key_tokens=[f"{x}, {y}" for y in range(self.rows) for x in range(self.columns)],
            layers=self.layers,
            layer_names=self.layer_names,
            head_numbers=self.head_numbers,
        )

    def box(self, symbol: int) -> Box | None:
        return self.boxes[symbol] if self.boxes else None

    @property
    def centres(self) -> Centres:
        return grid_centres(self.columns, self.rows, self.stride, self.offset)

    def centre(self, place: int) -> tuple[float, float]:
        """Pixels from the upper left corner, as in a box: the middle of pixel 0 is at a half."""
        x, y = self.centres
        return float(x[place]), float(y[place])

    @property
    def frame(self) -> Box:
        """What is drawn: the picture, or all places where there is none."""
        if self.image is None:
            return self.covered
        height, width = self.image.shape[:2]
        return Box(0, 0, width, height)

    @property
    def covered(self) -> Box:
        """The squares of `stride` pixels around all places."""
        edge = self.offset + 0.5 - self.stride / 2
        return Box(edge, edge, self.columns * self.stride, self.rows * self.stride)


class Choice(NamedTuple):
    """A head, or the mean of a layer: weights [symbols, places]."""

    name: str
    weights: Weights


def choices(maps: PictureMaps, layer: int) -> list[Choice]:
    """The mean of a layer, then each of its heads; one head is its own mean."""
    if not 0 <= layer < len(maps.layers):
        raise ValueError(f"no layer {layer}, expected 0 to {len(maps.layers) - 1}")
    weights = np.clip(maps.layers[layer].astype(np.float64), 0, 1)
    named = maps.attention()
    heads = [Choice(named.head_label(layer, i), one) for i, one in enumerate(weights)]
    mean = Choice(f"{named.layer_name(layer)}, mean of {len(heads)} heads", weights.mean(axis=0))
    return heads if len(heads) == 1 else [mean, *heads]


def shares(maps: PictureMaps, weights: Weights) -> NDArray[np.float64]:
    """One word's weights [rows, columns], as parts of the largest."""
    return weights.reshape(maps.rows, maps.columns) / (weights.max() or 1.0)


def veil(maps: PictureMaps, weights: Weights) -> tuple[NDArray[np.uint8], Box]:
    """Red, green, blue and opacity [rows, columns, 4], and where that is laid over the picture.

    The places at the edge are there twice: what is left of the picture beyond them is theirs.
    """
    lifted = np.pad(strength(shares(maps, weights)), 1, mode="edge")
    opacity = np.rint(255 * _OPAQUE * (1 - lifted))
    colours = np.broadcast_to(np.array(VEIL), (*lifted.shape, 3))
    box, stride = maps.covered, maps.stride
    laid = Box(box.x - stride, box.y - stride, box.width + 2 * stride, box.height + 2 * stride)
    return np.concatenate((colours, opacity[..., None]), axis=-1).astype(np.uint8), laid


def peak(weights: Weights) -> int | None:
    """The place that one word looks most at; None where several share that weight."""
    found = np.flatnonzero(weights == weights.max())
    return int(found[0]) if len(found) == 1 else None


def ring(maps: PictureMaps) -> float:
    """The radius, in pixels of the picture, of the mark around a peak."""
    return _RING * max(maps.frame.width, maps.frame.height)


def two_figures(weight: float) -> str:
    """A weight as text."""
    return label(float(f"{weight:.2g}"))


def shrunk(image: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """[Y, X, 3] with at most `most` pixels along a side, each the mean of those it stands for."""
    colours = np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))
    together = math.ceil(max(image.shape[:2]) / most)
    return np.asarray(Image.fromarray(colours).reduce(together))


def picture_figure(maps: PictureMaps, *, title: str, note: str = "") -> str:
    """A row of pictures, one a word; the mean of the last layer, and by choice any head."""
    remark = f" <span>{text(note)}</span>" if note else ""
    scene = _scene_name(maps, title)
    layers = [choices(maps, layer) for layer in range(len(maps.layers))]
    several = sum(map(len, layers)) > 1
    drawn = []
    for layer, found in enumerate(layers):
        name = maps.attention().layer_name(layer)
        drawn.append(f'<hr/><p class="layer">{text(name)}</p>')
        for i, (head, weights) in enumerate(found):
            checked = layer == len(layers) - 1 and i == 0
            drawn.append(
                (_label(scene, head, checked=checked) if several else f"<p>{text(head)}</p>")
                + f'<div class="look">{_scenes(maps, head, weights, scene)}'
                f"{_table(maps, head, weights)}</div>"
            )
    return (
        f'<figure class="picture"><figcaption><strong>{text(title)}</strong>{remark}</figcaption>'
        f"{_shared(maps, scene)}{_legend(maps)}"
        '<div class="looks" role="group" aria-label="layer and head">'
        f"{''.join(drawn)}</div></figure>"
    )


def _scene_name(maps: PictureMaps, title: str) -> str:
    """Another one for every figure of a page, and the same whenever a figure is made."""
    digest = hashlib.sha256(repr((title, list(maps.symbols))).encode("ascii", "backslashreplace"))
    for array in (*maps.layers, *([] if maps.image is None else [maps.image])):
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"scene-{digest.hexdigest()[:12]}"


def _shared(maps: PictureMaps, scene: str) -> str:
    """The picture, once for the whole figure; every part of it refers to this."""
    if maps.image is None:
        return ""
    file = _png(shrunk(maps.image, _MOST_PIXELS))
    return (
        f'<svg class="unseen" aria-hidden="true"><defs><image id="{scene}" {_corner(maps.frame)} '
        f'preserveAspectRatio="none" href="{data_uri(file)}"/></defs></svg>'
    )


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", optimize=True)
    return file.getvalue()


def _label(group: str, name: str, *, checked: bool) -> str:
    return (
        f'<label><input type="radio" name="{group}"{" checked" if checked else ""}/> '
        f"{text(name)}</label>"
    )


def _legend(maps: PictureMaps) -> str:
    told = (
        "A word looked where colour is strong. It grows"
        if maps.image is None
        else "A word looked where its picture is clear. The veil lifts"
    )
    ground = f'<rect width="18" height="18" style="fill:rgb{VEIL}"/>'
    marks = [(_circle(9, 9, 5), "looked at most, with the weight beside the word")]
    if any(maps.boxes):
        marks.append((_rectangle(Box(3, 3, 12, 12)), "where the thing is, as the data say"))
    return (
        f'<p class="rows muted">{told} with the root of a weight, for each word up to its own '
        'largest.</p><ul class="legend">'
        + "".join(
            '<li><svg class="swatch" width="18" height="18" aria-hidden="true">'
            f"{ground}{mark}</svg>{words}</li>"
            for mark, words in marks
        )
        + "</ul>"
    )


def _scenes(maps: PictureMaps, name: str, weights: Weights, scene: str) -> str:
    items = []
    if maps.image is not None:
        items.append(f"<li>{_svg(maps, _use(scene), told='the picture')}<p>the picture</p></li>")
    for symbol, raw in enumerate(maps.symbols):
        word = f"<b title={attribute(visible(raw))}>{token(raw)}</b>"
        items.append(
            f"<li>{_scene(maps, name, symbol, weights[symbol], scene)}"
            f"<p>{word} {two_figures(float(weights[symbol].max()))}</p></li>"
        )
    side = min(max(60 / len(items), 8.5), 12)  # seven fill a line of the page, few are larger
    return f'<ol class="scenes" style="--side:{side:.3g}rem">{"".join(items)}</ol>'


def _scene(maps: PictureMaps, name: str, symbol: int, weights: Weights, scene: str) -> str:
    """One word's picture, and what it shows in words for those who cannot see it."""
    place, box = peak(weights), maps.box(symbol)
    marks = "" if box is None else _rectangle(box)
    if place is not None:
        marks += _circle(*maps.centre(place), ring(maps))
    told = f"{name}: {visible(maps.symbols[symbol])} looks {_told(maps, place)}"
    if maps.image is None:
        drawn = picture(shares(maps, weights), alt=told)
        return f'<div class="places">{drawn}{_svg(maps, "", marks)}</div>'
    pixels, laid = veil(maps, weights)
    over = f'<image {_corner(laid)} preserveAspectRatio="none" href="{data_uri(_png(pixels))}"/>'
    return _svg(maps, _use(scene) + over, marks, told=told)


def _svg(maps: PictureMaps, inside: str, marks: str = "", *, told: str = "") -> str:
    """What is inside is cut at the frame; a mark at the edge may stand out."""
    frame = maps.frame
    view = f'viewBox="{frame.x:g} {frame.y:g} {frame.width:g} {frame.height:g}"'
    role = f'role="img" aria-label={attribute(told)}' if told else 'aria-hidden="true"'
    cut = f"<svg {_corner(frame)} {view}>{inside}</svg>" if inside else ""
    return f'<svg class="scene" {view} {role}>{cut}{marks}</svg>'


def _corner(box: Box) -> str:
    return f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'


def _use(scene: str) -> str:
    return f'<use href="#{scene}"/>'


def _circle(x: float, y: float, radius: float) -> str:
    """Drawn twice: a dark line is seen on light ground, a light one on dark."""
    shape = f'cx="{x:g}" cy="{y:g}" r="{radius:g}"'
    return f'<circle class="halo" {shape}/><circle class="peak" {shape}/>'


def _rectangle(box: Box) -> str:
    return f'<rect class="halo" {_corner(box)}/><rect class="gold" {_corner(box)}/>'


def _told(maps: PictureMaps, place: int | None) -> str:
    if place is None:
        return "at no place most"
    y, x = divmod(place, maps.columns)
    return f"most at column {x + 1} of {maps.columns}, row {y + 1} of {maps.rows}"


def _table(maps: PictureMaps, name: str, weights: Weights) -> str:
    """The same in figures."""
    heads = ["column", "row", "weight"] + ["in its box"] * any(maps.boxes)
    rows = "".join(
        f"<tr><td>{token(raw)}</td>"
        + "".join(
            f'<td class="number">{cell}</td>'
            for cell in _cells(maps, symbol, weights[symbol])[: len(heads)]
        )
        + "</tr>"
        for symbol, raw in enumerate(maps.symbols)
    )
    return (
        f'<details class="strongest"><summary>Where each word looks most, in figures: {text(name)}'
        '</summary><table><thead><tr><th scope="col">word</th>'
        + "".join(f'<th scope="col" class="number">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table></details>"
    )


def _cells(maps: PictureMaps, symbol: int, weights: Weights) -> tuple[str, str, str, str]:
    """Column and row of the peak, its weight, and how much of all the attention is in the box."""
    place, box = peak(weights), maps.box(symbol)
    at = ("–", "–") if place is None else (place % maps.columns + 1, place // maps.columns + 1)
    mass = "–"
    if box is not None:
        mass = f"{hit(weights, inside(box, maps.centres)).attention_mass_in_box:.2f}"
    return str(at[0]), str(at[1]), two_figures(float(weights.max())), mass
