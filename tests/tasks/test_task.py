"""Splits are read once and kept; a trained model is evaluated in memory."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from harken import pipeline
from harken.recipe import load_recipe
from harken.tasks import answer
from harken.tasks.task import SplitPaths, Splits
from small_recipe import SMALL


def test_each_split_is_read_on_first_access_and_kept(tmp_path: Path) -> None:
    read: list[Path] = []

    def read_words(path: Path) -> list[str]:
        read.append(path)
        return [f"{path.stem}{number}" for number in range(10)]

    train, dev, test = (tmp_path / name for name in ("train", "dev", "test"))
    splits = Splits(SplitPaths(train=train, dev=dev, test=test), read_words)
    assert list(splits) == ["train", "dev", "test"] and len(splits) == 3 and read == []
    assert splits["dev"] == splits["dev"] == read_words(dev)
    assert read == [dev, dev]  # the second one is the line above
    held_out = Splits(SplitPaths(train=train, dev=0.3), read_words, seed=1)
    assert len(held_out["train"]) == 7 and len(held_out["dev"]) == 3
    assert sorted([*held_out["train"], *held_out["dev"]]) == read_words(train)
    assert read == [dev, dev, train, train]
    assert set(held_out) == {"train", "dev"}


def test_only_training_data_are_checked() -> None:
    def refuse(train: object) -> None:
        raise ValueError("no words")

    splits = Splits(SplitPaths(train=Path("train"), dev=0.5), lambda path: "ab", check_train=refuse)
    assert len(splits["dev"]) == 1
    with pytest.raises(ValueError, match="no words"):
        splits["train"]


def test_a_run_reads_its_data_once_and_is_not_loaded_again(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[Path] = Counter()
    original = answer.read_table

    def counting(path: Path, columns: Mapping[str, str]) -> object:
        read[path] += 1
        return original(path, columns)

    def load(*arguments: object) -> object:
        raise AssertionError("the model is in memory")

    monkeypatch.setattr(answer, "read_table", counting)
    monkeypatch.setattr(pipeline, "load", load)
    recipe = load_recipe(recipe_file, SMALL)
    run = pipeline.train(recipe, tmp_path / "run")
    assert run.evaluate().n == len(run.splits["dev"])
    assert read == {recipe.data.train: 1, recipe.data.dev: 1}
    assert not run.model.training


@pytest.mark.parametrize("dev", [0.0, 1.0, 2.5])
def test_a_number_for_dev_is_a_share(dev: float) -> None:
    with pytest.raises(ValueError, match="not a share"):
        SplitPaths(train=Path("train"), dev=dev)
