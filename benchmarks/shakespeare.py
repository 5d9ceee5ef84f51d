"""Seconds of training until a held-out text costs 1.88 nats a character, against plain PyTorch.

    python benchmarks/shakespeare.py input.txt              tinyshakespeare, or any text
    python benchmarks/shakespeare.py input.txt --rounds 5 --json

    plain    nanoGPT's recipe for a CPU, written out below: the one that its README gives 1.88 for
    harken   recipes/lm.toml with the settings below, chosen to get there soon

Both learn the first 90 % of the characters and are measured on all of the last 10 % in windows side
by side, each as long as the model reads and with an empty past, so that every character is
predicted once. Both are measured equally often, and measuring is not timed. Each run has a process
of its own; the two take turns, so that a busy machine slows both alike.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.recipe import load_recipe, task_of
from harken.tasks.lm import token_nats
from harken.training.loop import StepDone, Training
from harken.training.runtime import prepare

GOAL = 1.88  # nats a character
LOOKS = 20  # measurements of a whole run
RECIPE = Path(__file__).parents[1] / "recipes" / "lm.toml"
SETTINGS = (
    "model.layers=2",
    "model.width=128",
    "model.max_length=64",
    "model.position.kind=rotary",
    "model.attention.heads=4",
    "training.steps=160",
    "training.batch_tokens=2048",
    "training.schedule.warmup=5",
    "training.optimizer.lr=0.03",
    "training.optimizer.momentum=0.9",
    "training.optimizer.fallback.lr=0.01",
)

LAYERS, HEADS, WIDTH, BLOCK, ROWS = 4, 4, 128, 64, 12
STEPS, WARMUP, RATE, LOWEST = 2000, 100, 1e-3, 1e-4


class Look(NamedTuple):
    """What a model costs after so many steps and seconds of training."""

    step: int
    seconds: float
    nats: float


class Block(nn.Module):
    """As in GPT-2, without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.attend = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.join = nn.Linear(WIDTH, WIDTH, bias=False)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows, length, _ = tokens.shape
        parts = self.attend(self.norms[0](tokens)).split(WIDTH, dim=2)
        heads = [part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        tokens = tokens + self.join(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return tokens + self.narrow(F.gelu(self.widen(self.norms[1](tokens))))


class PlainGPT(nn.Module):
    """Learned positions, a read-out tied to the embeddings."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                added = name.endswith(("out_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * LAYERS) if added else 1))

    def forward(self, tokens: Tensor, *, at: Tensor | None = None) -> Tensor:
        order = torch.arange(tokens.shape[1])
        states = self.norm(self.blocks(self.embedding(tokens) + self.positions(order)))
        return (states if at is None else states[at]) @ self.embedding.weight.T


def plain_rate(step: int) -> float:
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    passed = (step - WARMUP) / (STEPS - WARMUP)
    return LOWEST + (RATE - LOWEST) * (1 + math.cos(math.pi * passed)) / 2


def plain_text(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """(training tokens, held-out tokens, size of the vocabulary)."""
    text = path.read_text(encoding="utf-8")
    characters = sorted(set(text))
    number = {character: place for place, character in enumerate(characters)}
    tokens = np.array([number[character] for character in text], dtype=np.int64)
    cut = int(0.9 * len(tokens))
    # Behind a line's end, as Harken does, so that the first character is predicted too.
    before = [number.get("\n", 0)]
    return tokens[:cut], np.concatenate((before, tokens[cut:])), len(characters)


def run_plain(path: Path, seed: int) -> Iterator[Look]:
    torch.manual_seed(seed)
    train, held_out, vocabulary = plain_text(path)
    model = PlainGPT(vocabulary)
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    stream, spent = torch.from_numpy(train), 0.0
    for step in range(STEPS):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = plain_rate(step)
        starts = torch.randint(len(stream) - BLOCK, (ROWS,))
        inputs = torch.stack([stream[start : start + BLOCK] for start in starts])
        targets = torch.stack([stream[start + 1 : start + BLOCK + 1] for start in starts])
        scores = model(inputs)
        F.cross_entropy(scores.flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        spent += time.perf_counter() - started
        if (step + 1) % (STEPS // LOOKS) == 0:
            nats = token_nats(model, held_out, BLOCK, BLOCK)
            yield Look(step + 1, spent, float(nats.mean()))
            model.train()


def run_harken(path: Path, seed: int) -> Iterator[Look]:
    recipe = load_recipe(RECIPE, [*SETTINGS, f"data.train={path}", "data.dev=0.1", f"seed={seed}"])
    task, device = task_of(recipe), torch.device("cpu")
    prepare(device)
    splits = task.read_splits(recipe)
    vocabulary = task.fit(recipe, splits["train"])
    model = task.build(recipe, vocabulary.sizes)
    with tempfile.TemporaryDirectory() as folder:
        stages = task.stages(recipe, splits, vocabulary, Path(folder))
        training = Training(
            model,
            stages,
            seed=seed,
            runtime=recipe.training.runtime,
            device=device,
            checkpoints=Path(folder) / "checkpoints",
        )
        measure, spent = stages[0].evaluate, 0.0
        assert measure is not None
        for event in training:
            if isinstance(event, StepDone):
                spent += event.seconds
                if event.step % (event.steps // LOOKS) == 0:
                    yield Look(event.step, spent, -measure(model))


def first_reached(looks: list[Look]) -> Look | None:
    return next((look for look in looks if look.nats <= GOAL), None)


def run_apart(system: str, path: Path, seed: int) -> list[Look]:
    """In a process of its own."""
    asked = [sys.executable, __file__, str(path), "--only", system, "--seed", str(seed)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    return [Look(*json.loads(line)) for line in done.stdout.splitlines()]


def compare(path: Path, rounds: int, *, as_json: bool) -> None:
    told = []
    for number in range(rounds):
        order = ("plain", "harken") if number % 2 == 0 else ("harken", "plain")
        curves = {system: run_apart(system, path, number) for system in order}
        reached = {system: first_reached(looks) for system, looks in curves.items()}
        # Where the plain recipe does not get there, its whole run is what it took at least.
        seconds = {system: (look or curves[system][-1]).seconds for system, look in reached.items()}
        ratio = seconds["plain"] / seconds["harken"] if reached["harken"] else 0.0
        told.append(
            {
                "ratio": ratio,
                "seconds": seconds,
                "reached": {system: look is not None for system, look in reached.items()},
                "curves": curves,
            }
        )
        if not as_json:
            print_round(number, told[-1])
    ratios = [one["ratio"] for one in told]
    if as_json:
        print(json.dumps({"goal": GOAL, "ratio": statistics.median(ratios), "rounds": told}))
    else:
        print(f"median ratio over {rounds} rounds: {statistics.median(ratios):.1f}")


def print_round(number: int, one: dict) -> None:
    print(f"round {number + 1}: step, seconds, nats a character")
    pairs = zip(one["curves"]["plain"], one["curves"]["harken"], strict=True)
    for plain, harken in pairs:
        print(
            f"  plain {plain.step:5d} {plain.seconds:7.1f} {plain.nats:.3f}"
            f"    harken {harken.step:5d} {harken.seconds:7.1f} {harken.nats:.3f}"
        )
    for system, there in one["reached"].items():
        if not there:
            print(f"  {system} did not reach {GOAL}; its whole run is counted")
    seconds = one["seconds"]
    print(
        f"  to {GOAL}: plain {seconds['plain']:.1f} s, harken {seconds['harken']:.1f} s, "
        f"ratio {one['ratio']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("plain", "harken"), help="one run, a line for each look")
    parser.add_argument("--seed", type=int, default=0, help="of the run of --only")
    options = parser.parse_args()
    if options.only is None:
        compare(options.text, options.rounds, as_json=options.json)
        return
    run = run_plain if options.only == "plain" else run_harken
    for look in run(options.text, options.seed):
        print(json.dumps(look), flush=True)


if __name__ == "__main__":
    main()
