from pathlib import Path

import pytest

from harken.errors import UserError
from harken.formats.examples import Question
from harken.formats.tsv import read_questions


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "questions.tsv"
    path.write_bytes("\ufeffWho was  Ada?\t a poet \r\n\n Where?\tŁódź\n".encode())
    assert read_questions(path) == [Question("Who was  Ada?", "a poet"), Question("Where?", "Łódź")]


@pytest.mark.parametrize(
    ("line", "got", "fix"),
    [
        ("Where was Ada born?", "0 tabs", "docs/formats.md"),
        ("Where was Ada born?    London", "0 tabs", "replace the run of spaces by one tab"),
        ("Where  was?\tLondon\tEngland", "2 tabs", "cut -f1,2"),
        ("Where?\tLondon\t", "2 tabs", "cut -f1,2"),
        ("Where?\t", "an empty column", "docs/formats.md"),
        (" \tLondon", "an empty column", "docs/formats.md"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, got: str, fix: str) -> None:
    path = tmp_path / "questions.tsv"
    path.write_text(f"Who?\tAda\n\n{line}\n")
    with pytest.raises(UserError) as caught:
        read_questions(path)
    expected = f"{path}:3: expected question<TAB>answer, got {got} in {line.strip()!r}"
    assert expected in caught.value.message
    assert fix in caught.value.fix
