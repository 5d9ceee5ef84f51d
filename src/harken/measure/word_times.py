"""When words were heard against when they were said, of the words that were matched_words.

    word_time_error      mean of |middle as heard - middle as said|, in seconds
    attention_in_word    share of written symbols whose strongest look falls into their own word

A word counts where the alignment sets it beside its equal; the others have no time to be right.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harken.formats.examples import SpokenWord
from harken.measure.edit_distance import EditOp
from harken.measure.interval import Sample, share_within

Words = Sequence[SpokenWord]

NOTES = {
    "word_time_error": "seconds between the middle of a word as heard and as said, of words "
    "written as they were said",
    "attention_in_word": "written symbols whose strongest look falls into the time of their own "
    "word, of words written as they were said",
}


def matched_words(steps: Sequence[EditOp]) -> list[tuple[int, int]]:
    """Numbers of equal words: among those said, among those written."""
    pairs, said, written = [], 0, 0
    for step in steps:
        if step.edit == "equal":
            pairs.append((said, written))
        said += step.edit != "insert"
        written += step.edit != "delete"
    return pairs


def time_error(
    said: Sequence[Words], heard: Sequence[Words], alignments: Sequence[Sequence[EditOp]]
) -> Sample:
    """Over all sentences together; one without times on either side counts nothing.

    Which words count is the system's own choice: those that it matched_words.
    """
    counts = np.zeros((len(said), 2))
    for row, true, found, steps in zip(counts, said, heard, alignments, strict=True):
        for one, other in matched_words(steps):
            if one < len(true) and other < len(found):
                row += (abs(_middle(true[one]) - _middle(found[other])), 1)
    return Sample(counts=counts, unit="seconds", chosen=True)


def attention_in_words(
    said: Sequence[Words],
    looks: Sequence[Sequence[tuple[int, float]]],
    alignments: Sequence[Sequence[EditOp]],
) -> Sample:
    """`looks` are, for each symbol, the number of its written word and the second looked at."""
    right, counted = [], []
    for true, seconds, steps in zip(said, looks, alignments, strict=True):
        word_of = {written: one for one, written in matched_words(steps) if one < len(true)}
        inside = [
            true[word_of[word]].start <= second < true[word_of[word]].end
            for word, second in seconds
            if word in word_of
        ]
        right.append(sum(inside))
        counted.append(len(inside))
    return replace(share_within(right, counted), chosen=True)


def _middle(word: SpokenWord) -> float:
    return (word.start + word.end) / 2
