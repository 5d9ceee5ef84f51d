"""Compare the training time to a validation loss of 1.88 nats per character with plain PyTorch.

    python benchmarks/shakespeare.py input.txt              tinyshakespeare, or any other text
    python benchmarks/shakespeare.py input.txt --rounds 5 --json

    plain    the CPU configuration of nanoGPT, whose README reports 1.88, in plain PyTorch below
    harken   recipes/lm.toml with `SETTINGS`, which were chosen to reach this loss quickly

Both train on the first 90 % of the characters and are evaluated on the last 10 %, in windows of the
model's context length that do not overlap, so that every character is predicted once. Both are
evaluated 20 times, and the seconds do not include evaluation. Each run is a separate process; the
systems alternate, so that other load on the machine slows down both.

For each round, the benchmark prints step, seconds and loss of all evaluations, and the seconds to
1.88; if a system does not reach it, the seconds of its whole run count. The last line is the median
of the ratios seconds of plain / seconds of harken (0 if harken does not reach 1.88).
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
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.recipe import load_recipe, task_of
from harken.tasks.lm import token_nats
from harken.training.loop import StepDone, Training
from harken.training.runtime import configure_process

GOAL = 1.88  # nats per character
EVALUATIONS = 20  # per run
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

# nanoGPT's configuration
LAYERS, HEADS, WIDTH, CONTEXT, BATCH_SIZE = 4, 4, 128, 64, 12
STEPS, WARMUP, MAX_LR, MIN_LR = 2000, 100, 1e-3, 1e-4


class Evaluation(NamedTuple):
    """The validation loss after a number of steps and seconds of training."""

    step: int
    seconds: float
    nats: float  # per character


class Block(nn.Module):
    """A GPT-2 block without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.qkv_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up_proj = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        batch, length, _ = states.shape
        projections = self.qkv_proj(self.norms[0](states)).split(WIDTH, dim=2)
        qkv = [rows.view(batch, length, HEADS, -1).transpose(1, 2) for rows in projections]
        heads = F.scaled_dot_product_attention(*qkv, is_causal=True)
        states = states + self.out_proj(heads.transpose(1, 2).reshape(batch, length, WIDTH))
        return states + self.down_proj(F.gelu(self.up_proj(self.norms[1](states))))


class PlainGPT(nn.Module):
    """A GPT with learned positions and tied embeddings."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_residual = name.endswith(("out_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * LAYERS) if is_residual else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, tokens: Tensor, *, at: Tensor | None = None) -> Tensor:
        order = torch.arange(tokens.shape[1])
        states = self.norm(self.blocks(self.embedding(tokens) + self.positions(order)))
        return (states if at is None else states[at]) @ self.embedding.weight.T


def plain_lr(step: int) -> float:
    """Return the learning rate at `step`: linear warm-up, then cosine decay."""
    if step < WARMUP:
        return MAX_LR * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + (MAX_LR - MIN_LR) * (1 + math.cos(math.pi * progress)) / 2


def read_tokens(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Return training tokens, held-out tokens and the size of the vocabulary."""
    text = path.read_text(encoding="utf-8")
    characters = sorted(set(text))
    ids = {character: index for index, character in enumerate(characters)}
    tokens = np.array([ids[character] for character in text], dtype=np.int64)
    cut = int(0.9 * len(tokens))
    # As in Harken, the held-out text follows a line break, so that its first character counts too.
    line_break = [ids.get("\n", 0)]
    return tokens[:cut], np.concatenate((line_break, tokens[cut:])), len(characters)


