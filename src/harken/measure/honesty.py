"""Confidence of a model in answers that it knows, and in answers that it cannot know.

An answer is right; wrong but known from other questions; or unknown, if it occurs neither in
training nor among the expected answers. A wrong answer may be right for the most similar known name
(`nearest_name_errors.py`). Answers about fictional names show whether the confidence reveals what
the model has never seen. A name is the part of a question that differs between questions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harken.formats.split import hold_out
from harken.measure import abstention, calibration
from harken.measure.abstention import RiskCoverage, RiskGuarantee
from harken.measure.calibration import AnswerGroup
from harken.measure.interval import Estimate, Sample, share
from harken.measure.nearest_name_errors import (
    Embed,
    KnownAnswers,
    NearestNameErrors,
    nearest_name_errors,
)
from harken.measure.scored_answers import Answer, ScoredAnswers, exact_matches

COVERAGES = (90, 70, 50)  # per cent
MAX_ERRORS = (0.05, 0.1, 0.2)  # to guarantee
MARKED = 0.1  # the guarantee whose threshold is marked in charts
MAX_FREQUENT = 5  # answers listed

RIGHT, KNOWN, UNKNOWN = "right", "wrong, but a known answer", "unknown answer"
# Names of groups, by the smallest number in each.
TIMES = {0: "0", 1: "1", 2: "2 to 4", 5: "5 to 19", 20: "20 or more"}
WORDS = {1: "1", 2: "2", 3: "3", 4: "4 or more"}
ALPHABETS = {0: "plain A to Z", 1: "with other letters"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfidenceSummary:
    """Confidence of one kind of answers."""

    name: str
    n: int
    median: float
    above: float | None  # share at or above the threshold of the guarantee `MARKED`, if it has one


@dataclass(frozen=True, kw_only=True, slots=True)
class FictionalNames:
    """Answers about fictional names, and counts of answers that belong to known names."""

    answers: Sequence[Answer]
    known: int  # answers that occur in training or among the expected answers
    of_first: int  # answers that are right for a known name with the same first words
    of_last: int  # answers that are right for a known name with the same last word
    confidence_summaries: Sequence[ConfidenceSummary]  # of real names, then of fictional names
    most_frequent: Sequence[tuple[str, int, int]]  # answer, count, count in training


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Honesty:
    """The section of a report on what a model does not know."""

    template: str  # of the questions
    bins: Sequence[AnswerGroup]  # of the reliability diagram
    curve: RiskCoverage
    guarantees: Sequence[RiskGuarantee]  # empty if all questions are about one name
    kinds: Mapping[str, Estimate]  # shares of all answers: RIGHT, KNOWN, UNKNOWN
    groups: Mapping[str, Sequence[AnswerGroup]]  # by title, such as "words of the name"
    nearest_names: Sequence[NearestNameErrors]
    fictional: FictionalNames | None  # None if there are no fictional names


def measure_honesty(
    answers: Sequence[Answer],
    expected: Sequence[str],
    known: KnownAnswers,
    *,
    template: str,
    embed: Embed,
    fictional: Sequence[Answer],
    seed: int,
) -> tuple[dict[str, Sample], dict[str, str], Honesty]:
    """Return samples and notes by metric, and the report section; needs at least one answer.

    `embed` returns the model's vectors of names; `fictional` are answers about fictional names.
    """
    names = [answer.name for answer in answers]
    texts = [answer.answer.strip() for answer in answers]
    right = exact_matches(texts, expected)
    scored = ScoredAnswers([answer.confidence for answer in answers], right)
    existing = {*known.counts, *(text.strip() for text in expected)}
    unknown = [text not in existing for text in texts]
    nearest_names = nearest_name_errors(answers, right, known, embed, seed)
    guarantees: list[RiskGuarantee] = []
    if len(set(names)) > 1:
        _, dev = hold_out(range(len(names)), 0.5, seed, key=lambda index: names[index])
        guarantees = [abstention.guarantee(scored, dev, rate) for rate in MAX_ERRORS]
    threshold = next((item.threshold for item in guarantees if item.max_error == MARKED), None)
    nearest = {f"nearest_name_{errors.similarity}": errors for errors in nearest_names}
    coverages = {f"accuracy_at_{percent}": percent for percent in COVERAGES}
    samples = {
        "calibration_error": calibration.calibration_error(scored),
        **{key: abstention.accuracy_at(scored, percent) for key, percent in coverages.items()},
        "unknown_answers": share(unknown, "error"),
        **{name: share(errors.outcomes, "error") for name, errors in nearest.items()},
    }
    notes = {
        "calibration_error": "expected calibration error (ECE); a calibrated model has, by chance, "
        f"{100 * calibration.error_by_chance(scored):.1f} %",
        **{key: f"of the {percent} % most confident answers" for key, percent in coverages.items()},
        "unknown_answers": "answers that occur neither in training nor among the expected answers",
        **{
            name: "wrong answers that are right for the known name with the most similar "
            + ("spelling" if errors.similarity == "string" else "hidden state")
            for name, errors in nearest.items()
        },
    }
    groups = {
        "times in training": ([known.counts.get(text.strip(), 0) for text in expected], TIMES),
        "words of the name": ([len(name.split()) for name in names], WORDS),
        "letters of the name": ([int(not name.isascii()) for name in names], ALPHABETS),
    }
    honesty = Honesty(
        template=template,
        bins=calibration.reliability(scored),
        curve=abstention.risk_coverage(scored),
        guarantees=guarantees,
        kinds={
            RIGHT: share(right).estimate(),
            KNOWN: share(~scored.correct & ~np.array(unknown), "error").estimate(),
            UNKNOWN: share(unknown, "error").estimate(),
        },
        groups={
            title: calibration.group_answers(scored, *numbers) for title, numbers in groups.items()
        },
        nearest_names=nearest_names,
        fictional=_measure_fictional(fictional, scored, known, existing, threshold)
        if fictional
        else None,
    )
    return samples, notes, honesty


def _measure_fictional(
    answers: Sequence[Answer],
    real: ScoredAnswers,
    known: KnownAnswers,
    existing: set[str],
    threshold: float | None,
) -> FictionalNames:
    texts = [answer.answer.strip() for answer in answers]
    scored = ScoredAnswers([answer.confidence for answer in answers], [False] * len(answers))
    kinds = {
        "real names": real.confidences,
        "real names, right answers": real.confidences[real.correct],
        "real names, wrong answers": real.confidences[~real.correct],
        "fictional names": scored.confidences,
    }
    # Pairs of the first words of a known name, or of its last word, and an answer.
    by_first, by_last = set(), set()
    for name, group in zip(known.names, known.answers, strict=True):
        first, _, last = name.rpartition(" ")
        by_first |= {(first, answer) for answer in group}
        by_last |= {(last, answer) for answer in group}
    parts = [(*answer.name.rpartition(" "), answer.answer.strip()) for answer in answers]
    frequent = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))
    return FictionalNames(
        answers=answers,
        known=sum(text in existing for text in texts),
        of_first=sum((first, text) in by_first for first, _, _, text in parts),
        of_last=sum((last, text) in by_last for _, _, last, text in parts),
        confidence_summaries=[
            ConfidenceSummary(
                name=name,
                n=len(confidences),
                median=float(np.median(confidences)),
                above=None if threshold is None else float((confidences >= threshold).mean()),
            )
            for name, confidences in kinds.items()
            if len(confidences)
        ],
        most_frequent=[(text, n, known.counts.get(text, 0)) for text, n in frequent[:MAX_FREQUENT]],
    )
