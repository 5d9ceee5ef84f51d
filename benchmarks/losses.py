"""Compare Harken's cross-entropy and CTC loss with PyTorch's: time and peak memory.

    python benchmarks/losses.py

Each row is a linear output layer and a loss, forward and backward pass, at one vocabulary size:
cross-entropy of 2,048 states, or CTC of 16 utterances with 100 frames and 20 tokens each. The
columns are

    time            Harken / PyTorch, the median ratio of runs that alternate in one process;
                    below 1, Harken is faster
    peak, Harken    peak memory of PyTorch's allocator, in units of the logits
    PyTorch         the same for PyTorch's loss
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.cost.memory import footprint
from harken.layers.losses import cross_entropy_
from harken.models.ctc import ctc_loss
from harken.training.runtime import configure_process

WIDTH = 256
STATES = 2048  # of cross-entropy
UTTERANCES, FRAMES, TARGETS = 16, 100, 20  # of CTC
VOCABULARIES = (65, 1000, 8000, 20000)
FLOAT_BYTES = 4


class Comparison(NamedTuple):
    """A row of the table: the same loss in two implementations."""

    title: str
    logits_bytes: int
    harken: Callable[[], Tensor]
    pytorch: Callable[[], Tensor]


class CTCBatch(NamedTuple):
    """Encoder states and target tokens, with masks that are true at real frames and tokens."""

    states: Tensor
    states_present: Tensor
    targets: Tensor
    targets_present: Tensor


def harken_ctc(weight: Tensor, batch: CTCBatch) -> Tensor:
    """Store the gradient in place of the logits."""
    logits = F.linear(batch.states, weight)
    return ctc_loss(logits, batch.states_present, batch.targets, batch.targets_present, blank=0)


def pytorch_ctc(weight: Tensor, batch: CTCBatch) -> Tensor:
    log_probs = F.linear(batch.states, weight).log_softmax(dim=-1).transpose(0, 1)
    lengths = batch.states_present.sum(dim=1), batch.targets_present.sum(dim=1)
    return F.ctc_loss(log_probs, batch.targets, *lengths, reduction="sum")


def harken_cross_entropy(weight: Tensor, states: Tensor, targets: Tensor) -> Tensor:
    """Store log-probabilities and gradient in place of the logits."""
    return cross_entropy_(F.linear(states, weight), targets).sum()


def pytorch_cross_entropy(weight: Tensor, states: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(states, weight), targets, reduction="sum")


def comparisons() -> Iterator[Comparison]:
    """Yield cross-entropy and CTC for each vocabulary size."""
    weights = {size: (0.02 * torch.randn(size, WIDTH)).requires_grad_() for size in VOCABULARIES}
    for classes, weight in weights.items():
        states = torch.randn(STATES, WIDTH, requires_grad=True)
        inputs = weight, states, torch.randint(classes, (STATES,))
        yield Comparison(
            f"cross-entropy, {classes:,} classes",
            FLOAT_BYTES * STATES * classes,
            partial(harken_cross_entropy, *inputs),
            partial(pytorch_cross_entropy, *inputs),
        )
    for classes, weight in weights.items():
        targets = torch.randint(1, classes, (UTTERANCES, TARGETS))
        batch = CTCBatch(
            states=torch.randn(UTTERANCES, FRAMES, WIDTH, requires_grad=True),
            states_present=torch.ones(UTTERANCES, FRAMES, dtype=torch.bool),
            targets=targets,
            targets_present=torch.ones_like(targets, dtype=torch.bool),
        )
        yield Comparison(
            f"CTC, {classes:,} classes",
            FLOAT_BYTES * UTTERANCES * FRAMES * classes,
            partial(harken_ctc, weight, batch),
            partial(pytorch_ctc, weight, batch),
        )


def time_ratio(comparison: Comparison, rounds: int) -> float:
    """Return the median of time of Harken / time of PyTorch, without a first warm-up round."""
    ratios = []
    for _ in range(rounds + 1):
        seconds = []
        for loss in (comparison.harken, comparison.pytorch):
            started = time.perf_counter()
            loss().backward()  # type: ignore[no-untyped-call]
            seconds.append(time.perf_counter() - started)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="measurements per row (11)")
    options = parser.parse_args()
    configure_process(torch.device("cpu"))
    print(f"{'loss':32}{'time':>8}{'peak, Harken':>14}{'PyTorch':>9}")
    for comparison in comparisons():
        ratio = time_ratio(comparison, options.rounds)
        harken_peak, pytorch_peak = (
            footprint(loss).peak / comparison.logits_bytes
            for loss in (comparison.harken, comparison.pytorch)
        )
        print(
            f"{comparison.title:32}{ratio:8.2f}{harken_peak:14.2f}{pytorch_peak:9.2f}", flush=True
        )


if __name__ == "__main__":
    main()
