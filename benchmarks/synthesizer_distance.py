"""Compare Synthesizer and dot-product attention on copying over varying distances.

    python benchmarks/synthesizer_distance.py                     three seeds, several minutes
    python benchmarks/synthesizer_distance.py --steps 300 --seeds 1

A sequence is n random symbols followed by the same n symbols, with n drawn from 2 to 24 per batch.
To predict the next symbol of the repetition, a model must attend n - 1 positions back. There are
more distances than the model has heads, so it cannot use one head per distance.

The benchmark trains a GPT with two layers per score function and seed. It prints a row per score
function and a column per n: the accuracy on the repetition, from its second symbol on, as the mean
over seeds.
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

SYMBOLS, WIDTH, HEADS, LAYERS = 32, 64, 4, 2
TRAIN_BATCH, TEST_BATCH = 64, 256  # sequences
DISTANCES = (2, 3, 4, 6, 8, 12, 16, 24)
SCORES: dict[str, ScoreConfig] = {
    "dot product": ScaledConfig(),
    "synthesizer, dense": SynthesizerConfig(form="dense", hidden=WIDTH),
    "synthesizer, random": SynthesizerConfig(form="random"),
}


def repeated_sequences(distance: int, batch: int, generator: torch.Generator) -> Tensor:
    """Return random sequences that occur twice: B 2n."""
    symbols = torch.randint(SYMBOLS, (batch, distance), generator=generator)
    return torch.cat((symbols, symbols), dim=1)


def logits_and_targets(model: GPT, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and targets of the repetition, from its second symbol on."""
    distance = tokens.shape[1] // 2
    return model.logits(model.states(tokens)[:, distance:-1]), tokens[:, distance + 1 :]


def train(score: ScoreConfig, steps: int, seed: int) -> GPT:
    """Train one model on all distances."""
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
        tokens = repeated_sequences(distance, TRAIN_BATCH, generator)
        logits, targets = logits_and_targets(model, tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def accuracies(model: GPT, seed: int) -> list[float]:
    """Return the accuracy on new sequences by distance."""
    generator = torch.Generator().manual_seed(10**6 + seed)
    shares = []
    for distance in DISTANCES:
        tokens = repeated_sequences(distance, TEST_BATCH, generator)
        logits, targets = logits_and_targets(model, tokens)
        shares.append(float((logits.argmax(dim=-1) == targets).double().mean()))
    return shares


def mean_accuracies(score: ScoreConfig, steps: int, seeds: int) -> list[float]:
    """Return the accuracy by distance, as the mean over seeds."""
    by_seed = [accuracies(train(score, steps, seed), seed) for seed in range(seeds)]
    return [statistics.mean(shares) for shares in zip(*by_seed, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="training steps (3000)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (3)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    results = {
        name: mean_accuracies(score, options.steps, options.seeds) for name, score in SCORES.items()
    }
    if options.json:
        print(json.dumps({"distances": DISTANCES, "accuracy": results}, indent=1))
        return
    print(f"{'n':22}" + "".join(f"{distance:>7}" for distance in DISTANCES))
    for name, shares in results.items():
        print(f"{name:22}" + "".join(f"{share:7.1%}" for share in shares))


if __name__ == "__main__":
    main()
