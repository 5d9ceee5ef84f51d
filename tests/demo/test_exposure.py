"""The study's way, small: only the telling differs, nothing is done twice, nothing else is lost."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from harken.cli.main import main
from harken.demo.conditions import CONDITIONS, Condition, Measured
from harken.demo.exposure import (
    PEOPLE,
    ExposureResult,
    exposure_recipe,
    run_exposure,
)
from harken.demo.exposure_page import series_of
from harken.encode.vocabulary import END, PAD
from harken.errors import UserError
from harken.measure.interval import Estimate
from harken.pipeline import Listener
from harken.recipe import load_recipe, task_of
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from harken.tasks.answer import AnswerRecipe, AnswerTask
from harken.training.loop import Event, Stepped
from untrained import batches

FEW = PeopleConfig(people=40, places=5, earlier=1)
SOME = (
    Condition(biographies=1),
    Condition(biographies=2, rewrite=True),
    Condition(biographies=3, rewrite=True, permute=True),
)
SLUGS = ["1-same", "2-words", "3-words-order"]


def small(recipe: AnswerRecipe) -> AnswerRecipe:
    training = recipe.training
    return replace(
        recipe,
        model=replace(recipe.model, layers=1, width=16),
        training=replace(
            training,
            pretrain=replace(training.pretrain, steps=4, batch_tokens=256),
            finetune=replace(training.finetune, steps=3, batch_tokens=256),
        ),
    )


run_small = partial(run_exposure, people=FEW, conditions=SOME, shape=small)
Heard = list[tuple[str, Event]]


def hearing(
    heard: Heard, then: Callable[[str], None] = lambda name: None
) -> Callable[[str], AbstractContextManager[Listener]]:
    @contextmanager
    def progress(name: str) -> Iterator[Listener]:
        def listen(event: Event) -> None:
            heard.append((name, event))
            then(name)

        yield listen

    return progress


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExposureResult, Heard]:
    heard: Heard = []
    folder = tmp_path_factory.mktemp("study") / "exposure"
    return folder, run_small(folder, hearing(heard)), heard


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_condition_trains_as_long_on_the_same_questions(
    study: tuple[Path, ExposureResult, Heard],
) -> None:
    folder, done, heard = study
    assert [row.condition for row in done.rows] == list(SOME)
    assert {row.n for row in done.rows} == {20}
    steps = Counter(name for name, event in heard if isinstance(event, Stepped))
    assert steps == {f"{number}/3 {one.name}": 7 for number, one in enumerate(SOME, start=1)}
    recipes = [load_recipe(folder / "runs" / slug / "recipe.toml") for slug in SLUGS]
    assert len({one.data.read for one in recipes}) == 3
    assert {replace(one, data=recipes[0].data) for one in recipes} == {recipes[0]}
    for part in ("train", "test"):
        name = f"questions.{part}.tsv"
        asked = {
            frozenset((folder / "data" / slug / name).read_text().splitlines()) for slug in SLUGS
        }
        assert len(asked) == 1
        assert len(asked.pop()) == 20


def test_the_page_shows_every_row(study: tuple[Path, ExposureResult, Heard]) -> None:
    folder, done, _ = study
    assert done.report == folder / "report.html"
    page = done.report.read_text(encoding="utf-8")
    assert all(row.condition.name in page for row in done.rows)
    assert page.count("<figure") == 1 and page.count("<table") == 1
    assert f"harken demo exposure --run {folder} --seed 0" in page
    assert "9.7 %" in page and "not measured here" in page


def test_a_second_call_trains_nothing(study: tuple[Path, ExposureResult, Heard]) -> None:
    folder, done, _ = study
    before, heard = contents(folder), Heard()
    assert run_small(folder, hearing(heard)) == done
    assert heard == []
    assert contents(folder) == before


def test_a_stopped_study_goes_on_where_it_was(
    study: tuple[Path, ExposureResult, Heard], tmp_path: Path
) -> None:
    def stop(name: str) -> None:
        if name.startswith("2/3"):
            raise KeyboardInterrupt

    folder, heard = tmp_path / "exposure", Heard()
    with pytest.raises(KeyboardInterrupt):
        run_small(folder, hearing([], then=stop))
    assert not (folder / "report.html").exists()
    done = run_small(folder, hearing(heard))
    assert {name[:3] for name, _ in heard} == {"2/3", "3/3"}
    assert done.rows == study[1].rows


def test_another_seed_does_not_touch_a_study(study: tuple[Path, ExposureResult, Heard]) -> None:
    folder, _, _ = study
    before = contents(folder)
    with pytest.raises(UserError, match=r"seed = 0.*seed = 1"):
        run_small(folder, hearing([]), seed=1)
    assert contents(folder) == before


def test_data_of_a_run_that_never_began_are_told_anew(tmp_path: Path) -> None:
    # A kill between the data and the recipe, and then another seed.
    folder = tmp_path / "exposure"
    write_people(replace(FEW, seed=8), folder / "data" / "1-same")
    run_small(folder, hearing([]), conditions=SOME[:1], seed=1)
    wanted = write_people(replace(FEW, rewrite=False, permute=False, seed=1), tmp_path / "wanted")
    read = folder / "data" / "1-same" / "people.txt"
    assert read.read_text() == wanted.read.read_text()


@pytest.mark.parametrize("name", ["recipe.toml", "demo"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(UserError, match=f"found '{name}' in it, wanted a new or empty folder"):
        run_small(tmp_path, hearing([]))
    assert set(contents(tmp_path).values()) == {b"mine"}
    with pytest.raises(UserError, match="found a file, wanted a folder"):
        run_small(tmp_path / name, hearing([]))


# --- the study at its own size


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[PeopleFiles]:
    """What each condition of the study reads."""
    folder = tmp_path_factory.mktemp("told")
    return [
        write_people(
            replace(PEOPLE, biographies=one.biographies, rewrite=one.rewrite, permute=one.permute),
            folder / one.slug,
        )
        for one in CONDITIONS
    ]


def test_conditions_differ_and_begin_with_one_biography() -> None:
    assert len({one.slug for one in CONDITIONS}) == len({one.name for one in CONDITIONS}) == 7
    assert CONDITIONS[0] == Condition(biographies=1)
    assert all(re.fullmatch(r"[0-9a-z-]+", one.slug) for one in CONDITIONS)


def test_all_conditions_have_the_same_words(told: list[PeopleFiles]) -> None:
    units = set()
    for files in told:
        recipe = exposure_recipe(files)
        task = AnswerTask()
        fitted = task.fit(recipe, task.read_splits(recipe)["train"])
        units.add(frozenset(fitted.pieces(range(len(fitted)))))
    assert len(units) == 1


def test_no_place_is_a_good_guess_and_enough_people_are_asked(told: list[PeopleFiles]) -> None:
    answers = [line.split("\t")[1] for line in told[0].test.read_text().splitlines()]
    assert len(answers) >= 150
    assert Counter(answers).most_common(1)[0][1] <= 0.1 * len(answers)


def test_reading_is_plain_text_and_nothing_chooses_weights(
    told: list[PeopleFiles], tmp_path: Path
) -> None:
    recipe = exposure_recipe(told[0])
    task = task_of(recipe)
    splits = task.read_splits(recipe)
    fitted = task.fit(recipe, splits["train"])
    reading, asking = task.stages(recipe, splits, fitted, tmp_path)
    texts = set(told[0].read.read_text().splitlines())
    for step in range(3):
        for batch in batches(reading, step):
            for row in batch.inputs.tolist():
                kept = [token for token in row if token not in (PAD, END)]
                assert fitted.decode([kept])[0].strip() in texts
    # The people measured on must not choose the weights.
    assert (reading.config.evaluate_every, asking.config.evaluate_every) == (0, 0)


# --- rows, lines and the command


def row(condition: Condition, value: float) -> Measured:
    return Measured(condition=condition, n=20, metric=Estimate(value, value - 0.1, value + 0.1))


def test_one_line_a_kind_all_from_the_first_point() -> None:
    rows = [
        row(Condition(biographies=1), 0.1),
        row(Condition(biographies=10, rewrite=True, permute=True), 0.9),
        row(Condition(biographies=5, permute=True), 0.5),
        row(Condition(biographies=2, rewrite=True, permute=True), 0.6),
    ]
    same, permuted, both = series_of(rows)
    assert [one.name for one in (same, permuted, both)] == [
        "the same words and order",
        "permuted",
        "rewritten and permuted",
    ]
    assert [point.at for point in both.points] == [2, 10]
    assert same.start is None
    assert permuted.start == both.start == same.points[0]


def test_the_command_prints_rows(
    study: tuple[Path, ExposureResult, Heard],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, done, _ = study
    monkeypatch.setattr("harken.demo.exposure.run_exposure", run_small)
    assert main(["demo", "exposure", "--run", str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["task"], printed["seed"]) == ("exposure", 0)
    assert printed["report"] == str(done.report)
    assert printed["rows"][2] == {
        "name": "3 biographies, rewritten and permuted",
        "biographies": 3,
        "rewrite": True,
        "permute": True,
        "n": 20,
        "value": done.rows[2].metric.value,
        "low": done.rows[2].metric.low,
        "high": done.rows[2].metric.high,
        "unit": "share",
    }
    assert main(["demo", "exposure", "--run", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "commonest place" in shown
    assert all(one.condition.name in shown for one in done.rows)
    assert f"report: {done.report}" in shown


def test_wrong_words_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--run", str(tmp_path / "new")]
    for task in ("answer", "exposure"):
        assert main(["demo", task, "--seed", "-1", *where]) == 2
        assert "--seed: found -1, wanted a number from 0 on" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "exposures", *where])
    assert not (tmp_path / "new").exists()
