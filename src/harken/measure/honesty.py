"""What a model does not know, and whether it knows that it does not.

A model that is asked always says something. What it says is right, or a wrong answer that it knows
from elsewhere, or nothing that anybody has ever answered; and it may have been borrowed from the
known name that is most like the one asked about. How sure it is of each is measured beside it, and
of names that nobody bears, for which every answer is made up.

Nothing here depends on what is asked: a name is whatever differs between questions, and a known
answer is one of training or of the key.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harken.formats.split import hold_out
from harken.measure.abstention import (
    RiskCoverage,
    RiskGuarantee,
    accuracy_at,
    guarantee,
    risk_coverage,
)
from harken.measure.accuracy import exact_matches
from harken.measure.calibration import Bin, calibration_error, error_by_chance, reliability
from harken.measure.interval import Estimate, Sample, share
from harken.measure.nearest_name_errors import (
    Embed,
    KnownAnswers,
    NearestNameErrors,
    nearest_name_errors,
)
from harken.measure.scored_answers import Answer, ScoredAnswers, score_answers

COVERAGES = (90, 70, 50)  # per cent
MAX_ERRORS = (0.05, 0.1, 0.2)  # error rates that are to be guaranteed
MARKED = 0.1  # the one whose threshold the rest is shown with
SAID_OFTEN = 5  # answers listed

RIGHT, KNOWN, UNKNOWN = "right", "wrong, but a known answer", "no known answer at all"
# Groups, by the least number that belongs to each.
TIMES = {0: "0", 1: "1", 2: "2 to 4", 5: "5 to 19", 20: "20 or more"}
WORDS = {1: "1", 2: "2", 3: "3", 4: "4 or more"}
ALPHABETS = {0: "plain A to Z", 1: "others too"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Answers that have something in common."""

    name: str
    n: int
    right: Estimate
    confidence: float  # the mean


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfidenceSummary:
    """How sure the answers of one kind are; `above` is the share that the threshold lets pass."""

    name: str
    n: int
    median: float
    above: float | None  # None where there is no threshold


class FrequentAnswer(NamedTuple):
    """An answer that is said often, and how often it is one of training."""

    answer: str
    times: int
    in_training: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FictionalNames:
    """What is said about names that nobody bears."""

    said: Sequence[Answer]
    known: int  # of these answers, how many are known ones
    of_first: int  # how many are the answer of a known name with the same first words
    of_last: int  # and with the same last word
    sureness: Sequence[ConfidenceSummary]  # of real names, then of invented ones
    commonest: Sequence[FrequentAnswer]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Honesty:
    """All that a report tells of what a model does not know."""

    frame: str  # the form of the questions, a gap in place of the name
    bins: Sequence[Bin]
    curve: RiskCoverage
    guarantees: Sequence[RiskGuarantee]  # none where all questions are about one name
    kinds: Mapping[str, Estimate]  # shares of all answers: RIGHT, KNOWN, UNKNOWN
    groups: Mapping[str, Sequence[Group]]
    borrowed: Sequence[NearestNameErrors]
    invented: FictionalNames | None  # None where no name could be invented


@dataclass(frozen=True, kw_only=True, slots=True)
class HonestyMeasurement:
    """Figures for tables and comparisons, what they mean, and the record for a report."""

    samples: Mapping[str, Sample]
    notes: Mapping[str, str]
    honesty: Honesty


