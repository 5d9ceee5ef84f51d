import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.examples import Question
from harken.formats.split import hold_out


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def held_out(count: int, share: float, seed: int = 0) -> set[str]:
    return set(hold_out(numbered(count), share, seed, key=str)[1])


letters = st.sampled_from("abcdefg")


@given(
    st.lists(st.builds(Question, letters, letters), min_size=2).filter(
        lambda questions: len({question.question for question in questions}) > 1
    ),
    st.floats(0.001, 0.999),
    st.integers(0, 2**63),
)
def test_keys_are_on_one_side_in_order(questions: list[Question], share: float, seed: int) -> None:
    train, dev = hold_out(questions, share, seed, key=lambda question: question.question)
    train_keys, dev_keys = ({question.question for question in side} for side in (train, dev))
    assert train_keys and dev_keys and not train_keys & dev_keys
    assert train == [question for question in questions if question.question in train_keys]
    assert dev == [question for question in questions if question.question in dev_keys]
    assert len(train) + len(dev) == len(questions)
    count = len(train_keys | dev_keys)
    assert len(dev_keys) == min(max(int(share * count + 0.5), 1), count - 1)


def test_share_seed_and_order() -> None:
    assert len(held_out(1009, 0.15)) == 151  # 151.35
    assert held_out(1009, 0.15) == set(hold_out(numbered(1009)[::-1], 0.15, 0, key=str)[1])
    both = held_out(1009, 0.5, seed=1) & held_out(1009, 0.5, seed=2)
    # Two independent halves have a quarter in common, within four standard errors.
    assert abs(len(both) - 252) < 4 * (1009 * 0.25 * 0.75) ** 0.5


def test_most_lines_stay_held_out_when_lines_are_added() -> None:
    before, after = held_out(1009, 0.1, 3), held_out(1109, 0.1, 3)
    assert len(before & after) > 0.9 * len(before)


def test_the_split_never_changes() -> None:
    # Fixed values: metrics of old runs are comparable only on the same split.
    assert held_out(11, 0.2) == {"line 2", "line 7"}


@pytest.mark.parametrize("lines", [[], ["a"], ["a", "a"]])
def test_equal_lines_cannot_be_split(lines: list[str]) -> None:
    with pytest.raises(UserError, match=f"at least 2 distinct examples .* got {len(set(lines))}"):
        hold_out(lines, 0.5, 0, key=str)
