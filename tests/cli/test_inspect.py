"""`harken inspect`: file names, selection, output and errors."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import Cli
from harken.cli import inspect
from harken.errors import Failure
from harken.inspection.refs import HeadPattern
from harken.inspection.store import open_recording
from harken.report import attention_page
from harken.report.run_page import run_report
from harken.report.viewed_attention import view_attention
from harken.run import load
from harken.tasks.answer import AnswerPredictor
from harken.tasks.attention_view import AttentionExample
from harken.tasks.prediction import Evaluation, Truncation

QUESTION = "Where was Ada born?"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are tested in tests/report."""
    monkeypatch.setattr(inspect, "attention_files", lambda viewed, title: {"svg": title.encode()})


@pytest.mark.usefixtures("quick")
def test_numbers_of_every_head(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    lines = tmp_path / "questions.txt"
    lines.write_text(f"Where was Bob born?\n\n{QUESTION}\n", encoding="utf-8")
    out = tmp_path / "out"
    result = cli.json("inspect", small_run, QUESTION, "--file", lines, "--out", out, "--save")
    inputs = [item["input"] for item in result["inputs"]]
    assert inputs == [QUESTION, "Where was Bob born?", QUESTION]
    assert result["task"] == "answer"
    first, _, again = result["inputs"]
    assert first["views"] == again["views"]
    stem = out / "where-was-ada-born-1"
    endings = (".html", "-view-1.svg", "-record")
    assert first["files"] == [f"{stem}{ending}" for ending in endings]
    assert all(Path(path).exists() for item in result["inputs"] for path in item["files"])

    (view,) = first["views"]
    recording = open_recording(Path(f"{stem}-record"))
    assert [call.name for call in recording.calls] == [
        item["module"] for item in view["attentions"]
    ]
    assert recording.tokens == (tuple(view["queries"]), tuple(view["keys"]))
    for number, (item, call) in enumerate(zip(view["attentions"], recording.calls, strict=True), 1):
        weights = call.read()[0]
        assert set(call.shapes) == {"weights", "queries", "keys", "values"}
        assert item["layer"] == number and item["shape"] == list(weights.shape)
        for head in item["heads"]:
            for row, (at, weight) in enumerate(
                zip(head["argmax_keys"], head["weights"], strict=True)
            ):
                largest = max(weights[head["head"] - 1, row].tolist())
                assert weight == pytest.approx(largest, abs=1e-6)
                assert weights[head["head"] - 1, row, at] == largest


@pytest.mark.usefixtures("quick")
def test_selected_layers_and_heads(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    run = load(small_run)
    example = run.attention(QUESTION)
    assert example is not None
    (whole,) = view_attention(run.model, example)
    (some,) = view_attention(run.model, example, [HeadPattern(layer=2)], [HeadPattern(head=2)])
    (layer,) = some.layers
    assert (list(layer.heads), layer.module) == ([2], whole.layers[1].module)
    np.testing.assert_array_equal(layer.weights, whole.layers[1].weights[1:2])
    assert (layer.name, layer.head_name(0), some.columns) == ("L2", "L2.H2", [2])
    figure = attention_page.attention_figure(some, "title")
    assert "L2.H2" in figure and "H1" not in figure
    options = ("--out", tmp_path, "--layers", 2, "--heads", 2)
    (view,) = cli.json("inspect", small_run, QUESTION, *options)["inputs"][0]["views"]
    (item,) = view["attentions"]
    assert (item["layer"], [head["head"] for head in item["heads"]]) == (2, [2])


@pytest.mark.usefixtures("quick")
def test_a_truncated_input_is_reported_on_stderr(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("inspect", small_run, QUESTION, "--out", tmp_path).err == ""
    long = "Where was " + "Ada " * 500 + "born?"
    (warning,) = cli("inspect", small_run, long, "--out", tmp_path).err.splitlines()
    assert "input truncated to 63 of " in warning


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "expected one or more inputs, got none"),
        ([QUESTION, "--layers", "3"], "layers L3: not in the model (expected one of L1, L2)"),
        (
            [QUESTION, "--heads", "3,5"],
            "heads H3: not in the model (expected one of L1.H1, L1.H2",
        ),
        ([QUESTION, "--heads", "0"], "--heads: expected a number from 1"),
        ([QUESTION, "--layers", "1-2"], "--layers: expected a number from 1"),
        ([QUESTION, "--layers", "9" * 5000], "--layers: expected"),
        (["\udcff"], "expected UTF-8 text"),
        (["--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_wrong_inputs_and_options(
    small_run: Path, tmp_path: Path, arguments: list[str], sentence: str, cli: Cli
) -> None:
    out = tmp_path / "out"
    assert sentence in cli.error("inspect", small_run, *arguments, "--out", out)
    assert not out.exists()


@pytest.mark.usefixtures("quick")
def test_other_files_are_not_overwritten(small_run: Path, tmp_path: Path, cli: Cli) -> None:
    there = tmp_path / "where-was-ada-born-1-record" / "letters.txt"
    there.parent.mkdir()
    there.write_text("mine", encoding="utf-8")
    printed = cli("inspect", small_run, QUESTION, "--out", tmp_path, "--save", code=2)
    assert "which is not part of a recording" in printed.err
    assert there.read_text(encoding="utf-8") == "mine"


def test_a_truncated_input_is_named_wherever_it_is_shown(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """On stderr, in JSON, on the page and its figures, and in the report of the run."""
    truncation = Truncation(kept=7, total=1234, part="first")
    attention, evaluate = AnswerPredictor.attention, AnswerPredictor.evaluate

    def cut(self: AnswerPredictor, *given: Any) -> AttentionExample:
        return replace(attention(self, *given), truncation=truncation)

    def cut_first(self: AnswerPredictor, *given: Any) -> Evaluation:
        evaluation = evaluate(self, *given)
        first, *others = evaluation.predictions
        predictions = [replace(first, truncation=truncation), *others]
        object.__setattr__(evaluation, "predictions", predictions)
        return evaluation

    monkeypatch.setattr(AnswerPredictor, "attention", cut)
    monkeypatch.setattr(AnswerPredictor, "evaluate", cut_first)
    message = "input truncated to 7 of 1,234 tokens (first)"
    printed = cli("inspect", small_run, QUESTION, "--out", tmp_path, "--json")
    (result,) = json.loads(printed.out)["inputs"]
    assert message in printed.err and result["truncation"]["total"] == 1234
    for path in map(Path, result["files"]):
        if path.suffix in (".html", ".svg"):
            assert "truncated to 7 of 1,234 tokens" in re.sub(r"\s+", " ", path.read_text())
    run = load(small_run)
    page = run_report(run, run.evaluate())
    assert page.count(message) == 3  # of the inputs, above the attention, next to the example


def test_attention_that_is_not_finite_is_an_error(small_run: Path) -> None:
    run: Any = load(small_run)
    example = run.attention(QUESTION)
    run.model.embedding.weight.data.fill_(float("nan"))
    with pytest.raises(Failure, match="not finite"):
        view_attention(run.model, example)


@given(st.text(), st.booleans())
def test_names_of_files_are_safe_and_short(text: str, file: bool) -> None:
    slug = inspect._slug(text, is_file=file)
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert len(slug) <= inspect.MAX_SLUG


def test_names_of_files_tell_the_input() -> None:
    assert inspect._slug("../../etc/passwd\x00", is_file=False) == "etc-passwd"
    assert inspect._slug("tests/Beach 1.JPG", is_file=True) == "beach-1"
    assert inspect._slug("data/test.npz#7", is_file=True) == "test-7"
    assert inspect._slug("Über den Fluss", is_file=False) == "uber-den-fluss"
    assert inspect._slug("你好", is_file=False) == "input"
    long = "an input of more than forty characters in it"
    assert inspect._slug(long, is_file=False) == "an-input-of-more-than-forty-characters"
