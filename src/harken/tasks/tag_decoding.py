"""The tags of sentences, decoded from the log-probabilities of the tags of each word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import pad
from harken.batch.ragged import IntArray, Ragged
from harken.decode.viterbi import best_valid_tags
from harken.encode.words import WordVocabulary
from harken.formats.entity_tags import OUTSIDE, can_follow

BATCH_WORDS = 1024  # words in a batch, padding included

WordLogProbs = Float[np.ndarray, "words tags"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TagDecodingConfig:
    """How tags are chosen."""

    # predict only valid sequences of entity tags; in IOB2, I-X must follow B-X or I-X
    constrained: bool = True


class TaggedSentence(NamedTuple):
    """The tags of the words of a sentence, and their log-probabilities."""

    tags: Sequence[str]
    log_probabilities: Sequence[float]


def decode_tags(
    log_probs: WordLogProbs, lengths: IntArray, vocabulary: WordVocabulary, *, constrained: bool
) -> list[TaggedSentence]:
    """Return the best tags of sentences of these lengths, valid ones if `constrained`.

    Without the tag O, no valid sequence may exist, so tags are not constrained.
    """
    names, tags = vocabulary.tags, log_probs.argmax(axis=1)
    chosen = np.take_along_axis(log_probs, tags[:, None], axis=1)[:, 0].astype(np.float64)
    scheme = vocabulary.scheme
    if constrained and scheme and OUTSIDE in names:
        follow = torch.tensor([[can_follow(scheme, tag, last) for tag in names] for last in names])
        for words, present in _word_batches(lengths):
            scores, kept = torch.from_numpy(log_probs)[words], words[present].numpy()
            best = best_valid_tags(scores, present, follow, names.index(OUTSIDE))
            tags[kept], chosen[kept] = (part[present].numpy() for part in best)
    ends = np.cumsum(lengths)[:-1]
    sentences = zip(np.split(tags, ends), np.split(chosen, ends), strict=True)
    return [TaggedSentence([names[tag] for tag in row], logs.tolist()) for row, logs in sentences]


def _word_batches(lengths: IntArray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the indices of the words of some sentences, one sentence per row, and a mask."""
    all_words = Ragged(np.arange(lengths.sum()), lengths)
    sampler = BucketSampler(lengths, BATCH_WORDS, seed=0)
    for step in takewhile(lambda step: sampler.epoch(step) < 1, count()):
        yield pad(all_words.take(sampler.batch(step)), 0)
