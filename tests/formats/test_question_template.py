import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats.question_template import QuestionTemplate, question_template, title_of

BORN = QuestionTemplate(before=("Where", "was"), after=("born?",))


@pytest.mark.parametrize(
    ("questions", "frame"),
    [
        (["Where was Ada King born?", "Where was Alan Turing born?"], BORN),
        (["Where was Ada born?", "Where  was\tAlan M. Turing born?"], BORN),
        (["Who is Ada?", "Who is Bob King?"], QuestionTemplate(before=("Who", "is"))),
        (["Ada of Leeds", "Bob of Leeds"], QuestionTemplate(after=("of", "Leeds"))),
        (["Where was Ada born?", "Who is Bob?", "x"], QuestionTemplate()),
        (["Where was Ada born?", "Where was Ada born?"], QuestionTemplate()),
        (["one", "one more"], QuestionTemplate()),  # a name has at least one word
        (["a b c", "a b b c"], QuestionTemplate(before=("a", "b"))),
        (["愛因斯坦在哪裡出生?", "居里夫人在哪裡出生?"], QuestionTemplate()),
        ([], QuestionTemplate()),
    ],
)
def test_what_all_questions_share(questions: list[str], frame: QuestionTemplate) -> None:
    assert question_template(questions) == frame


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Where was Ada King born?", "Ada King"),
        ("Where was  Ada\tKing born?", "Ada King"),
        ("Where was born?", "Where was born?"),
        ("Where was Ada King buried?", "Where was Ada King buried?"),
        ("Who was Ada King born?", "Who was Ada King born?"),
        ("born?", "born?"),
    ],
)
def test_a_name_is_what_stands_in_the_gap(question: str, name: str) -> None:
    assert BORN.name(question) == name


def test_a_frame_shows_its_gap() -> None:
    assert str(BORN) == "Where was … born?"
    assert str(QuestionTemplate()) == "…"
    assert BORN.ask("Ada King") == "Where was Ada King born?"


WORD = st.sampled_from(["a", "b", "ç", "愛", "b?"])
LINE = st.lists(WORD, min_size=1, max_size=5)


@given(
    st.lists(LINE, min_size=1, max_size=6), st.lists(WORD, max_size=2), st.lists(WORD, max_size=2)
)
def test_every_question_is_its_frame_about_its_name(
    names: list[list[str]], before: list[str], after: list[str]
) -> None:
    questions = [" ".join((*before, *name, *after)) for name in names]
    frame = question_template(questions)
    found = [frame.name(question) for question in questions]
    assert all(found)
    assert [frame.ask(name) for name in found] == questions
    if len(set(questions)) > 1:
        # At least what was put around them is found, unless a name could not spare it.
        assert len(frame.before) + len(frame.after) >= len(before) + len(after)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Ada Byron. Ada Byron was born in London .", "Ada Byron."),
        ("J. R. R. Tolkien. Born in Bloemfontein, he wrote.", "J. R. R. Tolkien."),
        ("Douglas P. Fry. Fry was born in Boston.", "Douglas P. Fry."),
        ("Ole Ek, Jr. Born in Lund. He", "Ole Ek, Jr. Born in Lund."),
        ("Лев Толстой. Родился в 1828", "Лев Толстой."),
        ("No stop at all", ""),
        ("At the very end.", ""),
        ("Version 3.141 came. Then", "Version 3.141 came."),
        ("long " * 16 + "name. Text", ""),
        ("", ""),
    ],
)
def test_title_at_the_start_of_a_text(text: str, title: str) -> None:
    assert title_of(text) == title
