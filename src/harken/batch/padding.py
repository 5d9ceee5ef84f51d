"""Padded and packed batches of token sequences, and pairs of encoder inputs and texts.

In next-token prediction, the first token of a sequence is only an input and the last only a target,
so n tokens take n - 1 columns. A packed row holds several sequences: `documents` numbers them and
`positions` starts at 0 in each, so that attention can be restricted to one sequence.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.batch.ragged import IntArray, Ragged, append, ragged_indices

IGNORE_INDEX = -100  # a target that the loss ignores

AnyBatch = TypeVar("AnyBatch", bound=tuple[Tensor | None, ...])


def move_to(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """Move all tensors of a named tuple to a device."""
    parts = [None if part is None else part.to(device) for part in batch]
    return type(batch)(*parts)  # type: ignore[arg-type]


def count_targets(targets: Int[Tensor, "B T"]) -> int:
    """Return the number of targets that the loss does not ignore."""
    return int((targets != IGNORE_INDEX).sum())


class TokenBatch(NamedTuple):
    """Inputs and their targets, such as the next tokens; packed rows have all four fields."""

    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"] | None = None
    documents: Int[Tensor, "B T"] | None = None

    @property
    def num_targets(self) -> int:
        return count_targets(self.targets)

    def to(self, device: torch.device) -> "TokenBatch":
        return move_to(self, device)


class Seq2SeqBatch(NamedTuple):
    """Encoder inputs (tokens, audio features, images or feature maps) with their texts."""

    source: Int[Tensor, "B M"] | Float[Tensor, "B M F"] | Float[Tensor, "B first second third"]
    present: Bool[Tensor, "B M"] | None  # None for images
    inputs: Int[Tensor, "B T"]  # of the decoder: the start token, then the text
    targets: Int[Tensor, "B T"]  # the text, then the end token

    @property
    def num_targets(self) -> int:
        return count_targets(self.targets)

    def to(self, device: torch.device) -> "Seq2SeqBatch":
        return move_to(self, device)


def pad(sequences: Ragged, padding_value: int) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Return the sequences padded on the right, and a mask that is true at tokens."""
    longest = int(sequences.lengths.max(initial=0))
    tokens = np.full((len(sequences.lengths), longest), padding_value, dtype=np.int64)
    tokens[ragged_indices(sequences.lengths)] = sequences.values
    present = np.arange(longest) < sequences.lengths[:, None]
    return torch.from_numpy(tokens), torch.from_numpy(present)


def shift_targets(
    texts: Ragged, start: int | Sequence[int], end: int, padding_value: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return decoder inputs, which begin with `start`, and targets, which end with `end`.

    If `start` has several tokens, the first targets are ignored: they are known.
    """
    targets, present = pad(append(texts, end), padding_value)
    first = torch.tensor([start] if isinstance(start, int) else start).expand(len(targets), -1)
    inputs = torch.cat((first, targets[:, :-1]), dim=1)
    ignored = torch.full_like(first[:, 1:], IGNORE_INDEX)
    return inputs, torch.cat((ignored, targets.masked_fill(~present, IGNORE_INDEX)), dim=1)


def next_token_batch(sequences: Ragged, first_targets: IntArray, padding_value: int) -> TokenBatch:
    """Return one sequence per row; targets before the index in `first_targets` are ignored."""
    tokens, present = pad(sequences, padding_value)
    counted = present[:, 1:] & (
        torch.arange(tokens.shape[1])[1:] >= torch.from_numpy(first_targets)[:, None]
    )
    return TokenBatch(tokens[:, :-1], tokens[:, 1:].masked_fill(~counted, IGNORE_INDEX))


def pack_rows(lengths: IntArray, capacity: int) -> tuple[IntArray, IntArray]:
    """Return row and offset of each sequence (best-fit decreasing)."""
    rows, offsets = np.zeros((2, len(lengths)), dtype=np.int64)
    free: list[int] = []  # number of free columns of each row
    for sequence in np.argsort(-lengths, kind="stable"):
        length = int(lengths[sequence])
        fitting = [(left, row) for row, left in enumerate(free) if left >= length]
        row = min(fitting)[1] if fitting else len(free)
        if not fitting:
            assert length <= capacity, "a sequence longer than a row must be cut before packing"
            free.append(capacity)
        rows[sequence], offsets[sequence] = row, capacity - free[row]
        free[row] -= length
    return rows, offsets


def packed_batch(
    sequences: Ragged, first_targets: IntArray, padding_value: int, capacity: int
) -> TokenBatch:
    """Return several sequences per row of `capacity` columns, numbered by `documents`."""
    lengths = np.maximum(sequences.lengths - 1, 0)
    row, offset = pack_rows(lengths, capacity)
    document, index = ragged_indices(lengths)
    source = sequences.starts[document] + index
    counted = index + 1 >= first_targets[document]
    targets = np.where(counted, sequences.values[source + 1], IGNORE_INDEX)
    # Padding is a document of its own (-1), so that it attends only to padding.
    fields = (
        (padding_value, sequences.values[source]),
        (IGNORE_INDEX, targets),
        (0, index),
        (-1, document),
    )
    tensors = []
    for default, values in fields:
        field = np.full((int(row.max(initial=-1)) + 1, capacity), default, dtype=np.int64)
        field[row[document], offset[document] + index] = values
        tensors.append(torch.from_numpy(field))
    return TokenBatch(*tensors)
