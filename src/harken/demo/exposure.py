"""Exposure: what a model can be asked, against how often and how variously it was told.

Everyone's six facts are told in some number of biographies, in the same words or in others, in the
same order or in others. One model reads each telling as plain text, learns from half of the people
to answer where someone was born, and is asked about the other half: the bioS experiment of
"Physics of Language Models", part 3.1 (arXiv 2309.14316), small.

    data/CONDITION/   what was told    runs/CONDITION/   the model that read it    report.html

Sizes, steps, questions and words are equal in all conditions; only the biographies differ. The
stages stay apart, as in bioS: questions among the reading would teach to store facts so that they
can be asked for, whatever the telling, and other views of a text would vary even a single one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from harken.attention.multihead import MultiHeadConfig
from harken.attention.relative import RotaryConfig
from harken.batch.views import ViewsConfig
from harken.demo.conditions import CONDITIONS, Condition, Measured
from harken.demo.exposure_page import exposure_page
from harken.encode.subwords import WordsConfig
from harken.errors import UserError
from harken.files import write_text
from harken.measure.interval import Estimate
from harken.models.language_model import GPTConfig
from harken.pipeline import Listener, train
from harken.run import RECIPE, REPORT, read_metrics
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from harken.tasks.answer import (
    AnswerData,
    AnswerRecipe,
    AnswerTraining,
    AskingConfig,
    ReadingConfig,
)
from harken.training.optimiser import AdamWConfig, DescentConfig, MuonConfig

DATA, RUNS = "data", "runs"
MEASURED = ("exact_match", "commonest_answer")
# The birthplace comes second in the one order for all, as in bioS: right behind the name there
# would be nothing but the name to find it by, as in a question.
PEOPLE = PeopleConfig(people=300, asked=0.5, places=30, earlier=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExposureResult:
    """A row for each condition, what guessing would reach, and the page that shows them."""

    rows: list[Measured]
    commonest: Estimate  # always saying the commonest training answer
    report: Path


def exposure_recipe(files: PeopleFiles) -> AnswerRecipe:
    """The model of every condition; whole words, so that all conditions have the same units."""
    return AnswerRecipe(
        data=AnswerData(read=files.read, train=files.train, dev=files.test),
        encode=WordsConfig(),
        model=GPTConfig(
            layers=2,
            width=128,
            length=96,
            attention=MultiHeadConfig(heads=4),
            position=RotaryConfig(),
        ),
        training=AnswerTraining(
            pretrain=ReadingConfig(
                steps=900,
                batch_tokens=1024,
                views=ViewsConfig(corrupted=0.0, turned=0.0),
                questions=0.0,
                optimiser=MuonConfig(rate=0.01, rest=AdamWConfig(rate=0.003)),
            ),
            # Plain descent moves most what all questions share. AdamW makes every move as large as
            # any other, and then 150 answers are sooner learnt by heart than found in what was
            # read (seed 0, five biographies, rewritten and permuted: 61 % with AdamW, 83 % so).
            finetune=AskingConfig(steps=120, optimiser=DescentConfig(rate=0.01, momentum=0.9)),
        ),
    )


def run_exposure(
    folder: Path,
    progress: Callable[[str], AbstractContextManager[Listener]],
    people: PeopleConfig = PEOPLE,
    conditions: Sequence[Condition] = CONDITIONS,
    shape: Callable[[AnswerRecipe], AnswerRecipe] = lambda recipe: recipe,
    seed: int = 0,
) -> ExposureResult:
    """Everything, or what of it is not done yet: a second call only prints."""
    claim(folder)
    rows, recipes, guesses = [], [], []
    for number, condition in enumerate(conditions, start=1):
        where = folder / RUNS / condition.slug
        told = replace(
            people,
            biographies=condition.biographies,
            rewrite=condition.rewrite,
            permute=condition.permute,
            seed=seed,
        )
        files = tell(told, folder / DATA / condition.slug, where)
        recipe = shape(replace(exposure_recipe(files), seed=seed))
        with progress(f"{number}/{len(conditions)} {condition.name}") as listener:
            train(recipe, where, resume=True, listener=listener, progress=False)
        found = read_metrics(where)
        right, guess = (Estimate(**found["metrics"][name]) for name in MEASURED)
        rows.append(Measured(condition=condition, n=found["n"], metric=right))
        guesses.append(guess)
        recipes.append(recipe)
    result = ExposureResult(rows=rows, commonest=guesses[0], report=folder / REPORT)
    write_text(result.report, exposure_page(rows, result.commonest, people, recipes[0], folder))
    return result


def claim(folder: Path) -> None:
    """Refuse a folder that is something else's: its report would be lost."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder}: found a file, wanted a folder", fix="choose another folder")
    strange = sorted({path.name for path in folder.iterdir()} - {DATA, RUNS, REPORT})
    if strange:
        raise UserError(
            f"{folder}: found {strange[0]!r} in it, wanted a new or empty folder, "
            "or the study's own",
            fix="choose another folder",
        )


def tell(people: PeopleConfig, data: Path, run: Path) -> PeopleFiles:
    """Write what a run reads, but never again once it has begun: its recipe then names the seed."""
    if not (run / RECIPE).exists():
        return write_people(people, data)
    return PeopleFiles(
        read=data / "people.txt",
        train=data / "questions.train.tsv",
        test=data / "questions.test.tsv",
    )
