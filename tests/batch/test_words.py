"""Windows keep every word once, where it is seen best; batches are the sentences again."""

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from harken.batch.padding import IGNORE_INDEX
from harken.batch.words import (
    TaggedBatch,
    WordCorpus,
    unk_dropout,
    windows_over,
    word_batch,
    word_corpus,
)

from .lists import numbers

FILLER, UNKNOWN = 97, 1
lengths_and_most = st.tuples(st.lists(st.integers(0, 23), max_size=4), st.integers(1, 9))


def distance(start: int, most: int, length: int, word: int) -> float:
    """From the nearest cut; the ends of a sentence are no cuts."""
    before = word - start if start > 0 else np.inf
    after = start + most - 1 - word if start + most < length else np.inf
    return float(min(before, after)) if start <= word < start + most else -np.inf


@given(lengths_and_most)
@example(([0, 3, 0, 7], 5))
def test_each_word_is_kept_once_and_where_it_is_farthest_from_a_cut(
    drawn: tuple[list[int], int],
) -> None:
    lengths, most = drawn
    windows = windows_over(numbers(lengths), most)
    firsts = np.cumsum([0, *lengths])
    kept: list[int] = []
    for start, length, skipped, count in zip(*map(np.ndarray.tolist, windows), strict=True):
        assert length <= most
        sentence = int(np.searchsorted(firsts, start, side="right")) - 1
        if length:
            others = [
                other - firsts[sentence]
                for other in windows.starts.tolist()
                if firsts[sentence] <= other < firsts[sentence + 1]
            ]
            for word in range(start + skipped, start + skipped + count):
                own, within = start - firsts[sentence], word - firsts[sentence]
                best = max(distance(one, most, lengths[sentence], within) for one in others)
                assert distance(own, most, lengths[sentence], within) == best
        kept.extend(range(start + skipped, start + skipped + count))
    assert kept == list(range(sum(lengths)))


def test_windows_by_hand() -> None:
    """Ten words by fours: windows at 0, 2, 4, 6; a turn halfway through what two share."""
    windows = windows_over(numbers([3, 10]), 4)
    assert windows.starts.tolist() == [0, 3, 5, 7, 9]
    assert windows.lengths.tolist() == [3, 4, 4, 4, 4]
    assert windows.skipped.tolist() == [0, 0, 1, 1, 1]
    assert windows.kept.tolist() == [3, 3, 2, 2, 3]


def test_work_on_a_long_sentence_grows_with_its_length() -> None:
    windows = windows_over(numbers([10_000]), 128)
    assert windows.lengths.sum() < 2.1 * 10_000


Drawn = list[list[tuple[int, int, int]]]


def corpus_from(sentences: Drawn) -> WordCorpus:
    """Words as (row, form, tag); the spelling of form f is f + 2 letters, all of them f."""
    parts = [[numbers([word[part] for word in one]) for one in sentences] for part in range(3)]
    spellings = [np.full(form + 2, form) for form in range(7)]
    return word_corpus(parts[0], parts[1], spellings, parts[2])


words = st.tuples(st.integers(2, 30), st.integers(0, 6), st.integers(0, 4))


@given(st.lists(st.lists(words, max_size=11), min_size=1, max_size=5), st.integers(2, 6), st.data())
def test_a_batch_is_its_windows(sentences: Drawn, most: int, data: st.DataObject) -> None:
    corpus = corpus_from(sentences)
    windows = windows_over(corpus.lengths, most)
    chosen = data.draw(st.permutations(range(len(windows.starts))))[: data.draw(st.integers(1, 4))]
    batch = word_batch(corpus, windows, numbers(chosen), FILLER)
    flat = [word for one in sentences for word in one]
    counted = 0
    for place, window in enumerate(chosen):
        start, length, skipped, kept = (int(part[window]) for part in windows)
        mine = flat[start : start + length]
        spare = batch.rows.shape[1] - length
        assert batch.rows[place].tolist() == [word[0] for word in mine] + [FILLER] * spare
        assert batch.present[place].tolist() == [True] * length + [False] * spare
        for at, (_, form, tag) in enumerate(mine):
            spelling = batch.forms[place, at]
            letters = batch.spellings[spelling][batch.spelt[spelling]]
            assert letters.tolist() == [form] * (form + 2)
            inside = skipped <= at < skipped + kept
            assert batch.tags[place, at] == (tag if inside else IGNORE_INDEX)
        assert (batch.tags[place, length:] == IGNORE_INDEX).all()
        counted += kept
    assert batch.counted == counted
    present = batch.forms[batch.present]
    assert len(batch.spellings) == len(present.unique())  # each spelt once


def test_without_tags_nothing_counts() -> None:
    corpus = word_corpus([numbers([3, 5])], [numbers([0, 0])], [numbers([2])])
    batch = word_batch(corpus, windows_over(corpus.lengths, 7), numbers([0]), FILLER)
    assert batch.counted == 0
    assert batch.rows.tolist() == [[3, 5]]


def test_moving_keeps_every_part() -> None:
    batch = TaggedBatch(*(torch.arange(6).reshape(2, 3) + 10 * part for part in range(6)))
    moved = batch.to(torch.device("cpu"))
    assert isinstance(moved, TaggedBatch)
    assert all(torch.equal(one, other) for one, other in zip(moved, batch, strict=True))


def long_batch(rows: int = 200, time: int = 101) -> TaggedBatch:
    """Words 2, 3, 4 in turn, a padded column at the end."""
    numbers_ = torch.arange(rows * time).reshape(rows, time) % 3 + 2
    present = torch.ones_like(numbers_, dtype=torch.bool)
    present[:, -1] = False
    empty = torch.zeros(1, 1, dtype=torch.long)
    return TaggedBatch(numbers_, numbers_ * 0, empty, empty.bool(), present, numbers_ * 0)


def test_words_are_forgotten_as_often_as_they_are_rare() -> None:
    batch, counts = long_batch(), numbers([0, 0, 1, 3, 100])
    after = unk_dropout(batch, counts, 0.5, UNKNOWN, np.random.default_rng(5))
    for word in (2, 3, 4):
        there = (batch.rows == word) & batch.present
        share = (after.rows[there] == UNKNOWN).double().mean().item()
        chance = 0.5 / (0.5 + counts[word])
        assert abs(share - chance) < 4 * (chance * (1 - chance) / int(there.sum())) ** 0.5
    changed = after.rows != batch.rows
    assert (after.rows[changed] == UNKNOWN).all()
    assert not changed[:, -1].any()
    assert after.forms is batch.forms


def test_nothing_is_forgotten_at_strength_0() -> None:
    batch = long_batch()
    after = unk_dropout(batch, numbers([0, 0, 1, 3, 0]), 0.0, UNKNOWN, np.random.default_rng(5))
    assert torch.equal(after.rows, batch.rows)
