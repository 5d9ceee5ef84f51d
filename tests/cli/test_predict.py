"""`harken predict`: streaming of lines, and the options of the search."""

import gzip
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from command_line import Cli
from harken.decode.search import SearchConfig
from harken.measure.scored_answers import ScoredAnswers
from harken.run import Run, load
from harken.tasks.answer import AnswerTask
from harken.tasks.prediction import Prediction, RankedOutput
from harken.tasks.task import Task

Call = tuple[SearchConfig | None, list[str], int]
Predict = Callable[..., str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of a run that predicts inputs backwards, ¶ as a line end."""
    recorded: list[Call] = []

    def predict(
        run: Run, inputs: Sequence[str], nbest: int = 1, indices: Sequence[int] = (), **_: Any
    ) -> list[Prediction]:
        recorded.append((run.search, list(inputs), nbest))
        predictions = []
        for text in inputs:
            ranked = [
                RankedOutput(output=text[::-1] + "!" * rank, log_probability=math.log(0.5) - rank)
                for rank in range(nbest)
            ]
            output = text[::-1].replace("¶", "\n")
            several = ranked if nbest > 1 else ()
            predictions.append(Prediction(input=text, output=output, confidence=0.5, nbest=several))
        return predictions

    monkeypatch.setattr(Run, "predict", predict)
    return recorded


@pytest.fixture
def predict(small_run: Path, tmp_path: Path, cli: Cli) -> Predict:
    """Return the stdout of `harken predict` for a text."""

    def call(text: str | bytes, *options: str, name: str = "asked.txt") -> str:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(cli("predict", small_run, tmp_path / name, *options).out)

    return call


# Output.


def test_every_line_has_an_output_line(calls: list[Call], predict: Predict) -> None:
    assert predict("one\n\n \r\ntwo\r\nend") == "eno\n\n\nowt\ndne\n"
    assert calls == [(SearchConfig(), ["one", "two", "end"], 1)]
    assert predict("") == ""
    assert predict("\n\n") == "\n\n"
    assert len(calls) == 1  # the model does not run for blank lines
    assert predict("one\n\ntwo\n", "--confidence") == "eno\t0.5000\n\nowt\t0.5000\n"


def test_hypotheses_carry_the_number_of_their_line(calls: list[Call], predict: Predict) -> None:
    assert predict("one\n\ntwo\n", "--nbest", "2") == (
        "1\t-0.6931\teno\n1\t-1.6931\teno!\n3\t-0.6931\towt\n3\t-1.6931\towt!\n"
    )
    assert predict("one\n", "--nbest", "1") == "1\t-0.6931\teno\n"


def test_numbers_go_on_through_files(
    calls: list[Call], small_run: Path, tmp_path: Path, cli: Cli
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2")
    printed = cli("predict", small_run, tmp_path / "a", tmp_path / "b", "--nbest", 1).out
    columns = [line.split("\t") for line in printed.splitlines()]
    outputs = [number + output for number, _, output in columns]
    assert outputs == ["11a", "22a", "31b", "42b"]


def test_line_ends_in_outputs_are_escaped_in_a_pipe(
    calls: list[Call], predict: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert predict("a\tb\rc¶d") == "d\\nc\\rb\\ta\n"
    assert predict("a\tb", "--confidence") == "b\\ta\t0.5000\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # A carriage return would overwrite the line on a terminal.
    assert predict("a\tb\rc¶d") == "d\nc\\rb\ta\n"


def test_json_has_every_output_as_it_is(calls: list[Call], predict: Predict) -> None:
    record = json.loads(predict("a¶\tb\n\n😀\n", "--json"))
    assert record == {
        "task": "answer",
        "predictions": [
            {"input": "a¶\tb", "output": "b\t\na", "confidence": 0.5},
            {"input": "", "output": "", "confidence": None},
            {"input": "😀", "output": "😀", "confidence": 0.5},
        ],
    }
    both = json.loads(predict("ab\n\n", "--json", "--nbest", "2"))["predictions"]
    assert both[0]["nbest"] == [
        {"output": "ba", "log_probability": math.log(0.5)},
        {"output": "ba!", "log_probability": math.log(0.5) - 1},
    ]
    assert both[1]["nbest"] == []


def test_truncated_lines_are_reported_on_stderr_and_in_json(
    small_run: Path, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("short\n\n" + "long " * 3000)
    for options in ((), ("--json",)):
        printed = cli("predict", small_run, file, *options)
        (warning,) = printed.err.splitlines()
        assert warning.startswith("line 3: input truncated to 63 of ")
        assert warning.endswith(" tokens (last)")
    assert len(printed.out.splitlines()) > 3
    short, blank, long = json.loads(printed.out)["predictions"]
    assert "truncation" not in short and "truncation" not in blank
    assert long["truncation"]["kept"] == 63 and long["output"]
    path = tmp_path / "questions.tsv"
    path.write_text("Where was Ada born?\tLondon\nWhere was " + "Ada " * 500 + "born?\tLeeds\n")
    printed = cli("evaluate", small_run, "--data", path)
    assert "1 of 2 inputs are too long for the model" in printed.err


def test_a_long_file_is_predicted_in_batches(calls: list[Call], predict: Predict) -> None:
    lines = [str(number) for number in range(601)]
    assert predict("\n".join(lines)).splitlines() == [line[::-1] for line in lines]
    assert [len(inputs) for _, inputs, _ in calls] == [256, 256, 89]


@pytest.mark.usefixtures("calls")
def test_progress_is_drawn_if_results_go_to_a_file(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("a\nb\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    printed = cli("predict", small_run, file)
    assert printed.out == "a\nb\n"
    assert "lines" in printed.err and "100%" in printed.err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli("predict", small_run, file).err == ""


# The search.


BEAM = SearchConfig(beam=7, length_penalty=0.5)
SAMPLING = SearchConfig(temperature=0.5, top_k=3)


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        (SearchConfig(), "--nbest 3 --beam 5", SearchConfig(beam=5)),
        (
            SearchConfig(),
            "--length-penalty 0 --max-tokens 11",
            SearchConfig(length_penalty=0.0, max_tokens=11),
        ),
        (BEAM, "", BEAM),
        (BEAM, "--nbest 5", BEAM),
        (BEAM, "--nbest 11", SearchConfig(beam=11, length_penalty=0.5)),
        (BEAM, "--temperature 0.9", SearchConfig(temperature=0.9, length_penalty=0.5)),
        (SAMPLING, "--top-k 2", SearchConfig(temperature=0.5, top_k=2)),
        (SAMPLING, "--nbest 5", SAMPLING),
        (SAMPLING, "--beam 2", SearchConfig(beam=2)),
    ],
)
def test_options_override_the_search_of_the_recipe(
    calls: list[Call],
    predict: Predict,
    recipe: SearchConfig,
    options: str,
    expected: SearchConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harken.cli.engine.load", lambda *given: load(*given).with_search(recipe))
    predict("a", *options.split())
    assert [search for search, _, _ in calls] == [expected]


def test_a_sample_depends_on_the_seed_and_the_number_of_its_line(
    predict: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(text: str, seed: str = "2") -> list[str]:
        return predict(text, "--temperature", "3", "--seed", seed).splitlines()

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
        ("--beam 2 --temperature 0.5", "beam and temperature exclude each other"),
        ("--top-k 5", "need a temperature"),
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
def test_wrong_options_of_the_search(small_run: Path, options: str, message: str, cli: Cli) -> None:
    assert message in cli.error("predict", small_run, small_run / "recipe.toml", *options.split())


def test_a_task_that_does_not_search(
    calls: list[Call], predict: Predict, small_run: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(Run, "search", property(lambda self: None))
    for option in ("--beam", "--max-tokens", "--temperature", "--top-k", "--seed"):
        message = cli.error("predict", small_run, option, 2)
        assert message == f"harken: {option}: task 'answer' does not search; leave out {option}"
    assert predict("ab", "--nbest", "2").splitlines()[1] == "1\t-1.6931\tba!"
    assert calls == [(None, ["ab"], 2)]


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
    scored = ScoredAnswers(
        [0.6 + at / 200 for at in range(60)] + [0.2 + at / 200 for at in range(40)],
        [True] * 60 + [False] * 40,
    )
    monkeypatch.setattr(Run, "predict", answer)
    monkeypatch.setattr(Run, "scored_answers", lambda self: scored)


LINES = "0.61\n\n0.6\n0.59\nnan\n0.2\n"


@pytest.mark.usefixtures("confident")
def test_outputs_below_the_threshold_are_withheld(predict: Predict) -> None:
    assert predict(LINES, "--max-error", "0.1") == "<0.61>\n\n<0.6>\n?\n?\n?\n"
    assert predict(LINES, "--max-error", "0.2") == "<0.61>\n\n<0.6>\n<0.59>\n?\n?\n"
    assert predict(LINES).count("?") == 0
    assert (
        predict("0.6\n0.5\n", "--max-error", "0.1", "--confidence") == "<0.6>\t0.6000\n?\t0.5000\n"
    )
    assert predict("0.6\n", "--max-error", "0.06") == "<0.6>\n"  # the rate that the error suggests


@pytest.mark.usefixtures("confident")
def test_json_contains_withheld_outputs(predict: Predict) -> None:
    record = json.loads(predict("0.6\n\n0.5\n", "--max-error", "0.1", "--json"))
    assert record["predictions"] == [
        {"input": "0.6", "output": "<0.6>", "confidence": 0.6, "abstained": False},
        {"input": "", "output": "", "confidence": None, "abstained": False},
        {"input": "0.5", "output": "<0.5>", "confidence": 0.5, "abstained": True},
    ]
    assert record["guarantee"] == {"max_error": 0.1, "probability": 0.9, "threshold": 0.6}
    plain = json.loads(predict("0.6", "--json"))
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
            "confidence; use --max-error 0.06, or add dev examples",
        ),
    ],
)
def test_error_rates_that_cannot_be_guaranteed(
    small_run: Path, options: str, message: str, cli: Cli
) -> None:
    assert message in cli.error("predict", small_run, small_run / "recipe.toml", *options.split())


def test_max_error_uses_the_dev_examples(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Twenty dev questions never support an error rate of 4 %."""
    message = cli.error("predict", small_run, "--max-error", 0.04)
    assert "the 20 dev examples do not support this error rate" in message
    monkeypatch.setattr(AnswerTask, "target", Task.target)
    message = cli.error("predict", small_run, "--max-error", 0.1)
    assert "--max-error: expected a task with one correct output per input" in message


# Input.


def test_odd_text_is_answered_line_by_line(predict: Predict) -> None:
    odd = [
        "a" * 1_000_000,
        "Where was " * 100_000,
        "a NUL \0 inside",
        "😀 🏳️‍🌈 \U0010ffff",
        "ⵣ ꦲ 𒀀 漢字 שלום",
        "\u2028 \u0085 \x0b \x0c",  # line ends elsewhere, not here
        "<mask> <end> <pad>",
    ]
    assert predict("\n".join(odd)).count("\n") == len(odd)
    record = json.loads(predict("\n".join(odd), "--json"))
    assert [item["input"] for item in record["predictions"]] == odd


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("zst", zstandard.compress)]
)
def test_compressed_files(
    predict: Predict, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    contents = compress("größe\n\n".encode())
    assert predict(contents, name=f"asked.txt.{suffix}") == "eßörg\n\n"


def test_hypotheses_of_a_real_search(predict: Predict) -> None:
    """Without a length penalty, hypotheses are sorted by probability."""
    options = ("--nbest", "5", "--length-penalty", "0", "--json")
    for item in json.loads(predict("Where?\nWho?\n", *options))["predictions"]:
        logs = [ranked["log_probability"] for ranked in item["nbest"]]
        assert len(logs) == 5 and logs == sorted(logs, reverse=True)
        assert len({ranked["output"] for ranked in item["nbest"]}) > 1
        assert item["output"] == item["nbest"][0]["output"]
        assert math.isclose(item["confidence"], math.exp(logs[0]))


def test_output_is_utf8_in_any_locale(
    calls: list[Call], predict: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    predict("Größe 😀\n")
    assert written.getvalue().decode() == "😀 eßörG\n"
