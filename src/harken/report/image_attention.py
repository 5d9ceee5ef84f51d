"""Attention over an image: a copy of the image per output token, covered by an overlay.

    the center of position (x, y) is the pixel   offset + stride * (x, y)
    a pixel belongs to the position with the nearest center
    opacity of the overlay = 0.8 (1 - sqrt(weight of the position / largest weight of the token))

Pixels are counted from 0. In boxes and drawings, pixel i extends from i to i + 1, so that its
center is at i + 0.5. The image is clear where the token attends. A feature map without an image is
drawn as a heatmap.
"""

import hashlib
import math
from functools import partial

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from harken.formats.examples import Box
from harken.measure.boxes import grid_centers
from harken.report import canvas
from harken.report.axis import format_weight
from harken.report.canvas import Circle, Drawing, Heatmap, Label, Mark, Picture, shorten
from harken.report.markup import token_html, visible_text, visible_token
from harken.report.page import render
from harken.report.palette import Weights, color_position, data_uri
from harken.report.viewed_attention import ViewedAttention
from harken.tasks.attention_view import ImageView

OVERLAY = 70, 94, 138  # RGB, visible on black and on white
_OPACITY = 0.8  # at weight 0, where the image stays recognizable
_MAX_PIXELS = 512  # of the longer side of the image in a page
_RING = 0.035  # radius of the ring at the largest weight, relative to the longer side
# Pixels of the drawing: the longer side of an image, the gap between images, and the heights of a
# line of tokens above images and of a line of weights below them.
_SIDE, _GAP, _TOKEN_LINE, _WEIGHT_LINE = 120, 10, 24, 24
_IMAGES_PER_ROW = 10


def image_view(viewed: ViewedAttention) -> ImageView:
    """Return the image view; the keys must be parts of an image."""
    assert viewed.view.picture is not None
    return viewed.view.picture


def _grid_box(view: ImageView, margin: int = 0) -> Box:
    """Return the box of all positions, extended by `margin` positions on each side."""
    edge = view.offset + 0.5 - view.stride * (0.5 + margin)
    columns, rows = view.columns + 2 * margin, view.rows + 2 * margin
    return Box(edge, edge, columns * view.stride, rows * view.stride)


def _frame(view: ImageView) -> Box:
    """Return the drawn area in pixels: the image, or all positions if there is no image."""
    return _grid_box(view) if view.image is None else Box(0, 0, *view.image.shape[1::-1])


def _relative(view: ImageView, weights: Weights) -> NDArray[np.float64]:
    """Return the weights of one token [rows, columns] relative to the largest."""
    return weights.reshape(view.rows, view.columns) / (weights.max() or 1.0)


def _overlay(view: ImageView, weights: Weights) -> NDArray[np.uint8]:
    """Return the color of each position as RGBA [rows, columns, 4]."""
    opacity = np.rint(255 * _OPACITY * (1 - color_position(_relative(view, weights))))
    colors = np.broadcast_to(np.array(OVERLAY), (*opacity.shape, 3))
    return np.concatenate((colors, opacity[..., None]), axis=-1).astype(np.uint8)


