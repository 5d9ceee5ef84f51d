"""`harken claims`: the table, the JSON object, the page, exit codes."""

from pathlib import Path

import pytest

from command_line import Cli
from harken.claims import lecture29, truncation
from harken.recipe import load_recipe
from small_recipe import SMALL
from untrained import untrained_run


def test_table_and_page(tmp_path: Path, cli: Cli) -> None:
    page = tmp_path / "claims.html"
    page.write_text("old")
    printed = cli("claims", "A5", "--width", 16, "--page", page).out
    assert "A5" in printed and "blocks zeroed" in printed and "narrower" in printed
    written = page.read_text(encoding="utf-8")
    assert "A5" in written and written.count('<svg class="plot"') == 1


def test_list_names_the_course_documents(cli: Cli) -> None:
    listed = {claim["id"]: claim for claim in cli.json("claims", "--list")["claims"]}
    assert len(listed) == 28 and "verdict" not in listed["A4"]
    assert "ECE 537" in listed["A4"]["source"] and "TTIC 31230" in listed["B8"]["source"]
    assert "Assignment 5, questions 1(a) and 1(b)" in cli("claims", "--list", "B10").out


def test_json_is_one_object(cli: Cli) -> None:
    record = cli.json("claims", "b1", "B5", "--seed", 7)
    assert [claim["id"] for claim in record["claims"]] == ["B1", "B5"]
    assert record["as_expected"] is True and record["seed"] == 7
    assert record["claims"][1]["verdict"] == "holds under a narrower assumption"
    assert {case["agrees"] for case in record["claims"][0]["cases"]} == {True}


def test_unexpected_verdict_is_exit_code_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = lecture29.fused_attention
    monkeypatch.setattr(lecture29, "fused_attention", lambda *arguments: 2 * fused(*arguments))
    printed = cli("claims", "B1", code=1)
    assert "does not hold" in printed.out and "B1" in printed.err


def test_rank_truncation_of_a_run(
    small_run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "INPUTS", 2)
    (experiment,) = cli.json("claims", "B8", "--run", small_run)["experiments"]
    assert experiment["x"] == [*range(1, 13)]  # 24 wide, two heads
    assert set(experiment["lines"]) == {"random weights", "small"}
    for changes in experiment["lines"].values():
        assert changes[0] > changes[-2] > changes[-1] and changes[-1] < 1e-5
    assert "rank of" in cli("claims", "B8", "--run", small_run).out


def test_wrong_options_of_claims(
    small_run: Path, recipe_file: Path, tmp_path: Path, cli: Cli
) -> None:
    recipe = load_recipe(recipe_file, (*SMALL, "model.position.kind=rotary"))
    rotary = untrained_run(recipe, tmp_path / "rotary")
    for arguments, message in (
        (["D9"], "harken: claims: "),
        (["--width", 7], "harken: claims: "),
        (["--seed", -1], "harken: claims: "),
        (["--page", tmp_path], f"{tmp_path}: cannot be written"),
        (["B8", "--run", rotary], "rotary"),
        (["A5", "--run", small_run], "expected B8 among the claims"),
    ):
        assert message in cli.error("claims", *arguments)
