"""Numbers of pictures are those of Hugging Face's image processors; the way back is exact."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.image_transforms import normalize, rescale

from harken.config import dumps, loads
from harken.encode.pixels import FeatureMapsConfig, PixelsConfig, as_numbers, as_picture
from harken.errors import UserError

B, Y, X = 5, 7, 11


def pictures(channels: int) -> np.ndarray:
    return np.random.default_rng(channels).integers(0, 256, (B, Y, X, channels), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_are_those_of_a_vision_transformer(channels: int) -> None:
    images = pictures(channels)
    ours = as_numbers(images)
    assert ours.shape == (B, channels, Y, X)
    assert ours.dtype == torch.float32
    assert ours.is_contiguous()
    for number, image in zip(ours.numpy(), images, strict=True):
        scaled = rescale(image, 1 / 255, input_data_format="channels_last")
        theirs = normalize(
            scaled, 0.5, 0.5, data_format="channels_first", input_data_format="channels_last"
        )
        np.testing.assert_allclose(number, theirs, rtol=0, atol=1e-6)


def test_black_gray_and_white_by_hand() -> None:
    images = np.array([0, 51, 255], dtype=np.uint8).reshape(1, 1, 3, 1)
    assert as_numbers(images).flatten().tolist() == pytest.approx([-1.0, -0.6, 1.0])


@pytest.mark.parametrize("channels", [1, 3])
def test_the_way_back_is_exact(channels: int) -> None:
    images = pictures(channels)
    shown = as_picture(as_numbers(images))
    assert shown.dtype == np.uint8
    np.testing.assert_array_equal(shown, images)
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_array_equal(as_picture(as_numbers(every)), every)


def test_what_is_no_picture_is_shown_as_the_nearest_one() -> None:
    numbers = torch.tensor([-3.0, 0.001, 7.0], requires_grad=True).view(1, 3, 1, 1)
    assert as_picture(numbers).tolist() == [[[[0, 128, 255]]]]


def test_pictures_are_neither_changed_nor_shared_nor_need_be_writable() -> None:
    images = pictures(3)
    images.flags.writeable = False
    before = images.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_numbers(images).zero_()
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_maps_are_numbers_already(kind: type[np.floating]) -> None:
    maps = np.random.default_rng(0).normal(size=(B, X, Y, 13)).astype(kind)
    maps.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = FeatureMapsConfig(columns=X, rows=Y, channels=13).encode(maps)
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), maps)


def test_a_recipe_says_the_size() -> None:
    pixels = PixelsConfig(columns=31, rows=37, channels=1)
    maps = FeatureMapsConfig(columns=7, rows=5, channels=2048)
    for config in (pixels, maps):
        text = dumps(config)
        assert loads(PixelsConfig | FeatureMapsConfig, text, base=Path()) == config
    for wrong in ("columns = 0", "rows = 0", "channels = 2"):
        with pytest.raises(UserError, match=wrong.split()[0]):
            loads(PixelsConfig, wrong, base=Path())
    assert torch.equal(pixels.encode(pictures(1)), as_numbers(pictures(1)))
