"""`harken claims`: the table, the JSON object, the page, exit codes."""

import json
from pathlib import Path

import pytest

from harken.claims import lecture
from harken.cli.main import main


def test_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "A5", "--width", "16"]) == 0
    printed = capsys.readouterr().out
    assert "A5" in printed and "blocks zeroed" in printed and "narrower" in printed


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "b1", "B5", "--json", "--seed", "7"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in record["claims"]] == ["B1", "B5"]
    assert record["as_expected"] is True and record["seed"] == 7
    assert record["claims"][1]["verdict"] == "holds under a narrower assumption"
    assert {case["agrees"] for case in record["claims"][0]["cases"]} == {True}


def test_a_red_row_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = lecture.attend_fast
    monkeypatch.setattr(lecture, "attend_fast", lambda *arguments: 2 * fast(*arguments))
    assert main(["claims", "B1"]) == 1
    found = capsys.readouterr()
    assert "does not hold" in found.out and "B1" in found.err


@pytest.mark.parametrize("wrong", [["D9"], ["--width", "7"], ["--seed", "-1"]])
def test_bad_input_is_one_sentence(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", *wrong]) == 2
    said = capsys.readouterr().err
    assert said.startswith("harken: claims: found") and said.count("\n") == 1


def test_page_replaces_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "claims.html"
    page.write_text("old")
    assert main(["claims", "A5", "--width", "16", "--page", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    assert "A5" in written and written.count('<svg class="plot"') == 1
