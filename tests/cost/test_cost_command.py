"""`harken cost`: what it prints, refuses and leaves alone."""

import json
from pathlib import Path
from typing import get_args

import pytest

from harken.cli.main import main
from harken.cost import machine
from harken.cost.breakeven import break_evens
from harken.cost.tape import Kind

RECIPES = Path(__file__).parents[2] / "recipes"


def test_one_object_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--length", "16", "32", "--batch", "3", "--vocabulary", "101", "--json"]
    assert main(["cost", str(RECIPES / "lm.toml"), *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["T"] for one in found["lengths"]] == [16, 32]
    assert [one["B"] for one in found["lengths"]] == [3, 3]
    assert found["vocabulary"] == 101 and found["assumed"] == []
    assert found["growth"]["depth"] == "O(L ln J + L ln T + ln V)"
    first, second = found["lengths"]
    assert second["forward"] > 2 * first["forward"]  # twice the tokens, and longer looks
    assert second["depth"] > first["depth"]


def test_a_page_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(RECIPES / "tag.toml")]) == 0
    said = capsys.readouterr()
    assert "O(L T ln J)" in said.out and "parameters" in said.out
    assert "assumed: a vocabulary of 20,000" in said.err


def test_a_row_longer_than_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(RECIPES / "lm.toml"), "--length", "129"]) == 2
    assert "the model takes at most 128" in capsys.readouterr().err


def test_measures_beside_what_was_predicted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SHORTEST", 0.0)  # a table is wanted here, not a good one
    monkeypatch.setattr(machine, "ROUNDS", 1)
    small = ["model.width=16", "model.layers=1", "model.attention.heads=2"]
    sets = [part for one in small for part in ("--set", one)]
    asked = ["--length", "7", "--batch", "2", "--vocabulary", "31", "--measure", "--json"]
    assert main(["cost", str(RECIPES / "lm.toml"), *sets, *asked]) == 0
    (found,) = json.loads(capsys.readouterr().out)["lengths"]
    assert found["predicted_seconds"] > 0 and found["measured_seconds"] > 0
    assert found["kept"] == pytest.approx(found["measured_kept"], rel=0.15)
    assert found["measured_peak"] >= found["measured_kept"] and found["peak"] >= found["kept"]


def test_break_even_is_the_first_length() -> None:
    found = {(one.measure, one.one, one.other): one.length for one in break_evens(24, 2, 31)}
    length = found["depth", "Transformer", "RNN"]
    assert length is not None and length > 1
    assert found["depth", "CNN", "Transformer"] == 1


def test_break_even_by_time_is_that_of_the_machine() -> None:
    """On a machine on which only the LSTM takes any time, it is never the faster one."""
    kinds = {kind: [machine.Timed(1.0, 1e-9)] for kind in get_args(Kind)}
    kinds["lstm"] = [machine.Timed(1.0, 1.0)]
    made = machine.Machine(
        kinds=kinds,
        linear=[(1.0, kinds["linear"])],
        adamw=[machine.Timed(1.0, 0.0)],
        muon=[],
    )
    found = {
        (one.one, one.other): one.length
        for one in break_evens(24, 2, 31, made)
        if one.measure == "time"
    }
    assert found["RNN", "Transformer"] is None and found["CNN", "RNN"] == 1
