"""Windows keep each word once, farthest from a cut; batches contain the sentences."""

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import IGNORE_INDEX
from harken.batch.tagging import (
    TaggedBatch,
    WordCorpus,
    piece_windows,
    sentence_windows,
    tagged_batch,
    unk_dropout,
    word_corpus,
)

from .lists import numbers

FILLER, UNKNOWN = 97, 1
lengths_and_limit = st.tuples(st.lists(st.integers(0, 23), max_size=4), st.integers(1, 9))


def distance(start: int, limit: int, length: int, word: int) -> float:
    """Return the distance to the nearest cut; the ends of a sentence are not cuts."""
    before = word - start if start > 0 else np.inf
    after = start + limit - 1 - word if start + limit < length else np.inf
    return float(min(before, after)) if start <= word < start + limit else -np.inf


@given(lengths_and_limit)
@example(([0, 3, 0, 7], 5))
def test_each_word_is_kept_once_and_where_it_is_farthest_from_a_cut(
    drawn: tuple[list[int], int],
) -> None:
    lengths, limit = drawn
    windows = sentence_windows(numbers(lengths), limit)
    firsts = np.cumsum([0, *lengths])
    kept: list[int] = []
    for start, length, skipped, count, _ in zip(*map(np.ndarray.tolist, windows), strict=True):
        assert length <= limit
        sentence = int(np.searchsorted(firsts, start, side="right")) - 1
        if length:
            others = [
                other - firsts[sentence]
                for other in windows.starts.tolist()
                if firsts[sentence] <= other < firsts[sentence + 1]
            ]
            for word in range(start + skipped, start + skipped + count):
                own, within = start - firsts[sentence], word - firsts[sentence]
                best = max(distance(other, limit, lengths[sentence], within) for other in others)
                assert distance(own, limit, lengths[sentence], within) == best
        kept.extend(range(start + skipped, start + skipped + count))
    assert kept == list(range(sum(lengths)))


def test_work_on_a_long_sentence_grows_with_its_length() -> None:
    windows = sentence_windows(numbers([10_000]), 128)
    assert windows.lengths.sum() < 2.1 * 10_000


Drawn = list[list[tuple[int, int, int]]]


def corpus_from(sentences: Drawn) -> WordCorpus:
    """Words are (row, form, tag); the spelling of form f is f + 2 letters, all of them f."""
    parts = [[numbers([word[part] for word in words]) for words in sentences] for part in range(3)]
    spellings = [np.full(form + 2, form) for form in range(7)]
    return word_corpus(parts[0], parts[1], spellings, parts[2])


words = st.tuples(st.integers(2, 30), st.integers(0, 6), st.integers(0, 4))


@given(st.lists(st.lists(words, max_size=11), min_size=1, max_size=5), st.integers(2, 6), st.data())
def test_a_batch_is_its_windows(sentences: Drawn, limit: int, data: st.DataObject) -> None:
    corpus = corpus_from(sentences)
    windows = sentence_windows(corpus.lengths, limit)
    chosen = data.draw(st.permutations(range(len(windows.starts))))[: data.draw(st.integers(1, 4))]
    batch = tagged_batch(corpus, windows, numbers(chosen), FILLER)
    flat = [word for sentence in sentences for word in sentence]
    counted = 0
    for row, window in enumerate(chosen):
        start, length, skipped, kept, _ = (int(part[window]) for part in windows)
        expected = flat[start : start + length]
        padding = batch.words.shape[1] - length
        assert batch.words[row].tolist() == [word[0] for word in expected] + [FILLER] * padding
        assert batch.present[row].tolist() == [True] * length + [False] * padding
        for column, (_, form, tag) in enumerate(expected):
            spelling = batch.forms[row, column]
            letters = batch.spellings[spelling][batch.spellings_present[spelling]]
            assert letters.tolist() == [form] * (form + 2)
            inside = skipped <= column < skipped + kept
            assert batch.tags[row, column] == (tag if inside else IGNORE_INDEX)
        assert (batch.tags[row, length:] == IGNORE_INDEX).all()
        counted += kept
    assert batch.num_targets == counted
    present = batch.forms[batch.present]
    assert len(batch.spellings) == len(present.unique())  # each once


def test_without_tags_nothing_counts() -> None:
    corpus = word_corpus([numbers([3, 5])], [numbers([0, 0])], [numbers([2])])
    batch = tagged_batch(corpus, sentence_windows(corpus.lengths, 7), numbers([0]), FILLER)
    assert batch.num_targets == 0
    assert batch.words.tolist() == [[3, 5]]


def test_windows_of_pieces_are_bucketed_by_their_pieces() -> None:
    """99 sentences of one piece and one of 29: by words, all would share a batch of 100 x 31."""
    spellings = [numbers([0]), np.zeros(29, dtype=np.int64)]
    sentences = [numbers([int(index == 42)]) for index in range(100)]
    corpus = word_corpus(sentences, sentences, spellings)
    windows = piece_windows(corpus, max_pieces=31, ends=2)
    assert windows.sizes.tolist() == [31 if index == 42 else 3 for index in range(100)]
    assert windows.lengths.tolist() == [1] * 100
    sampler = BucketSampler(windows.sizes, budget=60, seed=0)
    batches = [sampler.batch(step) for step in range(6)]
    assert sampler.epoch(6) == 1
    assert [42] in [batch.tolist() for batch in batches]


def long_batch(rows: int = 200, time: int = 101) -> TaggedBatch:
    """Words 2, 3, 4, 2, …, with a padded column at the end."""
    words_ = torch.arange(rows * time).reshape(rows, time) % 3 + 2
    present = torch.ones_like(words_, dtype=torch.bool)
    present[:, -1] = False
    empty = torch.zeros(1, 1, dtype=torch.long)
    return TaggedBatch(words_, words_ * 0, empty, empty.bool(), present, words_ * 0)


def test_words_are_dropped_by_their_count() -> None:
    batch, counts = long_batch(), numbers([0, 0, 1, 3, 100])
    after = unk_dropout(batch, counts, 0.5, UNKNOWN, np.random.default_rng(5))
    for word in (2, 3, 4):
        there = (batch.words == word) & batch.present
        share = (after.words[there] == UNKNOWN).double().mean().item()
        chance = 0.5 / (0.5 + counts[word])
        assert abs(share - chance) < 4 * (chance * (1 - chance) / int(there.sum())) ** 0.5
    changed = after.words != batch.words
    assert (after.words[changed] == UNKNOWN).all()
    assert not changed[:, -1].any()
    assert after.forms is batch.forms
    unchanged = unk_dropout(batch, counts, 0.0, UNKNOWN, np.random.default_rng(5))
    assert torch.equal(unchanged.words, batch.words)
