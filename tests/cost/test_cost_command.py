"""`harken cost`: what it prints and what it rejects."""

from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel

from command_line import Cli, sets
from harken.cost import time
from harken.cost.breakeven import compare_costs, interpolate_log
from harken.cost.time import KernelCounter
from harken.cost.trace import FakeFloats
from harken.cost.workload import count_formulas, depth_formulas, workload
from harken.recipe import load_recipe
from huggingface_folder import save_gpt2

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = ["model.width=16", "model.layers=1", "model.attention.heads=2"]
RECURRENT = sets(["model.kind=rnn", "model.width=16"])


def test_json_has_figures_and_formulas(cli: Cli) -> None:
    options = ["--length", 16, 32, "--batch", 3, "--vocabulary", 101]
    record = cli.json("cost", RECIPES / "lm.toml", *options, *RECURRENT)
    assert [column["T"] for column in record["lengths"]] == [16, 32]
    assert [column["B"] for column in record["lengths"]] == [3, 3]
    assert record["vocabulary"] == 101 and record["assumed"] == []
    assert record["formulas"]["step"] == "48 B T J² L + 6 B T J V"
    assert record["formulas"]["parameters"] == "8 J² L + 8 J L + 2 J V"
    assert record["growth"]["depth"] == "O(L ln J + T ln J + ln V)"
    first, second = record["lengths"]
    assert second["forward"] == 2 * first["forward"] and second["depth"] > first["depth"]


@pytest.mark.slow
def test_formulas_of_a_gpt() -> None:
    step = workload(load_recipe(RECIPES / "lm.toml", SMALL), vocabulary=101)
    formulas = {name: str(formula) for name, formula in count_formulas(step).items()}
    assert formulas["step"] == "72 B T J² L + 12 B T² J L + 6 B T J V"
    assert formulas["parameters"] == "12 J² L + 9 J L + J V + 130 J"
    assert formulas["saved_bytes"] == "64 B T J L + 8 B T J + 24 B T L + 4 B T V + 17 B T + 8 T + 4"
    depth = depth_formulas(step)["depth"]
    assert depth is not None and depth.growth("TJLV") == "O(L ln J + L ln T + ln V)"


def test_table(cli: Cli) -> None:
    small = ["model.width=40", "model.encoder.hidden=32", "model.characters={kind='none'}"]
    printed = cli("cost", RECIPES / "tag.toml", *sets(small), "--batch", 3)
    assert "O(T L ln J)" in printed.out and "parameters" in printed.out
    assert "assumed: a vocabulary of 20,000" in printed.err


def test_impossible_lengths(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    long = cli.error("cost", RECIPES / "lm.toml", "--length", 129)
    assert "expected at most 128 for this model" in long
    monkeypatch.setattr("harken.cost.trace.MAX_OPERATIONS", 50)
    traced = cli.error("cost", RECIPES / "lm.toml", *RECURRENT, "--length", 20)
    assert "too many to trace" in traced


def test_measured_and_predicted_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "MIN_SECONDS", 0.0)  # any time will do
    monkeypatch.setattr("harken.cost.breakeven.TIMED_LENGTHS", (2, 4))
    monkeypatch.setattr("harken.cost.breakeven.TOKENS", 8)
    options = ["--length", 7, "--batch", 2, "--vocabulary", 31, "--measure"]
    printed = cli("cost", RECIPES / "lm.toml", *sets(SMALL), *options).out
    assert "training step, predicted" in printed and "time: the RNN" in printed


def test_a_hugging_face_folder(cli: Cli, tmp_path: Path) -> None:
    folder = save_gpt2(tmp_path)  # 2 layers of width 12, 29 tokens
    (column,) = cli.json("cost", folder, "--length", 7, "--batch", 2)["lengths"]
    assert column["parameters"] == GPT2LMHeadModel.from_pretrained(folder).num_parameters()
    assert column["forward"] == 2 * 14 * (2 * 12 * 12 * 12 + 29 * 12) + 2 * 4 * 2 * 7 * 7 * 12


def test_break_even_is_the_first_length() -> None:
    pairs = compare_costs(24, 2, 31, timed=False)
    lengths = {(pair.measure, pair.kind, pair.baseline): pair.length for pair in pairs}
    length = lengths["depth", "Transformer", "RNN"]
    assert length is not None and length > 1
    assert lengths["depth", "CNN", "Transformer"] == 1


def test_times_between_and_beyond_measured_lengths() -> None:
    table = [(10, 1.0), (100, 10.0), (1000, 1000.0)]
    expected = {10: 1.0, 5: 0.5, 20: 2.0, 100: 10.0, 200: 40.0, 2000: 4000.0}
    assert {length: interpolate_log(table, length) for length in expected} == pytest.approx(
        expected
    )


def test_distinct_kernels_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(time, "median_seconds", lambda work: measured.append(work()) or 1.0)
    kernels = KernelCounter()
    with FakeFloats([kernels]):
        values = torch.empty(3, 5)
        for _ in range(4):
            values = values @ torch.empty(5, 5)
        torch.empty(7, 5)[torch.tensor([6, 0, 3])]
    assert kernels.seconds() == 5.0 and len(measured) == 2
    assert [tuple(result.shape) for result in measured] == [(3, 5), (3, 5)]
