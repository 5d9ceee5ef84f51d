"""That reading teaches: the demo's experiment, small enough for a test."""

from dataclasses import replace
from pathlib import Path

import pytest

from harken.demo.reading import demo_recipe, without_reading
from harken.pipeline import train
from harken.synthetic.people import PeopleConfig, write_people

FEW = PeopleConfig(people=150, question_ratio=0.6, places=20, biographies=20, facts=2)


@pytest.mark.slow
def test_a_model_that_read_knows_people_that_it_was_never_asked_about(tmp_path: Path) -> None:
    recipe = demo_recipe(write_people(FEW, tmp_path / "data"))
    pretrain = replace(recipe.training.pretrain, steps=250, batch_tokens=2048)
    recipe = replace(recipe, training=replace(recipe.training, pretrain=pretrain))
    read = train(recipe, tmp_path / "read").evaluate().metrics["exact_match"]
    not_read = train(without_reading(recipe), tmp_path / "not").evaluate().metrics["exact_match"]
    assert read.value - not_read.value >= 0.4
    assert read.low > not_read.high
