"""Texts with blanks: which words are blanked, and rows that show everything else.

    Ada was born in London   ->   Ada ___ born in ___     wanted: was, London

Blanks are flags beside the words, not words: a model hides what it must. Which symbol stands for a
hidden word, and for padding, only the caller knows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.padding import pad
from harken.batch.ragged import Numbers, Ragged, places, ragged_slices

Flags = Bool[np.ndarray, "_count"]


class BlankBatch(NamedTuple):
    """Rows of words, which of them are blanked, and the word at each blank, row by row."""

    tokens: Int[Tensor, "B T"]
    present: Bool[Tensor, "B T"]
    blanks: Bool[Tensor, "B T"]
    targets: Int[Tensor, "N"]

    @property
    def counted(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "BlankBatch":
        return BlankBatch(*(part.to(device) for part in self))


class ClozeQueries(NamedTuple):
    """Rows, and a flag for every word of theirs: whether it is asked for."""

    rows: Ragged
    blanked: Flags

    def take(self, chosen: Numbers) -> "ClozeQueries":
        """These rows, in this order."""
        starts, lengths = self.rows.starts[chosen], self.rows.lengths[chosen]
        flags = ragged_slices(self.blanked.astype(np.int64), starts, lengths).values.astype(bool)
        return ClozeQueries(ragged_slices(self.rows.values, starts, lengths), flags)

    def batch(self, filler: int) -> BlankBatch:
        """All rows, padded."""
        tokens, present = pad(self.rows, filler)
        blanks = torch.zeros_like(present)
        blanks[present] = torch.from_numpy(self.blanked)
        return BlankBatch(tokens, present, blanks, tokens[blanks])


def cut_evenly(documents: Ragged, most: int) -> Ragged:
    """Documents longer than `most` in the fewest pieces that fit, as long as one another."""
    pieces = -(-documents.lengths // most)
    owner, place = places(pieces)
    lengths, count = documents.lengths[owner], pieces[owner]
    # Piece p of n reaches from p/n of the document to (p + 1)/n of it.
    return Ragged(documents.values, (place + 1) * lengths // count - place * lengths // count)


def choose_blanks(lengths: Numbers, share: float, random: np.random.Generator) -> Flags:
    """A flag for every word: `share` of each row, at least one, drawn without return."""
    owner, place = places(lengths)
    wanted = np.maximum(np.rint(share * lengths), 1)
    # Words of a row in an order drawn by lot: the first of them are blanked.
    drawn = np.lexsort((random.random(len(owner)), owner))
    blanked = np.zeros(len(owner), dtype=bool)
    blanked[drawn] = place < wanted[owner]
    return blanked


def mask_together(rows: Ragged, chosen: Numbers) -> ClozeQueries:
    """Each row that has chosen words once, with all of them blanked; `chosen` are flat places."""
    owner, _ = places(rows.lengths)
    blanked = np.zeros(len(rows.values), dtype=bool)
    blanked[chosen] = True
    return ClozeQueries(rows, blanked).take(np.unique(owner[chosen]))


def words_read(lines: Ragged, rows: Ragged, blanks: Numbers) -> Numbers:
    """How many words of each line are in the rows that have a blank; the others are not read."""
    line_of, _ = places(lines.lengths)
    row_of, _ = places(rows.lengths)
    chosen = np.unique(row_of[blanks])
    counts = np.bincount(line_of[rows.starts[chosen]], rows.lengths[chosen], len(lines.lengths))
    return counts.astype(np.int64)


def mask_one_by_one(rows: Ragged, chosen: Numbers) -> ClozeQueries:
    """A row for each chosen word, with no other blanked."""
    owner, place = places(rows.lengths)
    shown = owner[chosen]
    alone = rows.take(shown)
    blanked = np.zeros(len(alone.values), dtype=bool)
    blanked[alone.starts + place[chosen]] = True
    return ClozeQueries(alone, blanked)


def like_lengths(lengths: Numbers, budget: int) -> Iterator[Numbers]:
    """Each row once, the longest first, at most `budget` padded words together where they fit."""
    ranked = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(ranked):
        rows = max(1, budget // max(1, int(lengths[ranked[start]])))
        yield ranked[start : start + rows]
        start += rows
