import numpy as np

from harken.report.palette import DARK, LEVELS, LIGHT, color_scale, heatmap, max_pool

from .parsed import parse
from .sample import decoded


def lightness(colors: np.ndarray) -> np.ndarray:
    return np.asarray(colors @ np.array([0.2126, 0.7152, 0.0722]))


def test_lightness_is_monotonic_in_both_scales() -> None:
    assert (np.diff(lightness(color_scale(LIGHT).astype(float))) < 0).all()
    assert (np.diff(lightness(color_scale(DARK).astype(float))) > 0).all()
    assert color_scale(LIGHT).shape == (LEVELS, 3)


def test_pixels_have_the_color_of_their_weight() -> None:
    weights = np.random.default_rng(0).uniform(-0.01, 1.01, size=(5, 7))
    picture = parse(heatmap(weights, 'an "alt" <text>'))
    levels = np.rint(63 * np.sqrt(np.clip(weights, 0, 1))).astype(int)
    light, dark = picture.find("img").attributes, picture.find("source").attributes
    np.testing.assert_array_equal(decoded(light["src"]), color_scale(LIGHT)[levels])
    np.testing.assert_array_equal(decoded(dark["srcset"]), color_scale(DARK)[levels])
    assert (light["width"], light["height"], light["alt"]) == ("7", "5", 'an "alt" <text>')
    assert dark["media"] == "screen and (prefers-color-scheme: dark)"


def test_pooled_weights_are_the_maximum_of_their_block() -> None:
    weights = np.random.default_rng(0).uniform(size=(3, 5, 7))
    pooled = max_pool(weights, 3)
    assert pooled.shape == (3, 3, 3)
    for i in range(3):
        for j in range(3):
            block = weights[:, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
            assert pooled[:, i, j].tolist() == block.max(axis=(1, 2)).tolist()
    assert max_pool(weights, 7) is weights
