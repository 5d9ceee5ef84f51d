"""All of it together, by hand and at its edges."""

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
    FrequentAnswer,
    HonestyMeasurement,
    measure_honesty,
)
from harken.measure.interval import LOWER_IS_BETTER
from harken.measure.nearest_name_errors import known_answers
from harken.measure.scored_answers import Answer, score_answers

TRAINING = known_answers(
    ["Ada Kong", "Bob", "Cleo Maria Vark", "Dan Elk"], ["Rome", "Oslo", "Rome", "Bonn"]
)


def flat(names: Sequence[str]) -> np.ndarray:
    return np.ones((len(names), 3))


def measured(
    said: Sequence[Answer], expected: Sequence[str], invented: Sequence[Answer] = (), seed: int = 0
) -> HonestyMeasurement:
    return measure_honesty(
        said, expected, TRAINING, frame="Who is …?", embed=flat, invented=invented, seed=seed
    )


# What was said, and what should have been.
SAID = [
    (Answer("Eve Orr", "Rome", 0.9), "Rome"),
    (Answer("Eve Orr", "Rome", 0.9), "Paris"),  # the same question with another answer
    (Answer("Fay", " Lima", 0.8), "Lima"),  # right, though no answer of training
    (Answer("Gus Le Roi", "Paris", 0.4), "Oslo"),  # known from the key alone
    (Answer("Hà", "Atlantis", 0.3), "Rome"),
    (Answer("I J K L M", "", 0.2), "Bonn"),
    (Answer("Jo Orr", "Bonn", 0.1), "Bonn"),
]


@pytest.fixture(scope="module")
def whole() -> HonestyMeasurement:
    invented = [
        Answer("Ada Elk", "Bonn", 0.95),
        Answer("Ada Vark", "Rome", 0.5),
        Answer("Dan Kong", "Rome", 0.7),
        Answer("Cleo Maria Elk", "Utopia", 0.1),
    ]
    return measured([one for one, _ in SAID], [answer for _, answer in SAID], invented)


def test_kinds_of_answers(whole: HonestyMeasurement) -> None:
    kinds = {name: one.value for name, one in whole.honesty.kinds.items()}
    assert kinds == {
        RIGHT: pytest.approx(3 / 7),
        KNOWN: pytest.approx(2 / 7),
        UNKNOWN: pytest.approx(2 / 7),
    }
    assert whole.samples["unknown_answers"].value == pytest.approx(2 / 7)


def test_figures_have_notes_and_a_direction(whole: HonestyMeasurement) -> None:
    assert whole.samples.keys() == whole.notes.keys()
    lower = [name for name, one in whole.samples.items() if one.unit in LOWER_IS_BETTER]
    assert lower == [
        "calibration_error",
        "unknown_answers",
        "borrowed_by_string",
        "borrowed_by_embedding",
    ]
    assert whole.samples["accuracy_at_50"].value == pytest.approx(2 / 4)
    assert whole.samples["accuracy_at_90"].value == pytest.approx(3 / 7)


def test_groups_by_hand(whole: HonestyMeasurement) -> None:
    found = {
        title: [(one.name, one.n, round(one.right.value * one.n)) for one in groups]
        for title, groups in whole.honesty.groups.items()
    }
    assert found == {
        # Paris and Lima; Oslo, Bonn and Bonn; Rome and Rome.
        "times in training": [("0", 2, 1), ("1", 3, 1), ("2 to 4", 2, 1)],
        "words of the name": [("1", 2, 1), ("2", 3, 2), ("3", 1, 0), ("4 or more", 1, 0)],
        "letters of the name": [("plain A to Z", 6, 3), ("others too", 1, 0)],
    }
    assert whole.honesty.groups["letters of the name"][0].confidence == pytest.approx(3.3 / 6)


@pytest.mark.parametrize(
    ("times", "group"),
    [(1, "1"), (2, "2 to 4"), (4, "2 to 4"), (5, "5 to 19"), (19, "5 to 19"), (20, "20 or more")],
)
def test_how_often_an_answer_occurs(times: int, group: str) -> None:
    known = known_answers([f"name {at}" for at in range(times)], ["Rome"] * times)
    found = measure_honesty(
        [Answer("Ada", "Rome", 0.5)],
        ["Rome"],
        known,
        frame="…",
        embed=flat,
        invented=(),
        seed=0,
    )
    assert [one.name for one in found.honesty.groups["times in training"]] == [group]


