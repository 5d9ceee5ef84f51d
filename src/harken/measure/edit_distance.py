"""Transcripts to error rates: the fewest edits between what was said and what was written.

    rate = (substitutions + deletions + insertions) / units said        over all sentences together

Units are words (WER) or characters (CER), of which the space between two words is one. A rate can
be above 1. Where nothing at all was said, every unit written is an insertion and the rate is their
number, as in jiwer, which does the alignment.

White space of any length is one space. Case and punctuation are compared as they are unless a
`Leniency` says otherwise, to both sides alike. Counts are kept of every sentence, which an
interval leaves out in turn.
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
    """What is not held against a transcript."""

    case: bool = False  # "Yes" for "yes"
    punctuation: bool = False  # a space for each, but for an apostrophe inside a word

    def apply(self, text: str) -> str:
        if self.punctuation:
            text = "".join(" " if is_pause(text, at) else one for at, one in enumerate(text))
        return " ".join((text.lower() if self.case else text).split())


STRICT = Leniency()


def is_pause(text: str, at: int) -> bool:
    """Whether a character is punctuation and no part of a word."""
    inside = text[at - 1 : at].isalnum() and text[at + 1 : at + 2].isalnum()
    return unicodedata.category(text[at])[0] == "P" and not (inside and text[at] in APOSTROPHES)


class EditOp(NamedTuple):
    """A unit that was said and the one written for it; "" on a side that has none."""

    said: str
    written: str
    edit: Edit


class EditCounts(NamedTuple):
    """How many units were right, and how many edits of each kind it takes."""

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
    """Samples by metric, and for each what a reader must know to compare it."""
    words, characters = (
        [count_edits(steps) for steps in align_texts(written, said, units=units, leniency=leniency)]
        for units in ("words", "characters")
    )
    samples = {
        "wer": rate_of([one.errors for one in words], words),
        "cer": rate_of([one.errors for one in characters], characters),
        "substitutions": rate_of([one.substitutions for one in words], words, LOGIT),
        "deletions": rate_of([one.deletions for one in words], words, LOGIT),
        "insertions": rate_of([one.insertions for one in words], words),
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
    """Of each sentence the fewest edits, in order; which of several as few is jiwer's choice."""
    cut = Cut(units, leniency)
    aligned = process_words(list(said), list(written), cut, cut)
    sentences = zip(aligned.references, aligned.hypotheses, aligned.alignments, strict=True)
    return [
        [
            EditOp(one, other, cast(Edit, chunk.type))
            for chunk in chunks
            for one, other in zip_longest(
                expected[chunk.ref_start_idx : chunk.ref_end_idx],
                found[chunk.hyp_start_idx : chunk.hyp_end_idx],
                fillvalue="",
            )
        ]
        for expected, found, chunks in sentences
    ]


class Cut(AbstractTransform):
    """A text to its units, as jiwer asks for it."""

    def __init__(self, units: Units, leniency: Leniency) -> None:
        self._units, self._leniency = units, leniency

    def process_string(self, s: str) -> list[str]:
        text = self._leniency.apply(s)
        return text.split() if self._units == "words" else list(text)


def count_edits(steps: Iterable[EditOp]) -> EditCounts:
    """Of one sentence, or of any steps together."""
    kinds = Counter(step.edit for step in steps)
    return EditCounts(kinds["equal"], kinds["substitute"], kinds["delete"], kinds["insert"])


def add_edits(edits: Iterable[EditCounts]) -> EditCounts:
    """Of several sentences."""
    return EditCounts(*(sum(parts) for parts in zip(EditCounts(), *edits, strict=True)))


def edits_by_speaker(speakers: Sequence[str], edits: Sequence[EditCounts]) -> dict[str, EditCounts]:
    """The edits of each speaker's sentences together, the worst matched_words first."""
    groups: dict[str, list[EditCounts]] = {}
    for speaker, one in zip(speakers, edits, strict=True):
        groups.setdefault(speaker, []).append(one)
    totals = {speaker: add_edits(own) for speaker, own in groups.items()}
    return dict(sorted(totals.items(), key=lambda item: (-item[1].rate, item[0])))


def confusion_counts(sentences: Iterable[Iterable[EditOp]]) -> Pairs:
    """How often each unit was written for each, for the commonest `confusions` of `tagging.py`."""
    return Counter((step.said, step.written) for steps in sentences for step in steps)


def rate_of(counted: Sequence[int], edits: Sequence[EditCounts], link: Link = LOG) -> Sample:
    """Some count of every sentence over the units said in it, all sentences together.

    With insertions a rate can be above 1, so that it is no proportion.
    """
    counts = np.array([counted, [one.said for one in edits]], dtype=np.float64).T
    return Sample(counts=counts, figure=over_said, unit="error", link=link)


def over_said(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    """The first sum over the second, or over one where nothing was said."""
    rates: np.ndarray = sums[:, 0] / np.maximum(sums[:, 1], 1.0)
    return rates
