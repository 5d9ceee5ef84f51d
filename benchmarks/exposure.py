"""Measure how the number and variety of biographies affect question answering (exact match).

    python benchmarks/exposure.py FOLDER [--seed N]        about ten minutes on two cores

This is a small version of the bioS experiment of "Physics of Language Models", part 3.1 (arXiv
2309.14316). For each condition, a model is pretrained on biographies of 300 fictional people,
finetuned on questions about half of the people, and tested on questions about the other half. Only
the biographies differ between conditions: how many there are per person, and whether their words
and the order of their sentences vary. Pretraining contains no questions and no corrupted texts,
because both would vary even a single biography.

The benchmark writes data and runs to FOLDER; a second call resumes there. It prints two rows per
condition with 95 % intervals: the exact match of the model (`exact_match`) and that of always
answering with the most frequent place (`majority_answer`).

Published, with a larger model and 100,000 people: 9.7 % from one biography, 41 % from five
rewritten ones, 96.6 % from five rewritten and permuted ones.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from harken.attention.multihead import MultiHeadConfig
from harken.attention.relative import RotaryConfig
from harken.batch.views import ViewsConfig
from harken.encode.subwords import WordsConfig
from harken.measure.interval import Estimate, format_interval, format_value
from harken.models.gpt import GPTConfig
from harken.pipeline import train
from harken.run_folder import RECIPE, read_metrics
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from harken.tasks.answer import (
    AnswerData,
    AnswerRecipe,
    AnswerTraining,
    FinetuneConfig,
    PretrainConfig,
)
from harken.training.optimizer import AdamWConfig, MuonConfig, SGDConfig

# Without permutation the birthplace is the second fact, as in bioS. If it came directly after the
# name, the biographies would have the same form as the questions.
PEOPLE = PeopleConfig(people=300, train_share=0.5, places=30, earlier=1)


class Condition(NamedTuple):
    """The number of biographies per person and what differs between them."""

    biographies: int
    rewrite: bool = False
    permute: bool = False

    @property
    def slug(self) -> str:
        """Name of the condition, such as `5-words-order`: five, rewritten and permuted."""
        variations = ["words"] * self.rewrite + ["order"] * self.permute
        return "-".join([str(self.biographies), *(variations or ["same"])])


CONDITIONS = (
    Condition(1),
    Condition(5),  # control: the same text five times
    Condition(5, rewrite=True),
    Condition(5, permute=True),
    Condition(2, rewrite=True, permute=True),
    Condition(5, rewrite=True, permute=True),
    Condition(10, rewrite=True, permute=True),
)


def recipe_of(files: PeopleFiles, seed: int) -> AnswerRecipe:
    """Return the recipe of all conditions. With whole words, all have the same vocabulary."""
    return AnswerRecipe(
        seed=seed,
        data=AnswerData(pretrain=files.texts, train=files.train, dev=files.test),
        encode=WordsConfig(),
        model=GPTConfig(
            layers=2,
            width=128,
            max_length=96,
            attention=MultiHeadConfig(heads=4),
            position=RotaryConfig(),
        ),
        training=AnswerTraining(
            pretrain=PretrainConfig(
                steps=900,
                batch_tokens=1024,
                views=ViewsConfig(corrupted=0.0, rotated=0.0),
                question_ratio=0.0,
                optimizer=MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.003)),
            ),
            # AdamW memorizes the 150 training answers (61 % instead of 83 % with five rewritten
            # and permuted biographies, seed 0).
            finetune=FinetuneConfig(steps=120, optimizer=SGDConfig(lr=0.01, momentum=0.9)),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where data and runs are written")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and training (0)")
    options = parser.parse_args()
    for condition in CONDITIONS:
        data, run = (options.folder / part / condition.slug for part in ("data", "runs"))
        if not (run / RECIPE).exists():
            write_people(replace(PEOPLE, **condition._asdict(), seed=options.seed), data)
        files = PeopleFiles(
            texts=data / "people.txt",
            train=data / "questions.train.tsv",
            test=data / "questions.test.tsv",
        )
        train(recipe_of(files, options.seed), run, resume=True, progress=False)
        metrics = read_metrics(run)["metrics"]
        for name in ("exact_match", "majority_answer"):
            metric = Estimate(**metrics[name])
            value = f"{format_value(metric.value, metric.unit):>8}  {format_interval(metric)}"
            print(f"{condition.slug:16} {name:18} {value}", flush=True)


if __name__ == "__main__":
    main()
