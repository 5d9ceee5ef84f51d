"""The main job on made data: read biographies, learn to answer from a few, be asked about the rest.

Four rows on the same unasked people: a model that never read, always the commonest place, one that
read first, and one that read with Synthesizer scores in place of queries and keys. The run that
read is the run folder itself; the other two stand in `compared/` inside it, the data in a folder
beside it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig
from harken.attention.relative import RotaryConfig
from harken.attention.scores import SynthesizerConfig
from harken.batch.views import ViewsConfig
from harken.encode.subwords import BytePairConfig
from harken.files import write_text
from harken.models.gpt import GPTConfig
from harken.pipeline import Listener, train
from harken.report.run_page import run_report
from harken.report.tables import ResultRow
from harken.run import REPORT
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from harken.tasks.answer import (
    AnswerData,
    AnswerRecipe,
    AnswerTraining,
    AskingConfig,
    ReadingConfig,
)
from harken.training.optimiser import AdamWConfig, MuonConfig

PEOPLE = PeopleConfig(people=720, asked=0.55, places=120, biographies=24, facts=3)
COMPARED = "compared"


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoResult:
    """The table and the page that shows it."""

    rows: list[ResultRow]
    report: Path


def demo_recipe(files: PeopleFiles) -> AnswerRecipe:
    """The model that reads."""
    return AnswerRecipe(
        data=AnswerData(read=files.read, train=files.train, dev=files.test),
        encode=BytePairConfig(size=2000),
        model=GPTConfig(
            layers=3,
            width=128,
            length=96,
            attention=MultiHeadConfig(heads=4),
            position=RotaryConfig(),
        ),
        training=AnswerTraining(
            pretrain=ReadingConfig(
                steps=500,
                views=ViewsConfig(corrupted=0.3),
                questions=0.15,
                optimiser=MuonConfig(rate=0.01, rest=AdamWConfig(rate=0.003)),
            ),
            finetune=AskingConfig(
                steps=40, optimiser=MuonConfig(rate=0.0005, rest=AdamWConfig(rate=0.0002))
            ),
        ),
    )


def without_reading(recipe: AnswerRecipe) -> AnswerRecipe:
    """The same model, straight to the questions, with the rates and time that a fresh one needs."""
    pretrain = replace(recipe.training.pretrain, steps=0)
    finetune = replace(recipe.training.finetune, steps=200, optimiser=pretrain.optimiser)
    return replace(recipe, training=replace(recipe.training, pretrain=pretrain, finetune=finetune))


def with_synthesizer(recipe: AnswerRecipe) -> AnswerRecipe:
    """Scores from each token alone; rotation needs queries, so positions are learned."""
    attention = replace(recipe.model.attention, score=SynthesizerConfig())
    model = replace(recipe.model, attention=attention, position=LearnedConfig())
    return replace(recipe, model=model)


def run_demo(
    folder: Path,
    progress: Callable[[str], AbstractContextManager[Listener]],
    people: PeopleConfig = PEOPLE,
    shape: Callable[[AnswerRecipe], AnswerRecipe] = lambda recipe: recipe,
    seed: int = 0,
) -> DemoResult:
    """Everything, or what of it is not done yet: a second call only prints."""
    data = folder.parent / f"{folder.name}-data"
    if not (data / "questions.test.tsv").exists():
        write_people(replace(people, seed=seed), data)
    files = PeopleFiles(
        read=data / "people.txt",
        train=data / "questions.train.tsv",
        test=data / "questions.test.tsv",
    )
    recipe = shape(replace(demo_recipe(files), seed=seed))
    names = ("pretrained", "no pretraining", "pretrained Synthesizer")
    recipes = (recipe, without_reading(recipe), with_synthesizer(recipe))
    folders = (folder, folder / COMPARED / "no-pretraining", folder / COMPARED / "synthesizer")
    runs = []
    for name, one, where in zip(names, recipes, folders, strict=True):
        with progress(name) as listener:
            runs.append(train(one, where, resume=True, listener=listener, progress=False))
    evaluations = [run.evaluate() for run in runs]
    rows = {
        name: ResultRow(name=name, n=one.n, metric=one.metrics["exact_match"])
        for name, one in zip(names, evaluations, strict=True)
    }
    first = evaluations[0]
    usual = ResultRow(name="commonest place", n=first.n, metric=first.metrics["commonest_answer"])
    table = [rows["no pretraining"], usual, rows["pretrained"], rows["pretrained Synthesizer"]]
    write_text(folder / REPORT, run_report(runs[0], first, table))
    return DemoResult(rows=table, report=folder / REPORT)
