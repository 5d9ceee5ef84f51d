"""Event files of TensorBoard are those of an uninterrupted run, as its own reader reads them."""

import sys
from pathlib import Path

import numpy as np
import pytest

from harken.errors import UserError
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run_folder import read_log
from harken.training.loop import EvaluationDone, Event, StepDone
from small_recipe import SMALL
from untrained import equal_weights

TRACK = 'training.track=["tensorboard"]'


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the (step, value) pairs of each tag in all event files of a folder."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_events_of_a_run_that_fails_twice_and_is_resumed(recipe_file: Path, tmp_path: Path) -> None:
    """Both stages count their steps from 1. The failures leave steps that are repeated.

    The weights are those of a run without failures and without event files.
    """
    stage = "training.finetune"
    changes = [*SMALL, f"{stage}.save_every=2", f"{stage}.evaluate_every=2"]
    recipe = load_recipe(recipe_file, [*changes, TRACK])

    def fail_after(last: Event) -> None:
        def listener(event: Event) -> None:
            place = (type(event), event.stage, event.step)
            if place == last:
                raise RuntimeError("out of memory")

        with pytest.raises(RuntimeError):
            train(recipe, tmp_path / "run", resume=True, listener=listener)

    fail_after((StepDone, "pretrain", 4))  # without a checkpoint
    fail_after((StepDone, "finetune", 3))
    fail_after((EvaluationDone, "finetune", 4))  # the checkpoint is of step 2
    train(recipe, tmp_path / "run", resume=True)

    train(load_recipe(recipe_file, changes), tmp_path / "whole")
    assert equal_weights(tmp_path / "run", tmp_path / "whole")
    log = read_log(tmp_path / "run" / "log.jsonl")
    for stage in ("pretrain", "finetune"):
        steps = [event for event in log if event["stage"] == stage and event["event"] == "stepped"]
        found = scalars(tmp_path / "run" / "tensorboard" / stage / "train")
        assert set(found) == {"loss", "lr", "grad_norm", "tokens_per_second"}
        for tag, key in (("loss", "loss"), ("lr", "lr"), ("grad_norm", "norm")):
            expected = [(event["step"], np.float32(event[key])) for event in steps]
            assert found[tag] == expected
        rates = [event["tokens"] / event["seconds"] for event in steps]
        assert [rate for _, rate in found["tokens_per_second"]] == pytest.approx(rates)
    values = [(line["step"], line["value"]) for line in log if line["event"] == "evaluated"]
    assert [step for step, _ in values] == [2, 4, 5]
    dev = scalars(tmp_path / "run" / "tensorboard" / "finetune" / "dev")
    assert dev == {"score": [(step, np.float32(value)) for step, value in values]}


def test_a_missing_package_is_reported_first(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match="needs the package tensorboard") as caught:
        train(load_recipe(recipe_file, [*SMALL, TRACK]), tmp_path / "run")
    assert "pip install 'harken[tensorboard]'" in caught.value.fix
    assert not (tmp_path / "run").exists()
