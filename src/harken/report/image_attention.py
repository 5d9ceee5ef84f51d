"""Attention over an image: the image once for each output token, clear where the token attends.

    the center of position (x, y) is the pixel   offset + stride * (x, y)
    a pixel belongs to the position with the nearest center
    opacity of the overlay = 0.8 (1 - sqrt(weight of the position / largest weight of the token))

The overlay is neither black nor white, so that it is visible on both. Each token has its own scale,
because attention to a large object gives each position little; the number beside the token is its
largest weight. Without an image (only a feature map) the weights are drawn as a heatmap.
"""

import hashlib
import math
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from harken.formats.examples import Box
from harken.measure.boxes import grid_centers
from harken.report import canvas
from harken.report.axis import two_digits
from harken.report.canvas import Circle, Drawing, Heatmap, Label, Mark, Picture, short
from harken.report.markup import prose, token, visible
from harken.report.page import render
from harken.report.palette import Weights, data_uri, strength
from harken.report.viewed_attention import LayerAttention, ViewedAttention
from harken.tasks.attention_view import ImageView

OVERLAY = 70, 94, 138  # red, green, blue
_OPACITY = 0.8  # where nothing is attended to: the image stays recognizable
_MAX_PIXELS = 512  # along a side of the image in a page
_RING = 0.035  # radius of the mark at the peak, relative to the longer side
# Of the drawing, in pixels: an image, images per row, a title line, rows of text.
_SIDE, _BAND, _GAP, _WORD, _WEIGHT = 120, 10, 10, 24, 24


class Choice(NamedTuple):
    """A head, or the mean of a layer: weights [queries, positions]."""

    name: str
    weights: Weights


def choices(layer: LayerAttention) -> list[Choice]:
    """Return the mean of a layer, then each head; a single head is its own mean."""
    weights = np.clip(layer.weights.astype(np.float64), 0, 1)
    heads = [Choice(layer.head_name(i), head) for i, head in enumerate(weights)]
    mean = Choice(f"{layer.name}, mean over {len(heads)} heads", weights.mean(axis=0))
    return heads if len(heads) == 1 else [mean, *heads]


def image_of(viewed: ViewedAttention) -> ImageView:
    """Return the image of a view that has one."""
    image = viewed.view.picture
    assert image is not None
    return image


def frame(view: ImageView) -> Box:
    """Return what is drawn, in pixels: the image, or all positions if there is none."""
    if view.image is None:
        return covered(view)
    height, width = view.image.shape[:2]
    return Box(0, 0, width, height)


def covered(view: ImageView) -> Box:
    """Return the squares of `stride` pixels around all positions."""
    edge = view.offset + 0.5 - view.stride / 2
    return Box(edge, edge, view.columns * view.stride, view.rows * view.stride)


def relative(view: ImageView, weights: Weights) -> NDArray[np.float64]:
    """Return the weights of one token [rows, columns] relative to the largest."""
    return weights.reshape(view.rows, view.columns) / (weights.max() or 1.0)


def overlay(view: ImageView, weights: Weights) -> tuple[NDArray[np.uint8], Box]:
    """Return RGBA [rows + 2, columns + 2, 4] and the pixels that it covers.

    Positions at the edge are repeated: the rest of the image beyond them belongs to them.
    """
    clear = np.pad(strength(relative(view, weights)), 1, mode="edge")
    opacity = np.rint(255 * _OPACITY * (1 - clear))
    colors = np.broadcast_to(np.array(OVERLAY), (*clear.shape, 3))
    box, stride = covered(view), view.stride
    around = Box(box.x - stride, box.y - stride, box.width + 2 * stride, box.height + 2 * stride)
    return np.concatenate((colors, opacity[..., None]), axis=-1).astype(np.uint8), around


