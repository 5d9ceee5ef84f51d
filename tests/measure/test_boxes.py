"""Attention and boxes by hand, by slow loops, and against matplotlib."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.transforms import Bbox

from harken.formats.examples import Box
from harken.layers.frontends import ConvStemConfig, ImageSizes, PatchEmbeddingConfig
from harken.measure.boxes import (
    NOTES,
    ImageAttention,
    box_metrics,
    box_samples,
    grid_centers,
    points_in_box,
)
from harken.measure.edit_distance import align_texts
from harken.measure.interval import Sample
from harken.measure.paired import difference

COLUMNS, ROWS = 5, 3
PLACES = COLUMNS * ROWS
GRID = grid_centers(COLUMNS, ROWS, stride=4, offset=1.5)  # patches of four pixels
LEFT, RIGHT = Box(0, 0, 4, 12), Box(16, 0, 4, 12)  # the first and the last column
NUMBERS = st.integers(-3, 23)  # small and whole, so that borders are met
POSITIVE = st.integers(0, 13)


def looking_at(*places: int) -> np.ndarray:
    """Return a row per token: 0.6 of its attention at one place, the rest uniform."""
    weights = np.full((len(places), PLACES), 0.4 / (PLACES - 1))
    weights[np.arange(len(places)), places] = 0.6
    return weights


def looks(weights: np.ndarray, words: list[int]) -> ImageAttention:
    return ImageAttention(weights=weights, words=np.array(words, dtype=np.int64), centers=GRID)


def measured(
    boxes: list[Box], seen: ImageAttention, written: str, caption: str
) -> dict[str, Sample]:
    steps = align_texts([written], [caption], units="words")
    samples, _ = box_samples([boxes], [seen], steps)
    return samples


def counts(samples: dict[str, Sample]) -> dict[str, list[float]]:
    return {name: sample.counts[0].tolist() for name, sample in samples.items()}


def test_by_hand() -> None:
    # The first word attends to its box, the second elsewhere.
    result = measured([LEFT, RIGHT], looks(looking_at(10, 7), [0, 1]), "one two", "one two")
    little = 0.4 / (PLACES - 1)
    assert counts(result) == {
        "attention_in_box": [1.0, 2.0],
        "attention_mass_in_box": pytest.approx([0.6 + 2 * little + 3 * little, 2.0]),
        "chance_in_box": pytest.approx([3 / 15 + 3 / 15, 2.0]),
    }
    assert result["attention_in_box"].value == 0.5


def test_only_words_written_as_in_the_caption_count() -> None:
    seen = looks(looking_at(0, 0, 4), [0, 1, 2])
    result = measured([LEFT, LEFT, RIGHT], seen, "one to three", "one two three")
    assert counts(result)["attention_in_box"] == [2.0, 2.0]
    # An inserted word changes indices, not boxes.
    result = measured([LEFT, RIGHT], looks(looking_at(7, 0, 4), [0, 1, 2]), "so one two", "one two")
    assert counts(result)["attention_in_box"] == [2.0, 2.0]


def test_tokens_of_a_word_are_averaged() -> None:
    """Two of three tokens attend to the left, and so does the word; a space has no word."""
    seen = looks(looking_at(4, 0, 0, 7, 4), [0, 0, 0, -1, 1])
    result = measured([LEFT, RIGHT], seen, "one two", "one two")
    assert counts(result)["attention_in_box"] == [2.0, 2.0]
    first = looking_at(4, 0, 0).mean(axis=0)[[0, 5, 10]].sum()
    two = looking_at(4)[0, [4, 9, 14]].sum()
    assert counts(result)["attention_mass_in_box"] == pytest.approx([first + two, 2.0])


def test_images_without_boxes_attention_or_correct_words_do_not_count() -> None:
    seen, nothing = looks(looking_at(0), [0]), looks(looking_at(), [])
    steps = align_texts(["one", "one", "one", "one"], ["one", "one", "two", "one"], units="words")
    samples, notes = box_samples([[], [LEFT], [LEFT], [LEFT]], [seen, nothing, seen, seen], steps)
    assert [sample.counts[:, 1].tolist() for sample in samples.values()] == [[0, 0, 0, 1]] * 3
    assert notes.keys() == samples.keys() == NOTES.keys()
    samples, _ = box_samples([[]], [nothing], align_texts([""], ["one"], units="words"))
    assert [sample.estimate().value for sample in samples.values()] == [None] * 3


def test_runs_with_different_correct_words_are_comparable() -> None:
    first = measured([LEFT, RIGHT], looks(looking_at(0, 4), [0, 1]), "one too", "one two")
    other = measured([LEFT, RIGHT], looks(looking_at(0, 0), [0, 1]), "one two", "one two")
    assert difference(first["attention_in_box"], other["attention_in_box"]).value == -0.5


@given(NUMBERS, NUMBERS, POSITIVE, POSITIVE)
def test_inside_is_as_matplotlib_has_it(x: int, y: int, width: int, height: int) -> None:
    centers = grid_centers(7, 5, stride=3, offset=0.5)  # at whole pixels: 1, 4, 7, …
    bounds = Bbox.from_bounds(x, y, width, height)
    expected = [bounds.contains(*center) for center in zip(centers.x, centers.y, strict=True)]
    assert points_in_box(Box(x, y, width, height), centers).tolist() == expected


@pytest.mark.parametrize("config", [PatchEmbeddingConfig(patch=6), ConvStemConfig()])
def test_centers_agree_with_the_frontends(config: PatchEmbeddingConfig | ConvStemConfig) -> None:
    """The center of a patch is the mean of its pixels' centers."""
    front = config.build(ImageSizes(channels=1, columns=42, rows=30), width=2)
    tokens = front(torch.zeros(1, 1, 30, 42))
    x, y = grid_centers(front.columns, front.rows, front.stride, front.offset)
    expected = tokens.coordinates[0].numpy() * front.stride + front.offset + 0.5
    np.testing.assert_array_equal(np.stack((x, y), axis=1), expected)
    if isinstance(config, PatchEmbeddingConfig):
        assert (x[0], y[0], x[-1], y[-1]) == (3, 3, 39, 27)  # equally far from all four edges


@given(
    st.lists(st.integers(0, 3), min_size=7, max_size=7),
    st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_parts_by_slow_loops(weights: list[int], within: list[bool]) -> None:
    pairs = list(zip(weights, within, strict=True))
    strongest = [inner for weight, inner in pairs if weight == max(weights)]
    total = sum(weights)
    result = box_metrics(np.array(weights, dtype=np.float32), np.array(within))
    assert result.attention_in_box == pytest.approx(sum(strongest) / len(strongest))
    assert result.chance_in_box == pytest.approx(sum(within) / 7)
    mass = sum(weight for weight, inner in pairs if inner) / total if total else sum(within) / 7
    assert result.attention_mass_in_box == pytest.approx(mass, abs=1e-6)
