"""The commands as a script meets them: stdout, stderr, exit codes."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli, sets
from harken.cli.main import GROUPS, SPINS, main
from harken.cli.output import print_json, print_metrics
from harken.decode.search import SearchConfig
from harken.run import Run
from harken.synthetic.people import PeopleFiles
from harken.tasks.prediction import Evaluation
from harken.version import __version__
from small_recipe import SMALL

SETS = sets(SMALL)


def test_help_and_version_do_not_import_torch() -> None:
    code = (
        "import sys, harken\n"
        "from harken.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "harken train recipe.toml" in done.stdout
    version = subprocess.run([sys.executable, "-m", "harken", "--version"], capture_output=True)
    assert version.stdout.decode() == f"harken {__version__}\n"


@pytest.mark.parametrize(
    "command", [name for _, group in GROUPS.values() for name in group.split()]
)
def test_every_command_explains_itself(command: str, cli: Cli) -> None:
    assert f"harken {command}" in cli(command, "--help").out.split("examples:")[1]


@pytest.mark.parametrize(
    ("environment", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_wait_as_the_user_says_or_shortly(
    environment: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["data", "--list"]) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_the_commands_of_the_readme(
    people: PeopleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """new, train, evaluate, predict and report in an empty folder."""
    monkeypatch.chdir(tmp_path)
    assert cli("new", "answer", people.texts, people.train, "--dev", 0.2).out == "recipe.toml\n"
    trained = cli.json("train", "recipe.toml", *SETS, "--seed", 3)
    assert trained["n"] == 4
    run = Path("runs/recipe")
    assert "seed = 3" in (run / "recipe.toml").read_text()

    assert cli.json("evaluate", run) == trained
    measured = cli.json("evaluate", run, "--data", people.test)
    assert measured["n"] == 20
    assert measured["metrics"]["exact_match"].keys() == {"value", "low", "high", "unit", "n"}
    assert "exact match  " in cli("evaluate", run).out

    questions = [line.split("\t")[0] for line in people.test.read_text().splitlines()]
    lines = [questions[0], "", *questions[1:], ""]
    Path("asked.txt").write_text("\n".join(lines), encoding="utf-8")
    lines = cli("predict", run, "asked.txt").out.splitlines()
    assert len(lines) == len(questions) + 1 and lines[1] == ""
    first = cli("predict", run, "asked.txt", "--confidence").out.splitlines()[0]
    text, confidence = first.split("\t")
    assert text == lines[0] and 0 <= float(confidence) <= 1
    listed = cli.json("predict", run, "asked.txt")["predictions"]
    assert [item["output"] for item in listed] == lines

    cli("report", run, "--out", "page.html")
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")


def test_stdin_is_read_and_bad_bytes_are_named(small_run: Path) -> None:
    command = [sys.executable, "-m", "harken", "predict", str(small_run), "-"]
    done = subprocess.run(command, input=b"Where?\n\nWh\xff\n", capture_output=True)
    assert len(done.stdout.splitlines()) == 2  # the lines before the bad one are answered
    assert done.returncode == 1
    assert b"<stdin>:3: invalid byte 0xff, byte 3 of the line (expected UTF-8)" in done.stderr


def test_doctor_finds_this_machine_ready(cli: Cli) -> None:
    result = cli.json("doctor")
    assert result["ready"] is True
    assert result["facts"]["harken"] == __version__


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_real_process_with_their_code(
    recipe_file: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    long = ["--set", "training.pretrain.steps=100000"]
    command = ["train", str(recipe_file), *SETS, *long, "--run", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "harken", *command], stderr=subprocess.PIPE, text=True
    )
    log = folder / "log.jsonl"
    while not (log.exists() and (folder / "tokens").exists()):
        time.sleep(0.05)
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "--resume" in errors
    assert list((folder / "checkpoints").glob("stage-0-step-*"))


def test_a_reader_that_leaves_early_is_no_error(small_run: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("Where was Ada born?\n" * 200)
    command = f"{sys.executable} -m harken predict {small_run} {many} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_data_people(tmp_path: Path, cli: Cli) -> None:
    printed = cli("data", "people", "--people", 30, "--places", 5, "--out", tmp_path / "d").out
    texts, train, test = (Path(line).read_text() for line in printed.splitlines())
    assert len(texts.splitlines()) == len((train + test).splitlines()) == 30
    assert "people must be from 2" in cli.error("data", "people", "--people", 1, "--out", tmp_path)


def test_a_new_recipe_can_be_moved_with_its_files(
    people: PeopleFiles, tmp_path: Path, cli: Cli
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    for path in (people.texts, people.train):
        shutil.copy(path, before)
    cli("new", "answer", *sorted(before.iterdir()), "--out", before / "r.toml")
    after = before.rename(tmp_path / "after")
    cli("train", after / "r.toml", *SETS, "--run", tmp_path / "run")


def test_figures_name_their_units_where_numbers_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    units = {"accuracy": "share", "bleu": "points", "loss_a_word": "nats", "bits": "bits"}
    item = {"value": 0.25, "low": 0.125, "high": 0.5}
    metrics = {name: {**item, "unit": unit} for name, unit in units.items()}
    metrics["known_words"] = {**item, "unit": "share", "n": 53}
    metrics["word_time_error"] = dict.fromkeys(item) | {"unit": "seconds", "n": 0}
    print_metrics({"task": "tag", "n": 7, "metrics": metrics})
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["accuracy", "7", "25.0 %", "12.5 % - 50.0 %"] in cells
    assert ["BLEU (points)", "7", "0.2", "0.1 - 0.5"] in cells
    assert ["loss a word (nats)", "7", "0.250", "0.125 - 0.500"] in cells
    assert ["bits", "7", "0.250", "0.125 - 0.500"] in cells
    assert ["known words", "53", "25.0 %", "12.5 % - 50.0 %"] in cells  # words, not examples
    assert ["word time error (seconds)", "0", "n/a", "n/a"] in cells


def test_json_has_no_constants_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and infinity, as of an impossible hypothesis, are null."""
    print_json({"nan": math.nan, "listed": [math.inf, (1.5, -math.inf)], "text": "NaN"})
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result == {"nan": None, "listed": [None, [1.5, None]], "text": "NaN"}


def test_search_options_of_evaluate(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    searches: list[SearchConfig | None] = []
    evaluate = Run.evaluate

    def recorded(run: Run, *arguments: Any) -> Evaluation:
        searches.append(run.search)
        return evaluate(run, *arguments)

    monkeypatch.setattr(Run, "evaluate", recorded)
    cli("evaluate", small_run, "--beam", 3)
    cli("evaluate", small_run)
    assert searches == [SearchConfig(beam=3), SearchConfig()]
