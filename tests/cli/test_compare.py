"""`harken compare`: JSON, tables, pages and errors."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from command_line import Cli
from harken import config
from harken.cli import compare
from harken.measure.interval import Sample, Unit, ratio, share
from harken.measure.paired import difference
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.report.comparison import ComparedRun, compare_runs, comparison_page
from harken.run import load
from harken.synthetic.people import PeopleFiles
from harken.tasks.prediction import Evaluation
from small_recipe import SMALL

METRICS = [
    "exact_match",
    "majority_answer",
    "calibration_error",
    "accuracy_at_90",
    "accuracy_at_70",
    "accuracy_at_50",
    "unknown_answers",
    "nearest_name_string",
    "nearest_name_embedding",
]


@pytest.fixture(scope="module")
def other_run(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same recipe from another seed, on the same dev file."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    train(load_recipe(recipe_file, [*SMALL, "seed=7"]), folder)
    return folder


@pytest.fixture(scope="module")
def third_run(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose dev questions are its own share of the training questions."""
    folder = tmp_path_factory.mktemp("runs") / "third"
    train(load_recipe(recipe_file, [*SMALL, "data.dev=0.25"]), folder)
    return folder


def test_json_has_the_metrics_of_evaluate_and_the_differences(
    small_run: Path, other_run: Path, cli: Cli
) -> None:
    runs = [str(small_run), str(other_run)]
    result = cli.json("compare", *runs)
    assert result.keys() == {"task", "n", "runs", "differences"}
    assert (result["task"], result["n"]) == ("answer", 20)
    for run, listed in zip(runs, result["runs"], strict=True):
        alone = cli.json("evaluate", run)
        seeds = [load_recipe(Path(run) / "recipe.toml").seed]
        assert listed == {"run": run, "seeds": seeds, "n": alone["n"], "metrics": alone["metrics"]}
    samples = [load(run).evaluate().samples for run in runs]
    assert result["differences"] == [
        {"run": runs[1], "against": runs[0], "metric": metric}
        | asdict(paired)
        | {"corrected_p": paired.p}
        for metric in METRICS
        for paired in [difference(samples[0][metric], samples[1][metric])]
    ]


def test_tables_and_a_page(small_run: Path, other_run: Path, tmp_path: Path, cli: Cli) -> None:
    target = tmp_path / "new" / "page.html"
    printed = cli("compare", small_run, other_run, "--out", target)
    assert printed.err == f"report: {target}\n"
    lines = printed.out.splitlines()
    figures = [line.split() for line in lines if line.strip()]
    assert figures[0] == ["metric", "small", "other"]
    assert figures[2] == ["n", "20", "20"]
    assert [line[:2] for line in figures[3:5]] == [["exact", "match"], ["majority", "answer"]]
    (second,) = [line for line in lines if "against" in line]
    assert second.split()[:3] == ["run", "against", "metric"]
    assert sum(line.split()[:2] == ["other", "small"] for line in lines) == len(METRICS)
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "not comparable" not in text
    assert "comparison of 2 runs" in text and "Exact match" in text


def test_each_later_run_against_the_first_on_a_file(
    small_run: Path, other_run: Path, third_run: Path, people: PeopleFiles, cli: Cli
) -> None:
    runs = [str(third_run), str(other_run), str(small_run)]
    result = cli.json("compare", *runs, "--data", people.test, "--beam", 2)
    assert result["n"] == 20
    assert [(item["run"], item["against"], item["metric"]) for item in result["differences"]] == [
        (runs[at], runs[0], metric) for at in (1, 2) for metric in METRICS
    ]


def test_other_numbers_of_examples(small_run: Path, third_run: Path, cli: Cli) -> None:
    message = cli.error("compare", small_run, third_run)
    assert f"{third_run}: expected the 20 examples of {small_run}, got 5" in message
    assert "--data" in message


