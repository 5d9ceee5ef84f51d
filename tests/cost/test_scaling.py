"""Predicted steps of several processes: numbers computed by hand, and properties."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from command_line import Cli, sets
from harken.cost import scaling, time
from harken.cost.scaling import (
    MicroBatchCost,
    Network,
    ParallelStep,
    bucket_sizes,
    measure_micro_batch,
    predict_parallel,
    predict_scaling,
)
from harken.cost.workload import workload
from harken.recipe import load_recipe

LM = Path(__file__).parents[2] / "recipes" / "lm.toml"
SMALL = ["model.width=16", "model.layers=2", "model.attention.heads=2", "training.micro_batches=4"]
COST = MicroBatchCost(
    micro_batches=8,
    forward=1.0,
    backward=2.0,
    optimizer=0.5,
    seconds_per_byte=0.001,
    parameters=(40, 60, 100),
    blocks=(60, 100),
    state_bytes=800,
    peak=1000,
)
NETWORK = Network(bandwidth=100.0, latency=0.01)


def by_reduction(cost: MicroBatchCost, network: Network, processes: int) -> dict[str, ParallelStep]:
    return {step.reduction: step for step in predict_parallel(cost, network, processes)}


def test_one_process_sends_nothing() -> None:
    for step in by_reduction(COST, NETWORK, 1).values():
        # 8 micro-batches, 7 sums that read and write 3 * 200 bytes, the optimizer
        assert step.seconds == pytest.approx(8 * 3.0 + 7 * 0.6 + 0.5)
        assert (step.sent_bytes, step.efficiency) == (0, 1.0)
        assert step.memory_bytes == 800 + 3 * 200 + 1000  # three more sums than `grad`


def test_exact_reduction_by_hand() -> None:
    step = by_reduction(COST, NETWORK, 4)["exact"]
    local = 2 * 3.0 + 0.6 + 0.5  # two micro-batches, one sum, the optimizer
    copies = 0.001 * (4 * 200 + 3 * 150)
    network = 2 * (150 / 100 + 3 * 0.01) + 3 * 3 * 0.01
    assert step.seconds == pytest.approx(local + copies + network)
    assert step.efficiency == pytest.approx(28.7 / (4 * (local + copies + network)))
    assert step.sent_bytes == 300
    assert step.memory_bytes == 800 + 200 + 1000
    large = by_reduction(replace(COST, peak=0), NETWORK, 4)["exact"]
    assert large.memory_bytes == 800 + 3 * 200 + 50  # of `all_reduce_exact`


def test_fast_reduction_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "FIRST_BUCKET", 100)
    step = by_reduction(COST, NETWORK, 2)["fast"]
    # Buckets of 100 bytes are ready after 1 and 2 s of the last backward pass. Each takes
    # 2 * (0.5 + 0.01) s, so the second one starts when the first one ends, at 2.02 s.
    local = 4 * 3.0 + 3 * 0.6 + 0.5
    assert step.seconds == pytest.approx(local - 2.0 + 2.02 + 1.02 + 3 * 0.01)
    assert step.sent_bytes == 200
    assert step.memory_bytes == 800 + 200 + 1000  # gradients and their buckets


def test_sharded_reduction_by_hand() -> None:
    step = by_reduction(COST, NETWORK, 4)["sharded"]
    local = 2 * 3.0 + 0.6 / 4 + 0.5
    exchanged = 3 * (150 / 100 + 3 * 3 * 0.01)  # three groups: 40, 60 and 100 bytes
    assert step.seconds == pytest.approx(local + 2 * exchanged + 3 * 3 * 0.01)
    assert step.sent_bytes == 2 * 3 * 150
    assert step.memory_bytes == 800 / 4 + 2 * 40 + 3 * 100 + 1000


def test_buckets_are_those_of_distributed_data_parallel() -> None:
    model = nn.ModuleList(nn.Linear(width, 1009) for width in (401, 3001, 7, 4001, 2003, 5003, 211))
    parameters = [parameter.numel() * 4 for parameter in model.parameters()]
    indices, _ = torch.distributed._compute_bucket_assignment_by_size(
        [*reversed([*model.parameters()])], [scaling.FIRST_BUCKET, scaling.BUCKET]
    )
    expected = [sum(parameters[::-1][index] for index in bucket) for bucket in indices]
    assert list(bucket_sizes(parameters)) == expected and len(expected) > 2


positive = st.floats(1e-6, 1e3)
costs = st.builds(
    MicroBatchCost,
    micro_batches=st.just(64),
    forward=positive,
    backward=positive,
    optimizer=positive,
    seconds_per_byte=st.floats(0, 1e-6),
    parameters=st.lists(st.integers(1, 1 << 26), min_size=3, max_size=9),
    blocks=st.just(()),
    state_bytes=st.just(1 << 30),
    peak=st.integers(0, 1 << 30),
)


@given(costs, st.floats(1e3, 1e12), st.floats(0, 1e-2), st.floats(1, 100))
def test_a_better_network_is_never_slower(
    cost: MicroBatchCost, bandwidth: float, latency: float, factor: float
) -> None:
    slow = predict_scaling(cost, Network(bandwidth, latency), 64)
    fast = predict_scaling(cost, Network(bandwidth * factor, latency / factor), 64)
    for before, after in zip(slow, fast, strict=True):
        assert after.seconds <= before.seconds * (1 + 1e-9)
        assert after.sent_bytes == before.sent_bytes


@given(costs)
def test_sent_bytes_grow_to_twice_the_gradients(cost: MicroBatchCost) -> None:
    for reduction in ("fast", "exact"):
        steps = predict_scaling(cost, NETWORK, 64)
        sent = [step.sent_bytes for step in steps if step.reduction == reduction]
        assert sent == sorted(sent) and sent[1] == cost.gradient_bytes
        assert sent[-1] == pytest.approx(2 * cost.gradient_bytes * 63 / 64, abs=1)


@given(costs)
def test_overlap_is_never_slower_than_waiting(cost: MicroBatchCost) -> None:
    network = Network(bandwidth=1e9, latency=0.0)
    for size in (2, 8, 64):
        steps = by_reduction(cost, network, size)
        assert steps["fast"].seconds <= steps["exact"].seconds * (1 + 1e-9)


def test_cost_of_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "MIN_SECONDS", 0.0)  # any time will do
    step = workload(load_recipe(LM, SMALL), length=7, batch=2, vocabulary=31)
    cost, model = measure_micro_batch(step), step.build()
    assert cost.micro_batches == 4 and len(cost.parameters) == len([*model.parameters()])
    assert cost.gradient_bytes == 4 * sum(weight.numel() for weight in model.parameters())
    # 12 J² + 9 J weights per block (tests/cost/test_cost_command.py)
    assert list(cost.blocks) == [4 * (12 * 16 * 16 + 9 * 16)] * 2
    assert cost.state_bytes > 2 * cost.gradient_bytes and cost.peak > 0
    assert 0 < cost.forward < cost.backward and cost.optimizer > 0 and cost.seconds_per_byte > 0


def test_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "MIN_SECONDS", 0.0)
    options = ["--length", 7, "--batch", 2, "--vocabulary", 31, "--processes", 4]
    options += ["--bandwidth", 10, "--latency", 20, *sets(SMALL)]
    record = cli.json("cost", LM, *options)
    steps = record["steps"]
    assert [step["processes"] for step in steps] == [1] * 3 + [2] * 3 + [4] * 3
    assert [step["reduction"] for step in steps[:3]] == ["fast", "exact", "sharded"]
    weights = 2 * (12 * 16 * 16 + 9 * 16) + 16 * 31 + 130 * 16  # as in test_cost_command.py
    assert steps[-2]["sent_bytes"] == steps[-3]["sent_bytes"] == 2 * 3 / 4 * 4 * weights
    assert all(math.isfinite(step["seconds"]) and step["memory_bytes"] > 0 for step in steps)
    assert (record["bandwidth_gbps"], record["latency_us"], record["micro_batches"]) == (10, 20, 4)
    printed = cli("cost", LM, *options).out
    assert "4 processes" in printed and "efficiency" in printed and "10 Gbit/s" in printed


def test_stages_without_steps_share_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "MIN_SECONDS", 0.0)
    recipe, options = LM.with_name("tag.toml"), ["--processes", 2, "--bandwidth", 1, "--batch", 2]
    shared = sets(["training.tags.micro_batches=2", "model.encoder.kind=gated"])
    assert cli.json("cost", recipe, *options, *shared)["micro_batches"] == 2
    vectors = sets(["training.vectors.steps=5"])
    assert "training.vectors.micro_batches" in cli.error(
        "cost", recipe, *options, *shared, *vectors
    )
    unused = sets(["training.tags.steps=0"])  # the predicted stage is checked all the same
    assert "training.tags.micro_batches" in cli.error("cost", recipe, *options, *unused)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", 2, "--bandwidth", 1], "2 processes cannot share 1 micro-batches"),
        (["--processes", 2], "together with --bandwidth, got --processes"),
        (["--bandwidth", 2], "together with --bandwidth, got --bandwidth"),
        (["--processes", 1, "--bandwidth", 1, "--measure"], "no --measure"),
        (["--processes", 1, "--bandwidth", 1, "--length", 7, 8], "at most one --length"),
    ],
)
def test_wrong_options(options: list[object], message: str, cli: Cli) -> None:
    assert message in cli.error("cost", LM, *options)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--processes", "0", "expected 1 or more, got 0"),
        ("--bandwidth", "0", "expected a finite number above 0, got 0.0"),
        ("--bandwidth", "nan", "expected a finite number above 0, got nan"),
        ("--latency", "-1", "expected 0 or more, got -1"),
    ],
)
def test_wrong_values(option: str, value: str, message: str, cli: Cli) -> None:
    given = {"--processes": "1", "--bandwidth": "1", option: value}
    printed = cli("cost", LM, *(word for pair in given.items() for word in pair), code=2)
    assert message in printed.err and printed.out == ""
