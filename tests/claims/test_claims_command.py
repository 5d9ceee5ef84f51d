"""`harken claims`: the table, the JSON object, the page, exit codes."""

import json
from pathlib import Path

import pytest

from harken.claims import lecture29, truncation
from harken.cli.main import main
from harken.pipeline import train
from harken.recipe import load_recipe
from small_recipe import SMALL


def test_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "A5", "--width", "16"]) == 0
    printed = capsys.readouterr().out
    assert "A5" in printed and "blocks zeroed" in printed and "narrower" in printed


def test_list_names_the_course_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--list", "--json"]) == 0
    listed = {claim["id"]: claim for claim in json.loads(capsys.readouterr().out)["claims"]}
    assert len(listed) == 28 and "verdict" not in listed["A4"]
    assert "ECE 537" in listed["A4"]["source"] and "TTIC 31230" in listed["B8"]["source"]
    assert main(["claims", "--list", "B10"]) == 0
    assert "Assignment 5, questions 1(a) and 1(b)" in capsys.readouterr().out


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "b1", "B5", "--json", "--seed", "7"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in record["claims"]] == ["B1", "B5"]
    assert record["as_expected"] is True and record["seed"] == 7
    assert record["claims"][1]["verdict"] == "holds under a narrower assumption"
    assert {case["agrees"] for case in record["claims"][0]["cases"]} == {True}


def test_unexpected_verdict_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = lecture29.fused_attention
    monkeypatch.setattr(lecture29, "fused_attention", lambda *arguments: 2 * fused(*arguments))
    assert main(["claims", "B1"]) == 1
    printed = capsys.readouterr()
    assert "does not hold" in printed.out and "B1" in printed.err


@pytest.mark.parametrize("invalid", [["D9"], ["--width", "7"], ["--seed", "-1"]])
def test_bad_input_is_one_sentence(invalid: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", *invalid]) == 2
    error = capsys.readouterr().err
    assert error.startswith("harken: claims: ") and error.count("\n") == 1


def test_page_replaces_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "claims.html"
    page.write_text("old")
    assert main(["claims", "A5", "--width", "16", "--page", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    assert "A5" in written and written.count('<svg class="plot"') == 1


def test_unwritable_page_is_rejected_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--page", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and f"{tmp_path}: cannot be written" in printed.err


def test_rank_truncation_of_a_run(
    small_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "INPUTS", 2)
    assert main(["claims", "B8", "--run", str(small_run), "--json"]) == 0
    (experiment,) = json.loads(capsys.readouterr().out)["experiments"]
    assert experiment["x"] == [*range(1, 13)]  # 24 wide, two heads
    assert set(experiment["lines"]) == {"random weights", "small"}
    for changes in experiment["lines"].values():
        assert changes[0] > changes[-2] > changes[-1] and changes[-1] < 1e-5
    assert main(["claims", "B8", "--run", str(small_run)]) == 0
    assert "directions kept" in capsys.readouterr().out


def test_rotary_run_is_rejected(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ("training.pretrain.steps=1", "training.finetune.steps=1")
    recipe = load_recipe(recipe_file, (*SMALL, "model.position.kind=rotary", *steps))
    train(recipe, tmp_path / "rotary")
    capsys.readouterr()
    assert main(["claims", "B8", "--run", str(tmp_path / "rotary")]) == 2
    assert "rotary" in capsys.readouterr().err


def test_run_without_claim_b8_is_rejected(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "A5", "--run", str(small_run)]) == 2
    assert "expected B8 among the claims" in capsys.readouterr().err