def test_other_examples(
    small_run: Path, people: PeopleFiles, recipe_file: Path, tmp_path: Path, cli: Cli
) -> None:
    """One answer of the dev files differs, which is found before any weight is read."""
    lines = people.test.read_text(encoding="utf-8").splitlines()
    question, answer = lines[2].split("\t")
    changed = tmp_path / "changed.tsv"
    changed.write_text("\n".join([*lines[:2], f"{question}\tAtlantis", *lines[3:]]) + "\n")
    copy = tmp_path / "copy"
    shutil.copytree(small_run, copy)
    recipe = load_recipe(recipe_file, [*SMALL, f"data.dev={changed}"])
    (copy / "recipe.toml").write_text(config.dumps(recipe), encoding="utf-8")
    (copy / "model.safetensors").write_bytes(b"no weights")
    message = cli.error("compare", small_run, copy)
    assert message.startswith(f"harken: {copy}: expected ")
    assert "Atlantis" in message and answer in message
    assert f"as example 3, as in {small_run}, got" in message


def test_runs_and_options_that_cannot_be_compared(
    small_run: Path,
    other_run: Path,
    untrained_run: Callable[[str], Path],
    tmp_path: Path,
    cli: Cli,
) -> None:
    tagger, again = untrained_run("tag"), small_run / ".." / small_run.name
    page, both = tmp_path / "page.html", (small_run, other_run)
    for arguments, message in (
        ((small_run, tagger), f"{tagger}: expected a run of task 'answer', got 'tag'"),
        ((small_run,), "expected two or more runs, got one"),
        ((*both, again), f"{again}: same run as {small_run}"),
        ((small_run, tmp_path), "not a run folder"),
        ((*both, "--split", "test"), "there is no data.test"),
        ((*both, "--source", "a.txt"), "--source"),
        ((*both, "--data", "a.txt", "--split", "dev"), "--split"),
        ((*both, "--beam", 0), "--beam"),
    ):
        assert message in cli.error("compare", *arguments, "--out", page)
        assert not page.exists()


def test_a_folder_of_seeds_is_a_group(
    small_run: Path, other_run: Path, tmp_path: Path, cli: Cli
) -> None:
    """Copies of two runs in one folder, compared with a run of its own name."""
    group, alone = tmp_path / "group", tmp_path / "alone"
    for seed, run in ((5, small_run), (7, other_run)):
        shutil.copytree(run, group / f"seed-{seed}")
    shutil.copytree(small_run, alone)
    page = tmp_path / "page.html"
    result = cli.json("compare", alone, group, "--out", page)
    single, means = result["runs"]
    assert (means["seeds"], single["seeds"]) == ([5, 7], [5])
    values = [load(run).evaluate().metrics["exact_match"].value for run in (small_run, other_run)]
    mean = means["metrics"]["exact_match"]
    assert mean["values"] == values
    assert mean["value"] == pytest.approx(sum(values) / 2)
    listed = [item for item in result["differences"] if item["metric"] == "exact_match"]
    assert listed[0]["value"] == pytest.approx(mean["value"] - values[0])
    assert "5, 7" in page.read_text(encoding="utf-8")
    lines = [line.split() for line in cli("compare", alone, group).out.splitlines()]
    assert ["seeds", "1", "2"] in lines
    assert "same run as" in cli.error("compare", group, group / "seed-5")
    (group / "seed-7" / "model.safetensors").unlink()
    assert "seed-7: training has not finished" in cli.error("compare", alone, group)


def test_chance_is_corrected_for_the_number_of_runs() -> None:
    """With five to eight wrong outputs instead of none, p is about 1/16, 1/32 and 1/128."""
    rows = compare_runs(
        [run_of("a", {"right": share([True] * 31)})]
        + [
            run_of(name, {"right": share([True] * (31 - wrong) + [False] * wrong)})
            for name, wrong in (("b", 6), ("c", 5), ("d", 8))
        ]
    )
    p_values = [row.difference.p for row in rows if row.difference is not None]
    corrected = [row.corrected_p for row in rows]
    assert corrected == pytest.approx(
        [2 * p_values[0], max(p_values[1], 2 * p_values[0]), 3 * p_values[2]]
    )
    assert p_values[0] < 0.05 < corrected[0] and rows[0].cells[-1] == "–"
    assert rows[2].cells[-1] == "a"


