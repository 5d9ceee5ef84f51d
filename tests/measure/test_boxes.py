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
    GridCenters,
    ImageAttention,
    box_hit,
    box_samples,
    grid_centers,
    inside,
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
    """A symbol a row: 0.6 of its attention at one place, the rest spread over all the others."""
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
    # One looks into its box, at its lower left; two looks elsewhere.
    found = measured([LEFT, RIGHT], looks(looking_at(10, 7), [0, 1]), "one two", "one two")
    little = 0.4 / (PLACES - 1)
    assert counts(found) == {
        "attention_in_box": [1.0, 2.0],
        "attention_mass_in_box": pytest.approx([0.6 + 2 * little + 3 * little, 2.0]),
        "chance_in_box": pytest.approx([3 / 15 + 3 / 15, 2.0]),
    }
    assert found["attention_in_box"].value == 0.5


def test_only_words_written_as_in_the_caption_count() -> None:
    seen = looks(looking_at(0, 0, 4), [0, 1, 2])
    found = measured([LEFT, LEFT, RIGHT], seen, "one to three", "one two three")
    assert counts(found)["attention_in_box"] == [2.0, 2.0]
    # A word too many moves numbers, not boxes.
    found = measured([LEFT, RIGHT], looks(looking_at(7, 0, 4), [0, 1, 2]), "so one two", "one two")
    assert counts(found)["attention_in_box"] == [2.0, 2.0]


def test_symbols_of_a_word_look_together() -> None:
    """Two of three symbols look left: so does the word. The space between words is of none."""
    seen = looks(looking_at(4, 0, 0, 7, 4), [0, 0, 0, -1, 1])
    found = measured([LEFT, RIGHT], seen, "one two", "one two")
    assert counts(found)["attention_in_box"] == [2.0, 2.0]
    one = looking_at(4, 0, 0).mean(axis=0)[[0, 5, 10]].sum()
    two = looking_at(4)[0, [4, 9, 14]].sum()
    assert counts(found)["attention_mass_in_box"] == pytest.approx([one + two, 2.0])


def test_pictures_without_boxes_or_looks_or_right_words_count_nothing() -> None:
    seen, nothing = looks(looking_at(0), [0]), looks(looking_at(), [])
    steps = align_texts(["one", "one", "one", "one"], ["one", "one", "two", "one"], units="words")
    samples, notes = box_samples([[], [LEFT], [LEFT], [LEFT]], [seen, nothing, seen, seen], steps)
    assert [sample.counts[:, 1].tolist() for sample in samples.values()] == [[0, 0, 0, 1]] * 3
    assert notes.keys() == samples.keys() == NOTES.keys()
    samples, _ = box_samples([[]], [nothing], align_texts([""], ["one"], units="words"))
    assert [sample.estimate().value for sample in samples.values()] == [None] * 3


def test_two_runs_compare_whatever_words_each_got_right() -> None:
    one = measured([LEFT, RIGHT], looks(looking_at(0, 4), [0, 1]), "one too", "one two")
    other = measured([LEFT, RIGHT], looks(looking_at(0, 0), [0, 1]), "one two", "one two")
    assert difference(one["attention_in_box"], other["attention_in_box"]).value == -0.5


@given(NUMBERS, NUMBERS, POSITIVE, POSITIVE)
def test_inside_is_as_matplotlib_has_it(x: int, y: int, width: int, height: int) -> None:
    centers = grid_centers(7, 5, stride=3, offset=0.5)  # at whole pixels: 1, 4, 7, …
    bounds = Bbox.from_bounds(x, y, width, height)
    wanted = [bounds.contains(*one) for one in zip(centers.x, centers.y, strict=True)]
    assert inside(Box(x, y, width, height), centers).tolist() == wanted


def test_borders_are_inside_and_a_box_between_the_centers_holds_nothing() -> None:
    centers = GridCenters(np.array([2.0, 6.0, 10.0]), np.array([3.0, 3.0, 3.0]))
    assert inside(Box(2, 3, 4, 0), centers).tolist() == [True, True, False]
    assert not inside(Box(2.5, 0, 3, 9), centers).any()


@pytest.mark.parametrize("config", [PatchEmbeddingConfig(patch=6), ConvStemConfig()])
def test_centers_are_the_middles_of_what_a_front_makes_tokens_of(
    config: PatchEmbeddingConfig | ConvStemConfig,
) -> None:
    """A patch's center is the mean of its pixels' middles; a convolution's is a pixel's middle."""
    front = config.build(ImageSizes(channels=1, columns=42, rows=30), width=2)
    tokens = front(torch.zeros(1, 1, 30, 42))
    x, y = grid_centers(front.columns, front.rows, front.stride, front.offset)
    wanted = tokens.coordinates[0].numpy() * front.stride + front.offset + 0.5
    np.testing.assert_array_equal(np.stack((x, y), axis=1), wanted)
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
    found = box_hit(np.array(weights, dtype=np.float32), np.array(within))
    assert found.attention_in_box == pytest.approx(sum(strongest) / len(strongest))
    assert found.chance_in_box == pytest.approx(sum(within) / 7)
    mass = sum(weight for weight, inner in pairs if inner) / total if total else sum(within) / 7
    assert found.attention_mass_in_box == pytest.approx(mass, abs=1e-6)


def test_looking_by_lot_and_looking_everywhere_reach_chance() -> None:
    within = inside(Box(0, 0, 8, 8), GRID)
    even = box_hit(np.full(PLACES, 1 / PLACES), within)
    assert even == pytest.approx((4 / 15, 4 / 15, 4 / 15))
    random = np.random.default_rng(11)
    drawn = [box_hit(random.random(PLACES), within).attention_in_box for _ in range(3001)]
    assert np.mean(drawn) == pytest.approx(
        even.chance_in_box, abs=3 * (4 * 11 / 15**2 / 3001) ** 0.5
    )
