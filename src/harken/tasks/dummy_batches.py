"""Random batches for the cost of a training step, and the cross-entropy of targets."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.batch.padding import IGNORE_INDEX, Seq2SeqBatch, TokenBatch
from harken.encode.vocabulary import SPECIAL
from harken.layers.losses import cross_entropy_
from harken.training.loop import StageConfig

DUMMY_LENGTH = 32  # tokens per row, unless the recipe or the command line sets it


class DummySizes(NamedTuple):
    """Sizes of a training step that is traced without data.

    Keys of `sizes`: B rows, T tokens, M source tokens, S frames, F features per frame, W characters
    per word.
    """

    stage: StageConfig  # the main training stage of the task
    sizes: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # descriptions of sizes that the recipe does not set


def token_sizes(
    stage: StageConfig, rows: int | None, length: int | None, batch_tokens: int
) -> DummySizes:
    """Return the sizes for rows of `length` tokens; None means `DUMMY_LENGTH`."""
    tokens = length or DUMMY_LENGTH
    assumed = () if length else (f"a length of {tokens} (--length)",)
    return DummySizes(stage, {"B": rows or max(1, batch_tokens // tokens), "T": tokens}, assumed)


def random_tokens(
    generator: torch.Generator, vocab_size: int, *shape: int
) -> Int[Tensor, "*shape"]:
    """Draw tokens other than the special ones."""
    return torch.randint(min(len(SPECIAL), vocab_size - 1), vocab_size, shape, generator=generator)


def random_text_batch(rows: int, length: int, vocab_size: int) -> TokenBatch:
    """Draw inputs and targets of a language model."""
    generator = torch.Generator().manual_seed(0)
    return TokenBatch(*(random_tokens(generator, vocab_size, rows, length) for _ in range(2)))


def random_seq2seq_batch(
    source: Tensor, length: int, vocab_size: int, generator: torch.Generator
) -> Seq2SeqBatch:
    """Draw decoder inputs and targets for source tokens, frames or images."""
    inputs, targets = (random_tokens(generator, vocab_size, len(source), length) for _ in range(2))
    present = None if source.dim() == 4 else torch.ones(source.shape[:2], dtype=torch.bool)
    return Seq2SeqBatch(source, present, inputs, targets)


def target_losses(
    model: nn.Module, targets: Int[Tensor, "B T"], *inputs: Tensor, smoothing: float = 0.0
) -> Float[Tensor, "counted"]:
    """Return the cross-entropy of each target, row by row; targets IGNORE_INDEX are skipped."""
    counted = targets != IGNORE_INDEX
    return cross_entropy_(model(*inputs, at=counted), targets[counted], smoothing)
