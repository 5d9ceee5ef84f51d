"""`harken ablate`: JSON, table, order of the parts and errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from torch import nn

from command_line import Cli
from harken.inspection.ablation import AblationMethod, HeadRef, ModelPart, Resample, ablated
from harken.measure import ablation_study
from harken.measure.interval import Unit
from harken.measure.paired import Difference, difference
from harken.run import load
from harken.tasks.answer import AnswerPredictor


def test_json_has_the_metric_without_every_head(small_run: Path, cli: Cli) -> None:
    result = cli.json("ablate", small_run, "--examples", 7)
    assert (result["task"], result["n"], result["metric"]) == ("answer", 7, "exact_match")
    assert (result["what"], result["how"]) == ("heads", "zero")
    names = [f"stack.blocks.{layer}.attention" for layer in (0, 1)]
    assert {(item["module"], item["head"]) for item in result["parts"]} == {
        (name, head) for name in names for head in (1, 2)
    }
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


def test_each_part_is_ablated_during_its_evaluation(
    small_run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record the ablated parts, since metrics of an untrained model hardly differ."""
    events: list[object] = []

    @contextmanager
    def recorded(
        model: nn.Module, parts: Sequence[ModelPart], how: AblationMethod
    ) -> Iterator[None]:
        with ablated(model, parts, how):
            events.append((parts, how))
            yield
            events.append("restored")

    evaluate = AnswerPredictor.evaluate
    monkeypatch.setattr(ablation_study.ablation, "ablated", recorded)
    monkeypatch.setattr(
        AnswerPredictor, "evaluate", lambda *given: (events.append("evaluate"), evaluate(*given))[1]
    )
    printed = cli("ablate", small_run, "--examples", 2, "--method", "resample", "--seed", 5)
    assert len(printed.err.splitlines()) == 4
    heads = [HeadRef(f"stack.blocks.{at}.attention", head) for at in (0, 1) for head in (1, 2)]
    assert events == ["evaluate"] + [
        event for head in heads for event in (([head], Resample(5)), "evaluate", "restored")
    ]


@pytest.mark.parametrize("how", ["mean", "resample"])
def test_layers_include_their_attention_and_feedforward(
    small_run: Path, how: str, cli: Cli
) -> None:
    options = ("--parts", "layers", "--method", how, "--examples", 3)
    parts = cli.json("ablate", small_run, *options)["parts"]
    kinds = {"layer": "", "attention": ".attention", "feedforward": ".feedforward"}
    assert sorted((item["kind"], item["module"]) for item in parts) == sorted(
        (kind, f"stack.blocks.{layer}{kinds[kind]}") for layer in (0, 1) for kind in kinds
    )


@pytest.mark.parametrize(("unit", "sign"), [("share", 1), ("nats", -1)])
def test_parts_are_sorted_by_the_loss_of_quality(
    small_run: Path, unit: Unit, sign: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share should be large and nats small."""
    made = iter([0.25, -0.5, 0.0, -0.125])
    monkeypatch.setattr(
        ablation_study, "difference", lambda *_: Difference(sign * next(made), 0.0, 0.0, 1.0, unit)
    )
    parts = cli.json("ablate", small_run, "--examples", 2)["parts"]
    assert [sign * item["difference"]["value"] for item in parts] == [-0.5, -0.125, 0.0, 0.25]
    assert [item["head"] for item in parts] == [2, 2, 1, 1]


def test_the_table_starts_with_the_whole_model(small_run: Path, cli: Cli) -> None:
    printed = cli("ablate", small_run, "--parts", "positions", "--examples", 3).out
    assert "nothing (n = 3)" in printed and "position" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--examples", "1", "--method", "resample"], "expected 2 or more for --method resample"),
        (["--parts", "positions", "--method", "mean"], "expected 'zero' for --parts positions"),
        (["--split", "test"], "there is no data.test"),
    ],
)
def test_wrong_options_of_ablate(
    small_run: Path, arguments: list[str], message: str, cli: Cli
) -> None:
    assert message in cli.error("ablate", small_run, *arguments)
