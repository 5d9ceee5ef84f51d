"""A picture of another size, and where a place in it comes to lie.

    x -> (x - source.left) * width of target / width of source + target.left        (y likewise)

    pad        the whole picture, as large as fits, with white beside it
    cut        the middle of the picture, as much as fills the size
    squeeze    the whole picture, across and down by different factors

`pad` is the one to begin with: a caption may speak of what stands at the edge, which `cut` throws
away, or of what is tall, round or square, which `squeeze` makes untrue. Its price is white places
that show nothing. `cut` suits pictures of one thing in the middle; `squeeze` wastes no place.

The filter is Pillow's bicubic one, which grows with the factor when it shrinks: every pixel of the
picture counts, none is skipped.
"""

from typing import Literal, NamedTuple

from PIL import Image

from harken.formats.examples import Box

Fit = Literal["pad", "cut", "squeeze"]


class _Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


def resized(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """A grey or colour picture, with so many columns and rows."""
    source, target = _placement(image.size, size, fit)
    inner = round(target.right - target.left), round(target.bottom - target.top)
    scaled = image.resize(inner, Image.Resampling.BICUBIC, box=source)
    if inner == size:
        return scaled
    padded = Image.new(image.mode, size, "white")
    padded.paste(scaled, (round(target.left), round(target.top)))
    return padded


def resized_box(box: Box, *, original: tuple[int, int], size: tuple[int, int], fit: Fit) -> Box:
    """Where a box of the picture with the original columns and rows comes to lie.

    What was cut away is cut from the box, which may leave one without width or height.
    """
    source, target = _placement(original, size, fit)
    left, right = (
        _moved(x, source.left, source.right, target.left, target.right)
        for x in (box.x, box.x + box.width)
    )
    top, bottom = (
        _moved(y, source.top, source.bottom, target.top, target.bottom)
        for y in (box.y, box.y + box.height)
    )
    return Box(left, top, right - left, bottom - top)


def _moved(place: float, start: float, end: float, new_start: float, new_end: float) -> float:
    moved = (place - start) * (new_end - new_start) / (end - start) + new_start
    return min(max(moved, new_start), new_end)


def _placement(
    original: tuple[int, int], size: tuple[int, int], fit: Fit
) -> tuple[_Rectangle, _Rectangle]:
    """The part of the original that is seen, and where in the new picture."""
    (columns, rows), (width, height) = original, size
    source, target = _Rectangle(0, 0, columns, rows), _Rectangle(0, 0, width, height)
    across, down = width / columns, height / rows
    if fit == "pad":
        scaled = [max(1, round(side * min(across, down))) for side in original]
        left, top = (width - scaled[0]) // 2, (height - scaled[1]) // 2
        target = _Rectangle(left, top, left + scaled[0], top + scaled[1])
    elif fit == "cut":
        seen = [side / max(across, down) for side in size]
        aside, above = max(0.0, columns - seen[0]) / 2, max(0.0, rows - seen[1]) / 2
        source = _Rectangle(aside, above, columns - aside, rows - above)
    return source, target