def run_of(
    name: str, samples: dict[str, Sample], notes: dict[str, str] | None = None
) -> ComparedRun:
    return ComparedRun(
        folder=f"runs/{name}",
        name=name,
        parameters=1009,
        vocabulary=53,
        seeds=[3],
        evaluations=[Evaluation(n=31, samples=samples, notes=notes or {})],
    )


def nats(mean: float, examples: int, unit: Unit = "nats") -> Sample:
    spread = np.linspace(-0.01 * mean, 0.01 * mean, examples)
    counts = np.stack((mean + spread, np.ones(examples)), axis=1)
    return Sample(counts=counts, metric=ratio, unit=unit)


def test_the_better_run_is_named_only_where_chance_is_unlikely() -> None:
    even = [at % 2 == 0 for at in range(31)]
    first = run_of("first", {"nats": nats(1.5, 31), "right": share(even)})
    second = run_of("second", {"nats": nats(1.2, 31), "right": share([True] * 31)})
    third = run_of("third", {"nats": nats(1.7, 31), "right": share([*even[:-1], False])})
    cells = {
        (row.run.name, row.metric): row.cells[3:] for row in compare_runs([first, second, third])
    }
    assert cells["second", "nats"] == (
        "-0.300 nats",
        "-0.301 to -0.299",
        "0.0001",
        "0.0002",
        "second",
    )
    assert cells["third", "nats"] == (
        "+0.200 nats",
        "+0.200 to +0.200",
        "0.0001",
        "0.0002",
        "first",
    )
    value, _, p, corrected, better = cells["second", "right"]
    assert (value, better) == ("+48.4 points", "second")
    assert float(p) < 0.001 and float(corrected) == pytest.approx(2 * float(p))
    value, interval, *p, better = cells["third", "right"]
    assert (value, p, better) == ("-3.2 points", ["1.0000", "1.0000"], "–")
    assert interval == "-15.9 to +9.5"  # one of 31 differs


def test_what_is_not_comparable_is_shown_without_a_test(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As of language models with other vocabularies, and a metric that only one run has."""
    first = run_of("first", {"nats": nats(1.5, 31), "bits": nats(2.0, 31, "bits")})
    second = run_of("second", {"nats": nats(1.2, 29), "bits": nats(2.5, 31, "bits")})
    third = run_of("third", {"nats": nats(1.2, 31), "perplexity": nats(9.0, 31, "perplexity")})
    runs = [first, second, third]
    rows = compare_runs(runs)
    assert [(row.run.name, row.metric, row.difference is None) for row in rows] == [
        ("second", "nats", True),
        ("second", "bits", False),
        ("third", "nats", False),
    ]
    record = compare._record("lm", runs, rows)
    listed = record["differences"]
    assert isinstance(listed, list)
    assert [(item["run"], item["metric"]) for item in listed] == [
        ("runs/second", "bits"),
        ("runs/third", "nats"),
    ]
    compare._print(runs, rows)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["second", "first", "nats", "not", "comparable", "–", "–", "–", "–"] in lines
    assert ["metric", "first", "second", "third"] in lines
    (perplexities,) = [line for line in lines if line[:1] == ["perplexity"]]
    assert perplexities[1:] == ["–", "–", "9.0", "(9.0", "-", "9.0)"]
    (figures,) = [line for line in lines if line[:1] == ["nats"]]
    assert figures[-4:] == ["1.200", "(1.197", "-", "1.203)"]
    page = comparison_page("lm", runs, rows)
    assert "not comparable" in page
    assert "Perplexity" in page


def test_a_page_escapes_names_and_says_where_notes_differ() -> None:
    sample = {"right": share([True, False, True])}
    notes = ("one & all", "one and another")
    runs = [
        run_of(name, sample, {"right": note})
        for name, note in zip(("<q>", "two"), notes, strict=True)
    ]
    page = comparison_page("answer", runs, compare_runs(runs))
    assert "<q>" not in page
    assert page.count("&lt;q&gt;") >= 4  # subtitle, differences, figures, runs
    assert "one &amp; all" in page
    assert "one and another" in page
    alike = [run_of(name, sample, {"right": notes[1]}) for name in ("one", "two")]
    assert comparison_page("answer", alike, compare_runs(alike)).count(notes[1]) == 1
