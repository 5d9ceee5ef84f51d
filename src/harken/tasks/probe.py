"""Random batches to measure the cost of a training step, and the loss of tokens."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.batch.padding import IGNORE_INDEX, Seq2SeqBatch, TokenBatch
from harken.encode.vocabulary import SPECIAL
from harken.layers.losses import cross_entropy_
from harken.training.loop import StageConfig

PROBE_LENGTH = 32  # tokens per row, if the recipe does not set it


class ProbeSizes(NamedTuple):
    """Sizes of a training step that is traced without data.

    `letters`: B rows, T tokens, M source tokens, S frames, F features of a frame, W letters of a
    word.
    """

    stage: StageConfig  # the stage that takes most of the time
    letters: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # descriptions of sizes that the recipe does not set


def token_sizes(
    stage: StageConfig, rows: int | None, length: int | None, batch_tokens: int
) -> ProbeSizes:
    """Return rows of `length` tokens, or of a typical length if it is None."""
    tokens = length or PROBE_LENGTH
    assumed = () if length else (f"a length of {tokens} (--length)",)
    return ProbeSizes(stage, {"B": rows or max(1, batch_tokens // tokens), "T": tokens}, assumed)


def random_tokens(generator: torch.Generator, below: int, *shape: int) -> Int[Tensor, "*shape"]:
    """Draw tokens that are not special."""
    return torch.randint(min(len(SPECIAL), below - 1), below, shape, generator=generator)


def random_text_batch(rows: int, length: int, vocabulary: int) -> TokenBatch:
    """Draw inputs and targets of a language model."""
    generator = torch.Generator().manual_seed(0)
    return TokenBatch(*(random_tokens(generator, vocabulary, rows, length) for _ in range(2)))


def random_seq2seq_batch(
    source: Tensor, length: int, vocabulary: int, generator: torch.Generator
) -> Seq2SeqBatch:
    """Draw decoder inputs and targets for source tokens, frames or images."""
    inputs, targets = (random_tokens(generator, vocabulary, len(source), length) for _ in range(2))
    present = None if source.dim() == 4 else torch.ones(source.shape[:2], dtype=torch.bool)
    return Seq2SeqBatch(source, present, inputs, targets)


def target_losses(
    model: nn.Module, targets: Int[Tensor, "B T"], *inputs: Tensor, smoothing: float = 0.0
) -> Float[Tensor, "counted"]:
    """Return the cross-entropy of each counted target, in reading order."""
    counted = targets != IGNORE_INDEX
    return cross_entropy_(model(*inputs, at=counted), targets[counted], smoothing)
