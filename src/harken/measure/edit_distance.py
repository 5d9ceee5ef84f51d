"""Word and character error rates, by the minimum edit distance to the reference.

    rate = (substitutions + deletions + insertions) / reference units      over all sentences

Units are words (WER) or characters including spaces (CER). A rate can exceed 1. For an empty
reference, the rate is the number of output units, as in jiwer, which computes the alignment.
White space of any length is one space; case and punctuation count unless a `Leniency` ignores them.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from harken.measure.interval import LOG, LOGIT, LinkFunction, Sample

Units = Literal["words", "characters"]
Edit = Literal["equal", "substitute", "delete", "insert"]
APOSTROPHES = "'’"
# Kinds of word errors: the participle for notes, and the link of the rate. A rate of insertions can
# exceed 1.
EDIT_KINDS = {
    "substitutions": ("substituted", LOGIT),
    "deletions": ("deleted", LOGIT),
    "insertions": ("inserted", LOG),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Leniency:
    """Differences that are not counted as errors."""

    case: bool = False
    punctuation: bool = False  # replaced by a space, except an apostrophe inside a word

    def apply(self, text: str) -> str:
        if self.punctuation:
            text = "".join(" " if _is_separator(text, i) else char for i, char in enumerate(text))
        return " ".join((text.lower() if self.case else text).split())


STRICT = Leniency()


def _is_separator(text: str, index: int) -> bool:
    is_inside = text[index - 1 : index].isalnum() and text[index + 1 : index + 2].isalnum()
    is_punctuation = unicodedata.category(text[index])[0] == "P"
    return is_punctuation and not (is_inside and text[index] in APOSTROPHES)


class EditOp(NamedTuple):
    """A reference unit and the aligned unit of the output; "" for none."""

    reference: str
    hypothesis: str
    edit: Edit


class EditCounts(NamedTuple):
    """Correct units, and edits of each kind."""

    correct: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def reference_units(self) -> int:
        return self.correct + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        return self.errors / max(self.reference_units, 1)


def transcription_samples(
    hypotheses: Sequence[str], references: Sequence[str], leniency: Leniency = STRICT
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples and notes by metric."""
    words, characters = (
        list(map(count_edits, align_texts(hypotheses, references, units=units, leniency=leniency)))
        for units in ("words", "characters")
    )
    samples = {
        "wer": error_rate(words),
        "cer": error_rate(characters),
        **{kind: error_rate(words, kind, link) for kind, (_, link) in EDIT_KINDS.items()},
    }
    comparison = ", ".join(
        f"{name} {'ignored' if ignored else 'compared'}"
        for name, ignored in (("case", leniency.case), ("punctuation", leniency.punctuation))
    )
    notes = {
        "wer": f"word error rate, {comparison}, jiwer {version('jiwer')}",
        "cer": f"character error rate with spaces, {comparison}, jiwer {version('jiwer')}",
        **{
            kind: f"{participle} words / words of the reference"
            for kind, (participle, _) in EDIT_KINDS.items()
        },
    }
    return samples, notes


def align_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    units: Units,
    leniency: Leniency = STRICT,
) -> list[list[EditOp]]:
    """Return the minimal edits of each sentence, in order; jiwer resolves ties."""
    from jiwer import process_words  # not needed to transcribe

    def split(texts: Sequence[str]) -> list[list[str]]:
        lenient = map(leniency.apply, texts)
        return [text.split() if units == "words" else list(text) for text in lenient]

    transforms: Any = (split, split)  # jiwer accepts any function
    aligned = process_words(list(references), list(hypotheses), *transforms)
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


def count_edits(ops: Iterable[EditOp]) -> EditCounts:
    """Count the edits of one sentence or of several."""
    kinds = Counter(op.edit for op in ops)
    return EditCounts(kinds["equal"], kinds["substitute"], kinds["delete"], kinds["insert"])


def edits_by_speaker(speakers: Sequence[str], edits: Sequence[EditCounts]) -> dict[str, EditCounts]:
    """Return counts by speaker, the highest error rate first."""
    totals: dict[str, EditCounts] = {}
    for speaker, counts in zip(speakers, edits, strict=True):
        pairs = zip(totals.get(speaker, EditCounts()), counts, strict=True)
        totals[speaker] = EditCounts(*map(sum, pairs))
    return dict(sorted(totals.items(), key=lambda item: (-item[1].rate, item[0])))


def matched_words(ops: Sequence[EditOp]) -> list[tuple[int, int]]:
    """Return the indices of equal words in the reference and in the output."""
    pairs, reference, hypothesis = [], 0, 0
    for op in ops:
        if op.edit == "equal":
            pairs.append((reference, hypothesis))
        reference += op.edit != "insert"
        hypothesis += op.edit != "delete"
    return pairs


def error_rate(
    edits: Sequence[EditCounts], kind: str = "errors", link: LinkFunction = LOG
) -> Sample:
    """Return edits of a kind / max(1, reference units), over all sentences."""
    counts = [(getattr(sentence, kind), sentence.reference_units) for sentence in edits]
    return Sample(
        counts=np.array(counts, dtype=np.float64).reshape(-1, 2),
        metric=lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1.0),
        unit="error",
        link=link,
    )
