import json
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from harken.errors import UserError
from harken.formats.examples import Box
from harken.formats.split import Split
from harken.synthetic import scenes as module
from harken.synthetic.scenes import (
    COLORS,
    PAIRS,
    SHAPES,
    DrawnScene,
    ScenesConfig,
    draw_scene,
    held_out_pairs,
    paint,
    write_scenes,
)
from small_files import peak_memory

seeds = st.integers(-(2**63), 2**63)


def scenes(config: ScenesConfig, split: Split, count: int) -> list[DrawnScene]:
    return [draw_scene(config, split, index) for index in range(count)]


def test_a_seed_keeps_its_scenes() -> None:
    # Fixed values: published results name a seed, so a change here is a change of data.
    captioned, picture, _ = draw_scene(ScenesConfig(seed=7), "test", 11)
    assert captioned.captions == ("blue ring red triangle blue cross",)
    assert captioned.boxes[::2] == (Box(5, 35, 12, 12), Box(16, 3, 17, 15), Box(27, 31, 16, 16))
    assert int(picture.sum()) == pytest.approx(1519257, rel=1e-5)


@pytest.mark.parametrize(("size", "most"), [(32, 3), (48, 4), (53, 3), (101, 4)])
def test_every_word_has_the_box_of_its_shape(size: int, most: int) -> None:
    """The pixels in which the picture differs from the same one without the shape."""
    counts = Counter()
    config = ScenesConfig(size=size, max_shapes=most, noise=0.0)
    for index, (captioned, picture, shapes) in enumerate(scenes(config, "train", 41)):
        (caption,) = captioned.captions
        assert captioned.image == index
        assert caption.split() == [word for shape in shapes for word in (shape.color, shape.shape)]
        assert len(captioned.boxes) == len(caption.split())
        assert captioned.boxes[::2] == captioned.boxes[1::2]
        counts[len(shapes)] += 1
        for shape, box in zip(shapes, captioned.boxes[::2], strict=True):
            without = np.full_like(picture, picture[0, 0, 0])
            for other in shapes:
                if other is not shape:
                    paint(without, other)
            rows, columns = np.nonzero((picture != without).any(axis=2))
            size_of = (np.ptp(columns) + 1, np.ptp(rows) + 1)
            assert box == Box(columns.min(), rows.min(), *size_of)
    assert set(counts) == set(range(1, most + 1))


@given(seed=seeds, least=st.integers(2, 3), size=st.sampled_from([32, 37, 48, 103]))
@settings(max_examples=60)
def test_shapes_are_separate_and_go_from_left_to_right(seed: int, least: int, size: int) -> None:
    config = ScenesConfig(seed=seed, min_shapes=least, size=size)
    boxes = draw_scene(config, "train", 0).captioned.boxes[::2]
    assert len(boxes) >= least
    for left, right in pairwise(boxes):
        assert left.x <= right.x
        assert left.x + left.width / 2 < right.x + right.width / 2
        assert left.x + left.width <= right.x + right.width
    for box, other in combinations(boxes, 2):
        apart = box.x + box.width <= other.x or other.x + other.width <= box.x
        assert apart or box.y + box.height <= other.y or other.y + other.height <= box.y
    for box in boxes:
        assert 0 <= box.x < box.x + box.width <= size
        assert 0 <= box.y < box.y + box.height <= size


def test_pairs_and_numbers_of_shapes_are_uniform() -> None:
    drawn_shapes = [
        scene.shapes for scene in scenes(ScenesConfig(size=32, noise=0.0), "train", 900)
    ]
    numbers = Counter(map(len, drawn_shapes))
    assert set(numbers) == {1, 2, 3}
    assert all(abs(count - 300) < 4 * 200**0.5 for count in numbers.values())
    pairs = Counter((shape.color, shape.shape) for shapes in drawn_shapes for shape in shapes)
    assert set(pairs) == set(PAIRS)
    mean = sum(pairs.values()) / 36
    assert all(abs(count - mean) < 4.5 * mean**0.5 for count in pairs.values())


def test_shapes_are_everywhere() -> None:
    boxes = [scene.captioned.boxes[0] for scene in scenes(ScenesConfig(max_shapes=1), "train", 400)]
    assert min(box.x for box in boxes) <= 1 and max(box.x + box.width for box in boxes) >= 47
    assert min(box.y for box in boxes) <= 1 and max(box.y + box.height for box in boxes) >= 47
    widths = [box.width for box in boxes]
    assert min(widths) <= 10 and max(widths) >= 17


@pytest.mark.parametrize("noise", [0.0, 3.0, 17.0])
def test_noise_has_its_deviation(noise: float) -> None:
    for captioned, picture, _ in scenes(ScenesConfig(noise=noise, size=64), "dev", 5):
        empty = np.ones(picture.shape[:2], dtype=bool)
        for box in captioned.boxes:
            empty[box.y : box.y + box.height, box.x : box.x + box.width] = False
        paper = picture[empty].astype(np.float64)
        if noise == 17.0:
            assert paper.max() == 255  # clipped, not wrapped around
            assert paper.min() > 128
        else:
            assert paper.std() == pytest.approx((noise**2 + (noise > 0) / 12) ** 0.5, rel=0.03)
            assert 231 < paper.mean() < 249


