"""`harken data scenes` as a script calls it."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import Cli
from harken.synthetic.scenes import ScenesConfig, draw_scene, held_out_pairs


def scenes(cli: Cli, *arguments: object) -> list[Path]:
    return [Path(line) for line in cli("data", "scenes", *arguments).out.splitlines()]


def captions(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["caption"] for line in lines]


def test_files_of_the_default_scenes(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    paths = scenes(cli, "--scenes", 13, "--out", out)
    names = ["train.jsonl", "dev.jsonl", "test.jsonl", "train.npz", "dev.npz", "test.npz"]
    assert paths == [out / name for name in (*names, "examples")]
    assert [len(captions(path)) for path in paths[:3]] == [11, 1, 1]
    images = np.load(out / "train.npz")["images"]
    np.testing.assert_array_equal(images[10], draw_scene(ScenesConfig(), "train", 10).picture)


def test_every_option_of_scenes(tmp_path: Path, cli: Cli) -> None:
    options = "--scenes 23 --size 37 --min-shapes 2 --max-shapes 2 --noise 0 --new-pairs --seed 5"
    train, _, test, images, *_ = scenes(cli, *options.split(), "--out", tmp_path)
    config = ScenesConfig(
        scenes=23, size=37, min_shapes=2, max_shapes=2, noise=0, new_pairs=True, seed=5
    )
    expected = np.stack([draw_scene(config, "train", index).picture for index in range(19)])
    np.testing.assert_array_equal(np.load(images)["images"], expected)
    for path, new in ((train, False), (test, True)):
        for caption in captions(path):
            words = caption.split()
            assert len(words) == 4
            pairs = set(zip(words[::2], words[1::2], strict=True))
            assert (pairs <= held_out_pairs(5)) if new else not (pairs & held_out_pairs(5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--scenes", "2"), "harken: data scenes: scenes must be from 3 to 100000, got 2"),
        (("--size", "7"), "size must be from 32 to 512, got 7"),
        (("--max-shapes", "9"), "max_shapes <= 4"),
    ],
)
def test_values_out_of_range(
    options: tuple[str, str], sentence: str, tmp_path: Path, cli: Cli
) -> None:
    assert sentence in cli.error("data", "scenes", *options, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
