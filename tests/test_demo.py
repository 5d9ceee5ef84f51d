"""The demo with a small model: its table and page, and a second call that trains nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harken.demo import PEOPLE, demo_recipe, run_demo, with_synthesizer, without_pretraining
from harken.pipeline import Listener
from harken.run import load
from harken.synthetic.people import PeopleConfig, write_people
from harken.tasks.answer import AnswerRecipe
from harken.training.loop import Event

FEW = PeopleConfig(people=60, places=9, biographies=2, facts=2)


def small(recipe: AnswerRecipe) -> AnswerRecipe:
    training = recipe.training
    return replace(
        recipe,
        model=replace(recipe.model, layers=1, width=16),
        training=replace(
            training,
            pretrain=replace(training.pretrain, steps=3, batch_tokens=512),
            finetune=replace(training.finetune, steps=2, batch_tokens=512),
        ),
    )


def test_table_and_page_and_no_second_training(tmp_path: Path) -> None:
    trained: list[str] = []

    @contextmanager
    def progress(name: str) -> Iterator[Listener]:
        def listen(event: Event) -> None:
            trained.append(name)

        yield listen

    folder = tmp_path / "demo"
    result = run_demo(folder, progress, people=FEW, modify=small)
    assert [row.name for row in result.rows] == [
        "no pretraining",
        "most frequent place",
        "pretrained",
        "pretrained Synthesizer",
    ]
    assert {row.n for row in result.rows} == {30}
    page = result.report.read_text(encoding="utf-8")
    assert all(row.name in page for row in result.rows)
    assert set(trained) == {"pretrained", "no pretraining", "pretrained Synthesizer"}
    trained.clear()
    assert run_demo(folder, progress, people=FEW, modify=small) == result
    assert trained == []
    assert load(folder).recipe.model.position.kind == "rotary"
    synthesizer = load(folder / "compared" / "synthesizer").recipe
    assert synthesizer.model.attention.score.kind == "synthesizer"
    assert load(folder / "compared" / "no-pretraining").recipe.training.pretrain.steps == 0


def test_data_has_enough_people_and_places(tmp_path: Path) -> None:
    files = write_people(PEOPLE, tmp_path)
    answers = [line.split("\t")[1] for line in files.test.read_text().splitlines()]
    everywhere = answers + [line.split("\t")[1] for line in files.train.read_text().splitlines()]
    assert len(answers) >= 300
    assert len(set(everywhere)) >= 100
    for places in (everywhere, answers):
        assert max(map(places.count, set(places))) <= 0.05 * len(places)
    # No checkpoint may be selected by the held-out people, on whom it is then evaluated.
    recipe = demo_recipe(files)
    assert recipe.training.finetune.evaluate_every == 0
    for variant in (without_pretraining(recipe), with_synthesizer(recipe)):
        assert (variant.data, variant.seed) == (recipe.data, recipe.seed)
        assert variant.training.finetune.evaluate_every == 0
