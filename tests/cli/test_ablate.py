"""`harken ablate` as a script and a person meet it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from torch import nn

from harken.cli.main import main
from harken.inspection.ablation import AblationMethod, HeadRef, ModelPart, Resample, ablated
from harken.measure import ablation_study
from harken.measure.interval import Unit
from harken.measure.paired import Difference, difference
from harken.run import load
from harken.tasks.answer import AnswerPredictor


def test_json_has_every_head_and_what_evaluate_says_without_it(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", str(small_run), "--examples", "7", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["task"], result["n"], result["metric"]) == ("answer", 7, "exact_match")
    assert (result["what"], result["how"]) == ("heads", "zero")
    names = [f"stack.blocks.{layer}.attention" for layer in (0, 1)]
    assert {(item["module"], item["head"]) for item in result["parts"]} == {
        (name, head) for name in names for head in (1, 2)
    }
    assert len(printed.err.splitlines()) == 4
    run = load(small_run)
    examples = run.task.read_splits(run.recipe)["dev"][:7]
    before = run.predictor.evaluate(examples)
    assert result["whole"]["value"] == before.samples["exact_match"].value
    first = result["parts"][0]
    with ablated(run.model, [HeadRef(first["module"], first["head"])]):
        after = run.predictor.evaluate(examples)
    assert first["value"]["value"] == after.metrics["exact_match"].value
    result = difference(before.samples["exact_match"], after.samples["exact_match"])
    assert first["difference"] == asdict(result)


def test_each_part_is_gone_while_it_is_measured(
    small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record the ablated parts, since metrics of an untrained model hardly differ."""
    gone: list[object] = []

    @contextmanager
    def noting(model: nn.Module, parts: Sequence[ModelPart], how: AblationMethod) -> Iterator[None]:
        with ablated(model, parts, how):
            gone.append((parts, how))
            yield
            gone.append("measured")

    evaluate = AnswerPredictor.evaluate
    monkeypatch.setattr(ablation_study.ablation, "ablated", noting)
    monkeypatch.setattr(
        AnswerPredictor, "evaluate", lambda *given: (gone.append("evaluate"), evaluate(*given))[1]
    )
    arguments = ["ablate", str(small_run), "--examples", "2", "--how", "resample", "--seed", "5"]
    assert main(arguments) == 0
    heads = [HeadRef(f"stack.blocks.{at}.attention", head) for at in (0, 1) for head in (1, 2)]
    assert gone == ["evaluate"] + [
        event for head in heads for event in (([head], Resample(5)), "evaluate", "measured")
    ]


@pytest.mark.parametrize("how", ["mean", "resample"])
def test_layers_are_blocks_and_what_is_in_them(
    small_run: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ablate", str(small_run), "--what", "layers", "--how", how, "--examples", "3"]
    assert main([*arguments, "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    blocks = [f"stack.blocks.{layer}" for layer in (0, 1)]
    assert sorted((item["kind"], item["module"]) for item in parts) == sorted(
        pair
        for name in blocks
        for pair in (
            ("layer", name),
            ("attention", f"{name}.attention"),
            ("feedforward", f"{name}.feedforward"),
        )
    )


@pytest.mark.parametrize(("unit", "sign"), [("share", 1), ("nats", -1)])
def test_the_dearest_part_comes_first(
    small_run: Path,
    unit: Unit,
    sign: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A share should be large and nats small; a model that knows nothing has nothing to lose."""
    made = iter([0.25, -0.5, 0.0, -0.125])
    monkeypatch.setattr(
        ablation_study, "difference", lambda *_: Difference(sign * next(made), 0.0, 0.0, 1.0, unit)
    )
    assert main(["ablate", str(small_run), "--examples", "2", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert [sign * item["difference"]["value"] for item in parts] == [-0.5, -0.125, 0.0, 0.25]
    assert [item["head"] for item in parts] == [2, 2, 1, 1]


def test_a_person_reads_a_table(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", str(small_run), "--what", "positions", "--examples", "3"]) == 0
    printed = capsys.readouterr().out
    assert "nothing (3)" in printed
    assert "position" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--examples", "1", "--how", "resample"], "expected 2 or more"),
        (["--what", "positions", "--how", "mean"], "has only zero"),
        (["--split", "test"], "there is no data.test"),
    ],
)
def test_what_cannot_be_done(
    small_run: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", str(small_run), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("harken: ") and message in line
