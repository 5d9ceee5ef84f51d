"""Predict a training step of several processes from the cost of one micro-batch.

Each process has a machine like this one and a link that sends and receives at the same time. In
one round of communication, each of N processes sends (N - 1) / N of the bytes in N - 1 messages:

    fast     all-reduce of each bucket of gradients (2 rounds), during the last backward pass
    exact    all-to-all and all-gather of all gradients (2 rounds), after the last backward pass
    sharded  all-gather of each block in the forward and in the backward pass, and reduce-scatter of
             its gradients (3 rounds), for every micro-batch; computation waits for each round
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from harken.cost.rules import byte_size
from harken.cost.step import trace_step
from harken.cost.time import KernelCounter, median_seconds
from harken.cost.workload import Workload
from harken.inspection.activations import layer_names

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes, the defaults of DistributedDataParallel
MAX_SUMMED = 1 << 28  # bytes of each tensor of the measurement of memory speed
CONTROL_ROUNDS = 3  # an all-reduce of the number of targets and an all-gather of the losses


class Network(NamedTuple):
    """The link of each process."""

    bandwidth: float  # bytes per second in each direction
    latency: float  # seconds per message

    def seconds(self, size: float, processes: int, rounds: int) -> float:
        """Return the time of rounds in which all processes exchange their parts of `size` bytes."""
        sent = size * (processes - 1) / processes
        return rounds * (sent / self.bandwidth + (processes - 1) * self.latency)


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatchCost:
    """Cost of one micro-batch and of the optimizer, in seconds and bytes."""

    micro_batches: int  # per step
    forward: float
    backward: float
    optimizer: float  # clipping and update, once per step
    seconds_per_byte: float  # of memory that is read or written
    parameters: Sequence[int]  # bytes of each parameter
    blocks: Sequence[int]  # bytes of each layer that FSDP2 gathers separately
    state_bytes: int  # weights, gradients and optimizer state
    peak: int  # maximum bytes of activations and temporary tensors

    @property
    def gradient_bytes(self) -> int:
        return sum(self.parameters)

    @property
    def root_bytes(self) -> int:
        """Bytes of the weights outside the blocks, such as embeddings."""
        return self.gradient_bytes - sum(self.blocks)


class StepEstimate(NamedTuple):
    """Time of a step, bytes that each process sends in it, and memory of each process."""

    seconds: float
    sent_bytes: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelStep:
    """Prediction for a number of processes and a kind of reduction of the gradients."""

    processes: int
    reduction: str  # a key of REDUCTIONS
    seconds: float
    sent_bytes: int  # by each process
    memory_bytes: int  # of each process
    efficiency: float  # seconds of one process / (processes * seconds)


def measure_micro_batch(step: Workload) -> MicroBatchCost:
    """Trace a step and time its kernels on this machine.

    The time of forward and backward pass is divided in proportion to their FLOPs.
    """
    compute, update = KernelCounter(), KernelCounter()
    cost = trace_step(lambda _: step.build(), step.loss(), observers=[compute])
    state = trace_step(
        lambda _: step.build(), lambda _: torch.zeros(()), step.optimizers, [update]
    ).state_bytes
    with torch.device("meta"):
        model = step.build()
    blocks = [model.get_submodule(name).parameters() for name in layer_names(model)]
    parameters = [byte_size(weight) for weight in model.parameters()]
    seconds = compute.seconds()
    forward = seconds * cost.forward / max(cost.step, 1)
    return MicroBatchCost(
        micro_batches=step.stage.micro_batches,
        forward=forward,
        backward=seconds - forward,
        optimizer=update.seconds(),
        seconds_per_byte=_seconds_per_byte(sum(parameters)),
        parameters=parameters,
        blocks=[sum(map(byte_size, weights)) for weights in blocks],
        state_bytes=state,
        peak=cost.peak,
    )


def _seconds_per_byte(size: int) -> float:
    """Time an addition in place, which reads two tensors of at most `size` bytes and writes one."""
    left, right = torch.ones(2, min(size, MAX_SUMMED) // 4)
    return median_seconds(partial(left.add_, right)) / (12 * len(left))


def predict_scaling(cost: MicroBatchCost, network: Network, processes: int) -> list[ParallelStep]:
    """Predict a step of 1, 2, 4, … up to `processes` processes, which share its micro-batches."""
    sizes = [1 << power for power in range(processes.bit_length())]
    return [step for size in sizes for step in predict_parallel(cost, network, size)]


def predict_parallel(
    cost: MicroBatchCost, network: Network, processes: int
) -> Iterator[ParallelStep]:
    """Predict a step with each kind of reduction; `processes` must divide the micro-batches."""
    assert cost.micro_batches % processes == 0
    single = _single(cost)
    for reduction, estimate in REDUCTIONS.items():
        seconds, sent, memory = single if processes == 1 else estimate(cost, network, processes)
        yield ParallelStep(
            processes=processes,
            reduction=reduction,
            seconds=seconds,
            sent_bytes=round(sent),
            memory_bytes=round(memory),
            efficiency=single.seconds / (processes * seconds),
        )


def _local_seconds(cost: MicroBatchCost, micro_batches: int, sum_bytes: float) -> float:
    """Return the time of micro-batches, the sums of their gradients, and the optimizer."""
    sums = (micro_batches - 1) * 3 * sum_bytes * cost.seconds_per_byte
    return micro_batches * (cost.forward + cost.backward) + sums + cost.optimizer


def _single(cost: MicroBatchCost) -> StepEstimate:
    """One process, which adds the gradients in the tree of `ExactSum`."""
    micro_batches, gradients = cost.micro_batches, cost.gradient_bytes
    memory = cost.state_bytes + math.log2(micro_batches) * gradients + cost.peak
    return StepEstimate(_local_seconds(cost, micro_batches, gradients), 0, memory)


def _fast(cost: MicroBatchCost, network: Network, processes: int) -> StepEstimate:
    """DistributedDataParallel: a bucket is sent when its gradients are ready.

    Gradients become ready at a constant rate, from the last parameter to the first. The buckets
    take as much memory as the gradients.
    """
    micro_batches, gradients = cost.micro_batches // processes, cost.gradient_bytes
    ready = finished = 0.0  # seconds since the start of the last backward pass
    for size in bucket_sizes(cost.parameters):
        ready += cost.backward * size / gradients
        finished = max(ready, finished) + network.seconds(size, processes, rounds=2)
    seconds = _local_seconds(cost, micro_batches, gradients) - cost.backward + finished
    seconds += network.seconds(0, processes, CONTROL_ROUNDS)
    sent = 2 * gradients * (processes - 1) / processes
    return StepEstimate(seconds, sent, cost.state_bytes + gradients + cost.peak)


def _exact(cost: MicroBatchCost, network: Network, processes: int) -> StepEstimate:
    """`ExactSum`: gradients are copied to one tensor, exchanged, added and copied back.

    A process keeps one sum per level of its tree during the micro-batches. `all_reduce_exact` has
    three copies of all gradients and one of its part.
    """
    micro_batches, gradients = cost.micro_batches // processes, cost.gradient_bytes
    remote = (processes - 1) / processes  # fraction of the gradients that others add
    copied = (4 + 3 * remote) * gradients  # two copies, and the sum of `processes` rows
    seconds = _local_seconds(cost, micro_batches, gradients) + copied * cost.seconds_per_byte
    seconds += network.seconds(gradients, processes, rounds=2)
    seconds += network.seconds(0, processes, CONTROL_ROUNDS)
    computing = math.log2(micro_batches) * gradients + cost.peak
    reducing = (3 + 1 / processes) * gradients
    memory = cost.state_bytes + max(computing, reducing)
    return StepEstimate(seconds, 2 * gradients * remote, memory)


def _sharded(cost: MicroBatchCost, network: Network, processes: int) -> StepEstimate:
    """FSDP2: weights, gradients and optimizer state are divided among the processes.

    During a micro-batch, each process holds unsharded: weights and gradients outside the blocks,
    those of one block, and the weights of the next block, which the backward pass prefetches.
    """
    micro_batches, weights = cost.micro_batches // processes, cost.gradient_bytes
    groups = [cost.root_bytes, *cost.blocks]
    exchanged = sum(network.seconds(size, processes, rounds=3) for size in groups)
    seconds = _local_seconds(cost, micro_batches, weights / processes) + micro_batches * exchanged
    seconds += network.seconds(0, processes, CONTROL_ROUNDS)
    sent = micro_batches * 3 * weights * (processes - 1) / processes
    unsharded = 2 * cost.root_bytes + 3 * max(cost.blocks, default=0)
    return StepEstimate(seconds, sent, cost.state_bytes / processes + unsharded + cost.peak)


REDUCTIONS: dict[str, Callable[[MicroBatchCost, Network, int], StepEstimate]] = {
    "fast": _fast,
    "exact": _exact,
    "sharded": _sharded,
}


def bucket_sizes(parameters: Sequence[int]) -> Iterator[int]:
    """Yield the bytes of DistributedDataParallel's buckets, in the order of the backward pass."""
    limit, size = FIRST_BUCKET, 0
    for parameter in reversed(parameters):
        size += parameter
        if size >= limit:
            yield size
            limit, size = BUCKET, 0
    if size:
        yield size
