"""Training of an encoder-decoder on sentences of unequal lengths; the unit is a target token.

Harken trains from text files with its recipe for translation. The words of a sentence are tokens.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from peer_systems.decoding import END_OF_MARIAN, FIRST, Sizes, marian, model_settings
from peer_systems.ragged_text import BATCHES, pad, random_tokens, translation_lengths
from peer_systems.steps import adamw, harken_step, plain_step, read_recipe

SENTENCES = 4000
BYTES = 300  # entries of Harken's vocabulary that are bytes, characters or special tokens
IGNORE_INDEX = -100


def read_sizes(numbers: dict[str, int]) -> Sizes:
    return Sizes(**numbers, steps=0)


def write_sentences(path: Path, lengths: np.ndarray, entries: int, seed: int) -> None:
    """Write sentences of random words; there are as many words as fit the vocabulary."""
    rows = random_tokens(lengths, 0, max(2, entries - BYTES), seed)
    lines = (" ".join(f"w{word}" for word in row) for row in rows)
    path.write_text("\n".join(lines) + "\n")


def harken(
    *, dropout: float, batch_tokens: int, batches: int, **numbers: int
) -> Callable[[], float]:
    sizes = read_sizes(numbers)
    folder = Path(tempfile.mkdtemp())
    lengths = dict(zip(("source", "target"), translation_lengths(SENTENCES), strict=True))
    for seed, side in enumerate(lengths):
        write_sentences(folder / side, lengths[side], sizes.entries, seed)
    settings = [
        f"data.train.source={folder}/source",
        f"data.train.target={folder}/target",
        "data.dev=0.001",
        "encode.kind=words",
        f"encode.vocab_size={sizes.entries}",
        f"training.pairs.batch_tokens={batch_tokens}",
        "training.pairs.label_smoothing=0.0",
        *model_settings(sizes, dropout),
        *adamw("training.pairs"),
    ]
    recipe, task = read_recipe("translate", settings)
    splits = task.read_splits(recipe)
    vocabulary = task.fit(recipe, splits["train"])
    (stage,) = task.stages(recipe, splits, vocabulary, folder / "cache")
    step = harken_step(recipe, task.build(recipe, vocabulary.sizes), stage)
    return lambda: float(sum(step().tokens for _ in range(batches)))


def train_marian(
    *, dropout: float, order: str, batch_tokens: int, batches: int, **numbers: int
) -> Callable[[], float]:
    """Train Hugging Face's model on padded batches in some order."""
    sizes = read_sizes(numbers)
    model = marian(sizes, dropout)
    source_lengths, target_lengths = translation_lengths(SENTENCES)
    sources = random_tokens(source_lengths, FIRST, sizes.entries, 0)
    targets = [
        np.append(row, END_OF_MARIAN)
        for row in random_tokens(target_lengths, FIRST, sizes.entries, 1)
    ]
    next_batch = BATCHES[order](np.maximum(source_lengths, target_lengths + 1), batch_tokens)
    trained = 0

    def loss() -> Tensor:
        nonlocal trained
        chosen = next_batch()
        source = pad([sources[index] for index in chosen], sizes.entries)
        labels = pad([targets[index] for index in chosen], IGNORE_INDEX)
        trained += int((labels != IGNORE_INDEX).sum())
        mask = (source != sizes.entries).long()
        return model(input_ids=source, attention_mask=mask, labels=labels).loss

    step = plain_step(model, loss)

    def run() -> float:
        before = trained
        for _ in range(batches):
            step()
        return float(trained - before)

    return run
