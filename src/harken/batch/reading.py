"""Batches of reading: views of texts, and beside them questions whose answers are learnt.

Each batch is a function of its number: what is drawn for step s comes from (seed, s) alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harken.batch.bucketing import BucketSampler, seeded
from harken.batch.padding import TokenBatch, next_token_batch, packed_batch
from harken.batch.ragged import Numbers, Ragged, append, join
from harken.batch.shards import TokenShards
from harken.batch.views import HOLES, Documents, ViewsConfig, draw_views, hide


class SpecialTokens(NamedTuple):
    """Tokens that are not of the text."""

    pad: int
    mask: int
    end: int


class PromptedSequences(NamedTuple):
    """Sequences, and the place in each from which on its tokens are learnt."""

    sequences: Ragged
    first_targets: Numbers

    def take(self, chosen: Numbers) -> "PromptedSequences":
        return PromptedSequences(self.sequences.take(chosen), self.first_targets[chosen])

    def and_also(self, others: "PromptedSequences") -> "PromptedSequences":
        return PromptedSequences(
            join([self.sequences, others.sequences]),
            np.concatenate([self.first_targets, others.first_targets]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingSizes:
    """Of a batch: places of a row, tokens in all, the share of questions in them."""

    length: int
    batch_tokens: int
    questions: float
    pack: bool  # several texts a row


class PretrainingBatches:
    """Batches of the reading stage."""

    def __init__(
        self,
        shards: TokenShards,
        heads: Numbers,
        asked: PromptedSequences,
        sizes: PretrainingSizes,
        views: ViewsConfig,
        symbols: SpecialTokens,
        seed: int,
    ) -> None:
        self._shards, self._heads, self._asked = shards, heads, asked
        self._sizes, self._views, self._symbols, self._seed = sizes, views, symbols, seed
        # One token more than places is only a target; the masks and the end take theirs.
        self._most = sizes.length + 1 - (HOLES + 1)
        for_questions = round(sizes.questions * sizes.batch_tokens)
        lengths = np.minimum(views.seen(shards.lengths) + 1, sizes.length + 1)
        self._order = BucketSampler(lengths, sizes.batch_tokens - for_questions, seed)
        self._questions = (
            BucketSampler(asked.sequences.lengths, for_questions, seed) if for_questions else None
        )

    def batch(self, step: int) -> list[TokenBatch]:
        """Number `step`, from 0: a part of texts and one of questions, or both packed."""
        random, symbols = seeded(self._seed, step), self._symbols
        chosen = self._order.batch(step)
        documents = Documents(self._shards.take(chosen), self._heads[chosen])
        seen = draw_views(documents, self._views, self._most, symbols.mask, random)
        ones = np.ones(len(seen.heads), dtype=np.int64)
        texts = PromptedSequences(append(seen.texts, symbols.end), ones)
        asked = None
        if self._questions is not None:
            asked = self._asked.take(self._questions.batch(step))
        if self._sizes.pack:
            both = texts if asked is None else texts.and_also(asked)
            return [packed_batch(*both, symbols.pad, self._sizes.length)]
        read = next_token_batch(*texts, symbols.pad)
        if self._views.masked:
            read = hide(read, seen.heads, self._views.masked, symbols.mask, random)
        return [read] if asked is None else [read, next_token_batch(*asked, symbols.pad)]
