"""Pretraining batches: views of texts, mixed with training questions.

A batch depends only on seed and step, so a resumed run sees the same data.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from harken.batch.bucketing import BucketSampler, rng
from harken.batch.padding import TokenBatch, next_token_batch, packed_batch
from harken.batch.ragged import IntArray, Ragged, append, concat_ragged
from harken.batch.shards import TokenShards
from harken.batch.views import SPAN_MASKS, TitledTexts, ViewsConfig, draw_views, mask_inputs


class SpecialTokens(NamedTuple):
    """Tokens that are not part of the text."""

    pad: int
    mask: int
    end: int


class PromptedSequences(NamedTuple):
    """Sequences, and the index of the first target in each; the tokens before it are a prompt."""

    sequences: Ragged
    first_targets: IntArray

    def take(self, chosen: IntArray) -> "PromptedSequences":
        return PromptedSequences(self.sequences.take(chosen), self.first_targets[chosen])


@dataclass(frozen=True)
class RowLengths:
    """The estimated number of tokens of each text's longest view, computed on access."""

    shards: TokenShards
    views: ViewsConfig
    max_length: int

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, texts: IntArray) -> IntArray:
        lengths = self.views.view_lengths(self.shards.spans(texts)[1])
        # `max_length` columns hold one token more, since the last token is only a target.
        return np.asarray(np.minimum(lengths, self.max_length) + 1)


@dataclass(frozen=True, kw_only=True)
class PretrainingBatches:
    """Batches of the pretraining stage."""

    shards: TokenShards
    titles: TokenShards  # the title of each text
    questions: PromptedSequences
    views: ViewsConfig
    special: SpecialTokens
    max_length: int  # tokens per row
    batch_tokens: int  # budget of a batch, padding included
    question_ratio: float  # share of the tokens that belong to questions
    pack: bool  # several texts per row
    seed: int

    @cached_property
    def _samplers(self) -> tuple[BucketSampler, BucketSampler | None]:
        """Samplers of texts and of questions."""
        budget = round(self.question_ratio * self.batch_tokens)
        lengths = RowLengths(self.shards, self.views, self.max_length)
        texts = BucketSampler(lengths, self.batch_tokens - budget, self.seed)
        if not budget:
            return texts, None
        return texts, BucketSampler(self.questions.sequences.lengths, budget, self.seed)

    def batch(self, step: int) -> list[TokenBatch]:
        """Return texts and questions of this step, each padded on its own or packed together."""
        generator, special = rng(self.seed, step), self.special
        text_sampler, question_sampler = self._samplers
        chosen = text_sampler.batch(step)
        documents = TitledTexts(self.shards.take(chosen), self.titles.spans(chosen)[1])
        max_length = self.max_length + 1 - (SPAN_MASKS + 1)  # space for masks and the end token
        views = draw_views(documents, self.views, max_length, special.mask, generator)
        first_targets = np.ones(len(views.title_lengths), dtype=np.int64)
        parts = [PromptedSequences(append(views.texts, special.end), first_targets)]
        if question_sampler is not None:
            parts.append(self.questions.take(question_sampler.batch(step)))
        if self.pack:
            sequences = concat_ragged([part.sequences for part in parts])
            firsts = np.concatenate([part.first_targets for part in parts])
            return [packed_batch(sequences, firsts, special.pad, self.max_length)]
        texts, *questions = (next_token_batch(*part, special.pad) for part in parts)
        if self.views.masked:
            texts = mask_inputs(
                texts, views.title_lengths, self.views.masked, special.mask, generator
            )
        return [texts, *questions]
