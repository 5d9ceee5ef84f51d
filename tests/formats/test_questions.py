from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.examples import Question
from harken.formats.tsv import hold_out_questions, read_questions

seeds = st.integers(0, 2**63)


def numbered(count: int) -> list[Question]:
    return [Question(f"Where was {number} born?", f"Place {number % 7}") for number in range(count)]


def held_texts(questions: list[Question], share: float, seed: int = 0) -> set[str]:
    return {question.question for question in hold_out_questions(questions, share, seed)[1]}


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "questions.tsv"
    path.write_bytes("\ufeffWho was  Ada?\t a poet \r\n\n Where?\tŁódź\n".encode())
    assert read_questions(path) == [Question("Who was  Ada?", "a poet"), Question("Where?", "Łódź")]


@pytest.mark.parametrize(
    ("line", "found", "fix"),
    [
        ("Where was Ada born?", "0 tabs", "docs/formats.md"),
        ("Where was Ada born?    London", "0 tabs", "replace the run of spaces by one tab"),
        ("Where  was?\tLondon\tEngland", "2 tabs", "cut -f1,2"),
        ("Where?\tLondon\t", "2 tabs", "cut -f1,2"),
        ("Where?\t", "an empty column", "docs/formats.md"),
        (" \tLondon", "an empty column", "docs/formats.md"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, found: str, fix: str) -> None:
    path = tmp_path / "questions.tsv"
    path.write_text(f"Who?\tAda\n\n{line}\n")
    with pytest.raises(UserError) as caught:
        read_questions(path)
    expected = f"{path}:3: expected question<TAB>answer, got {found} in {line.strip()!r}"
    assert expected in caught.value.message
    assert fix in caught.value.fix


words = st.sampled_from("abcdefghijk")


@given(
    st.lists(st.builds(Question, words, words), min_size=2).filter(
        lambda questions: len({one.question for one in questions}) > 1
    ),
    st.floats(0.001, 0.999),
    seeds,
)
def test_the_sides_share_no_question(questions: list[Question], share: float, seed: int) -> None:
    kept, held = hold_out_questions(questions, share, seed)
    kept_texts = {question.question for question in kept}
    texts = {question.question for question in held}
    assert not kept_texts & texts
    distinct = len(kept_texts | texts)
    assert len(texts) == min(max(int(share * distinct + 0.5), 1), distinct - 1)
    # Each side keeps the order of the file, and nothing is lost or doubled.
    assert kept == [question for question in questions if question.question in kept_texts]
    assert held == [question for question in questions if question.question in texts]
    assert len(kept) + len(held) == len(questions)


def test_the_share_and_the_seed() -> None:
    questions = numbered(1009)
    assert len(held_texts(questions, 0.15)) == 151  # 151.35
    assert held_texts(questions, 0.15) == held_texts(questions[::-1], 0.15)
    both = held_texts(questions, 0.5, seed=1) & held_texts(questions, 0.5, seed=2)
    # Two independent halves have a quarter in common, within four standard errors.
    assert abs(len(both) - 252) < 4 * (1009 * 0.25 * 0.75) ** 0.5


def test_most_stay_held_out_when_questions_are_added() -> None:
    before, after = held_texts(numbered(1009), 0.15), held_texts(numbered(1109), 0.15)
    assert len(before & after) > 0.9 * len(before)


def test_a_split_is_kept_for_ever() -> None:
    # Written down once: a figure of an old run is comparable only on the same split.
    assert sorted(held_texts(numbered(11), 0.2)) == ["Where was 2 born?", "Where was 4 born?"]


@pytest.mark.parametrize("questions", [numbered(1), [Question("a", "b"), Question("a", "c")]])
def test_one_question_cannot_be_split(questions: list[Question]) -> None:
    with pytest.raises(UserError, match="found 1 distinct example"):
        hold_out_questions(questions, 0.5, 0)