# --- held-out pairs


def pairs_in(config: ScenesConfig, split: Split) -> set[tuple[str, str]]:
    shapes = (shape for scene in scenes(config, split, 150) for shape in scene.shapes)
    return {(shape.color, shape.shape) for shape in shapes}


def test_new_pairs_are_in_test_only_and_known_pairs_are_not() -> None:
    config = ScenesConfig(new_pairs=True, size=32, noise=0.0, seed=3)
    held_out = held_out_pairs(3)
    assert pairs_in(config, "test") == held_out
    assert pairs_in(config, "train") == pairs_in(config, "dev") == set(PAIRS) - held_out


@given(seeds)
def test_one_pair_is_held_out_per_color_and_shape(seed: int) -> None:
    colors, shapes = zip(*held_out_pairs(seed), strict=True)
    assert sorted(colors) == sorted(COLORS)
    assert sorted(shapes) == sorted(SHAPES)


def test_the_seed_draws_the_pairs() -> None:
    assert len({frozenset(held_out_pairs(seed)) for seed in range(9)}) == 9


# --- learnability


def features(drawn_scenes: list[DrawnScene]) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """(colors, their numbers, shapes, small pictures of them) of the boxes of scenes."""
    colors, paints, shapes, masks = [], [], [], []
    for captioned, picture, _ in drawn_scenes:
        words = captioned.captions[0].split()
        colors += words[::2]
        shapes += words[1::2]
        for box in captioned.boxes[::2]:
            crop = picture[box.y : box.y + box.height, box.x : box.x + box.width].astype(float)
            far = np.abs(crop - picture[0].mean(axis=0)).max(axis=2)
            paints.append(crop[far > 0.8 * far.max()].mean(axis=0))
            mask = Image.fromarray((255 * far / far.max()).astype(np.uint8))
            masks.append(np.asarray(mask.resize((13, 13))).ravel() / 255)
    return colors, np.array(paints), shapes, np.array(masks)


@pytest.mark.parametrize(("size", "accuracy"), [(48, 0.98), (32, 0.95)])
def test_words_are_predictable_from_their_boxes(size: int, accuracy: float) -> None:
    """By the nearest class mean of train, for colors and for shapes."""
    config = ScenesConfig(size=size)
    train, test = (features(scenes(config, split, 200)) for split in ("train", "test"))
    for labels, numbers in ((0, 1), (2, 3)):
        names = sorted(set(train[labels]))
        known = np.array(train[labels])
        means = np.array([train[numbers][known == name].mean(axis=0) for name in names])
        distances = np.square(test[numbers][:, None] - means).sum(axis=2)
        guessed = np.array(names)[distances.argmin(axis=1)]
        assert np.mean(guessed == np.array(test[labels])) > accuracy


# --- files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("d") / "new"
    paths = write_scenes(ScenesConfig(scenes=97, size=37), folder)
    assert set(paths) == set(folder.iterdir())
    return folder


def test_files_are_what_was_drawn(folder: Path) -> None:
    config = ScenesConfig(scenes=97, size=37)
    for split, size in (("train", 79), ("dev", 9), ("test", 9)):
        with np.load(folder / f"{split}.npz") as archive:
            assert archive.files == ["images"]
            images = archive["images"]
        assert images.shape == (size, 37, 37, 3)
        assert images.dtype == np.uint8
        lines = (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(lines) == size
        for line, image, scene in zip(lines, images, scenes(config, split, size), strict=True):  # type: ignore[arg-type]
            np.testing.assert_array_equal(image, scene.picture)
            fields = json.loads(line)
            assert list(fields) == ["index", "caption", "boxes_xywh"]
            assert fields["index"] == scene.captioned.image
            assert (fields["caption"],) == scene.captioned.captions
            assert tuple(Box(*box) for box in fields["boxes_xywh"]) == scene.captioned.boxes


def test_examples_are_the_first_scenes_of_test(folder: Path) -> None:
    images = np.load(folder / "test.npz")["images"]
    assert len([*(folder / "examples").iterdir()]) == module.EXAMPLES < len(images)
    for index, image in enumerate(images[: module.EXAMPLES]):
        with Image.open(folder / "examples" / f"{index}.png") as picture:
            np.testing.assert_array_equal(np.asarray(picture), image)


@pytest.mark.parametrize("name", ["holiday.png", "0.jpg", "mine"])
def test_other_files_are_not_replaced(tmp_path: Path, name: str) -> None:
    stranger = tmp_path / "examples" / name
    stranger.parent.mkdir()
    stranger.mkdir() if name == "mine" else stranger.write_bytes(b"precious")
    with pytest.raises(UserError, match=f"contains '{name}' .expected generated files"):
        write_scenes(ScenesConfig(scenes=3), tmp_path)
    assert stranger.exists()
    assert [*tmp_path.iterdir()] == [stranger.parent]


def test_memory_holds_one_scene_at_a_time(tmp_path: Path) -> None:
    _, few, many = (  # the first call imports modules
        peak_memory(write_scenes, ScenesConfig(scenes=count, size=101, noise=0.0), tmp_path)
        for count in (3, 7, 47)
    )
    assert many < few + 2**18  # forty pictures would take 1.2 MiB
