"""Sizes against PyTorch's own antialiased bicubic filter, boxes against what was drawn in them."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from harken.formats.examples import Box
from harken.formats.image_file import Fit, decode_image, resized, resized_box
from small_images import packed

FITS = get_args(Fit)
ROUNDED = 1.1  # once across and once down
SIDES = st.integers(1, 61)


def filtered(pixels: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """The same filter by PyTorch, in floats."""
    planes = torch.from_numpy(pixels).double().permute(2, 0, 1)[None]
    scaled = torch.nn.functional.interpolate(
        planes, (rows, columns), mode="bicubic", antialias=True, align_corners=False
    )
    return scaled[0].permute(1, 2, 0).clamp(0, 255).numpy()


def noise(rows: int, columns: int) -> np.ndarray:
    """Not so strong that the filter goes beyond black or white, where Pillow clips in between."""
    return np.random.default_rng(3).integers(80, 176, (rows, columns, 3), dtype=np.uint8)


def made(pixels: np.ndarray, size: tuple[int, int], fit: Fit) -> np.ndarray:
    return np.asarray(resized(Image.fromarray(pixels), size, fit)).astype(float)


@pytest.mark.parametrize("size", [(7, 11), (97, 61), (31, 23), (31, 5), (1, 1)])
def test_squeezed_as_pytorch_does_it(size: tuple[int, int]) -> None:
    pixels = noise(23, 31)
    ours = made(pixels, size, "stretch")
    np.testing.assert_allclose(ours, filtered(pixels, *size), rtol=0, atol=ROUNDED)


def test_padded_with_white_on_both_sides() -> None:
    """37 x 19 into 23 x 29: 23 / 37 as large is 23 x 12, with 8 rows above and 9 below."""
    pixels = noise(19, 37)
    ours = made(pixels, (23, 29), "pad")
    np.testing.assert_allclose(ours[8:20], filtered(pixels, 23, 12), rtol=0, atol=ROUNDED)
    assert (ours[:8] == 255).all() and (ours[20:] == 255).all()
    turned = made(pixels.swapaxes(0, 1), (29, 23), "pad")
    np.testing.assert_allclose(turned, ours.swapaxes(0, 1), rtol=0, atol=2)


def test_cut_to_the_middle() -> None:
    """36 x 20 into 6 x 10: half as large is 18 x 10, of which the middle 6 columns are kept."""
    pixels = noise(20, 36)
    ours = made(pixels, (6, 10), "crop")
    np.testing.assert_allclose(ours, filtered(pixels, 18, 10)[:, 6:12], rtol=0, atol=ROUNDED)


@pytest.mark.parametrize("fit", FITS)
def test_the_same_size_changes_nothing(fit: Fit) -> None:
    np.testing.assert_array_equal(made(noise(23, 31), (31, 23), fit), noise(23, 31))


@pytest.mark.parametrize("fit", FITS)
@settings(max_examples=50)
@given(columns=SIDES, rows=SIDES, width=SIDES, height=SIDES)
def test_every_size_fits(fit: Fit, columns: int, rows: int, width: int, height: int) -> None:
    gray = np.full((rows, columns, 3), 100, np.uint8)
    ours = made(gray, (width, height), fit)
    assert ours.shape == (height, width, 3)
    seen = (ours == 100).all(-1)
    assert (ours[~seen] == 255).all()
    if fit == "pad":
        # It touches two opposite sides, stands in the middle and keeps its shape to half a pixel.
        tall, wide = seen.any(1).sum(), seen.any(0).sum()
        assert seen.sum() == tall * wide and (tall == height or wide == width)
        for filled in (seen.any(0), seen.any(1)):
            assert abs(filled.argmax() - filled[::-1].argmax()) <= 1
        factor = min(width / columns, height / rows)
        assert abs(wide - columns * factor) <= 0.5 or wide == 1
        assert abs(tall - rows * factor) <= 0.5 or tall == 1
    else:
        assert seen.all()


def drawn(box: Box, columns: int, rows: int) -> bytes:
    """A black box on white."""
    pixels = np.full((rows, columns), 255, np.uint8)
    left, top = int(box.x), int(box.y)
    pixels[top : top + int(box.height), left : left + int(box.width)] = 0
    return packed(pixels, "PNG")


def within(box: Box, width: int, height: int, margin: float) -> np.ndarray:
    """The pixels that lie in the box made larger, or smaller, by so much."""
    down, across = np.mgrid[:height, :width] + 0.5
    return (
        (across > box.x - margin)
        & (across < box.x + box.width + margin)
        & (down > box.y - margin)
        & (down < box.y + box.height + margin)
    )


@pytest.mark.parametrize("fit", FITS)
@settings(max_examples=50)
@given(numbers=st.data())
def test_a_box_is_where_its_pixels_are(fit: Fit, numbers: st.DataObject) -> None:
    columns, rows, width, height = (numbers.draw(st.integers(5, 61)) for _ in range(4))
    x, y = numbers.draw(st.integers(0, columns - 3)), numbers.draw(st.integers(0, rows - 3))
    box = Box(
        x, y, numbers.draw(st.integers(3, columns - x)), numbers.draw(st.integers(3, rows - y))
    )
    moved = resized_box(box, original=(columns, rows), size=(width, height), fit=fit)
    black = decode_image(drawn(box, columns, rows), "it", channels=1, size=(width, height), fit=fit)
    dark = black[..., 0] < 128
    # Half a pixel of the larger of the two grids is what a threshold can tell.
    blur = max(1.0, 0.5 * max(width / columns, height / rows))
    assert not dark[~within(moved, width, height, blur)].any()
    assume(min(moved.width, moved.height) > 2 * blur)
    assert dark[within(moved, width, height, -blur)].all()


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        ("stretch", Box(2, 8, 4, 12)),
        ("pad", Box(2, 9, 4, 6)),  # half as large, under 5 white rows
        ("crop", Box(0, 8, 7, 12)),  # as large, and 5 columns lost on either side
    ],
)
def test_boxes_by_hand(fit: Fit, expected: Box) -> None:
    """A picture of 20 x 20 becomes one of 10 x 20."""
    assert resized_box(Box(4, 8, 8, 12), original=(20, 20), size=(10, 20), fit=fit) == expected


def test_a_box_that_was_cut_away_has_no_width() -> None:
    """And what reaches beyond the picture does not reach into the white."""
    moved = resized_box(Box(0, 3, 4, 5), original=(20, 10), size=(10, 10), fit="crop")
    assert moved == Box(0, 3, 0, 5)
    beyond = resized_box(Box(15, 3, 9, 90), original=(20, 10), size=(10, 10), fit="pad")
    assert beyond == Box(7.5, 3.5, 2.5, 3.5)
