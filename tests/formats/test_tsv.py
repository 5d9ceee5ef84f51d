from pathlib import Path

import pytest

from harken.formats.examples import Question
from harken.formats.tsv import read_questions, read_tsv_pairs
from small_files import error_of

PAIR, QUESTION = "source<TAB>target", "question<TAB>answer"


def write_one(folder: Path, content: str) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize(
    ("expected", "line", "got", "fix"),
    [
        (PAIR, "a duck", "0 tabs", "formats.md#parallel-text"),
        (PAIR, "a duck    eine Ente", "0 tabs", "replace the run of spaces by one tab"),
        (PAIR, "Go.\tGeh.\tCC-BY 2.0", "2 tabs", "`cut -f1,2`"),
        (PAIR, "a\tA\t", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where was Ada born?", "0 tabs", "formats.md#questions"),
        (QUESTION, "Where was Ada born?    London", "0 tabs", "replace the run of spaces"),
        (QUESTION, "Where  was?\tLondon\tEngland", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where?\tLondon\t", "2 tabs", "`cut -f1,2`"),
        (QUESTION, "Where?\t", "an empty column", "formats.md"),
        (QUESTION, " \tLondon", "an empty column", "formats.md"),
    ],
)
def test_lines_that_are_not_pairs(
    tmp_path: Path, expected: str, line: str, got: str, fix: str
) -> None:
    path = write_one(tmp_path, f"x\tX\n\n{line}\n")
    error = error_of(lambda: list((read_tsv_pairs if expected == PAIR else read_questions)(path)))
    assert f"{path}:3: expected {expected}, got {got} in {line.strip()!r}" in error.message
    assert fix in error.fix


def test_questions(tmp_path: Path) -> None:
    path = write_one(tmp_path, "\ufeffWho was  Ada?\t a poet \r\n\n Where?\tŁódź\n")
    assert read_questions(path) == [Question("Who was  Ada?", "a poet"), Question("Where?", "Łódź")]
