"""Losses over wide vocabularies against PyTorch's own: time and peak memory.

    python benchmarks/losses.py

A read-out of 2,048 states, 256 wide, and its cross-entropy; and one of 16 utterances of 100 places
for CTC. Forward and backward in turns in one process, ours by theirs, the median of neighboring
turns; memory is what the allocator gave out at most, with the scores as unit.
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
from harken.training.runtime import prepare

WIDTH, ROWS, UTTERANCES, PLACES, SAID = 256, 2048, 16, 100, 20
VOCABULARIES = (65, 1000, 8000, 20000)


class Row(NamedTuple):
    """One loss in two ways."""

    title: str
    scores: int  # bytes
    ours: Callable[[], Tensor]
    theirs: Callable[[], Tensor]


class Utterances(NamedTuple):
    """States to read out, and what was said."""

    states: Tensor
    present: Tensor
    said: Tensor
    written: Tensor


def ctc_ours(weight: Tensor, given: Utterances) -> Tensor:
    """With the gradient where the scores stood."""
    scores = F.linear(given.states, weight)
    return ctc_loss(scores, given.present, given.said, given.written, blank=0)


def ctc_theirs(weight: Tensor, given: Utterances) -> Tensor:
    """PyTorch's."""
    logs = F.linear(given.states, weight).log_softmax(dim=-1).transpose(0, 1)
    lengths = given.present.sum(dim=1), given.written.sum(dim=1)
    return F.ctc_loss(logs, given.said, *lengths, reduction="sum")


def entropy_ours(weight: Tensor, states: Tensor, targets: Tensor) -> Tensor:
    """With logarithms and gradient where the scores stood."""
    return cross_entropy_(F.linear(states, weight), targets).sum()


def entropy_theirs(weight: Tensor, states: Tensor, targets: Tensor) -> Tensor:
    """PyTorch's."""
    return F.cross_entropy(F.linear(states, weight), targets, reduction="sum")


def rows() -> Iterator[Row]:
    """Cross-entropy and CTC for each vocabulary."""
    weights = {one: (0.02 * torch.randn(one, WIDTH)).requires_grad_() for one in VOCABULARIES}
    for symbols, weight in weights.items():
        states = torch.randn(ROWS, WIDTH, requires_grad=True)
        given = weight, states, torch.randint(symbols, (ROWS,))
        title, size = f"cross-entropy, {symbols:,} symbols", 4 * ROWS * symbols
        yield Row(title, size, partial(entropy_ours, *given), partial(entropy_theirs, *given))
    for symbols, weight in weights.items():
        said = torch.randint(1, symbols, (UTTERANCES, SAID))
        utterances = Utterances(
            states=torch.randn(UTTERANCES, PLACES, WIDTH, requires_grad=True),
            present=torch.ones(UTTERANCES, PLACES, dtype=torch.bool),
            said=said,
            written=torch.ones_like(said, dtype=torch.bool),
        )
        title, size = f"CTC, {symbols:,} symbols", 4 * UTTERANCES * PLACES * symbols
        ways = (partial(one, weight, utterances) for one in (ctc_ours, ctc_theirs))
        yield Row(title, size, *ways)


def ratio(row: Row, rounds: int) -> float:
    """Of times, ours by theirs."""
    found = []
    for _ in range(rounds + 1):
        spent = []
        for loss in (row.ours, row.theirs):
            started = time.perf_counter()
            loss().backward()  # type: ignore[no-untyped-call]
            spent.append(time.perf_counter() - started)
        found.append(spent[0] / spent[1])
    return statistics.median(found[1:])


def main() -> None:
    """Print a row for each loss and vocabulary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    print(f"{'':32}{'time':>8}{'peak, ours':>12}{'theirs':>8}")
    for row in rows():
        spent = ratio(row, options.rounds)
        peaks = [footprint(loss).peak / row.scores for loss in (row.ours, row.theirs)]
        print(f"{row.title:32}{spent:8.2f}{peaks[0]:12.2f}{peaks[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
