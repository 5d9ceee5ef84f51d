"""What commands print: tables at any width, and text that cannot control a terminal."""

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import Cli
from harken.cli import output

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e"
HEADS = ("head", *(f"offset {place}" for place in range(13)))
ROWS = [[f"cross.L{n}.H{n}", *(f"-{n}{place}.{n}5" for place in range(13))] for n in range(1, 9)]


class Terminal(io.StringIO):
    """A screen; its width is that of the variable COLUMNS."""

    def isatty(self) -> bool:
        return True


def printed(
    monkeypatch: pytest.MonkeyPatch, columns: int | None, *, terminal: bool = True, **given
) -> str:
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    output.print_table(**given)
    return re.sub("\x1b\\[[0-9]*m", "", screen.getvalue())  # bold headers


@pytest.mark.parametrize(
    ("columns", "terminal"), [(60, True), (80, True), (300, True), (80, False), (None, False)]
)
def test_no_figure_of_a_table_is_wrapped(
    monkeypatch: pytest.MonkeyPatch, columns: int | None, terminal: bool
) -> None:
    text = printed(monkeypatch, columns, terminal=terminal, header=HEADS, rows=ROWS)
    assert columns is None or max(map(len, text.splitlines())) <= columns
    words = text.split()
    for label, *figures in ROWS:
        lines = [line.split() for line in text.splitlines() if label in line]
        assert [word for line in lines for word in line[1:]] == figures
        assert all(line[0] == label for line in lines)
        assert words.count(figures[0]) == 1
    if columns is None:  # a pipe: one line per row
        assert len(text.strip().splitlines()) == len(ROWS) + 2


def test_words_wrap_so_that_figures_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ("run", "against", "difference", "interval", "p")
    row = ["a-run-with-a-long-name", "another run " * 3, "-12.50 points", "-13.00 to -11.25", "0.1"]
    text = printed(monkeypatch, 80, header=header, rows=[row], text_columns=(0, 1))
    assert max(map(len, text.splitlines())) <= 80
    assert all(figure in text for figure in row[2:])
    shown = sorted(re.sub(r"[\s─]", "", text))
    assert shown == sorted("".join([*header, *row]).replace(" ", ""))  # nothing is cut off
    header, row = ("metric", *("run-" * 30 + str(number) for number in range(2))), ["f1", "9", "8"]
    text = printed(monkeypatch, 80, header=header, rows=[row])
    assert max(map(len, text.splitlines())) <= 80 and text.split()[-3:] == row


def test_cells_are_neither_markup_nor_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(
        monkeypatch, 200, header=("[red]run", HOSTILE), rows=[["[/bold] :smile: [b]x[/b]", HOSTILE]]
    )
    assert "[/bold] :smile: [b]x[/b]" in text and "[red]run" in text
    assert_harmless(text)


def assert_harmless(text: str) -> None:
    assert not set(text) & set("\x1b\x07\x9b\u202e\r\x00")


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "multi30k", "--out", "there", "--from", HOSTILE],
        ["train", f"{HOSTILE}.toml"],
        ["evaluate", f"runs/{HOSTILE}"],
        ["inspect", f"runs/{HOSTILE}", HOSTILE],
        ["heads", "runs", HOSTILE],
        [HOSTILE],
        ["cost", "recipe.toml", "--length", HOSTILE],
    ],
)
def test_an_error_cannot_control_the_terminal(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = cli(*arguments, code=2)
    assert printed.err
    assert_harmless(printed.err + printed.out)


@given(st.text())
def test_remarks_are_harmless_and_keep_what_can_be_seen(text: str) -> None:
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        output.print_note(text)
    assert_harmless(screen.getvalue())
    if text.isprintable():
        assert screen.getvalue() == f"{text}\n"


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a\\x1bb\tc\n"), (False, "a\x1bb\tc\n")])
def test_a_result_is_exact_in_a_pipe_and_harmless_on_a_screen(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: str
) -> None:
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    output.print_result("a\x1bb\tc")
    assert screen.getvalue() == shown
