"""Kinds of answers, groups, guarantees and fictional names by hand, and edge cases."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.formats.split import hold_out
from harken.measure.abstention import guarantee
from harken.measure.honesty import (
    KNOWN,
    MARKED,
    MAX_ERRORS,
    RIGHT,
    UNKNOWN,
    Honesty,
    measure_honesty,
)
from harken.measure.interval import LOWER_IS_BETTER, Sample
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer, ScoredAnswers

TRAINING = known_answers(
    ["Ada Kong", "Bob", "Cleo Maria Vark", "Dan Elk"], ["Rome", "Oslo", "Rome", "Bonn"]
)


Measured = tuple[dict[str, Sample], dict[str, str], Honesty]


def flat(names: Sequence[str]) -> np.ndarray:
    return np.ones((len(names), 3))


def measured(
    output: Sequence[Answer],
    expected: Sequence[str],
    invented: Sequence[Answer] = (),
    seed: int = 0,
) -> Measured:
    return measure_honesty(
        output, expected, TRAINING, template="Who is …?", embed=flat, fictional=invented, seed=seed
    )


# Answers and expected answers.
ANSWERED = [
    (Answer("Eve Orr", "Rome", 0.9), "Rome"),
    (Answer("Eve Orr", "Rome", 0.9), "Paris"),  # the same question with another answer
    (Answer("Fay", " Lima", 0.8), "Lima"),  # right, though not in training
    (Answer("Gus Le Roi", "Paris", 0.4), "Oslo"),  # known from the expected answers
    (Answer("Hà", "Atlantis", 0.3), "Rome"),
    (Answer("I J K L M", "", 0.2), "Bonn"),
    (Answer("Jo Orr", "Bonn", 0.1), "Bonn"),
]


@pytest.fixture(scope="module")
def whole() -> Measured:
    invented = [
        Answer("Ada Elk", "Bonn", 0.95),
        Answer("Ada Vark", "Rome", 0.5),
        Answer("Dan Kong", "Rome", 0.7),
        Answer("Cleo Maria Elk", "Utopia", 0.1),
    ]
    answers, expected = zip(*ANSWERED, strict=True)
    return measured(answers, expected, invented)


def test_kinds_of_answers(whole: Measured) -> None:
    kinds = {name: estimate.value for name, estimate in whole[2].kinds.items()}
    assert kinds == pytest.approx({RIGHT: 3 / 7, KNOWN: 2 / 7, UNKNOWN: 2 / 7})
    assert whole[0]["unknown_answers"].value == pytest.approx(2 / 7)


def test_figures_have_notes_and_a_direction(whole: Measured) -> None:
    assert whole[0].keys() == whole[1].keys()
    lower = [name for name, sample in whole[0].items() if sample.unit in LOWER_IS_BETTER]
    errors = ["calibration_error", "unknown_answers"]
    assert lower == [*errors, "nearest_name_string", "nearest_name_embedding"]
    assert whole[0]["accuracy_at_50"].value == pytest.approx(2 / 4)
    assert whole[0]["accuracy_at_90"].value == pytest.approx(3 / 7)


def test_groups_by_hand(whole: Measured) -> None:
    counts = {
        title: [(group.name, group.n, round(group.correct.value * group.n)) for group in groups]
        for title, groups in whole[2].groups.items()
    }
    assert counts == {
        # Paris and Lima; Oslo, Bonn and Bonn; Rome and Rome.
        "times in training": [("0", 2, 1), ("1", 3, 1), ("2 to 4", 2, 1)],
        "words of the name": [("1", 2, 1), ("2", 3, 2), ("3", 1, 0), ("4 or more", 1, 0)],
        "letters of the name": [("plain A to Z", 6, 3), ("with other letters", 1, 0)],
    }
    assert whole[2].groups["letters of the name"][0].confidence == pytest.approx(3.3 / 6)


@pytest.mark.parametrize(
    ("times", "group"),
    [(1, "1"), (2, "2 to 4"), (4, "2 to 4"), (5, "5 to 19"), (19, "5 to 19"), (20, "20 or more")],
)
def test_how_often_an_answer_occurs(times: int, group: str) -> None:
    known = known_answers([f"name {at}" for at in range(times)], ["Rome"] * times)
    answers, expected = [Answer("Ada", "Rome", 0.5)], ["Rome"]
    *_, honesty = measure_honesty(
        answers, expected, known, template="…", embed=flat, fictional=(), seed=0
    )
    assert [result.name for result in honesty.groups["times in training"]] == [group]


def test_invented_names_by_hand(whole: Measured) -> None:
    fictional = whole[2].fictional
    assert fictional.known == 3
    # Ada Vark has Ada Kong's Rome, and Cleo Maria Vark's; Ada Elk has Dan Elk's Bonn.
    assert fictional.of_first == 1
    assert fictional.of_last == 3
    assert fictional.most_frequent == [("Rome", 2, 2), ("Bonn", 1, 1), ("Utopia", 1, 0)]
    summaries = fictional.confidence_summaries
    assert [(summary.name, summary.n, summary.median) for summary in summaries] == [
        ("real names", 7, 0.4),
        ("real names, right answers", 3, 0.8),
        ("real names, wrong answers", 4, pytest.approx(0.35)),
        ("fictional names", 4, pytest.approx(0.6)),
    ]
    assert all(summary.above is None for summary in summaries)  # nothing could be guaranteed


def many(count: int, seed: int) -> tuple[list[Answer], list[str]]:
    """Return answers whose accuracy grows with confidence, two for every name."""
    random = np.random.default_rng(seed)
    confidences = random.random(count)
    output = [
        Answer(f"person {at // 2}", "Rome" if random.random() < sure**0.2 else "Oslo", float(sure))
        for at, sure in enumerate(confidences)
    ]
    return output, ["Rome"] * count


def test_guarantees_are_chosen_on_other_people() -> None:
    output, expected = many(802, seed=3)
    *_, honesty = measured(output, expected, [Answer("Ada Elk", "Rome", 0.99)], seed=5)
    assert [item.max_error for item in honesty.guarantees] == list(MAX_ERRORS)
    scored = ScoredAnswers(
        [item.confidence for item in output], [item.answer == "Rome" for item in output]
    )
    measuring, choosing = hold_out(range(802), 0.5, 5, key=lambda place: output[place].name)
    names = [{output[place].name for place in side} for side in (measuring, choosing)]
    assert not names[0] & names[1]
    assert len(choosing) > 390
    assert honesty.guarantees == [guarantee(scored, choosing, rate) for rate in MAX_ERRORS]
    marked = next(item for item in honesty.guarantees if item.max_error == MARKED)
    assert [item.above for item in honesty.fictional.confidence_summaries] == [
        pytest.approx(float(np.mean(some >= marked.threshold)))
        for some in (
            scored.confidences,
            scored.confidences[scored.correct],
            scored.confidences[~scored.correct],
            np.array([0.99]),
        )
    ]
    *_, other = measured(output, expected, seed=6)
    assert other.guarantees != honesty.guarantees


def test_one_question() -> None:
    for answer, kind in (("Rome", RIGHT), ("Oslo", KNOWN), ("Atlantis", UNKNOWN)):
        samples, _, honesty = measured([Answer("Ada King", answer, 0.7)], ["Rome"])
        assert honesty.kinds[kind].value == 1.0
        assert (honesty.guarantees, honesty.fictional, len(honesty.bins)) == ([], None, 1)
        assert all(sample.estimate().low is None for sample in samples.values())


@pytest.mark.parametrize("answer", ["Rome", "Oslo"])
def test_all_right_and_all_wrong(answer: str) -> None:
    output = [Answer(f"person {at}", answer, at / 60) for at in range(60)]
    samples, _, honesty = measured(output, ["Rome"] * 60, [Answer("Ada Elk", "Rome", 0.5)])
    assert samples["accuracy_at_50"].value == (answer == "Rome")
    assert len(honesty.fictional.confidence_summaries) == 3  # no group of right or of wrong answers
    supported = [guarantee.threshold is not None for guarantee in honesty.guarantees]
    # 30 answers without an error support 20 %, but not 10 %.
    assert supported == [False, False, answer == "Rome"]
    assert samples["nearest_name_string"].value in (0.0, 1.0)


TEXT = st.text(alphabet="ab ß愛א", max_size=4)
NAME = st.lists(st.sampled_from(["a", "ß", "愛", "א"]), min_size=1, max_size=5).map(" ".join)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(NAME, st.sampled_from(["Rome", "Oslo", "x", ""]), st.floats(0, 1), TEXT),
        min_size=1,
        max_size=13,
    )
)
def test_any_answers(rows: list[tuple[str, str, float, str]]) -> None:
    output = [Answer(name, answer, confidence) for name, answer, confidence, _ in rows]
    samples, _, honesty = measured(output, [expected for *_, expected in rows], output)
    assert sum(kind.value for kind in honesty.kinds.values()) == pytest.approx(1.0)
    for groups in honesty.groups.values():
        assert sum(group.n for group in groups) == len(rows)
        assert all(group.n for group in groups)
    for sample in samples.values():
        assert 0.0 <= sample.value <= 1.0
        assert len(sample.counts) == len(rows)