def measure_honesty(
    said: Sequence[Answer],
    expected: Sequence[str],
    known: KnownAnswers,
    *,
    frame: str,
    embed: Embed,
    invented: Sequence[Answer],
    seed: int,
) -> HonestyMeasurement:
    """Of at least one answer; `embed` gives what the model makes of names."""
    answers = [one.answer.strip() for one in said]
    right = exact_matches(answers, expected)
    scored = score_answers([one.confidence for one in said], right)
    sensible = {*known.times, *(answer.strip() for answer in expected)}
    unknown = [answer not in sensible for answer in answers]
    borrowed = nearest_name_errors(said, right, known, embed, seed)
    guarantees = _guarantees(scored, [one.name for one in said], seed)
    threshold = next((one.threshold for one in guarantees if one.max_error == MARKED), None)
    samples = {
        "calibration_error": calibration_error(scored),
        **{f"accuracy_at_{percent}": accuracy_at(scored, percent) for percent in COVERAGES},
        "unknown_answers": share(unknown, "error"),
        **{f"borrowed_by_{one.how}": share(one.outcomes, "error") for one in borrowed},
    }
    notes = {
        "calibration_error": "how far confidence is from the share of right answers (ECE); "
        f"chance alone would make it {100 * error_by_chance(scored):.1f} %",
        **{f"accuracy_at_{one}": f"right among the surest {one} %" for one in COVERAGES},
        "unknown_answers": "answers that are none of training nor of the key",
        **{
            f"borrowed_by_{one.how}": "answers that are wrong and those of the nearest known name"
            for one in borrowed
        },
    }
    honesty = Honesty(
        frame=frame,
        bins=reliability(scored),
        curve=risk_coverage(scored),
        guarantees=guarantees,
        kinds={
            RIGHT: share(right).estimate(),
            KNOWN: share((~scored.right & ~np.array(unknown)).tolist(), "error").estimate(),
            UNKNOWN: share(unknown, "error").estimate(),
        },
        groups=_all_groups(scored, [one.name for one in said], expected, known),
        borrowed=borrowed,
        invented=_invented(invented, scored, known, sensible, threshold) if invented else None,
    )
    return HonestyMeasurement(samples=samples, notes=notes, honesty=honesty)


def _guarantees(scored: ScoredAnswers, names: Sequence[str], seed: int) -> list[RiskGuarantee]:
    if len(set(names)) < 2:
        return []
    _, choosing = hold_out(range(len(names)), 0.5, seed, key=lambda place: names[place])
    return [guarantee(scored, choosing, max_error) for max_error in MAX_ERRORS]


def _all_groups(
    scored: ScoredAnswers, names: Sequence[str], expected: Sequence[str], known: KnownAnswers
) -> dict[str, list[Group]]:
    times = [known.times.get(answer.strip(), 0) for answer in expected]
    words = [len(name.split()) for name in names]
    foreign = [int(not name.isascii()) for name in names]
    return {
        "times in training": _groups(scored, times, TIMES),  # of the expected answer
        "words of the name": _groups(scored, words, WORDS),
        "letters of the name": _groups(scored, foreign, ALPHABETS),
    }


def _groups(
    scored: ScoredAnswers, numbers: Sequence[int], titles: Mapping[int, str]
) -> list[Group]:
    """In the order of the titles; a group that has no members is not there."""
    members = [max(least for least in titles if least <= number) for number in numbers]
    found = []
    for least, title in titles.items():
        inside = scored.at([place for place, member in enumerate(members) if member == least])
        if len(inside):
            found.append(
                Group(
                    name=title,
                    n=len(inside),
                    right=share(inside.right.tolist()).estimate(),
                    confidence=float(inside.confidences.mean()),
                )
            )
    return found


def _invented(
    said: Sequence[Answer],
    real: ScoredAnswers,
    known: KnownAnswers,
    sensible: set[str],
    threshold: float | None,
) -> FictionalNames:
    answers = [one.answer.strip() for one in said]
    unreal = score_answers([one.confidence for one in said], [False] * len(said))
    kinds = {
        "real names": real.confidences,
        "real names, answered rightly": real.confidences[real.right],
        "real names, answered wrongly": real.confidences[~real.right],
        "invented names": unreal.confidences,
    }
    firsts, lasts = _answers_by_part(known, 0), _answers_by_part(known, 1)
    parts = [one.name.rpartition(" ")[::2] for one in said]
    often = sorted(Counter(answers).items(), key=lambda one: (-one[1], one[0]))
    return FictionalNames(
        said=said,
        known=sum(answer in sensible for answer in answers),
        of_first=sum(a in firsts[first] for a, (first, _) in zip(answers, parts, strict=True)),
        of_last=sum(a in lasts[last] for a, (_, last) in zip(answers, parts, strict=True)),
        sureness=[
            ConfidenceSummary(
                name=name,
                n=len(confidences),
                median=float(np.median(confidences)),
                above=None if threshold is None else float((confidences >= threshold).mean()),
            )
            for name, confidences in kinds.items()
            if len(confidences)
        ],
        commonest=[
            FrequentAnswer(answer, times, known.times.get(answer, 0))
            for answer, times in often[:SAID_OFTEN]
        ],
    )


def _answers_by_part(known: KnownAnswers, side: int) -> Mapping[str, set[str]]:
    """What is answered about known names with the same first words, or the same last one."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, answers in zip(known.names, known.answers, strict=True):
        found[name.rpartition(" ")[::2][side]] |= answers
    return found
