"""Shapes are held against Pillow's, drawn large and made small; boxes against what has changed."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from harken.formats.examples import Box
from harken.synthetic.scenes import COLORS, SHAPES, ColoredShape, coverage, paint

FINER = 32  # of Pillow's pixels in one of ours
LIGHTEST, DARKEST = 248, 232  # paper

things = st.builds(
    ColoredShape,
    color=st.sampled_from(sorted(COLORS)),
    shape=st.sampled_from(sorted(SHAPES)),
    x=st.floats(13, 18),
    y=st.floats(13, 24),
    radius=st.floats(3.5, 11),
)


def outline(thing: ColoredShape, tips: int, tip: float, waist: float, lower: float) -> list[float]:
    corners = []
    for number in range(2 * tips):
        far, turn = (waist if number % 2 else tip), np.pi * number / tips
        corners += [thing.x + thing.radius * far * np.sin(turn)]
        corners += [thing.y + thing.radius * (lower - far * np.cos(turn))]
    return [FINER * number for number in corners]


def theirs(thing: ColoredShape, rows: int, columns: int) -> np.ndarray:
    """The share of each pixel that Pillow fills."""
    canvas = Image.new("L", (FINER * columns, FINER * rows))
    draw = ImageDraw.Draw(canvas)

    def around(wide: float, high: float) -> list[float]:
        middle, reach = np.array([thing.x, thing.y]), thing.radius * np.array([wide, high])
        return (FINER * np.concatenate([middle - reach, middle + reach])).tolist()

    match thing.shape:
        case "circle":
            draw.ellipse(around(0.92, 0.92), fill=255)
        case "ring":
            draw.ellipse(around(0.96, 0.96), fill=255)
            draw.ellipse(around(0.56, 0.56), fill=0)
        case "square":
            draw.rectangle(around(0.82, 0.82), fill=255)
        case "cross":
            draw.rectangle(around(0.97, 0.3), fill=255)
            draw.rectangle(around(0.3, 0.97), fill=255)
        case "star":
            draw.polygon(outline(thing, 5, 1.05, 0.5, 0.1), fill=255)
        case "triangle":
            draw.polygon(outline(thing, 3, 1.15, 0.575, 0.29), fill=255)
    fine = np.asarray(canvas) / 255
    return fine.reshape(rows, FINER, columns, FINER).mean(axis=(1, 3))


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize(("x", "y", "radius"), [(14.2, 20.9, 11.3), (13.5, 17.5, 6.1)])
def test_shapes_are_those_that_pillow_draws(shape: str, x: float, y: float, radius: float) -> None:
    thing = ColoredShape("red", shape, x, y, radius)
    ours, wanted = coverage(thing, 0, 0, 37, 29), theirs(thing, 37, 29)
    assert wanted.sum() == pytest.approx(ours.sum(), rel=0.03)
    # A distance knows one edge: it is right along a straight one, and rough at a corner.
    assert np.abs(ours - wanted).max() < 0.4
    assert np.abs(ours - wanted).sum() < 0.05 * ours.sum()
    assert (ours == 1).any() and (ours == 0).any()


@given(thing=things, paper=st.integers(DARKEST, LIGHTEST))
def test_a_box_holds_exactly_what_has_changed(thing: ColoredShape, paper: int) -> None:
    before = np.full((37, 31, 3), paper, dtype=np.uint8)
    after = before.copy()
    box = paint(after, thing)
    rows, columns = np.nonzero((after != before).any(axis=2))
    size = (np.ptp(columns) + 1, np.ptp(rows) + 1)
    assert box == Box(columns.min(), rows.min(), *size)
    assert np.abs(columns + 0.5 - thing.x).max() < thing.radius + 1.25
    assert np.abs(rows + 0.5 - thing.y).max() < thing.radius + 1.25
    # What paint looked at is all that there was to paint.
    covered = coverage(thing, 0, 0, 37, 31)[..., None]
    whole = np.rint((1 - covered) * before + covered * COLORS[thing.color])
    np.testing.assert_array_equal(after, whole)


def test_a_thing_may_be_cut_off_by_the_edge() -> None:
    picture = np.full((17, 13, 3), 240, dtype=np.uint8)
    whole = np.full((37, 33, 3), 240, dtype=np.uint8)
    paint(whole, ColoredShape("blue", "ring", 22.4, 8.8, 6.1))
    assert paint(picture, ColoredShape("blue", "ring", 12.4, -1.2, 6.1)) == Box(6, 0, 7, 5)
    np.testing.assert_array_equal(picture[:5, 6:], whole[10:15, 16:23])


def test_colors_differ_in_gray_too() -> None:
    """By Pillow's gray, which is that of television."""
    row = np.array([[*COLORS.values(), (DARKEST,) * 3]], dtype=np.uint8)
    grays = np.asarray(Image.fromarray(row).convert("L"))[0].tolist()
    assert min(abs(gray - other) for gray, other in combinations(grays, 2)) >= 30


def test_no_shape_is_nearly_another() -> None:
    drawn = [coverage(ColoredShape("red", name, 8.5, 8.5, 3.6), 0, 0, 17, 17) for name in SHAPES]
    for shape, other in combinations(drawn, 2):
        assert np.abs(shape - other).sum() > 0.15 * max(shape.sum(), other.sum())
