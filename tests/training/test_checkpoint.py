"""Checkpoints: exact, whole, and refused when damaged."""

from pathlib import Path

import pytest
import torch
from torch import nn

from harken.errors import Failure
from harken.training.checkpoint import (
    Checkpoint,
    Progress,
    check_digests,
    checkpoint_folders,
    load_checkpoint,
    load_model_state,
    load_optimizer_state,
    model_state,
    optimizer_state,
    save_checkpoint,
    write_digests,
)
from harken.training.optimizer import MuonConfig


def small_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(11, 7), nn.Linear(7, 5), nn.LayerNorm(5))


def checkpoint(step: int, *, stage: int = 0) -> Checkpoint:
    model = small_model()
    return Checkpoint(
        progress=Progress(stage=stage, step=step, best=0.25, rounds_without_gain=1),
        model=model_state(model),
        best=model_state(model),
        optimizer={"1.weight|momentum": torch.full((5, 7), float(step))},
    )


def test_round_trip_is_exact(tmp_path: Path) -> None:
    saved = checkpoint(40)
    save_checkpoint(tmp_path, saved)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.progress == saved.progress
    for part in ("model", "best", "optimizer"):
        before, after = getattr(saved, part), getattr(loaded, part)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_newest_is_loaded_and_old_ones_go(tmp_path: Path) -> None:
    for stage, step in ((0, 5), (0, 100), (0, 20), (1, 3)):
        save_checkpoint(tmp_path, checkpoint(step, stage=stage))
    assert [path.name for path in checkpoint_folders(tmp_path)] == [
        "stage-0-step-0000100",
        "stage-1-step-0000003",
    ]
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert (loaded.progress.stage, loaded.progress.step) == (1, 3)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "progress.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path, checkpoint(10))
    newest = save_checkpoint(tmp_path, checkpoint(20))
    damaged = bytearray((newest / name).read_bytes())
    damaged[-1] ^= 1
    (newest / name).write_bytes(damaged)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.progress.step == 10


def test_nothing_but_damage_is_a_failure_that_names_the_file(tmp_path: Path) -> None:
    newest = save_checkpoint(tmp_path, checkpoint(20))
    (newest / "model.safetensors").write_bytes(b"")
    with pytest.raises(Failure, match=r"model\.safetensors: the file is damaged .* got"):
        load_checkpoint(tmp_path)


def test_half_written_and_half_removed_folders_are_not_checkpoints(tmp_path: Path) -> None:
    whole = save_checkpoint(tmp_path, checkpoint(20))
    whole.rename(tmp_path / f".{whole.name}.unfinished")
    assert load_checkpoint(tmp_path) is None


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    weights = model_state(small_model())
    with pytest.raises(Failure, match=r"do not fit the recipe .*'1\.weight'"):
        load_model_state(small_model(), weights | {"1.weight": torch.zeros(5, 8)}, tmp_path)
    with pytest.raises(Failure, match=r"do not fit the recipe .*'9\.bias'"):
        load_model_state(small_model(), weights | {"9.bias": torch.zeros(1)}, tmp_path)


def test_momenta_return_to_their_weights() -> None:
    def trained(rounds: int, given: dict[str, torch.Tensor] | None = None) -> nn.Module:
        optimizers = MuonConfig().build(model)
        if given is not None:
            load_optimizer_state(model, optimizers, given)
        for _ in range(rounds):
            model(torch.tensor([1, 2, 3])).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        state.update(optimizer_state(model, optimizers))
        return model

    state: dict[str, torch.Tensor] = {}
    model = small_model()
    straight = {name: tensor.clone() for name, tensor in model_state(trained(5)).items()}
    model = small_model()
    trained(3)
    resumed = model_state(trained(2, {name: tensor.clone() for name, tensor in state.items()}))
    assert {"1.weight|momentum", "0.weight|exp_avg", "2.bias|step"} <= state.keys()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_a_manifest_misses_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    write_digests(tmp_path, {"a": "a", "b": "b"})
    check_digests(tmp_path, ("a", "b"))
    (tmp_path / "b").unlink()
    with pytest.raises(Failure, match="b: file not found"):
        check_digests(tmp_path, ("a", "b"))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(Failure, match=r"manifest\.json: invalid JSON"):
        check_digests(tmp_path, ("a",))
