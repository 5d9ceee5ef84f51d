"""`harken predict`: streaming of lines, and the options of the search."""

import contextlib
import gzip
import io
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.inputs import BATCH_SIZE, stream_lines
from harken.cli.main import main
from harken.decode.search import SearchConfig
from harken.errors import UserError
from harken.measure.scored_answers import score_answers
from harken.run import Run
from harken.tasks.answer import AnswerTask
from harken.tasks.prediction import Prediction, RankedOutput
from harken.tasks.task import Task

Asked = tuple[SearchConfig | None, list[str], int]
Say = Callable[..., str]


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The calls of a run that predicts inputs backwards, ¶ as a line end."""
    seen: list[Asked] = []

    def answer(
        run: Run, inputs: Sequence[str], nbest: int = 1, indices: Sequence[int] = (), **_: Any
    ) -> list[Prediction]:
        seen.append((run.search, list(inputs), nbest))
        return [
            Prediction(
                input=text,
                output=text[::-1].replace("¶", "\n"),
                confidence=0.5,
                nbest=[
                    RankedOutput(output=text[::-1] + "!" * at, log_probability=math.log(0.5) - at)
                    for at in range(nbest)
                ]
                if nbest > 1
                else (),
            )
            for text in inputs
        ]

    monkeypatch.setattr(Run, "predict", answer)
    return seen


@pytest.fixture
def say(small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """stdout of `harken predict` on some lines with some options."""

    def call(text: str, *options: str) -> str:
        file = tmp_path / "asked.txt"
        file.write_bytes(text.encode())
        assert main(["predict", str(small_run), str(file), *options]) == 0
        return capsys.readouterr().out

    return call


def refused(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["predict", str(run), str(run / "recipe.toml"), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


# Output.


def test_lines_keep_their_places(run_command: list[Asked], say: Say) -> None:
    assert say("one\n\n \r\ntwo\r\nend") == "eno\n\n\nowt\ndne\n"
    assert run_command == [(SearchConfig(), ["one", "two", "end"], 1)]
    assert say("") == ""
    assert say("\n\n") == "\n\n"
    assert len(run_command) == 1  # the model does not run for blank lines
    assert say("one\n\ntwo\n", "--confidence") == "eno\t0.5000\n\nowt\t0.5000\n"


def test_hypotheses_carry_the_number_of_their_line(run_command: list[Asked], say: Say) -> None:
    assert say("one\n\ntwo\n", "--nbest", "2") == (
        "1\t-0.6931\teno\n1\t-1.6931\teno!\n3\t-0.6931\towt\n3\t-1.6931\towt!\n"
    )
    assert say("one\n", "--nbest", "1") == "1\t-0.6931\teno\n"


def test_numbers_go_on_through_files(
    run_command: list[Asked], small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["predict", str(small_run), *files, "--nbest", "1"]) == 0
    columns = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    outputs = [number + output for number, _, output in columns]
    assert outputs == ["11a", "22a", "31b", "42b"]


def test_an_output_stays_on_its_line_unless_a_person_reads_it(
    run_command: list[Asked], say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert say("a\tb\rc¶d") == "d\\nc\\rb\\ta\n"
    assert say("a\tb", "--confidence") == "b\\ta\t0.5000\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # A carriage return would overwrite the line on a terminal.
    assert say("a\tb\rc¶d") == "d\nc\\rb\ta\n"


def test_json_has_every_output_as_it_is(run_command: list[Asked], say: Say) -> None:
    record = json.loads(say("a¶\tb\n\n😀\n", "--json"))
    assert record == {
        "task": "answer",
        "predictions": [
            {"input": "a¶\tb", "output": "b\t\na", "confidence": 0.5},
            {"input": "", "output": "", "confidence": None},
            {"input": "😀", "output": "😀", "confidence": 0.5},
        ],
    }
    both = json.loads(say("ab\n\n", "--json", "--nbest", "2"))["predictions"]
    assert both[0]["nbest"] == [
        {"output": "ba", "log_probability": math.log(0.5)},
        {"output": "ba!", "log_probability": math.log(0.5) - 1},
    ]
    assert both[1]["nbest"] == []


def test_truncated_lines_are_reported_on_stderr_and_in_json(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("short\n\n" + "long " * 3000)
    for options in ((), ("--json",)):
        assert main(["predict", str(small_run), str(file), *options]) == 0
        printed = capsys.readouterr()
        (warning,) = printed.err.splitlines()
        assert warning.startswith("line 3: input truncated to 63 of ")
        assert warning.endswith(" tokens (last)")
    assert len(printed.out.splitlines()) > 3
    short, blank, long = json.loads(printed.out)["predictions"]
    assert "truncation" not in short and "truncation" not in blank
    assert long["truncation"]["kept"] == 63 and long["output"]
    assert main(["evaluate", str(small_run), "--data", str(_long_questions(tmp_path))]) == 0
    assert "1 of 2 inputs are too long for the model" in capsys.readouterr().err


def _long_questions(folder: Path) -> Path:
    path = folder / "questions.tsv"
    path.write_text("Where was Ada born?\tLondon\nWhere was " + "Ada " * 500 + "born?\tLeeds\n")
    return path


def test_a_long_file_goes_through_in_pieces(run_command: list[Asked], say: Say) -> None:
    lines = [str(number) for number in range(601)]
    assert say("\n".join(lines)).splitlines() == [line[::-1] for line in lines]
    assert [len(inputs) for _, inputs, _ in run_command] == [256, 256, 89]


def test_progress_is_drawn_if_results_go_to_a_file(
    run_command: list[Asked],
    small_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("a\nb\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["predict", str(small_run), str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "a\nb\n"
    assert "lines" in printed.err
    assert "100%" in printed.err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["predict", str(small_run), str(file)]) == 0
    assert capsys.readouterr().err == ""


# The search.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", SearchConfig()),
        ("--beam 7", SearchConfig(beam=7)),
        ("--nbest 5", SearchConfig(beam=5)),
        ("--nbest 3 --beam 5", SearchConfig(beam=5)),
        ("--length-penalty 0 --max-tokens 11", SearchConfig(length_penalty=0.0, max_tokens=11)),
    ],
)
def test_options_change_the_search(
    run_command: list[Asked], say: Say, options: str, expected: SearchConfig
) -> None:
    say("a", *options.split())
    assert [search for search, _, _ in run_command] == [expected]


def test_options_win_over_the_recipe(
    run_command: list[Asked], say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe with a beam can be sampled from, one with samples searched."""
    monkeypatch.setattr(Run, "search", property(lambda self: self.recipe.search), raising=True)

    def with_recipe(search: SearchConfig, *options: str) -> SearchConfig:
        import harken.cli.predict

        load = harken.run.load

        def changed(folder: Path, device: str) -> Run:
            return load(folder, "cpu").with_search(search)

        with monkeypatch.context() as patched:
            patched.setattr(harken.cli.predict, "load", changed)
            run_command.clear()
            say("a", *options)
        result = run_command[0][0]
        assert result is not None
        return result

    beam = SearchConfig(beam=7, length_penalty=0.5)
    chance = SearchConfig(temperature=0.5, top_k=3)
    assert with_recipe(beam) == beam
    assert with_recipe(beam, "--nbest", "5") == beam
    assert with_recipe(beam, "--nbest", "11") == SearchConfig(beam=11, length_penalty=0.5)
    sampled = SearchConfig(temperature=0.9, length_penalty=0.5)
    assert with_recipe(beam, "--temperature", "0.9") == sampled
    assert with_recipe(chance, "--top-k", "2") == SearchConfig(temperature=0.5, top_k=2)
    assert with_recipe(chance, "--nbest", "5") == chance
    assert with_recipe(chance, "--beam", "2") == SearchConfig(beam=2)


