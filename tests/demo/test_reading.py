"""The demo's way, small: four rows in order, one page, and a second call that trains nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harken.demo.reading import PEOPLE, demo_recipe, run_demo, with_synthesizer, without_pretraining
from harken.pipeline import Listener
from harken.run import load
from harken.synthetic.people import PeopleConfig
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


def test_four_rows_one_page_and_nothing_twice(tmp_path: Path) -> None:
    trained: list[str] = []

    @contextmanager
    def progress(name: str) -> Iterator[Listener]:
        def listen(event: Event) -> None:
            trained.append(name)

        yield listen

    folder = tmp_path / "demo"
    done = run_demo(folder, progress, people=FEW, modify=small)
    assert [row.name for row in done.rows] == [
        "no pretraining",
        "most frequent place",
        "pretrained",
        "pretrained Synthesizer",
    ]
    assert {row.n for row in done.rows} == {30}
    page = done.report.read_text(encoding="utf-8")
    assert all(row.name in page for row in done.rows)
    assert set(trained) == {"pretrained", "no pretraining", "pretrained Synthesizer"}
    trained.clear()
    again = run_demo(folder, progress, people=FEW, modify=small)
    assert again == done
    assert trained == []
    assert load(folder).recipe.model.position.kind == "rotary"
    synthesizer = load(folder / "compared" / "synthesizer").recipe
    assert synthesizer.model.attention.score.kind == "synthesizer"
    assert load(folder / "compared" / "no-pretraining").recipe.training.pretrain.steps == 0


def test_the_demo_asks_enough_people_from_enough_places(tmp_path: Path) -> None:
    from harken.synthetic.people import write_people

    files = write_people(PEOPLE, tmp_path)
    answers = [line.split("\t")[1] for line in files.test.read_text().splitlines()]
    everywhere = [line.split("\t")[1] for line in files.train.read_text().splitlines()] + answers
    assert len(answers) >= 300
    assert len(set(everywhere)) >= 100
    assert max(map(everywhere.count, set(everywhere))) <= 0.05 * len(everywhere)
    assert max(map(answers.count, set(answers))) <= 0.05 * len(answers)
    # The held-out people must not choose the weights that are then measured on them.
    recipe = demo_recipe(files)
    assert recipe.training.finetune.evaluate_every == 0
    for other in (without_pretraining(recipe), with_synthesizer(recipe)):
        assert (other.data, other.seed) == (recipe.data, recipe.seed)
        assert other.training.finetune.evaluate_every == 0
