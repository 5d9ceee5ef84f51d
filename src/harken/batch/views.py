"""Random views of documents for pretraining.

    whole       the document
    rotated     title, then the rest of the text, rotated by a random number of tokens
    shuffled    title ? chunk ? chunk ? …   the rest in short chunks, in random order
    corrupted   prefix ? suffix ? span      span corruption for a decoder; `?` is <mask>

A model that reads a text in one order only can recall it in that order only. In rotated views, any
part of the text can follow the title. Shuffled views have the form of the questions in finetuning,
`question ? answer`: in both, `?` means that a part of the text follows.

In all views except corrupted ones, a share of the inputs after the title can be masked. Their
targets stay, so the model must recall them from the title instead of the words before them.

Of a long document, whole and corrupted views show a random window; the others are truncated.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from harken.batch.padding import TokenBatch
from harken.batch.ragged import IntArray, Ragged, concat_ragged, ragged_indices, ragged_slices
from harken.config import bounded

SPAN_MASKS = 2  # <mask> tokens that span corruption adds to a document


@dataclass(frozen=True, kw_only=True, slots=True)
class CorruptionConfig:
    """Length of the span as a share of the text, drawn uniformly."""

    min_ratio: float = bounded(0.05, above=0.0, below=1.0)  # minimum, as a share of the text
    max_ratio: float = bounded(0.45, above=0.0, below=1.0)  # maximum, as a share of the text

    def __post_init__(self) -> None:
        if self.max_ratio < self.min_ratio:
            raise ValueError(f"max_ratio {self.max_ratio} is below min_ratio {self.min_ratio}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig:
    """Shares of augmented documents in pretraining; all other documents are unchanged."""

    # share of documents with span corruption
    corrupted: float = bounded(0.5, at_least=0.0, at_most=1.0)
    # share of documents whose text after the title is rotated by a random number of tokens
    rotated: float = bounded(0.0, at_least=0.0, at_most=1.0)
    # share of documents whose chunks after the title are shuffled
    shuffled: float = bounded(0.0, at_least=0.0, at_most=1.0)
    chunk: float = bounded(6.0, at_least=1.0, at_most=1e6)  # mean tokens per shuffled chunk
    # share of input tokens after the title that are masked, in documents without span corruption
    masked: float = bounded(0.0, at_least=0.0, below=1.0)
    span: CorruptionConfig = field(default_factory=CorruptionConfig)  # length of corrupted spans

    def __post_init__(self) -> None:
        if self.corrupted + self.rotated + self.shuffled > 1:
            raise ValueError(
                f"corrupted {self.corrupted}, rotated {self.rotated} and shuffled {self.shuffled} "
                "add up to more than 1"
            )

    def view_lengths(self, lengths: IntArray) -> IntArray:
        """Estimate the length of each document's longest view."""
        chunks = np.ceil(lengths / self.chunk).astype(np.int64) if self.shuffled else 0
        return lengths + np.maximum(SPAN_MASKS, chunks)


class TitledTexts(NamedTuple):
    """Texts or views of them, and the number of tokens of each text's title."""

    texts: Ragged
    title_lengths: IntArray

    def take(self, chosen: IntArray) -> "TitledTexts":
        return TitledTexts(self.texts.take(chosen), self.title_lengths[chosen])


def draw_views(
    documents: TitledTexts,
    config: ViewsConfig,
    max_length: int,
    mask: int,
    generator: np.random.Generator,
) -> TitledTexts:
    """Draw a view of at most `max_length + SPAN_MASKS` tokens of each document.

    Views are sorted by kind, not in the order of the documents. The title of a corrupted view is
    the whole view, so that `mask_inputs` does not change it.
    """
    uniform = generator.random(len(documents.title_lengths))
    thresholds = np.cumsum((config.corrupted, config.rotated, config.shuffled))
    kinds = np.searchsorted(thresholds, uniform, side="right")
    corrupted, rotated, shuffled, whole = (
        documents.take(np.flatnonzero(kinds == kind)) for kind in range(4)
    )
    windows = cut_windows(corrupted.texts, max_length, generator)
    views = [
        cut_windows(whole.texts, max_length, generator),
        rotate_texts(rotated, max_length, generator),
        shuffle_chunks(shuffled, config.chunk, max_length + SPAN_MASKS, mask, generator),
        corrupt_spans(windows, config.span, mask, generator),
    ]
    title_lengths = [
        whole.title_lengths,
        rotated.title_lengths,
        shuffled.title_lengths,
        views[-1].lengths,
    ]
    return TitledTexts(concat_ragged(views), np.concatenate(title_lengths))


