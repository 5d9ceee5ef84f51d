"""Sentences of words with their spellings -> rectangles; long ones in windows that overlap.

    rows         B T          the number of each word
    forms        B T          which of the N spellings below it has
    spellings    N letters    the distinct words of the batch, each spelt once
    tags         B T          what is to be said of each word, IGNORE_INDEX at padding

A model that sees so many words and no more meets a longer sentence in windows of that size, half a
window apart; of each word only the view from the window where it stands farthest from a cut counts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import IGNORE_INDEX, TokenBatch, pad
from harken.batch.ragged import Numbers, Ragged, places, ragged, ragged_slices


class TaggedBatch(NamedTuple):
    """See the top of this file; `spelt` and `present` say where there is no padding."""

    rows: Int[Tensor, "B T"]
    forms: Int[Tensor, "B T"]
    spellings: Int[Tensor, "N letters"]
    spelt: Bool[Tensor, "N letters"]
    present: Bool[Tensor, "B T"]
    tags: Int[Tensor, "B T"]

    @property
    def counted(self) -> int:
        return int((self.tags != IGNORE_INDEX).sum())

    def to(self, device: torch.device) -> "TaggedBatch":
        return TaggedBatch(*(part.to(device) for part in self))


class Windows(NamedTuple):
    """Stretches of the flat array of all words, in its order.

    Each word is kept in one window: the kept words of all windows are the array again.
    """

    starts: Numbers
    lengths: Numbers
    skipped: Numbers  # words at a window's start that the window before it sees better
    kept: Numbers  # words after those


def windows_over(lengths: Numbers, most: int) -> Windows:
    """Windows of at most `most` words over sentences of these lengths that follow one another."""
    step = max(1, most // 2)
    found: list[tuple[int, int, int, int]] = []
    first = 0
    for length in lengths.tolist():
        starts = [*range(0, max(length - most, 0), step), max(length - most, 0)]
        # Halfway through what two windows share, a word is equally far from either's cut.
        turns = [(left + most + right) // 2 for left, right in pairwise(starts)]
        for start, begin, end in zip(starts, [0, *turns], [*turns, length], strict=True):
            found.append((first + start, min(most, length), begin - start, end - begin))
        first += length
    table = np.array(found, dtype=np.int64).reshape(-1, 4)
    return Windows(*table.T)


class WordCorpus(NamedTuple):
    """Sentences one after the other, as flat arrays of equal length, and the distinct spellings."""

    rows: Numbers
    forms: Numbers
    tags: Numbers
    spellings: Ragged
    lengths: Numbers  # of the sentences


def word_corpus(
    rows: Sequence[Numbers],
    forms: Sequence[Numbers],
    spellings: Sequence[Numbers],
    tags: Sequence[Numbers] | None = None,
) -> WordCorpus:
    """From one array a sentence; without tags, nothing is counted."""
    sentences = ragged(rows)
    said = np.full(len(sentences.values), IGNORE_INDEX) if tags is None else ragged(tags).values
    return WordCorpus(
        sentences.values, ragged(forms).values, said, ragged(spellings), sentences.lengths
    )


def word_batch(corpus: WordCorpus, windows: Windows, chosen: Numbers, filler: int) -> TaggedBatch:
    """The chosen windows, one a row; tags of words that another window keeps are not counted."""
    starts, lengths = windows.starts[chosen], windows.lengths[chosen]
    rows, present = pad(ragged_slices(corpus.rows, starts, lengths), filler)
    forms = ragged_slices(corpus.forms, starts, lengths)
    distinct, index = np.unique(forms.values, return_inverse=True)
    every = corpus.spellings
    spellings = every.take(distinct)
    spelt, letters = pad(spellings, filler)
    # Padding points to the first spelling: any will do, since nothing reads it.
    pointers, _ = pad(Ragged(index.astype(np.int64), lengths), 0)
    owner, place = places(lengths)
    skipped, kept = windows.skipped[chosen][owner], windows.kept[chosen][owner]
    here = (place >= skipped) & (place < skipped + kept)
    tags = np.where(here, ragged_slices(corpus.tags, starts, lengths).values, IGNORE_INDEX)
    said, _ = pad(Ragged(tags, lengths), IGNORE_INDEX)
    return TaggedBatch(rows, pointers, spelt, letters, present, said)


class NeighborBatches:
    """Training batches in which every word that has a neighbor is a target.

    A batch depends only on its index, so a resumed run sees the same data.
    """

    def __init__(
        self, corpus: WordCorpus, windows: Windows, batch_tokens: int, filler: int, seed: int
    ) -> None:
        self._corpus, self._windows, self._filler = corpus, windows, filler
        self._order = BucketSampler(windows.lengths, batch_tokens, seed)

    def batch(self, step: int) -> list[TokenBatch]:
        batch = word_batch(self._corpus, self._windows, self._order.batch(step), self._filler)
        alone = batch.present.sum(dim=1, keepdim=True) < 2
        return [
            TokenBatch(batch.rows, batch.rows.masked_fill(~batch.present | alone, IGNORE_INDEX))
        ]


def unk_dropout(
    batch: TaggedBatch, counts: Numbers, strength: float, unknown: int, random: np.random.Generator
) -> TaggedBatch:
    """A word met c times becomes `unknown` with probability a / (a + c); its spelling stays.

    So rare words teach the row of words that training never meets.
    """
    rows = batch.rows.numpy()
    drawn = random.random(rows.shape) * (strength + counts[rows])
    forgotten = torch.from_numpy(drawn < strength) & batch.present
    return batch._replace(rows=batch.rows.masked_fill(forgotten, unknown))
