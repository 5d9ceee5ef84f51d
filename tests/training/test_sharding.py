"""Sharded models: initial weights, optimizer steps and errors; two processes in `slow` tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from harken.attention.positions import SinusoidConfig
from harken.design.install import InitHeadConfig
from harken.errors import UserError
from harken.files import write_tensors
from harken.models.decoders import TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import RecurrentLMConfig
from harken.models.seq2seq import EncoderDecoderConfig
from harken.pipeline import check_processes
from harken.training import sharding
from harken.training.distributed import World
from untrained import task_recipe

VOCABULARY, SEED = 23, 5
ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("sharded_steps.py")
CONFIGS = {
    "gpt": GPTConfig(width=12, layers=2, max_length=11),
    "untied": GPTConfig(width=12, layers=1, max_length=11, tie_embeddings=False),
    "rnn": RecurrentLMConfig(width=12),
    "encoder-decoder": EncoderDecoderConfig(
        encoder=TransformerEncoderConfig(layers=1),
        decoder=TransformerDecoderConfig(layers=1, width=12),
    ),
}


def designed_gpt(**settings: bool) -> GPTConfig:
    heads = (InitHeadConfig(**settings),)
    return GPTConfig(width=16, layers=1, max_length=11, position=SinusoidConfig(), init_heads=heads)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_ranks_initialize_their_rows_of_the_same_weights(
    name: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIGS[name]
    expected = dict(config.build(VOCABULARY, SEED).named_parameters())
    parts: dict[str, list[Tensor]] = {key: [] for key in expected}
    for rank in range(ranks):
        monkeypatch.setattr(sharding, "world", lambda rank=rank: World(rank, ranks))
        model, rows = sharding.initialize_rows(lambda: config.build(VOCABULARY, SEED))
        assert [key for key, _ in model.named_parameters()] == list(expected)
        for key, weight in model.named_parameters():
            assert weight.is_meta == (weight.dim() > 1)
            parts[key].append(rows[key] if weight.is_meta else weight)
    for key, weight in expected.items():
        whole = torch.cat(parts[key]) if weight.dim() > 1 else parts[key][-1]
        assert torch.equal(whole, weight), key


def test_designed_heads_are_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    config = designed_gpt()
    expected = config.build(VOCABULARY, SEED).stack.blocks[0].attention.score.q_proj.weight
    monkeypatch.setattr(sharding, "world", lambda: World(1, 2))
    _, rows = sharding.initialize_rows(lambda: config.build(VOCABULARY, SEED))
    assert torch.equal(rows["stack.blocks.0.attention.score.q_proj.weight"], expected[8:])


def test_a_frozen_head_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "world", lambda: World(0, 2))
    with pytest.raises(UserError, match="frozen head cannot be sharded"):
        sharding.build_sharded(
            lambda: designed_gpt(frozen=True).build(VOCABULARY, SEED), torch.device("cpu")
        )


def test_compile_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["training.runtime.compile=true", "training.runtime.reduction=sharded"]
    recipe = task_recipe("lm", tmp_path, overrides)
    check_processes(recipe)  # one process does not shard
    monkeypatch.setattr(sharding, "world", lambda: World(0, 2))
    with pytest.raises(UserError, match="compile = true does not support"):
        check_processes(recipe)


def test_a_whole_tensor_is_its_own_part() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    assert sharding.local_part(tensor) is sharding.full_tensor(tensor) is tensor
    assert sharding.shard_like(tensor, tensor) is tensor
    assert torch.equal(sharding.map_matrices(torch.neg, [tensor, tensor])[1], -tensor)


def test_tensors_are_written_as_the_library_writes_them(tmp_path: Path) -> None:
    tensors = {
        "b": torch.randn(3, 5),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "half": torch.randn(2, 3).bfloat16(),
        "none": torch.zeros(0, 4),
        "mask": torch.tensor([True, False, True]),
        "transposed": torch.randn(3, 5).T,
    }
    write_tensors(tmp_path / "ours", tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / "theirs")
    ours, theirs = load_file(tmp_path / "ours"), load_file(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key].dtype == value.dtype and torch.equal(ours[key], value)


def test_one_tensor_is_loaded_at_a_time(tmp_path: Path) -> None:
    loaded: list[str] = []
    tied = torch.ones(2)
    tensors = {"b": tied, "a": tied, "c": torch.ones(1, dtype=torch.float64)}
    write_tensors(
        tmp_path / "file", tensors, lambda tensor: loaded.append(str(tensor.dtype)) or tensor
    )
    assert loaded == ["torch.float64", "torch.float32", "torch.float32"]
    assert load_file(tmp_path / "file")["b"].tolist() == [1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["2", "4"])
def test_optimizer_steps_equal_those_of_one_process(processes: str, tmp_path: Path) -> None:
    """In float64, so that only a difference in the computation can exceed the tolerance."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
    for launcher, file in (([sys.executable], "whole"), ([*torchrun, processes], "sharded")):
        subprocess.run([*launcher, WORKER, tmp_path / file], check=True, timeout=200)
    for kind in ("adamw", "muon", "sgd", "adamw-ema"):
        whole, sharded = (load_file(tmp_path / f"{file}-{kind}") for file in ("whole", "sharded"))
        assert whole.keys() == sharded.keys()
        for name, weight in whole.items():
            torch.testing.assert_close(sharded[name], weight, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_sharded_run_equals_an_unsharded_one() -> None:
    script = ROOT / "benchmarks" / "sharding.py"
    done = subprocess.run([sys.executable, script, "--short"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    (figures,) = json.loads(done.stdout.splitlines()[-1]).values()
    assert figures["2"]["memory"] <= 1.15
