"""Oracle: the image transforms of Hugging Face."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.image_transforms import normalize, rescale

from harken.config import dumps, loads
from harken.encode.pixels import FeatureMapsConfig, PixelsConfig
from harken.errors import UserError

B, Y, X = 5, 7, 11


def random_images(channels: int) -> np.ndarray:
    return np.random.default_rng(channels).integers(0, 256, (B, Y, X, channels), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_values_equal_those_of_hugging_face(channels: int) -> None:
    images = random_images(channels)
    ours = PixelsConfig().encode(images)
    assert ours.shape == (B, channels, Y, X)
    assert ours.dtype == torch.float32
    assert ours.is_contiguous()
    for number, image in zip(ours.numpy(), images, strict=True):
        scaled = rescale(image, 1 / 255, input_data_format="channels_last")
        theirs = normalize(
            scaled, 0.5, 0.5, data_format="channels_first", input_data_format="channels_last"
        )
        np.testing.assert_allclose(number, theirs, rtol=0, atol=1e-6)


def test_read_only_images_are_copied() -> None:
    images = random_images(3)
    images.flags.writeable = False
    before = images.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PixelsConfig().encode(images).zero_()
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_feature_maps_are_converted_to_float32(kind: type[np.floating]) -> None:
    maps = np.random.default_rng(0).normal(size=(B, X, Y, 13)).astype(kind)
    maps.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = FeatureMapsConfig(columns=X, rows=Y, channels=13).encode(maps)
    assert encoded.dtype == torch.float32
    np.testing.assert_array_equal(encoded.numpy(), maps)


def test_round_trip_of_configs() -> None:
    pixels = PixelsConfig(columns=31, rows=37, channels=1)
    maps = FeatureMapsConfig(columns=7, rows=5, channels=2048)
    for config in (pixels, maps):
        text = dumps(config)
        assert loads(PixelsConfig | FeatureMapsConfig, text, base=Path()) == config
    for wrong in ("columns = 0", "rows = 0", "channels = 2"):
        with pytest.raises(UserError, match=wrong.split()[0]):
            loads(PixelsConfig, wrong, base=Path())
