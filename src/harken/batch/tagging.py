"""Batches of sentences with the characters of their words; long sentences in overlapping windows.

    words              B T          index of the embedding of each word
    forms              B T          index of the spelling of each word
    spellings          N letters    characters, or word pieces, of the distinct words of the batch
    spellings_present  N letters    false at padding of spellings
    present            B T          false at padding of sentences
    tags               B T          targets; IGNORE_INDEX at words that do not count

A sentence longer than the model's limit is read in windows that overlap by half. Each word is
tagged in the window in which it is farthest from a cut.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX, TokenBatch, count_targets, move_to, pad
from harken.batch.ragged import IntArray, Ragged, ragged, ragged_indices, ragged_slices


class TaggedBatch(NamedTuple):
    """Sentences or windows of sentences, one per row; the module's docstring lists the fields."""

    words: Int[Tensor, "B T"]
    forms: Int[Tensor, "B T"]
    spellings: Int[Tensor, "N letters"]
    spellings_present: Bool[Tensor, "N letters"]
    present: Bool[Tensor, "B T"]
    tags: Int[Tensor, "B T"]

    @property
    def num_targets(self) -> int:
        return count_targets(self.tags)

    def to(self, device: torch.device) -> "TaggedBatch":
        return move_to(self, device)


class SentenceWindows(NamedTuple):
    """Slices of the flat array of all words; each word is kept in exactly one of them."""

    starts: IntArray
    lengths: IntArray
    skipped: IntArray  # number of words at the start that belong to the window before
    kept: IntArray  # number of words after these
    sizes: IntArray  # lengths of the model's inputs: in words, or in word pieces


def sentence_windows(lengths: IntArray, max_length: int | IntArray) -> SentenceWindows:
    """Return windows of at most `max_length` words over consecutive sentences.

    `max_length` is a number, or a number for each sentence.
    """
    windows: list[tuple[int, ...]] = []
    first = 0
    limits = np.broadcast_to(max_length, lengths.shape).tolist()
    for length, max_length in zip(lengths.tolist(), limits, strict=True):
        stride = max(1, max_length // 2)
        last = max(length - max_length, 0)
        starts = [*range(0, last, stride), last]
        # In the middle of an overlap, a word is equally far from the cut of either window.
        middles = [(left + max_length + right) // 2 for left, right in pairwise(starts)]
        for start, begin, end in zip(starts, [0, *middles], [*middles, length], strict=True):
            size = min(max_length, length)
            windows.append((first + start, size, begin - start, end - begin, size))
        first += length
    return SentenceWindows(*np.array(windows, dtype=np.int64).reshape(-1, 5).T)


class WordCorpus(NamedTuple):
    """All sentences as flat arrays of equal length, and the distinct spellings."""

    words: IntArray
    forms: IntArray
    tags: IntArray
    spellings: Ragged
    lengths: IntArray  # of the sentences


def word_corpus(
    words: Sequence[IntArray],
    forms: Sequence[IntArray],
    spellings: Sequence[IntArray],
    tags: Sequence[IntArray] | None = None,
) -> WordCorpus:
    """Build a corpus from one array per sentence; without tags, no target is counted."""
    flat = ragged(words)
    targets = np.full(len(flat.values), IGNORE_INDEX) if tags is None else ragged(tags).values
    return WordCorpus(flat.values, ragged(forms).values, targets, ragged(spellings), flat.lengths)


def words_within(corpus: WordCorpus, max_pieces: int) -> IntArray:
    """Return a number of words for each sentence whose pieces are at most `max_pieces` together.

    It is the length of the sentence if all its words fit. Otherwise all windows of this length fit.
    """
    pieces = corpus.spellings.lengths[corpus.forms]
    starts = np.cumsum(corpus.lengths) - corpus.lengths
    limits = corpus.lengths.copy()
    for index, (start, length) in enumerate(zip(starts, corpus.lengths, strict=True)):
        counts = pieces[start : start + length]
        if counts.sum() > max_pieces:
            limits[index] = max(1, max_pieces // counts.max())
    return limits


def piece_windows(corpus: WordCorpus, max_pieces: int, ends: int) -> SentenceWindows:
    """Return windows of at most `max_pieces` word pieces, to which the model adds `ends` tokens.

    Their sizes are in pieces: sentences of few words with many pieces would otherwise share a batch
    with sentences of few pieces, and most of it would be padding.
    """
    windows = sentence_windows(corpus.lengths, words_within(corpus, max_pieces))
    before = np.concatenate(([0], np.cumsum(corpus.spellings.lengths[corpus.forms])))
    pieces = before[windows.starts + windows.lengths] - before[windows.starts]
    return windows._replace(sizes=pieces + ends)


def tagged_batch(
    corpus: WordCorpus, windows: SentenceWindows, chosen: IntArray, padding_value: int
) -> TaggedBatch:
    """Return the chosen windows, one per row; only tags of kept words are counted."""
    starts, lengths, skipped, kept, _ = (part[chosen] for part in windows)
    words, present = pad(ragged_slices(corpus.words, starts, lengths), padding_value)
    forms = ragged_slices(corpus.forms, starts, lengths)
    distinct, index = np.unique(forms.values, return_inverse=True)
    spellings, spellings_present = pad(corpus.spellings.take(distinct), padding_value)
    # Padding points to the first spelling; nothing reads it.
    pointers, _ = pad(Ragged(index.astype(np.int64), lengths), 0)
    owner, index = ragged_indices(lengths)
    is_kept = (index >= skipped[owner]) & (index < (skipped + kept)[owner])
    tags = np.where(is_kept, ragged_slices(corpus.tags, starts, lengths).values, IGNORE_INDEX)
    targets, _ = pad(Ragged(tags, lengths), IGNORE_INDEX)
    return TaggedBatch(words, pointers, spellings, spellings_present, present, targets)


def neighbor_batch(batch: TaggedBatch) -> TokenBatch:
    """Return the words as inputs and targets of CBOW; a word without neighbors is not counted."""
    alone = batch.present.sum(dim=1, keepdim=True) < 2
    return TokenBatch(batch.words, batch.words.masked_fill(~batch.present | alone, IGNORE_INDEX))


def unk_dropout(
    batch: TaggedBatch,
    counts: IntArray,
    strength: float,
    unknown: int,
    generator: np.random.Generator,
) -> TaggedBatch:
    """Replace a word with count c by `unknown` with probability strength / (strength + c).

    Spellings do not change. This trains the embedding of the unknown word.
    """
    words = batch.words.numpy()
    drawn = generator.random(words.shape) * (strength + counts[words])
    dropped = torch.from_numpy(drawn < strength) & batch.present
    return batch._replace(words=batch.words.masked_fill(dropped, unknown))