def mask_inputs(
    batch: TokenBatch,
    title_lengths: IntArray,
    share: float,
    mask: int,
    generator: np.random.Generator,
) -> TokenBatch:
    """Replace a random share of the inputs after the titles by masks; targets do not change."""
    shape = batch.inputs.shape
    after_title = np.arange(shape[1]) >= title_lengths[:, None]
    masked = torch.from_numpy(after_title & (generator.random(shape) < share))
    return batch._replace(inputs=batch.inputs.masked_fill(masked, mask))


def cut_windows(documents: Ragged, max_length: int, generator: np.random.Generator) -> Ragged:
    """Return a random window of each document that is longer than `max_length` tokens."""
    lengths = np.minimum(documents.lengths, max_length)
    starts = documents.starts + generator.integers(0, documents.lengths - lengths + 1)
    return ragged_slices(documents.values, starts, lengths)


def rotate_texts(documents: TitledTexts, max_length: int, generator: np.random.Generator) -> Ragged:
    """Rotate each text after its title by a random number of tokens, then truncate it."""
    texts, title_lengths = documents
    rest = np.maximum(texts.lengths - title_lengths, 1)
    shifts = generator.integers(0, rest)
    lengths = np.minimum(texts.lengths, max_length)
    owner, index = ragged_indices(lengths)
    after_title = index - title_lengths[owner]
    rotated = title_lengths[owner] + (after_title + shifts[owner]) % rest[owner]
    source = np.where(after_title < 0, index, rotated) + texts.starts[owner]
    return Ragged(texts.values[source], lengths)


def shuffle_chunks(
    documents: TitledTexts, chunk: float, max_length: int, mask: int, generator: np.random.Generator
) -> Ragged:
    """Shuffle the chunks after each title, insert a mask before each, then truncate."""
    texts, title_lengths = documents
    owner, index = ragged_indices(texts.lengths)
    after_title = index - title_lengths[owner]
    is_cut = generator.random(len(owner)) < 1 / chunk
    is_start = (after_title >= 0) & ((after_title == 0) | is_cut)
    # The title is a chunk too, which stays first.
    chunk_index = np.cumsum(is_start | (index == 0)) - 1
    ranks = generator.random(len(texts.values))[chunk_index]
    order = np.lexsort((index, np.where(after_title < 0, -1.0, ranks), owner))
    is_start = is_start[order]
    values = np.insert(texts.values[order], np.flatnonzero(is_start), mask)
    lengths = texts.lengths + np.bincount(owner[order][is_start], minlength=len(texts.lengths))
    return ragged_slices(values, np.cumsum(lengths) - lengths, np.minimum(lengths, max_length))


def corrupt_spans(
    documents: Ragged, config: CorruptionConfig, mask: int, generator: np.random.Generator
) -> Ragged:
    """Move a random span of each document to its end; see `move_spans`."""
    lengths = documents.lengths
    shares = generator.uniform(config.min_ratio, config.max_ratio, size=len(lengths))
    spans = np.clip(np.rint(shares * lengths).astype(np.int64), np.minimum(lengths, 1), lengths)
    return move_spans(documents, generator.integers(0, lengths - spans + 1), spans, mask)


def move_spans(documents: Ragged, starts: IntArray, spans: IntArray, mask: int) -> Ragged:
    """Return `prefix <mask> suffix <mask> document[start : start + span]` for each document."""
    lengths = documents.lengths + SPAN_MASKS
    owner, index = ragged_indices(lengths)
    start, span = starts[owner], spans[owner]
    second = documents.lengths[owner] - span + 1  # index of the second mask
    source = np.where(index < start, index, index - 1 + span)
    source = np.where(index > second, start + index - second - 1, source)
    is_mask = (index == start) | (index == second)
    source = np.where(is_mask, 0, source) + documents.starts[owner]
    # For an empty last document, `source` is one past the end.
    padded = np.append(documents.values, mask)
    return Ragged(np.where(is_mask, mask, padded[source]), lengths)