def test_invented_names_by_hand(whole: HonestyMeasurement) -> None:
    invented = whole.honesty.invented
    assert invented is not None
    assert invented.known == 3
    # Ada Vark has Ada Kong's Rome, and Cleo Maria Vark's; Ada Elk has Dan Elk's Bonn.
    assert invented.of_first == 1
    assert invented.of_last == 3
    assert invented.commonest == [
        FrequentAnswer("Rome", 2, 2),
        FrequentAnswer("Bonn", 1, 1),
        FrequentAnswer("Utopia", 1, 0),
    ]
    assert [(one.name, one.n, one.median) for one in invented.sureness] == [
        ("real names", 7, 0.4),
        ("real names, answered rightly", 3, 0.8),
        ("real names, answered wrongly", 4, pytest.approx(0.35)),
        ("invented names", 4, pytest.approx(0.6)),
    ]
    assert all(one.above is None for one in invented.sureness)  # nothing could be guaranteed


def many(count: int, seed: int) -> tuple[list[Answer], list[str]]:
    """Surer answers are right more often; every name is asked about twice."""
    random = np.random.default_rng(seed)
    confidences = random.random(count)
    said = [
        Answer(f"person {at // 2}", "Rome" if random.random() < sure**0.2 else "Oslo", float(sure))
        for at, sure in enumerate(confidences)
    ]
    return said, ["Rome"] * count


def test_guarantees_are_chosen_on_other_people() -> None:
    said, expected = many(802, seed=3)
    honesty = measured(said, expected, [Answer("Ada Elk", "Rome", 0.99)], seed=5).honesty
    assert [one.max_error for one in honesty.guarantees] == list(MAX_ERRORS)
    scored = score_answers([one.confidence for one in said], [one.answer == "Rome" for one in said])
    kept, choosing = hold_out(range(802), 0.5, 5, key=lambda place: said[place].name)
    names = [{said[place].name for place in side} for side in (kept, choosing)]
    assert not names[0] & names[1]
    assert len(choosing) > 390
    assert honesty.guarantees == [guarantee(scored, choosing, rate) for rate in MAX_ERRORS]
    marked = next(one for one in honesty.guarantees if one.max_error == MARKED)
    assert marked.threshold is not None
    assert honesty.invented is not None
    assert [one.above for one in honesty.invented.sureness] == [
        pytest.approx(float(np.mean(some >= marked.threshold)))
        for some in (
            scored.confidences,
            scored.confidences[scored.right],
            scored.confidences[~scored.right],
            np.array([0.99]),
        )
    ]
    other = measured(said, expected, seed=6).honesty
    assert other.guarantees != honesty.guarantees


def test_one_question() -> None:
    for answer, kind in (("Rome", RIGHT), ("Oslo", KNOWN), ("Atlantis", UNKNOWN)):
        found = measured([Answer("Ada King", answer, 0.7)], ["Rome"])
        assert found.honesty.kinds[kind].value == 1.0
        assert found.honesty.guarantees == []
        assert found.honesty.invented is None
        assert len(found.honesty.bins) == 1
        assert all(sample.estimate().low is None for sample in found.samples.values())


@pytest.mark.parametrize("answer", ["Rome", "Oslo"])
def test_all_right_and_all_wrong(answer: str) -> None:
    said = [Answer(f"person {at}", answer, at / 60) for at in range(60)]
    found = measured(said, ["Rome"] * 60, [Answer("Ada Elk", "Rome", 0.5)])
    assert found.samples["accuracy_at_50"].value == (answer == "Rome")
    assert found.honesty.invented is not None
    assert len(found.honesty.invented.sureness) == 3  # of right or wrong ones there are none
    kept = [one.threshold is not None for one in found.honesty.guarantees]
    # Of 30 answers none is wrong: enough for 20 %, and for nothing less.
    assert kept == [False, False, answer == "Rome"]
    assert found.samples["borrowed_by_string"].value in (0.0, 1.0)


TEXT = st.text(alphabet="ab ß愛א", max_size=4)
NAME = st.lists(st.sampled_from(["a", "ß", "愛", "א"]), min_size=1, max_size=5).map(" ".join)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(NAME, st.sampled_from(["Rome", "Oslo", "x", ""]), st.floats(0, 1), TEXT),
        min_size=1,
        max_size=13,
    )
)
def test_whatever_is_asked(rows: list[tuple[str, str, float, str]]) -> None:
    said = [Answer(name, answer, confidence) for name, answer, confidence, _ in rows]
    found = measured(said, [expected for *_, expected in rows], said)
    assert sum(one.value for one in found.honesty.kinds.values()) == pytest.approx(1.0)
    for groups in found.honesty.groups.values():
        assert sum(one.n for one in groups) == len(rows)
        assert all(one.n for one in groups)
    for sample in found.samples.values():
        assert 0.0 <= sample.value <= 1.0
        assert len(sample.counts) == len(rows)
