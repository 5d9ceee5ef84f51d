import pytest

from harken.formats.question_template import title_of


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("Ada Byron. Ada Byron was born in London .", "Ada Byron."),
        ("J. R. R. Tolkien. Born in Bloemfontein, he wrote.", "J. R. R. Tolkien."),
        ("Douglas P. Fry. Fry was born in Boston.", "Douglas P. Fry."),
        ("Ole Ek, Jr. Born in Lund. He", "Ole Ek, Jr. Born in Lund."),  # a rule, not a reader
        ("Лев Толстой. Родился в 1828", "Лев Толстой."),
        ("No stop at all", ""),
        ("At the very end.", ""),
        ("Version 3.141 came. Then", "Version 3.141 came."),
        ("long " * 16 + "name. Text", ""),
        ("", ""),
    ],
)
def test_where_a_head_ends(text: str, head: str) -> None:
    assert title_of(text) == head
