"""Texts with blanks: choose the words to blank, and build rows in which they are blanked.

    Ada was born in London   ->   Ada ___ born in ___     targets: was, London

Blanks are a mask over the words, not tokens: the model decides how to hide them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.padding import move_to, pad
from harken.batch.ragged import IntArray, Ragged, ragged_indices, ragged_slices

Flags = Bool[np.ndarray, "_count"]


class ClozeBatch(NamedTuple):
    """Rows of words, which of them are blanked, and the word at each blank, row by row."""

    tokens: Int[Tensor, "B T"]
    present: Bool[Tensor, "B T"]
    blanks: Bool[Tensor, "B T"]
    targets: Int[Tensor, "N"]

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "ClozeBatch":
        return move_to(self, device)


class ClozeQueries(NamedTuple):
    """Rows of words, and for each word whether it is blanked."""

    rows: Ragged
    blanked: Flags

    def take(self, chosen: IntArray) -> "ClozeQueries":
        """Return the rows with these indices, in this order."""
        starts, lengths = self.rows.starts[chosen], self.rows.lengths[chosen]
        flags = ragged_slices(self.blanked.astype(np.int64), starts, lengths).values.astype(bool)
        return ClozeQueries(ragged_slices(self.rows.values, starts, lengths), flags)

    def batch(self, padding_value: int) -> ClozeBatch:
        """Return all rows as a padded batch."""
        tokens, present = pad(self.rows, padding_value)
        blanks = torch.zeros_like(present)
        blanks[present] = torch.from_numpy(self.blanked)
        return ClozeBatch(tokens, present, blanks, tokens[blanks])


def cut_evenly(documents: Ragged, max_length: int) -> Ragged:
    """Cut each long document into the fewest chunks that fit, of nearly equal length."""
    counts = -(-documents.lengths // max_length)
    owner, index = ragged_indices(counts)
    lengths, count = documents.lengths[owner], counts[owner]
    return Ragged(documents.values, (index + 1) * lengths // count - index * lengths // count)


def choose_blanks(lengths: IntArray, share: float, generator: np.random.Generator) -> Flags:
    """Draw `share` of the words of each row without replacement, at least one."""
    owner, index = ragged_indices(lengths)
    counts = np.maximum(np.rint(share * lengths), 1)
    shuffled = np.lexsort((generator.random(len(owner)), owner))  # within each row
    blanked = np.zeros(len(owner), dtype=bool)
    blanked[shuffled] = index < counts[owner]
    return blanked


def mask_together(rows: Ragged, chosen: IntArray) -> ClozeQueries:
    """Blank the words with these flat indices, in one copy of each row that has any."""
    owner, _ = ragged_indices(rows.lengths)
    blanked = np.zeros(len(rows.values), dtype=bool)
    blanked[chosen] = True
    return ClozeQueries(rows, blanked).take(np.unique(owner[chosen]))


def mask_one_by_one(rows: Ragged, chosen: IntArray) -> ClozeQueries:
    """Return a row for each word with these flat indices, in which only this word is blanked."""
    owner, index = ragged_indices(rows.lengths)
    copies = rows.take(owner[chosen])
    blanked = np.zeros(len(copies.values), dtype=bool)
    blanked[copies.starts + index[chosen]] = True
    return ClozeQueries(copies, blanked)


def words_read(lines: Ragged, rows: Ragged, blanks: IntArray) -> IntArray:
    """Count the words of each line that the model reads: those in a row with a blank.

    `rows` are chunks of `lines`, and `blanks` are flat indices into both.
    """
    line_of, _ = ragged_indices(lines.lengths)
    row_of, _ = ragged_indices(rows.lengths)
    chosen = np.unique(row_of[blanks])
    counts = np.bincount(line_of[rows.starts[chosen]], rows.lengths[chosen], len(lines.lengths))
    return counts.astype(np.int64)


def length_batches(lengths: IntArray, budget: int) -> Iterator[IntArray]:
    """Yield the indices of all rows, the longest first, in batches of up to `budget` padded words.

    A row that is longer than the budget is a batch alone.
    """
    ranked = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(ranked):
        rows = max(1, budget // max(1, int(lengths[ranked[start]])))
        yield ranked[start : start + rows]
        start += rows
