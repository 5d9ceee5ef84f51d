"""The experiment of the demo at a small size: pretraining on texts adds knowledge."""

from dataclasses import replace
from pathlib import Path

import pytest

from harken.demo import demo_recipe, without_pretraining
from harken.pipeline import train
from harken.synthetic.people import PeopleConfig, write_people

FEW = PeopleConfig(people=150, train_share=0.6, places=20, biographies=20, facts=2)


@pytest.mark.slow
def test_pretraining_on_texts_answers_questions_about_new_people(tmp_path: Path) -> None:
    recipe = demo_recipe(write_people(FEW, tmp_path / "data"))
    pretrain = replace(recipe.training.pretrain, steps=250, batch_tokens=2048)
    recipe = replace(recipe, training=replace(recipe.training, pretrain=pretrain))
    pretrained = train(recipe, tmp_path / "pretrained").evaluate().metrics["exact_match"]
    baseline = (
        train(without_pretraining(recipe), tmp_path / "baseline").evaluate().metrics["exact_match"]
    )
    assert pretrained.value - baseline.value >= 0.4
    assert pretrained.low > baseline.high
