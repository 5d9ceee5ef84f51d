"""`compare`, `evaluate` and reports on small runs of every task."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harken.cli.main import main
from harken.cli.output import print_metrics
from harken.pipeline import metrics_record, train
from harken.recipe import TASKS, load_recipe
from harken.report.model_card import model_card
from harken.report.run_page import run_report
from harken.run import load
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpeechConfig, write_speech
from small_recipe import SMALL_OF

SMALLER = {"lm": ("model.layers=1", "model.width=12", "model.max_length=32", "search.max_tokens=3")}


def no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} in JSON")


def write_data(task: str, folder: Path) -> str:
    """Write the files for a task and return the table [data] of its recipe."""
    if task in ("tag", "fill", "lm", "translate"):
        write_sentences(SentencesConfig(sentences=60), folder)
    if task == "tag":
        return 'train="train.conllu"\ndev="dev.conllu"'
    if task in ("fill", "lm"):
        return 'train="train.en"\ndev="dev.en"'
    if task == "translate":
        return "\n".join(
            f'{split}.{side}="{split}.{name}"'
            for split in ("train", "dev")
            for side, name in (("source", "en"), ("target", "xx"))
        )
    if task == "transcribe":
        write_speech(
            SpeechConfig(utterances=30, min_words=1, max_words=2, speakers=5, seed=3), folder
        )
    else:
        write_scenes(ScenesConfig(scenes=30, size=48, min_shapes=1, max_shapes=2, seed=3), folder)
    return 'train="train.jsonl"\ndev="dev.jsonl"'


@pytest.fixture(scope="module", params=[task for task in TASKS if task != "answer"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs from different seeds; those of `answer` are in test_compare.py."""
    folder = tmp_path_factory.mktemp(request.param)
    recipe = folder / "recipe.toml"
    recipe.write_text(f'task="{request.param}"\n[data]\n{write_data(request.param, folder)}\n')
    for seed in (1, 2):
        settings = [*SMALL_OF[request.param], *SMALLER.get(request.param, ()), f"seed={seed}"]
        train(load_recipe(recipe, settings), folder / str(seed))
    return [str(folder / str(seed)) for seed in (1, 2)]


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=no_constant)


def test_compare_evaluate_and_report(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = printed_json(capsys, "compare", *runs)
    alone = printed_json(capsys, "evaluate", runs[0])
    stored = json.loads((Path(runs[0]) / "metrics.json").read_text(), parse_constant=no_constant)
    assert stored == alone
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
    assert main(["compare", *runs, "--out", str(page)]) == 0
    assert "nan" not in capsys.readouterr().out
    assert "<td>None" not in page.read_text()


def test_one_example_has_no_interval(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
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
