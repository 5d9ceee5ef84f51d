import pytest

from harken.measure.scored_answers import exact_matches, majority_answer


def test_only_the_ends_may_differ() -> None:
    answers = [" London\n", "london", "New  York", "", "Rome"]
    expected = ["London ", "London", "New York", " ", "Rome"]
    assert exact_matches(answers, expected) == [True, False, False, True, True]


def test_every_answer_has_its_question() -> None:
    with pytest.raises(ValueError, match="longer"):
        exact_matches(["one", "two"], ["one", "two", "three"])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["b", "a", "b"], "b"),
        (["b", "a"], "a"),
        (["c", "b", "a", "c", "b"], "b"),  # of two that occur twice, not `a`, not `c`
        (["b", " a", "a ", "b ", "a"], "a"),  # three, once the spaces are gone
    ],
)
def test_majority_answer(answers: list[str], expected: str) -> None:
    assert majority_answer(answers) == expected
