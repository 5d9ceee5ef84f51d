"""Word times of a recognizer, and its attention, against the times of the spoken words.

    word_time_error      mean of |predicted middle - spoken middle| of a word, in seconds
    attention_in_word    share of output tokens whose strongest attention falls into their own word

Only words that the alignment pairs with an equal word count.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harken.formats.examples import SpokenWord
from harken.measure.edit_distance import EditOp, matched_words
from harken.measure.interval import Sample, share_within

Words = Sequence[SpokenWord]

NOTES = {
    "word_time_error": "seconds between the middle of a word as heard and as said, of words "
    "written as they were said",
    "attention_in_word": "written symbols whose strongest look falls into the time of their own "
    "word, of words written as they were said",
}


def time_error(
    said: Sequence[Words], predicted: Sequence[Words], alignments: Sequence[Sequence[EditOp]]
) -> Sample:
    """Return the mean over all sentences; one without times on either side counts nothing.

    The words that count depend on the system.
    """
    counts = np.zeros((len(said), 2))
    for row, true, times, steps in zip(counts, said, predicted, alignments, strict=True):
        for at, other in matched_words(steps):
            if at < len(true) and other < len(times):
                error = (true[at].start + true[at].end) / 2
                error -= (times[other].start + times[other].end) / 2
                row += (abs(error), 1)
    return Sample(counts=counts, unit="seconds", chosen=True)


def attention_in_words(
    said: Sequence[Words],
    attended: Sequence[Sequence[tuple[int, float]]],
    alignments: Sequence[Sequence[EditOp]],
) -> Sample:
    """`attended` has for each token the index of its output word and the attended second."""
    right, counted = [], []
    for true, seconds, steps in zip(said, attended, alignments, strict=True):
        spoken = {written: true[at] for at, written in matched_words(steps) if at < len(true)}
        inside = [
            spoken[word].start <= second < spoken[word].end
            for word, second in seconds
            if word in spoken
        ]
        right.append(sum(inside))
        counted.append(len(inside))
    return replace(share_within(right, counted), chosen=True)
