"""Compare designed and random initial attention heads by the training steps to reach a loss.

    python benchmarks/designed_start.py copy
    python benchmarks/designed_start.py text input.txt --losses 2.5 2.2 2.0
    python benchmarks/designed_start.py runs runs/designed runs/random --losses 6 5 4

    copy   random symbols followed by the same symbols again; the loss is that of the repetition.
           One head of the first layer is initialized to attend to the symbol to be copied next.
    text   a character model of a text file. The heads of the first layer are initialized to attend
           to the current token, the one before it, and so on (shifts by 0, 1, 2, 3).
    runs   the logs of two run folders of `harken train`

`copy` and `text` train a GPT with two layers twice per seed, with designed heads and without, on
the same batches. The benchmark prints a row per initialization and seed: the first step at which
the running mean of the training loss (in nats) is at most each of `--losses`, or "never".
`--json` prints a JSON object instead, with `null` for "never".
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
from harken.design.install import InitHeadConfig, init_heads, stack_sites
from harken.models.gpt import GPTConfig
from harken.training.runtime import configure_process

SYMBOLS, HALF = 32, 24  # copy: vocabulary size, symbols before the repetition
LENGTH, HEADS, WIDTH, BATCH_SIZE = 64, 4, 128, 32
SMOOTHING = 0.9  # of the running mean

Batch = tuple[Tensor, Tensor]  # tokens B T, and which targets count, B T-1
DrawBatch = Callable[[torch.Generator], Batch]


def copy_batch(generator: torch.Generator) -> Batch:
    symbols = torch.randint(SYMBOLS, (BATCH_SIZE, HALF), generator=generator)
    is_target = torch.arange(2 * HALF - 1) >= HALF - 1
    return torch.cat((symbols, symbols), dim=1), is_target.expand(BATCH_SIZE, -1)


def text_batches(path: Path) -> tuple[DrawBatch, int]:
    """Return a function that draws windows of a text, and the number of distinct characters."""
    text = path.read_text(encoding="utf-8")
    ids = {character: index for index, character in enumerate(sorted(set(text)))}
    text_ids = torch.tensor([ids[character] for character in text])

    def draw_batch(generator: torch.Generator) -> Batch:
        starts = torch.randint(len(text_ids) - LENGTH, (BATCH_SIZE, 1), generator=generator)
        tokens = text_ids[starts + torch.arange(LENGTH)]
        return tokens, torch.ones(BATCH_SIZE, LENGTH - 1, dtype=torch.bool)

    return draw_batch, len(ids)


def training_losses(
    draw_batch: DrawBatch,
    vocabulary: int,
    heads: list[InitHeadConfig],
    position: PositionConfig,
    options: argparse.Namespace,
    seed: int,
) -> Iterator[float]:
    """Train a model whose `heads` are designed; yield the loss of each step."""
    config = GPTConfig(
        layers=2,
        width=WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(heads=HEADS, bias=isinstance(position, RotaryConfig)),
        position=position,
        tie_embeddings=False,
    )
    model = config.build(vocabulary, seed)
    init_heads(stack_sites(model.stack, model.position, LENGTH, config.mask), heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(options.steps):
        tokens, is_target = draw_batch(generator)
        logits = model(tokens[:, :-1], at=is_target)
        loss = F.cross_entropy(logits, tokens[:, 1:][is_target])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def logged_losses(run: Path) -> list[float]:
    """Return the losses of the first training stage of a run."""
    with (run / "log.jsonl").open(encoding="utf-8") as lines:
        events = [event for event in map(json.loads, lines) if event["event"] == "stepped"]
    return [event["loss"] for event in events if event["stage"] == events[0]["stage"]]


def steps_to(thresholds: Sequence[float], losses: Iterable[float]) -> list[int | None]:
    """Return the step at which the running mean first reaches each threshold, largest first."""
    mean, steps, remaining = None, list[int | None](), sorted(thresholds, reverse=True)
    for step, loss in enumerate(losses, start=1):
        mean = loss if mean is None else SMOOTHING * mean + (1 - SMOOTHING) * loss
        while remaining and mean <= remaining[0]:
            steps.append(step)
            del remaining[0]
        if not remaining:
            break
    return steps + [None] * len(remaining)


def train_both(options: argparse.Namespace) -> dict[str, list[list[int | None]]]:
    """Return the steps to each loss, by initialization and seed."""
    position = RotaryConfig() if options.position == "rotary" else SinusoidConfig()
    if options.task == "copy":
        draw_batch, vocabulary = copy_batch, SYMBOLS
        designed = [InitHeadConfig(layer=1, head=1, offset=HALF - 1)]
    else:
        draw_batch, vocabulary = text_batches(options.file)
        designed = [InitHeadConfig(layer=1, head=n + 1, offset=n) for n in range(HEADS)]
    return {
        name: [
            steps_to(
                options.losses,
                training_losses(draw_batch, vocabulary, heads, position, options, seed),
            )
            for seed in range(options.seeds)
        ]
        for name, heads in (("designed", designed), ("random", list[InitHeadConfig]()))
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = parser.add_subparsers(dest="task", required=True)
    summaries = {"copy": "copy a sequence", "text": "model a text", "runs": "compare two runs"}
    for task, summary in summaries.items():
        command = tasks.add_parser(task, help=summary)
        command.add_argument(
            "--losses",
            type=float,
            nargs="+",
            default=[2.0, 1.0, 0.5],
            help="losses to reach, in nats (2.0 1.0 0.5)",
        )
        command.add_argument("--json", action="store_true", help="print a JSON object")
        if task == "runs":
            command.add_argument("designed", type=Path, help="run folder with designed heads")
            command.add_argument("random", type=Path, help="run folder without")
            continue
        command.add_argument("--position", choices=("sinusoid", "rotary"), default="sinusoid")
        command.add_argument("--steps", type=int, default=2000, help="maximum steps (2000)")
        command.add_argument("--lr", type=float, default=1e-3, help="learning rate (0.001)")
        command.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
        if task == "text":
            command.add_argument("file", type=Path, help="text to train on")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    configure_process(torch.device("cpu"))
    if options.task == "runs":
        runs = {"designed": options.designed, "random": options.random}
        results = {
            name: [steps_to(options.losses, logged_losses(run))] for name, run in runs.items()
        }
    else:
        results = train_both(options)
    thresholds = sorted(options.losses, reverse=True)
    if options.json:
        print(json.dumps({"task": options.task, "losses": thresholds, "steps": results}))
        return
    print(f"{'steps to a loss of':20}" + "".join(f"{threshold:>8}" for threshold in thresholds))
    for name, rows in results.items():
        for seed, row in enumerate(rows):
            cells = ("never" if step is None else str(step) for step in row)
            label = name if options.task == "runs" else f"{name}, seed {seed}"
            print(f"{label:20}" + "".join(f"{cell:>8}" for cell in cells))


if __name__ == "__main__":
    main()
