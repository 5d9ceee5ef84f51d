"""Steps to a loss, with heads that begin as designed and without.

    python benchmarks/designed_start.py copy
    python benchmarks/designed_start.py text input.txt --losses 2.5 2.2 2.0
    python benchmarks/designed_start.py runs runs/designed runs/drawn --losses 6 5 4

The copy task: N random symbols, then the same again; the loss is that of the second half, and the
designed head looks N - 1 back, at what comes next. On a text, the heads of the first layer begin as
shifts by 0, 1, 2, …: what stood here, before, and before that. The two sides have the same seeds
and batches. Of two runs of `harken train` the logs are read. The loss is in nats, a running mean of
training; a side that does not get to one has `null`.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import PositionConfig, SinusoidConfig
from harken.attention.relative import RotaryConfig
from harken.design.start import InitHeadConfig, init_heads, stack_sites
from harken.models.gpt import GPTConfig
from harken.training.runtime import prepare

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


def losses(
    draw: Draw,
    vocabulary: int,
    starts: list[InitHeadConfig],
    position: PositionConfig,
    options: argparse.Namespace,
    seed: int,
) -> Iterator[float]:
    """Of each training step."""
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=HEADS, bias=isinstance(position, RotaryConfig)),
        position=position,
        tie_embeddings=False,
    )
    model = config.build(vocabulary, seed)
    init_heads(stack_sites(model.stack, model.position, LENGTH, config.mask), starts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(options.steps):
        tokens, counts = draw(generator)
        loss = F.cross_entropy(model(tokens[:, :-1], at=counts), tokens[:, 1:][counts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def logged(run: Path) -> Iterator[float]:
    """The losses of a run's first stage."""
    with (run / "log.jsonl").open(encoding="utf-8") as lines:
        events = [one for one in map(json.loads, lines) if one["event"] == "stepped"]
    return (one["loss"] for one in events if one["stage"] == events[0]["stage"])


def steps_to(wanted: Sequence[float], found: Iterable[float]) -> list[int | None]:
    """When the running mean first reaches each loss, the largest of them first."""
    mean, steps, left = None, list[int | None](), sorted(wanted, reverse=True)
    for step, loss in enumerate(found, start=1):
        mean = loss if mean is None else MEMORY * mean + (1 - MEMORY) * loss
        while left and mean <= left[0]:
            steps.append(step)
            del left[0]
        if not left:
            break
    return steps + [None] * len(left)


def trained(options: argparse.Namespace) -> dict[str, list[list[int | None]]]:
    """Both sides, a row of steps for each seed."""
    position = RotaryConfig() if options.position == "rotary" else SinusoidConfig()
    if options.task == "copy":
        draw, vocabulary = copying, SYMBOLS
        starts = [InitHeadConfig(layer=1, head=1, offset=HALF - 1)]
    else:
        draw, vocabulary = reading(options.file)
        starts = [InitHeadConfig(layer=1, head=n + 1, offset=n) for n in range(HEADS)]
    return {
        name: [
            steps_to(options.losses, losses(draw, vocabulary, side, position, options, seed))
            for seed in range(options.seeds)
        ]
        for name, side in (("designed", starts), ("drawn", list[InitHeadConfig]()))
    }


def main() -> None:
    """Print a row for each seed, a column for each loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    tasks = parser.add_subparsers(dest="task", required=True)
    for task in ("copy", "text", "runs"):
        one = tasks.add_parser(task)
        one.add_argument("--losses", type=float, nargs="+", default=[2.0, 1.0, 0.5], help="nats")
        one.add_argument("--json", action="store_true")
        if task == "runs":
            one.add_argument("designed", type=Path)
            one.add_argument("drawn", type=Path)
            continue
        one.add_argument("--position", choices=("sinusoid", "rotary"), default="sinusoid")
        one.add_argument("--steps", type=int, default=2000, help="at most (2000)")
        one.add_argument("--rate", type=float, default=1e-3)
        one.add_argument("--seeds", type=int, default=3)
        if task == "text":
            one.add_argument("file", type=Path)
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    if options.task == "runs":
        sides = {"designed": options.designed, "drawn": options.drawn}
        found = {name: [steps_to(options.losses, logged(run))] for name, run in sides.items()}
    else:
        found = trained(options)
    wanted = sorted(options.losses, reverse=True)
    if options.json:
        print(json.dumps({"task": options.task, "losses": wanted, "steps": found}))
        return
    print(f"{'steps to nats of':18}" + "".join(f"{one:>8}" for one in wanted))
    for name, rows in found.items():
        for seed, row in enumerate(rows):
            cells = ("never" if one is None else str(one) for one in row)
            print(f"{name + ', seed ' + str(seed):18}" + "".join(f"{one:>8}" for one in cells))


if __name__ == "__main__":
    main()