def blend_overlay(
    view: ImageView, weights: Weights, pixels: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Blend an image [Y, X, 3], which may be reduced, with the overlay of one token."""
    view_image, overlay = view.image, _overlay(view, weights).astype(np.float64)
    assert view_image is not None

    def nearest_positions(axis: int) -> NDArray[np.intp]:
        size, full_size = pixels.shape[axis], view_image.shape[axis]
        # The center of each pixel, in pixels of the image that is not reduced.
        centers = (np.arange(size) + 0.5) * full_size / size - 0.5
        positions = np.floor((centers - view.offset) / view.stride + 0.5)
        nearest: NDArray[np.intp] = positions.astype(int).clip(0, overlay.shape[axis] - 1)
        return nearest

    rows, columns = nearest_positions(axis=0), nearest_positions(axis=1)
    colors = overlay[rows[:, None], columns]
    opacity = colors[..., 3:] / 255
    mixed = np.rint(pixels * (1 - opacity) + colors[..., :3] * opacity)
    return np.asarray(mixed, dtype=np.uint8)


def peak(weights: Weights) -> int | None:
    """Return the position with the largest weight; None if there are several."""
    positions = np.flatnonzero(weights == weights.max())
    return int(positions[0]) if len(positions) == 1 else None


def _center(view: ImageView, position: int) -> tuple[float, float]:
    """Return the center of a position in the coordinates of boxes."""
    x, y = grid_centers(view.columns, view.rows, view.stride, view.offset)
    return float(x[position]), float(y[position])


def reduce_image(image: NDArray[np.uint8], limit: int) -> NDArray[np.uint8]:
    """Reduce an image to [Y, X, 3] with at most `limit` pixels per side, by block means."""
    colors = np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))
    return np.asarray(Image.fromarray(colors).reduce(math.ceil(max(image.shape[:2]) / limit)))


def image_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return an image per token; the reader selects the mean of a layer or a head."""
    view, tokens, frame = image_view(viewed), viewed.view.queries, _frame(image_view(viewed))
    image = None if view.image is None else reduce_image(view.image, _MAX_PIXELS)
    # A deterministic id that differs between the figures of a page.
    digest = hashlib.sha256(repr((title, list(tokens))).encode("ascii", "backslashreplace"))
    for layer in viewed.layers:
        digest.update(np.ascontiguousarray(layer.weights).tobytes())
    return render(
        "image_attention.html",
        title=title,
        note=note,
        name=f"image-{digest.hexdigest()[:12]}",
        frame=frame,
        box=_grid_box(view, margin=1),
        image=None if image is None else data_uri(Image.fromarray(image)),
        overlay_color=f"rgb{OVERLAY}",
        several=viewed.head_count > 1,
        # In rem: up to seven images fit into 60 rem, approximately the width of a page.
        side=f"{min(max(60 / (len(tokens) + (image is not None)), 8.5), 12):.3g}",
        ring=_RING * max(frame.width, frame.height),
        layers=[
            (
                layer.name,
                [
                    (name, list(map(partial(_cell, view, name), tokens, weights)))
                    for name, weights in layer.mean_and_heads()
                ],
            )
            for layer in viewed.layers
        ],
    )


def _cell(view: ImageView, name: str, raw: str, weights: Weights) -> dict[str, object]:
    """Return the values of one token for the template."""
    position, largest = peak(weights), format_weight(float(weights.max()))
    column, row, center, target = "–", "–", None, "equally to several positions"
    if position is not None:
        row, column = (str(1 + index) for index in divmod(position, view.columns))
        center = _center(view, position)
        target = f"most to column {column} of {view.columns}, row {row} of {view.rows}"
    # Positions at the edge are repeated, because the image may extend beyond them.
    overlay = np.pad(_overlay(view, weights), ((1, 1), (1, 1), (0, 0)), mode="edge")
    return {
        "raw": raw,
        "largest": largest,
        "peak": center,
        "description": f"{name}: {visible_token(raw)} attends {target}",
        "table_row": (token_html(raw), column, row, largest),
        "weights": _relative(view, weights),
        "overlay": Image.fromarray(overlay),
    }


def image_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw a row of images for the mean of the last layer and for each of its heads.

    The columns are tokens; after `_IMAGES_PER_ROW` tokens they continue below.
    """
    view, tokens, layer = image_view(viewed), viewed.view.queries, viewed.layers[-1]
    frame, rows = _frame(view), layer.mean_and_heads()
    unit = _SIDE / max(frame.width, frame.height)
    wide, high = unit * frame.width, unit * frame.height
    pixels = None if view.image is None else reduce_image(view.image, 2 * _SIDE)
    first = int(pixels is not None)  # column of the first token, after the image
    left = canvas.MARGIN + _GAP + max(canvas.text_width(name) for name, _ in rows)
    columns = [left + (i + first) * (wide + _GAP) for i in range(min(len(tokens), _IMAGES_PER_ROW))]
    width = columns[-1] + wide + canvas.MARGIN
    heading = canvas.heading(title, [layer.name], canvas.MARGIN, width)
    marks: list[Mark] = [*heading]
    y = canvas.MARGIN + canvas.TITLE_LINE * len(heading) + 4.0

    def draw(x: float, weights: Weights) -> None:
        if pixels is None:
            marks.append(Heatmap(x, y, wide, high, _relative(view, weights)))
        else:
            marks.append(Picture(x, y, wide, high, blend_overlay(view, weights, pixels)))
        if (position := peak(weights)) is not None:
            across, down = _center(view, position)
            center = x + unit * (across - frame.x), y + unit * (down - frame.y)
            # A dark line is visible on light pixels, a light one on dark pixels.
            marks.append(Circle(*center, _RING * _SIDE, "halo", 3.0))
            marks.append(Circle(*center, _RING * _SIDE, "peak", 1.3))
        marks.append(Label(x, y + high + 13, format_weight(float(weights.max())), size=10))

    for start in range(0, len(tokens), _IMAGES_PER_ROW):
        y += _TOKEN_LINE
        for x, raw in zip(columns, tokens[start : start + _IMAGES_PER_ROW], strict=False):
            name = shorten(visible_token(raw), max(2, int(wide / 7)))
            marks.append(Label(x, y - 7, name, "text"))
        for name, weights in rows:
            marks.append(Label(left - _GAP, y + high / 2 + 4, visible_text(name), anchor="end"))
            if pixels is not None:
                marks.append(Picture(left, y, wide, high, pixels))
                marks.append(Label(left, y + high + 13, "image", size=10))
            for x, row in zip(columns, weights[start : start + _IMAGES_PER_ROW], strict=False):
                draw(x, row)
            y += high + _WEIGHT_LINE
        y += _GAP
    return Drawing(width=width, height=y, title=title, description=layer.name, marks=marks)