def run_plain(path: Path, seed: int) -> Iterator[Evaluation]:
    """Train the plain PyTorch model."""
    torch.manual_seed(seed)
    train, held_out, vocabulary = read_tokens(path)
    model = PlainGPT(vocabulary)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=MAX_LR, betas=(0.9, 0.99))
    tokens, seconds = torch.from_numpy(train), 0.0
    for step in range(STEPS):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = plain_lr(step)
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH_SIZE,))
        inputs = torch.stack([tokens[start : start + CONTEXT] for start in starts])
        targets = torch.stack([tokens[start + 1 : start + CONTEXT + 1] for start in starts])
        logits = model(inputs)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds += time.perf_counter() - started
        if (step + 1) % (STEPS // EVALUATIONS) == 0:
            nats = token_nats(model, held_out, CONTEXT, CONTEXT)
            yield Evaluation(step + 1, seconds, float(nats.mean()))
            model.train()


def run_harken(path: Path, seed: int) -> Iterator[Evaluation]:
    """Train Harken's model."""
    recipe = load_recipe(RECIPE, [*SETTINGS, f"data.train={path}", "data.dev=0.1", f"seed={seed}"])
    task, device = task_of(recipe), torch.device("cpu")
    configure_process(device)
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
        evaluate, seconds = stages[0].evaluate, 0.0
        assert evaluate is not None
        for event in training:
            if isinstance(event, StepDone):
                seconds += event.seconds
                if event.step % (event.steps // EVALUATIONS) == 0:
                    yield Evaluation(event.step, seconds, -evaluate(model))


def run_in_process(system: str, path: Path, seed: int) -> list[Evaluation]:
    """Train a system in a new process."""
    command = [sys.executable, __file__, str(path), "--only", system, "--seed", str(seed)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Evaluation(*json.loads(line)) for line in finished.stdout.splitlines()]


def run_round(path: Path, number: int) -> dict[str, Any]:
    """Train both systems and return the JSON object of this round."""
    order = ("plain", "harken") if number % 2 == 0 else ("harken", "plain")
    curves = {system: run_in_process(system, path, number) for system in order}
    reached, seconds = {}, {}
    for system, curve in curves.items():
        successes = [evaluation for evaluation in curve if evaluation.nats <= GOAL]
        reached[system] = bool(successes)
        seconds[system] = (successes[0] if successes else curve[-1]).seconds
    ratio = seconds["plain"] / seconds["harken"] if reached["harken"] else 0.0
    return {"ratio": ratio, "seconds": seconds, "reached": reached, "curves": curves}


def print_round(number: int, result: dict[str, Any]) -> None:
    print(f"round {number + 1}: step, seconds, nats per character")
    for plain, harken in zip(result["curves"]["plain"], result["curves"]["harken"], strict=True):
        print(
            f"  plain {plain.step:5d} {plain.seconds:7.1f} {plain.nats:.3f}"
            f"    harken {harken.step:5d} {harken.seconds:7.1f} {harken.nats:.3f}"
        )
    for system, is_reached in result["reached"].items():
        if not is_reached:
            print(f"  {system} did not reach {GOAL}; the seconds of its whole run count")
    seconds = result["seconds"]
    print(
        f"  to {GOAL}: plain {seconds['plain']:.1f} s, harken {seconds['harken']:.1f} s, "
        f"ratio {result['ratio']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="text file")
    parser.add_argument("--rounds", type=int, default=3, help="runs per system (3)")
    parser.add_argument("--json", action="store_true", help="print a JSON object at the end")
    parser.add_argument(
        "--only",
        choices=("plain", "harken"),
        help="train one system once; print [step, seconds, nats] per evaluation",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of --only (0)")
    options = parser.parse_args()
    if options.only is not None:
        run = run_plain if options.only == "plain" else run_harken
        for evaluation in run(options.text, options.seed):
            print(json.dumps(evaluation), flush=True)
        return
    results = []
    for number in range(options.rounds):
        results.append(run_round(options.text, number))
        if not options.json:
            print_round(number, results[-1])
    median = statistics.median(result["ratio"] for result in results)
    if options.json:
        print(json.dumps({"goal": GOAL, "ratio": median, "rounds": results}))
    else:
        print(f"median ratio over {options.rounds} rounds: {median:.1f}")


if __name__ == "__main__":
    main()
