"""`compare`, `evaluate` and reports on small runs of every task."""

import json
from pathlib import Path

import pytest

from command_line import Cli
from harken.cli.output import print_metrics
from harken.pipeline import metrics_record, train
from harken.recipe import TASKS
from harken.report.model_card import model_card
from harken.report.run_page import run_report
from harken.run import load
from small_files import SMALL
from untrained import task_recipe


@pytest.fixture(scope="module", params=[task for task in TASKS if task != "answer"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs from different seeds; those of `answer` are in test_compare.py."""
    folder = tmp_path_factory.mktemp(request.param)
    for seed in ("1", "2"):
        overrides = [*SMALL[request.param], f"seed={seed}"]
        train(task_recipe(request.param, folder, overrides), folder / seed)
    return [folder / "1", folder / "2"]


def test_compare_evaluate_and_report(runs: list[Path], tmp_path: Path, cli: Cli) -> None:
    result = cli.json("compare", *runs)
    alone = cli.json("evaluate", runs[0])
    stored = (runs[0] / "metrics.json").read_text()
    assert json.loads(stored, parse_constant=pytest.fail) == alone
    assert result["runs"][0]["metrics"] == alone["metrics"]
    assert result["task"] == alone["task"]
    for metric in alone["metrics"].values():
        assert metric.keys() == {"value", "low", "high", "unit", "n"}
        assert (metric["value"] is None) == (metric["n"] == 0)
        if metric["low"] is not None:
            assert metric["low"] <= metric["value"] <= metric["high"]
    for item in result["differences"]:
        assert 0 < item["p"] <= 1
    page = tmp_path / "page.html"
    assert "nan" not in cli("compare", *runs, "--out", page).out
    assert "<td>None" not in page.read_text()


def test_one_example_has_no_interval(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = load(runs[0])
    evaluation = run.predictor.evaluate(run.examples("dev")[:1])
    record = metrics_record(run, evaluation)
    for name, metric in evaluation.metrics.items():
        assert (metric.low, metric.high) == (None, None), name
    capsys.readouterr()
    print_metrics(record)
    for text in (capsys.readouterr().out, model_card(run, evaluation)):
        assert "n/a" in text
        assert "None" not in text
    assert "n/a" in run_report(run, evaluation)
