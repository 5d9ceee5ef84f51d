"""Copying at a distance: a Synthesizer beside attention by dot products.

    python benchmarks/synthesizer_distance.py                     three seeds, some minutes
    python benchmarks/synthesizer_distance.py --steps 300 --seeds 1

A row says n random symbols and then the same n again, n drawn from 2 .. 24 for every batch: whoever
wants to know the next symbol must look at what came behind the last one n steps ago. There are more
distances than the model has heads, so that a head for each is no way out. Accuracy is given by n,
over the second saying.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import ScaledConfig, ScoreConfig, SynthesizerConfig
from harken.models.gpt import GPT, GPTConfig

SYMBOLS, ROWS, WIDTH, HEADS, LAYERS = 32, 64, 64, 4, 2
DISTANCES = (2, 3, 4, 6, 8, 12, 16, 24)
SCORES: dict[str, ScoreConfig] = {
    "dot product": ScaledConfig(),
    "synthesizer, dense": SynthesizerConfig(form="dense", hidden=WIDTH),
    "synthesizer, random": SynthesizerConfig(form="random"),
}


def said_twice(distance: int, rows: int, generator: torch.Generator) -> Tensor:
    """B 2n."""
    once = torch.randint(SYMBOLS, (rows, distance), generator=generator)
    return torch.cat((once, once), dim=1)


def scored(model: GPT, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and answers of all that can be known: the second saying from its second symbol on."""
    distance = rows.shape[1] // 2
    return model.logits(model.states(rows)[:, distance:-1]), rows[:, distance + 1 :]


def train(score: ScoreConfig, steps: int, seed: int) -> GPT:
    """One model for all distances."""
    config = GPTConfig(
        layers=LAYERS,
        width=WIDTH,
        max_length=2 * max(DISTANCES),
        attention=MultiHeadConfig(heads=HEADS, score=score),
    )
    model, generator = config.build(SYMBOLS, seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        distance = int(torch.randint(min(DISTANCES), max(DISTANCES) + 1, (1,), generator=generator))
        scores, wanted = scored(model, said_twice(distance, ROWS, generator))
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def accuracies(model: GPT, seed: int) -> list[float]:
    """On rows that were not trained on, by distance."""
    generator = torch.Generator().manual_seed(10**6 + seed)
    found = []
    for distance in DISTANCES:
        scores, wanted = scored(model, said_twice(distance, 256, generator))
        found.append(float((scores.argmax(dim=-1) == wanted).double().mean()))
    return found


def main() -> None:
    """Print a row a score, the mean of all seeds, and JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        name: [
            statistics.mean(one)
            for one in zip(
                *(
                    accuracies(train(score, options.steps, seed), seed)
                    for seed in range(options.seeds)
                ),
                strict=True,
            )
        ]
        for name, score in SCORES.items()
    }
    if options.json:
        print(json.dumps({"distances": DISTANCES, "accuracy": found}, indent=1))
        return
    print(f"{'distance':22}" + "".join(f"{distance:>7}" for distance in DISTANCES))
    for name, shares in found.items():
        print(f"{name:22}" + "".join(f"{share:7.1%}" for share in shares))


if __name__ == "__main__":
    main()
