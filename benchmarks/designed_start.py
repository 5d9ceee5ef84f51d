"""Steps to a loss, with heads that begin as designed and without.

    python benchmarks/designed_start.py                          a copy task
    python benchmarks/designed_start.py text.txt --loss 2.2      the next character of a text
    python benchmarks/designed_start.py --seeds 5 --json

The copy task: N random symbols, then the same again; the loss is that of the second half, and the
designed head looks N - 1 back, at what comes next. On a text, the heads of the first layer begin as
shifts by 0, 1, 2, …: what stood here, before, and before that. The two sides have the same seeds
and batches; a side that does not get there has `null`. The loss is in nats, a running mean of
training.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import SinusoidConfig
from harken.design.start import StartConfig, begin, stack_sites
from harken.models.language_model import GPTConfig
from harken.training.machine import prepare

SYMBOLS, HALF = 32, 24  # of the copy task
LENGTH, HEADS, WIDTH, BATCH = 64, 4, 128, 32
MEMORY = 0.9  # of the running mean

Batch = tuple[Tensor, Tensor]  # tokens B T, and which targets count, B T-1
Draw = Callable[[torch.Generator], Batch]


def copying(generator: torch.Generator) -> Batch:
    word = torch.randint(SYMBOLS, (BATCH, HALF), generator=generator)
    counts = torch.arange(2 * HALF - 1) >= HALF - 1
    return torch.cat((word, word), dim=1), counts.expand(BATCH, -1)


def reading(path: Path) -> tuple[Draw, int]:
    """Windows of a text, by character, and how many characters there are."""
    text = path.read_text(encoding="utf-8")
    known = {one: number for number, one in enumerate(sorted(set(text)))}
    numbers = torch.tensor([known[one] for one in text])

    def draw(generator: torch.Generator) -> Batch:
        starts = torch.randint(len(numbers) - LENGTH, (BATCH, 1), generator=generator)
        tokens = numbers[starts + torch.arange(LENGTH)]
        return tokens, torch.ones(BATCH, LENGTH - 1, dtype=torch.bool)

    return draw, len(known)


def steps_to(
    draw: Draw,
    vocabulary: int,
    starts: list[StartConfig],
    options: argparse.Namespace,
    seed: int,
) -> int | None:
    """Until the running mean of the loss is low enough; None where the steps run out."""
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        length=LENGTH,
        attention=MultiHeadConfig(heads=HEADS),
        position=SinusoidConfig(),
        tied=False,
    )
    model = config.build(vocabulary, seed)
    begin(stack_sites(model.stack, model.position, LENGTH, config.order), starts)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
    generator = torch.Generator().manual_seed(seed)
    mean = None
    for step in range(1, options.steps + 1):
        tokens, counts = draw(generator)
        states = model(tokens[:, :-1])
        loss = F.cross_entropy(model.scores(states[counts]), tokens[:, 1:][counts])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        mean = loss.item() if mean is None else MEMORY * mean + (1 - MEMORY) * loss.item()
        if mean <= options.loss:
            return step
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("text", type=Path, nargs="?", help="none: the copy task")
    parser.add_argument("--loss", type=float, default=0.5, help="nats to get to (0.5)")
    parser.add_argument("--steps", type=int, default=2000, help="at most (2000)")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    if options.text is None:
        draw, vocabulary = copying, SYMBOLS
        starts = [StartConfig(layer=1, head=1, offset=HALF - 1)]
    else:
        draw, vocabulary = reading(options.text)
        starts = [StartConfig(layer=1, head=n + 1, offset=n) for n in range(HEADS)]
    found = {
        name: [steps_to(draw, vocabulary, side, options, seed) for seed in range(options.seeds)]
        for name, side in (("designed", starts), ("drawn", list[StartConfig]()))
    }
    record = {"task": str(options.text or "copy"), "loss": options.loss, "steps": found}
    if options.json:
        print(json.dumps(record))
    else:
        print(f"{record['task']}: steps to {options.loss} nats")
        for name, steps in found.items():
            print(f"  {name:9} {', '.join('never' if one is None else str(one) for one in steps)}")


if __name__ == "__main__":
    main()
