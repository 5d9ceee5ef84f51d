"""Losses over wide vocabularies against PyTorch's own: time and peak memory.

    python benchmarks/losses.py

A read-out of 2,048 states, 256 wide, and its cross-entropy; and one of 16 utterances of 100 places
for CTC. Forward and backward in turns in one process, ours by theirs, the median of neighbouring
turns; memory is what the allocator gave out at most, with the scores as unit.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.cost.memory import footprint
from harken.layers.entropy import entropy
from harken.models.ctc import ctc_loss
from harken.training.machine import prepare

WIDTH, ROWS, UTTERANCES, PLACES, SAID = 256, 2048, 16, 100, 20
VOCABULARIES = (65, 1000, 8000, 20000)


class Row(NamedTuple):
    """One loss in two ways."""

    title: str
    scores: int  # bytes
    ours: Callable[[], Tensor]
    theirs: Callable[[], Tensor]


def rows() -> Iterator[Row]:
    """Cross-entropy and CTC for each vocabulary."""
    for symbols in VOCABULARIES:
        weight = (0.02 * torch.randn(symbols, WIDTH)).requires_grad_()
        states = torch.randn(ROWS, WIDTH, requires_grad=True)
        targets = torch.randint(symbols, (ROWS,))

        def read(states: Tensor = states, weight: Tensor = weight) -> Tensor:
            return F.linear(states, weight)

        yield Row(
            f"cross-entropy, {symbols:,} symbols",
            4 * ROWS * symbols,
            lambda read=read, targets=targets: entropy(read(), targets).sum(),  # type: ignore[misc]
            lambda read=read, targets=targets: F.cross_entropy(  # type: ignore[misc]
                read(), targets, reduction="sum"
            ),
        )
    for symbols in VOCABULARIES:
        weight = (0.02 * torch.randn(symbols, WIDTH)).requires_grad_()
        states = torch.randn(UTTERANCES, PLACES, WIDTH, requires_grad=True)
        said = torch.randint(1, symbols, (UTTERANCES, SAID))
        present = torch.ones(UTTERANCES, PLACES, dtype=torch.bool)
        written = torch.ones_like(said, dtype=torch.bool)

        def ours(
            states: Tensor = states,
            weight: Tensor = weight,
            said: Tensor = said,
            present: Tensor = present,
            written: Tensor = written,
        ) -> Tensor:
            return ctc_loss(F.linear(states, weight), present, said, written, blank=0)

        def theirs(
            states: Tensor = states,
            weight: Tensor = weight,
            said: Tensor = said,
            present: Tensor = present,
            written: Tensor = written,
        ) -> Tensor:
            logs = F.linear(states, weight).log_softmax(dim=-1).transpose(0, 1)
            lengths = present.sum(dim=1), written.sum(dim=1)
            return F.ctc_loss(logs, said, *lengths, reduction="sum")

        yield Row(f"CTC, {symbols:,} symbols", 4 * UTTERANCES * PLACES * symbols, ours, theirs)


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
