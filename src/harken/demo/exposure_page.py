"""The page of the study of exposure: how to read it, one figure, one table, what was equal."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from harken.demo.conditions import KINDS, Measured
from harken.measure.interval import Estimate, shown
from harken.report.intervals import Point, Series, interval_figure
from harken.report.page import Section, page
from harken.report.tables import ResultRow, result_table
from harken.synthetic.people import PeopleConfig
from harken.tasks.answer import AnswerRecipe
from harken.version import __version__

HOW_TO_READ = (
    "Every point is one model. All models have the same size, read for the same number of steps "
    "and then learned to answer from the same half of the people; only the biographies that they "
    "read differ. The height is the share of exact answers about the other half, of whom a model "
    "has only read; the bar is its 95 % interval. All lines start from one biography a person. "
    "Along the first line the same text is read more often, which tells nothing new; along the "
    "others each further biography says the same facts in other words, in another order, or both. "
    "A model that knows a text by heart need not be able to answer from it: it may find the "
    "birthplace by what stands before it in that text, where a question has only the name. Where "
    "two bars do not overlap, chance in who is asked about does not explain the difference. The "
    "bars know nothing of the seed: other people and other first weights move the heights too."
)
PUBLISHED = (
    "Published, for comparison and not measured here: 9.7 % from one biography a person, 41 % from "
    "five rewritten ones and 96.6 % where these are permuted too (bioS; Allen-Zhu and Li, Physics "
    "of Language Models, part 3.1, arXiv 2309.14316). Those are figures of a larger model and "
    "100,000 people, so compare the order of the conditions rather than the heights."
)
# By condition, where the name does not say it all.
NOTES = {
    "commonest": "no model: always the commonest training answer",
    "1-same": "the facts in one order for all",
    "5-same": "one text a person, five times: the control",
}


def exposure_page(
    rows: Sequence[Measured],
    commonest: Estimate,
    people: PeopleConfig,
    recipe: AnswerRecipe,
    folder: Path,
) -> str:
    """One self-contained HTML document."""
    command = ["harken", "demo", "exposure", "--run", str(folder), "--seed", str(recipe.seed)]
    tested = rows[0].n
    table = [
        ResultRow(name="commonest place", n=tested, metric=commonest, note=NOTES["commonest"]),
        *(
            ResultRow(
                name=row.condition.name,
                n=row.n,
                metric=row.metric,
                note=NOTES.get(row.condition.slug, ""),
            )
            for row in rows
        ),
    ]
    return page(
        "Exposure: what was told, and what can be asked",
        subtitle="; ".join(
            f"{row.condition.name}: {shown(row.metric.value, row.metric.unit)}"
            for row in (rows[0], max(rows, key=lambda row: row.metric.value or 0.0))
        ),
        facts={
            "people asked about": f"{people.people - tested} to learn, {tested} to be measured",
            "places": str(people.places),
            "conditions": str(len(rows)),
            "seed": str(recipe.seed),
        },
        sections=[
            Section(
                title="How to read this",
                lead=HOW_TO_READ,
                body=interval_figure(
                    series_of(rows),
                    title="Exact answers about people never asked about in training",
                    x_label="biographies a person, logarithmic",
                    y_label="right, in per cent",
                ),
            ),
            Section(
                title="The figures",
                lead=PUBLISHED,
                body=result_table(table, metric="exact match", named="read by the model"),
            ),
            Section(title="What was equal", lead=_equal(people, recipe), body=""),
        ],
        footer=f"Written by Harken {__version__}: {shlex.join(command)}",
    )


def series_of(rows: Sequence[Measured]) -> list[Series]:
    """One line a kind of telling; the first row is where all of them start."""
    first = Point(at=rows[0].condition.biographies, metric=rows[0].metric)
    found = []
    for kind in KINDS.values():
        own = sorted(
            (row for row in rows if row.condition.kind == kind),
            key=lambda row: row.condition.biographies,
        )
        points = [Point(at=row.condition.biographies, metric=row.metric) for row in own]
        if points:
            start = None if points[0] == first else first
            found.append(Series(name=kind, points=points, start=start))
    return found


def _equal(people: PeopleConfig, recipe: AnswerRecipe) -> str:
    model, pretrain, finetune = recipe.model, recipe.training.pretrain, recipe.training.finetune
    behind = f" and {people.earlier} other fact{'s' * (people.earlier > 1)}"
    return (
        f"A GPT of {model.layers} layers and width {model.width}, whole words as units, "
        f"{pretrain.steps} steps of {pretrain.batch_tokens} tokens of reading and then "
        f"{finetune.steps} steps on the questions of half of the people. Reading is plain: whole "
        "texts from their first token, and no questions among them. Other views or questions "
        "would teach a model to store whatever it reads so that it can be asked for. Every "
        f"biography tells {people.facts} facts; where the order is one for all, the birthplace "
        f"comes after the name{behind if people.earlier else ''}. Each condition is a run folder "
        "of its own, with its recipe, its curves and its answers in its report.html."
    )
