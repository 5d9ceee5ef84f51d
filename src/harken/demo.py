"""The experiment of `harken demo`: the effect of pretraining on questions about held-out people.

The table compares a model without pretraining, the most frequent place, a pretrained model and a
pretrained Synthesizer. The folder of `run_demo` is the run of the pretrained model; its subfolder
`compared` has the other two runs, and FOLDER-data the generated biographies and questions.
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
from harken.run_folder import REPORT
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from harken.tasks.answer import (
    AnswerData,
    AnswerRecipe,
    AnswerTraining,
    FinetuneConfig,
    PretrainConfig,
)
from harken.training.optimizer import AdamWConfig, MuonConfig

PEOPLE = PeopleConfig(people=720, train_share=0.55, places=120, biographies=24, facts=3)


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoResult:
    """The rows of the table, and the path of the page that contains it."""

    rows: list[ResultRow]
    report: Path


def demo_recipe(files: PeopleFiles) -> AnswerRecipe:
    """Return the recipe of the pretrained model."""
    return AnswerRecipe(
        data=AnswerData(pretrain=files.texts, train=files.train, dev=files.test),
        encode=BytePairConfig(vocab_size=2000),
        model=GPTConfig(
            layers=3,
            width=128,
            max_length=96,
            attention=MultiHeadConfig(heads=4),
            position=RotaryConfig(),
        ),
        training=AnswerTraining(
            pretrain=PretrainConfig(
                steps=500,
                views=ViewsConfig(corrupted=0.3),
                question_ratio=0.15,
                optimizer=MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.003)),
            ),
            finetune=FinetuneConfig(
                steps=40, optimizer=MuonConfig(lr=0.0005, fallback=AdamWConfig(lr=0.0002))
            ),
        ),
    )


def without_pretraining(recipe: AnswerRecipe) -> AnswerRecipe:
    """Skip pretraining; finetune longer, with the optimizer of pretraining."""
    pretrain = replace(recipe.training.pretrain, steps=0)
    finetune = replace(recipe.training.finetune, steps=200, optimizer=pretrain.optimizer)
    return replace(recipe, training=replace(recipe.training, pretrain=pretrain, finetune=finetune))


def with_synthesizer(recipe: AnswerRecipe) -> AnswerRecipe:
    """Use Synthesizer scores, and learned positions because rotary ones need queries."""
    attention = replace(recipe.model.attention, score=SynthesizerConfig())
    model = replace(recipe.model, attention=attention, position=LearnedConfig())
    return replace(recipe, model=model)


def run_demo(
    folder: Path,
    progress: Callable[[str], AbstractContextManager[Listener]],
    people: PeopleConfig = PEOPLE,
    modify: Callable[[AnswerRecipe], AnswerRecipe] = lambda recipe: recipe,
    seed: int = 0,
) -> DemoResult:
    """Generate the data, train the models, evaluate them and write the report.

    Data and trained models of an earlier call are used again; interrupted training is resumed.
    """
    data = folder.parent / f"{folder.name}-data"
    files = PeopleFiles(
        texts=data / "people.txt",
        train=data / "questions.train.tsv",
        test=data / "questions.test.tsv",
    )
    if not files.test.exists():
        write_people(replace(people, seed=seed), data)
    recipe = modify(replace(demo_recipe(files), seed=seed))
    variants = {
        "pretrained": (recipe, folder),
        "no pretraining": (without_pretraining(recipe), folder / "compared" / "no-pretraining"),
        "pretrained Synthesizer": (with_synthesizer(recipe), folder / "compared" / "synthesizer"),
    }
    runs = {}
    for name, (variant, run_folder) in variants.items():
        with progress(name) as listener:
            runs[name] = train(variant, run_folder, resume=True, listener=listener, progress=False)
    evaluations = {name: run.evaluate() for name, run in runs.items()}
    pretrained = evaluations["pretrained"]
    measured = {name: result.metrics["exact_match"] for name, result in evaluations.items()}
    measured["most frequent place"] = pretrained.metrics["majority_answer"]
    order = ("no pretraining", "most frequent place", "pretrained", "pretrained Synthesizer")
    rows = [ResultRow(name, pretrained.n, measured[name]) for name in order]
    write_text(folder / REPORT, run_report(runs["pretrained"], pretrained, rows))
    return DemoResult(rows=rows, report=folder / REPORT)
