"""`harken predict` with several input files of which some cannot be read."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command_line import Cli
from harken.synthetic.recordings import write_wav

UntrainedRun = Callable[[str], Path]
BAD = ("missing", "folder", "noise", "empty")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Good inputs of every kind, and bad ones."""
    for name in ("a.wav", "b.wav"):
        write_wav(tmp_path / name, np.sin(np.arange(8000) / 5, dtype=np.float32) / 2, 8000)
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((10, 14), dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "a.txt").write_text("they ___\n\nand ___ here\n")
    (tmp_path / "b.txt").write_text("they ___ swim\n")
    (tmp_path / "noise").write_bytes(bytes(range(255, 0, -1)) * 9)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(cli: Cli, run: Path, *arguments: str, code: int) -> tuple[str, list[str]]:
    printed = cli("predict", run, *arguments, code=code)
    return printed.out, printed.err.splitlines()


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(("task", "suffix"), [("transcribe", "wav"), ("caption", "png")])
def test_a_bad_file_does_not_stop_the_others(
    untrained_run: UntrainedRun, task: str, suffix: str, cli: Cli
) -> None:
    run, files = untrained_run(task), [f"a.{suffix}", *BAD, f"b.{suffix}"]
    out, errors = predict(cli, run, *files, code=1)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [name for name, _ in rows] == [f"a.{suffix}", f"b.{suffix}"]
    assert len(errors) == len(BAD)
    for name, line in zip(BAD, errors, strict=True):
        assert line.startswith(f"harken: {name}: ")
    out, _ = predict(cli, run, *files, "--json", code=1)
    records: list[dict[str, Any]] = json.loads(out)["predictions"]
    assert [record["input"] for record in records] == files
    assert [record["output"] for record in records if "error" not in record] == [
        text for _, text in rows
    ]
    assert {record["input"] for record in records if "error" in record} == set(BAD)
    assert [f"harken: {record['error']}" for record in records if "error" in record] == errors
    out, _ = predict(cli, run, *files, "--nbest", "2", code=1)
    columns = [line.split("\t") for line in out.splitlines()]
    assert {len(row) for row in columns} == {3}
    assert {row[0] for row in columns} == {f"a.{suffix}", f"b.{suffix}"}


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("task", ["tag", "fill"])
def test_a_bad_text_file_does_not_stop_the_others(
    untrained_run: UntrainedRun, task: str, cli: Cli
) -> None:
    run, files = untrained_run(task), ["a.txt", "missing", "folder", "noise", "b.txt"]
    out, errors = predict(cli, run, *files, code=1)
    assert len(out.split("\n")) == 5
    names = [line.removeprefix("harken: ").split(":")[0] for line in errors]
    assert names == ["missing", "folder", "noise"]
    records = json.loads(predict(cli, run, *files, "--json", code=1)[0])["predictions"]
    assert [record["input"] for record in records if "error" in record] == names
    assert [record["output"] for record in records if "error" not in record] == out.splitlines()


def test_a_bad_line_does_not_stop_the_others(
    desk: Path, untrained_run: UntrainedRun, cli: Cli
) -> None:
    """The task `fill` needs a blank in each line; what has none keeps its place."""
    lines = ["they ___", "no blank", "and ___ here", "none either", "___ swim"]
    (desk / "lines.txt").write_text("\n".join(lines))
    out, errors = predict(cli, untrained_run("fill"), "lines.txt", code=1)
    assert [bool(line) for line in out.splitlines()] == [True, False, True, False, True]
    assert len(errors) == 2
    assert all("the line has no blank" in line for line in errors)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("task", ["transcribe", "caption", "lm"])
def test_nothing_that_can_be_read_is_wrong_input(
    untrained_run: UntrainedRun, task: str, cli: Cli
) -> None:
    out, errors = predict(cli, untrained_run(task), "missing", code=2)
    assert out == ""
    assert len(errors) == 1
    out, _ = predict(cli, untrained_run(task), "missing", "noise", "--json", code=2)
    assert [sorted(record) for record in json.loads(out)["predictions"]] == [
        ["confidence", "error", "input", "output"]
    ] * 2


@pytest.mark.usefixtures("desk")
def test_an_option_that_suits_no_input_is_told_once(untrained_run: UntrainedRun, cli: Cli) -> None:
    files = [f"{number}.wav" for number in range(40)]
    for name in files:
        shutil.copy("a.wav", name)
    _, errors = predict(cli, untrained_run("transcribe"), *files, "--mode", "attention", code=2)
    assert len(errors) == 1
    assert "search.mode" in errors[0]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("task", ["lm", "transcribe", "caption"])
def test_empty_and_closed_stdin(
    untrained_run: UntrainedRun,
    task: str,
    closed: bool,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    stdin = None if closed else io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(sys, "stdin", stdin)
    no_lines = task == "lm" and not closed  # which is a file of no lines, not an error
    out, errors = predict(cli, untrained_run(task), code=0 if no_lines else 2)
    assert out == ""
    assert len(errors) == (0 if no_lines else 1)
    if task == "lm" and closed:
        assert "<stdin>: expected lines, got a closed stream" in errors[0]