def blended(view: ImageView, weights: Weights, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image [Y, X, 3], which may be reduced, under the overlay of one token."""
    assert view.image is not None
    colors, box = overlay(view, weights)
    places = []
    for size, full, start in zip(
        pixels.shape[:2], view.image.shape[:2], (box.y, box.x), strict=True
    ):
        centers = (np.arange(size) + 0.5) * full / size  # in pixels of the whole image
        places.append(np.floor((centers - start) / view.stride).astype(int))
    above = colors[
        np.clip(places[0], 0, len(colors) - 1)[:, None], np.clip(places[1], 0, colors.shape[1] - 1)
    ].astype(np.float64)
    opacity = above[..., 3:] / 255
    mixed: NDArray[np.uint8] = np.rint(pixels * (1 - opacity) + above[..., :3] * opacity).astype(
        np.uint8
    )
    return mixed


def peak(weights: Weights) -> int | None:
    """Return the position with the largest weight; None if several have it."""
    positions = np.flatnonzero(weights == weights.max())
    return int(positions[0]) if len(positions) == 1 else None


def center(view: ImageView, position: int) -> tuple[float, float]:
    """Return pixels from the upper left corner; the center of pixel 0 is at 0.5."""
    x, y = grid_centers(view.columns, view.rows, view.stride, view.offset)
    return float(x[position]), float(y[position])


def reduced(image: NDArray[np.uint8], limit: int) -> NDArray[np.uint8]:
    """Return [Y, X, 3] with at most `limit` pixels along a side, by the mean of blocks."""
    colors = np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))
    return np.asarray(Image.fromarray(colors).reduce(math.ceil(max(image.shape[:2]) / limit)))


def image_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return a row of images, one per token, for the mean of the last layer or a selected head."""
    view, symbols = image_of(viewed), viewed.view.queries
    box = frame(view)
    count = len(symbols) + (view.image is not None)
    shared = None if view.image is None else reduced(view.image, _MAX_PIXELS)
    return render(
        "image_attention.html",
        title=title,
        note=note,
        name=_unique_name(viewed, title),
        frame=box,
        image=None if shared is None else data_uri(Image.fromarray(shared)),
        overlay_color=f"rgb{OVERLAY}",
        several=viewed.head_count > 1,
        side=f"{min(max(60 / count, 8.5), 12):.3g}",  # seven fill a line of the page
        ring=_RING * max(box.width, box.height),
        layers=[
            (
                layer.name,
                [
                    {
                        "name": choice.name,
                        "chosen": i == 0 and layer is viewed.layers[-1],
                        "cells": [
                            _cell(view, choice.name, raw, weights)
                            for raw, weights in zip(symbols, choice.weights, strict=True)
                        ],
                    }
                    for i, choice in enumerate(choices(layer))
                ],
            )
            for layer in viewed.layers
        ],
    )


def _cell(view: ImageView, name: str, raw: str, weights: Weights) -> dict[str, object]:
    """Return one token's image for the template."""
    position, largest = peak(weights), two_digits(float(weights.max()))
    row, column = (-1, -1) if position is None else divmod(position, view.columns)
    place = f"column {column + 1} of {view.columns}, row {row + 1} of {view.rows}"
    cell: dict[str, object] = {
        "raw": raw,
        "largest": largest,
        "peak": None if position is None else center(view, position),
        "description": f"{name}: {visible(raw)} attends "
        + ("to no single position most" if position is None else f"most to {place}"),
        "row": (token(raw), *(("–", "–") if position is None else (column + 1, row + 1)), largest),
    }
    if view.image is None:
        return cell | {"weights": relative(view, weights)}
    pixels, box = overlay(view, weights)
    return cell | {"overlay": data_uri(Image.fromarray(pixels)), "box": box}


def _unique_name(viewed: ViewedAttention, title: str) -> str:
    """Return an id that differs between the figures of a page and does not change."""
    digest = hashlib.sha256(
        repr((title, list(viewed.view.queries))).encode("ascii", "backslashreplace")
    )
    for layer in viewed.layers:
        digest.update(np.ascontiguousarray(layer.weights).tobytes())
    return f"image-{digest.hexdigest()[:12]}"


def image_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw a column for each token and a row for the mean of the last layer and each head.

    After `_BAND` tokens the columns continue below.
    """
    view, symbols, layer = image_of(viewed), viewed.view.queries, viewed.layers[-1]
    box, rows = frame(view), choices(layer)
    unit = _SIDE / max(box.width, box.height)
    wide, high = unit * box.width, unit * box.height
    pixels = None if view.image is None else reduced(view.image, 2 * _SIDE)
    first = int(pixels is not None)  # the column of the first token
    left = canvas.MARGIN + _GAP + max(canvas.text_width(choice.name) for choice in rows)
    width = left + (min(len(symbols), _BAND) + first) * (wide + _GAP) - _GAP + canvas.MARGIN
    marks: list[Mark] = [*canvas.heading(title, [layer.name], canvas.MARGIN, width)]
    y = canvas.MARGIN + canvas.TITLE_LINE * len(marks) + 4.0

    def draw(x: float, y: float, weights: Weights) -> None:
        if pixels is None:
            marks.append(Heatmap(x, y, wide, high, relative(view, weights)))
        else:
            marks.append(Picture(x, y, wide, high, blended(view, weights, pixels)))
        if (position := peak(weights)) is not None:
            across, down = center(view, position)
            at = x + unit * (across - box.x), y + unit * (down - box.y)
            # A dark line is visible on light pixels, a light one on dark pixels.
            marks.append(Circle(*at, _RING * _SIDE, "halo", 3.0))
            marks.append(Circle(*at, _RING * _SIDE, "peak", 1.3))
        marks.append(Label(x, y + high + 13, two_digits(float(weights.max())), size=10))

    for start in range(0, len(symbols), _BAND):
        y += _WORD
        for i, raw in enumerate(symbols[start : start + _BAND]):
            x = left + (i + first) * (wide + _GAP)
            marks.append(Label(x, y - 7, short(visible(raw), max(2, int(wide / 7))), "ink"))
        for choice in rows:
            marks.append(Label(left - _GAP, y + high / 2 + 4, prose(choice.name), anchor="end"))
            if pixels is not None:
                marks.append(Picture(left, y, wide, high, pixels))
                marks.append(Label(left, y + high + 13, "image", size=10))
            for i, weights in enumerate(choice.weights[start : start + _BAND]):
                draw(left + (i + first) * (wide + _GAP), y, weights)
            y += high + _WEIGHT
        y += _GAP
    return Drawing(width=width, height=y, title=title, description=layer.name, marks=marks)
