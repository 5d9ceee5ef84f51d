"""Word times and attention of a recognizer compared with the true times of words.

    word_time_error      mean of |predicted middle - true middle| of a word, in seconds
    attention_in_word    share of output tokens whose strongest attention lies in their word

Only correct words count, by the alignment of output and reference.
"""

from collections.abc import Sequence

import numpy as np

from harken.formats.examples import SpokenWord
from harken.measure.edit_distance import EditOp, matched_words
from harken.measure.interval import LOGIT, Sample

SpokenWords = Sequence[SpokenWord]

NOTES = {
    "word_time_error": "seconds between predicted and true middle, of correct words",
    "attention_in_word": "tokens of correct words whose strongest attention lies in their word",
}


def time_error(
    references: Sequence[SpokenWords],
    predicted: Sequence[SpokenWords],
    alignments: Sequence[Sequence[EditOp]],
) -> Sample:
    """Return `word_time_error`, over the correct words that have times on both sides."""
    counts = np.zeros((len(references), 2))
    for row, true, times, ops in zip(counts, references, predicted, alignments, strict=True):
        for index, output in matched_words(ops):
            if index < len(true) and output < len(times):
                error = (true[index].start + true[index].end) / 2
                error -= (times[output].start + times[output].end) / 2
                row += (abs(error), 1)  # in place, in `counts`
    return Sample(counts=counts, unit="seconds", selective=True)


def attention_in_words(
    references: Sequence[SpokenWords],
    attended: Sequence[Sequence[tuple[int, float]]],
    alignments: Sequence[Sequence[EditOp]],
) -> Sample:
    """Return `attention_in_word`; `attended` has (output word, attended second) of each token."""
    rows = []
    for true, tokens, ops in zip(references, attended, alignments, strict=True):
        words = {output: true[index] for index, output in matched_words(ops) if index < len(true)}
        inside = [
            words[output].start <= second < words[output].end
            for output, second in tokens
            if output in words
        ]
        rows.append((sum(inside), len(inside)))
    return Sample(counts=np.array(rows, dtype=np.float64), link=LOGIT, selective=True)
