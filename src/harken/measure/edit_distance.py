"""Word and character error rates: the fewest edits between a transcript and its reference.

    rate = (substitutions + deletions + insertions) / reference units      over all sentences

Units are words (WER) or characters (CER), spaces between words included. A rate can exceed 1. For
an empty reference every output unit is an insertion and the rate is their number, as in jiwer,
which computes the alignment. White space of any length is one space; case and punctuation are
compared unless a `Leniency` says otherwise.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from typing import Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Float
from jiwer import AbstractTransform, process_words

from harken.measure.interval import LOG, LOGIT, Link, Sample
from harken.measure.tagging import Pairs

Units = Literal["words", "characters"]
Edit = Literal["equal", "substitute", "delete", "insert"]
APOSTROPHES = "'’"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leniency:
    """Differences that are not counted as errors."""

    case: bool = False  # "Yes" for "yes"
    punctuation: bool = False  # a space for each, but for an apostrophe inside a word

    def apply(self, text: str) -> str:
        if self.punctuation:
            text = "".join(" " if is_pause(text, at) else sign for at, sign in enumerate(text))
        return " ".join((text.lower() if self.case else text).split())


STRICT = Leniency()


def is_pause(text: str, at: int) -> bool:
    """Whether a character is punctuation outside a word."""
    inside = text[at - 1 : at].isalnum() and text[at + 1 : at + 2].isalnum()
    return unicodedata.category(text[at])[0] == "P" and not (inside and text[at] in APOSTROPHES)


class EditOp(NamedTuple):
    """A reference unit and the output unit for it; "" on a side that has none."""

    said: str
    written: str
    edit: Edit


class EditCounts(NamedTuple):
    """Correct units, and edits of each kind."""

    right: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def said(self) -> int:
        return self.right + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        return self.errors / max(self.said, 1)


def transcription_samples(
    written: Sequence[str], said: Sequence[str], leniency: Leniency = STRICT
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples by metric, and a note for each on what it is comparable with."""
    words, characters = (
        [count_edits(steps) for steps in align_texts(written, said, units=units, leniency=leniency)]
        for units in ("words", "characters")
    )
    samples = {
        "wer": rate_of([counts.errors for counts in words], words),
        "cer": rate_of([counts.errors for counts in characters], characters),
        "substitutions": rate_of([counts.substitutions for counts in words], words, LOGIT),
        "deletions": rate_of([counts.deletions for counts in words], words, LOGIT),
        "insertions": rate_of([counts.insertions for counts in words], words),
    }
    how = ", ".join(
        f"{name} {'ignored' if ignored else 'compared'}"
        for name, ignored in (("case", leniency.case), ("punctuation", leniency.punctuation))
    )
    notes = {
        "wer": f"word error rate, {how}, jiwer {version('jiwer')}",
        "cer": f"character error rate with spaces, {how}, jiwer {version('jiwer')}",
        "substitutions": "words written for others, of all words said",
        "deletions": "words said and not written, of all words said",
        "insertions": "words written and not said, over all words said",
    }
    return samples, notes


def align_texts(
    written: Sequence[str], said: Sequence[str], *, units: Units, leniency: Leniency = STRICT
) -> list[list[EditOp]]:
    """Return the fewest edits of each sentence, in order; jiwer decides between equals."""
    split = _Split(units, leniency)
    aligned = process_words(list(said), list(written), split, split)
    sentences = zip(aligned.references, aligned.hypotheses, aligned.alignments, strict=True)
    return [
        [
            EditOp(expected, output, cast(Edit, chunk.type))
            for chunk in chunks
            for expected, output in zip_longest(
                reference[chunk.ref_start_idx : chunk.ref_end_idx],
                hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx],
                fillvalue="",
            )
        ]
        for reference, hypothesis, chunks in sentences
    ]


class _Split(AbstractTransform):
    """Split a text into units, as jiwer expects it."""

    def __init__(self, units: Units, leniency: Leniency) -> None:
        self._units, self._leniency = units, leniency

    def process_string(self, s: str) -> list[str]:
        text = self._leniency.apply(s)
        return text.split() if self._units == "words" else list(text)


def count_edits(steps: Iterable[EditOp]) -> EditCounts:
    """Count the edits of one sentence or of several."""
    kinds = Counter(step.edit for step in steps)
    return EditCounts(kinds["equal"], kinds["substitute"], kinds["delete"], kinds["insert"])


def add_edits(edits: Iterable[EditCounts]) -> EditCounts:
    """Add the counts of several sentences."""
    return EditCounts(*(sum(parts) for parts in zip(EditCounts(), *edits, strict=True)))


def edits_by_speaker(speakers: Sequence[str], edits: Sequence[EditCounts]) -> dict[str, EditCounts]:
    """Return the counts of each speaker, the highest error rate first."""
    groups: dict[str, list[EditCounts]] = {}
    for speaker, counts in zip(speakers, edits, strict=True):
        groups.setdefault(speaker, []).append(counts)
    totals = {speaker: add_edits(group) for speaker, group in groups.items()}
    return dict(sorted(totals.items(), key=lambda item: (-item[1].rate, item[0])))


def confusion_counts(sentences: Iterable[Iterable[EditOp]]) -> Pairs:
    """Count pairs of reference and output units, for `confusions` of `tagging.py`."""
    return Counter((step.said, step.written) for steps in sentences for step in steps)


def matched_words(steps: Sequence[EditOp]) -> list[tuple[int, int]]:
    """Return the indices of equal words in the reference and in the output."""
    pairs, said, written = [], 0, 0
    for step in steps:
        if step.edit == "equal":
            pairs.append((said, written))
        said += step.edit != "insert"
        written += step.edit != "delete"
    return pairs


def rate_of(counted: Sequence[int], edits: Sequence[EditCounts], link: Link = LOG) -> Sample:
    """Return a count of every sentence over its reference units, all sentences together.

    With insertions a rate can exceed 1, so that it is no proportion.
    """
    counts = np.array([counted, [counts.said for counts in edits]], dtype=np.float64).T
    return Sample(counts=counts, figure=over_said, unit="error", link=link)


def over_said(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    """Return the first sum over the second, or over 1 for an empty reference."""
    rates: np.ndarray = sums[:, 0] / np.maximum(sums[:, 1], 1.0)
    return rates