def test_a_sample_depends_on_the_seed_and_the_number_of_its_line(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(text: str, seed: str = "2") -> list[str]:
        return say(text, "--temperature", "3", "--seed", seed).splitlines()

    lines = ["same"] * 7
    whole = samples("\n".join(lines))
    assert len(set(whole)) == 7
    assert not set(samples("\n".join(lines), "3")) & set(whole)
    lines[1], lines[4] = "", "another"
    some = samples("\n".join(lines))
    assert [some[at] for at in (0, 2, 3, 5, 6)] == [whole[at] for at in (0, 2, 3, 5, 6)]
    monkeypatch.setattr("harken.cli.inputs.BATCH_SIZE", 2)
    assert samples("\n".join(lines)) == some


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--beam 0", "--beam: expected a number at least 1 and at most 1024"),
        ("--nbest 0", "--nbest: expected a number at least 1"),
        ("--nbest 2000", "--nbest: expected a number at least 1 and at most 1024"),
        ("--beam 2 --nbest 3", "--beam: expected 3 or more for --nbest 3, got 2"),
        ("--beam 2 --temperature 0.5", "beam search does not sample"),
        ("--top-k 5", "give a temperature too"),
        ("--top-p 0", "--top-p: expected a number above 0.0 and at most 1.0"),
        ("--temperature 0", "--temperature: expected a number above 0.0"),
        ("--temperature nan", "--temperature: expected a number above 0.0"),
        ("--temperature inf", "--temperature: expected a number above 0.0"),
        ("--length-penalty -1", "--length-penalty: expected a number at least 0.0"),
        ("--max-tokens 0", "--max-tokens: expected a number at least 1"),
        ("--seed -1", "--seed: expected a number at least 0"),
        (f"--temperature 1 --seed {10**400}", "--seed: expected a number at least 0"),
    ],
)
def test_a_search_that_cannot_be(
    small_run: Path, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(small_run, capsys, *options.split())


def test_a_task_that_does_not_search(
    run_command: list[Asked],
    say: Say,
    small_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Run, "search", property(lambda self: None))
    for option in ("--beam", "--max-tokens", "--temperature", "--top-k", "--seed"):
        message = refused(small_run, capsys, option, "2")
        assert message == f"harken: {option}: task 'answer' does not search; leave out {option}"
    assert say("ab", "--nbest", "2").splitlines()[1] == "1\t-1.6931\tba!"
    assert run_command == [(None, ["ab"], 2)]


# Abstention.


@pytest.fixture
def confident(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose confidence is its input, with scored dev questions."""

    def answer(
        run: Run, inputs: Sequence[str], nbest: int = 1, indices: Sequence[int] = (), **_: Any
    ) -> list[Prediction]:
        return [
            Prediction(input=item, output=f"<{item}>", confidence=float(item)) for item in inputs
        ]

    # From 0.6 on all are right, below all are wrong; of 65 the bound is 15.8 %, of 70 23.4 %.
    scored = score_answers(
        [0.6 + at / 200 for at in range(60)] + [0.2 + at / 200 for at in range(40)],
        [True] * 60 + [False] * 40,
    )
    monkeypatch.setattr(Run, "predict", answer)
    monkeypatch.setattr(Run, "scored_answers", lambda self: scored)


LINES = "0.61\n\n0.6\n0.59\nnan\n0.2\n"


@pytest.mark.usefixtures("confident")
def test_outputs_below_the_threshold_are_withheld(say: Say) -> None:
    assert say(LINES, "--max-error", "0.1") == "<0.61>\n\n<0.6>\n?\n?\n?\n"
    assert say(LINES, "--max-error", "0.2") == "<0.61>\n\n<0.6>\n<0.59>\n?\n?\n"
    assert say(LINES).count("?") == 0
    assert say("0.6\n0.5\n", "--max-error", "0.1", "--confidence") == "<0.6>\t0.6000\n?\t0.5000\n"
    assert say("0.6\n", "--max-error", "0.06") == "<0.6>\n"  # the rate that the error suggests


@pytest.mark.usefixtures("confident")
def test_json_contains_withheld_outputs(say: Say) -> None:
    record = json.loads(say("0.6\n\n0.5\n", "--max-error", "0.1", "--json"))
    assert record["predictions"] == [
        {"input": "0.6", "output": "<0.6>", "confidence": 0.6, "abstained": False},
        {"input": "", "output": "", "confidence": None, "abstained": False},
        {"input": "0.5", "output": "<0.5>", "confidence": 0.5, "abstained": True},
    ]
    assert record["guarantee"] == {"max_error": 0.1, "probability": 0.9, "threshold": 0.6}
    plain = json.loads(say("0.6", "--json"))
    assert "guarantee" not in plain
    assert "abstained" not in plain["predictions"][0]


@pytest.mark.usefixtures("confident")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-error 0.1 --nbest 1", "expected one output for each input, got --nbest 1"),
        (
            "--max-error 0.05",
            "--max-error 0.05: the 100 dev examples do not support this error rate at any "
            "confidence; allow 0.06, or add dev examples",
        ),
    ],
)
def test_error_rates_that_cannot_be_guaranteed(
    small_run: Path, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(small_run, capsys, *options.split())


def test_a_task_that_cannot_judge(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(AnswerTask, "target", Task.target)
    message = refused(small_run, capsys, "--max-error", "0.1")
    assert "--max-error: expected a run whose outputs are right or wrong as a whole" in message


def test_the_dev_questions_of_a_real_run_are_asked(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty dev questions never support an error rate of 4 %."""
    message = refused(small_run, capsys, "--max-error", "0.04")
    assert "the 20 dev examples do not support this error rate" in message


# Input.


def test_odd_text_is_answered_line_by_line(say: Say) -> None:
    odd = [
        "a" * 1_000_000,
        "Where was " * 100_000,
        "a NUL \0 inside",
        "😀 🏳️‍🌈 \U0010ffff",
        "ⵣ ꦲ 𒀀 漢字 שלום",
        "\u2028 \u0085 \x0b \x0c",  # line ends elsewhere, not here
        "<mask> <end> <pad>",
    ]
    assert say("\n".join(odd)).count("\n") == len(odd)
    record = json.loads(say("\n".join(odd), "--json"))
    assert [item["input"] for item in record["predictions"]] == odd


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_packed_files_are_read(
    run_command: list[Asked],
    small_run: Path,
    tmp_path: Path,
    ending: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pack = {"gz": gzip.compress, "zst": zstandard.compress}[ending]
    file = tmp_path / f"asked.txt.{ending}"
    file.write_bytes(pack("größe\n\n".encode()))
    assert main(["predict", str(small_run), str(file)]) == 0
    assert capsys.readouterr().out == "eßörg\n\n"
    chunks = stream_lines(io.BytesIO(file.read_bytes()))
    assert [line for chunk in chunks for line in chunk] == ["größe", ""]


def test_hypotheses_of_a_real_search(say: Say) -> None:
    """Without a length penalty, hypotheses are sorted by probability."""
    rows = [
        line.split("\t")
        for line in say("Where?\nWho?\n", "--nbest", "5", "--length-penalty", "0").splitlines()
    ]
    assert [number for number, _, _ in rows] == ["1"] * 5 + ["2"] * 5
    for some in (rows[:5], rows[5:]):
        logs = [float(log) for _, log, _ in some]
        assert logs == sorted(logs, reverse=True)
        assert len({output for _, _, output in some}) > 1
    record = json.loads(say("Where?\n", "--nbest", "5", "--length-penalty", "0", "--json"))
    (item,) = record["predictions"]
    assert item["output"] == item["nbest"][0]["output"]
    assert math.isclose(item["confidence"], math.exp(item["nbest"][0]["log_probability"]))


def test_output_is_utf8_in_any_locale(
    run_command: list[Asked], small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asked.txt").write_text("Größe 😀\n", encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["predict", str(small_run), str(tmp_path / "asked.txt")]) == 0
    assert written.getvalue().decode() == "😀 eßörG\n"


@pytest.fixture
def asking(small_run: Path) -> Iterator[subprocess.Popen[str]]:
    """`harken predict` in a process of its own, its pipes open; it does not outlive the test."""
    with subprocess.Popen(
        [sys.executable, "-m", "harken", "predict", str(small_run), "--confidence"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        yield process
        process.kill()


def test_a_slow_pipe_has_its_answers_at_once_and_ctrl_c_ends_it(
    asking: subprocess.Popen[str],
) -> None:
    """The answer to a line is there while stdin is still open; then a SIGINT."""
    assert asking.stdin is not None
    assert asking.stdout is not None
    assert asking.stderr is not None
    for text in ("Where was Ada born?\n", "Where was Bob born?\n"):
        asking.stdin.write(text)
        answer = asking.stdout.readline()  # the suite's timeout fails a test that waits for ever
        assert 0 <= float(answer.split("\t")[1]) <= 1
    asking.send_signal(signal.SIGINT)
    assert asking.wait(timeout=30) == 130
    assert asking.stderr.read() == "harken: interrupted; a saved run can be resumed\n"


def test_a_closed_stdin_is_reported(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it after `<&-`
    assert main(["predict", str(small_run)]) == 2
    assert "<stdin>: expected lines, got a closed stream" in capsys.readouterr().err


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"))))
def test_no_line_of_a_stream_is_lost(lines: list[str]) -> None:
    contents = "".join(f"{line}\n" for line in lines)
    chunks = list(stream_lines(io.BytesIO(contents.encode())))
    assert [line for chunk in chunks for line in chunk] == lines
    assert all(1 <= len(chunk) <= BATCH_SIZE for chunk in chunks)


@contextlib.contextmanager
def pipe() -> Iterator[tuple[io.BufferedReader, io.FileIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reader, writer


def test_lines_that_wait_are_taken_together() -> None:
    with pipe() as (reader, writer):
        chunks = stream_lines(reader)
        writer.write(b"first\n")
        assert next(chunks) == ["first"]
        rest = b"".join(b"%d\n" % number for number in range(1000))
        filling = Thread(target=lambda: (writer.write(rest), writer.close()))
        filling.start()
        filling.join()
        sizes = [len(chunk) for chunk in chunks]
        assert sum(sizes) == 1000
        assert len(sizes) < 500  # most of them in batches
        assert max(sizes) <= BATCH_SIZE


def test_lines_before_a_bad_byte_are_predicted() -> None:
    chunks = stream_lines(io.BytesIO(b"fine\nalso\nWh\xff\nnever"))
    answered: list[str] = []
    with pytest.raises(UserError, match="<stdin>:3: invalid byte 0xff at column 3"):
        for chunk in chunks:
            answered += chunk
    assert answered == ["fine", "also"]
