"""Wrong input and full disks: one line, the right exit code, and undamaged files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Cli, sets
from harken.cli.main import main
from harken.synthetic.people import PeopleFiles
from small_recipe import SMALL

SETS = sets(SMALL)


@pytest.fixture
def folder(recipe_file: Path, tmp_path: Path) -> Path:
    """A copy of the data and its recipe, which a test may change."""
    for path in recipe_file.parent.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def train(folder: Path) -> list[str]:
    return ["train", str(folder / "recipe.toml"), *SETS, "--run", str(folder / "run")]


RECIPE, TRAIN = "recipe.toml", "questions.train.tsv"
ROTARY = b'\n[model]\nposition.kind = "rotary"\nattention.score.kind = "synthesizer"\n'


@pytest.mark.parametrize(
    ("name", "spoil", "messages"),
    [
        (
            RECIPE,
            lambda contents: contents + b"\n[model]\nlayrs = 2\n",
            ["recipe.toml:10: ", "'layrs'", "did you mean 'layers'?"],
        ),
        (RECIPE, lambda contents: contents + ROTARY, ["recipe.toml:9: ", "'synthesizer' has none"]),
        *(
            (name, lambda contents: b"\n \n", [f"{name}: the table has no rows"])
            for name in (TRAIN, "questions.test.tsv")
        ),
        ("people.txt", lambda contents: b"\n \n", ["people.txt: the file has no text"]),
        (
            TRAIN,
            lambda contents: contents.replace(b"\t", b"   ", 1),
            [f"{TRAIN}:1: expected question", "replace the run of spaces by one tab"],
        ),
        *(
            (
                name,
                lambda contents: contents.replace(b"\n", b"\nA\xe9", 1),
                [f"{name}:2: invalid byte 0xe9, byte 2 of the line (expected UTF-8)"],
            )
            for name in ("people.txt", TRAIN)
        ),
    ],
)
def test_a_wrong_file_is_named(
    folder: Path, name: str, spoil: Callable[[bytes], bytes], messages: list[str], cli: Cli
) -> None:
    contents = (folder / name).read_bytes()
    (folder / name).write_bytes(spoil(contents))
    assert (folder / name).read_bytes() != contents
    line = cli.error(*train(folder))
    assert all(message in line for message in messages)
    assert not (folder / "run").exists()


def test_a_missing_file(folder: Path, cli: Cli) -> None:
    (folder / "people.txt").rename(folder / "peoples.txt")
    line = cli.error(*train(folder))
    assert "people.txt: file not found" in line and "did you mean 'peoples.txt'?" in line


def test_a_missing_device(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "device 'cuda' is not available" in cli.error(*train(folder), "--device", "cuda")


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ("--source a", "got --source;"),
        ("--target a", "got --target;"),
        ("--data a --source b --target c", "got --data and --source and --target;"),
        ("--split test --data a", "got --split and --data;"),
        ("--split dev --source a --target b", "got --split and --source and --target;"),
    ],
)
def test_more_than_one_data_set(small_run: Path, options: str, result: str, cli: Cli) -> None:
    line = cli.error("evaluate", small_run, *options.split())
    assert result in line
    assert line.endswith("use --split, or --data, or --source together with --target")


def test_data_and_options_of_another_task(small_run: Path, people: PeopleFiles, cli: Cli) -> None:
    for options, message in (
        (("--source", people.texts, "--target", people.texts), "expected one file of questions"),
        (("--split", "test"), "there is no data.test to evaluate on"),
        (("--beam", 0), "--beam: expected a number at least 1 and at most 1024, got 0"),
    ):
        assert message in cli.error("evaluate", small_run, *options)


def in_child(folder: Path, before: str, where: Path) -> subprocess.CompletedProcess[str]:
    """Train in another process, after some lines of Python."""
    command = [*train(folder), "--run", str(where)]
    code = f"{before}\nimport sys\nfrom harken.cli.main import main\nsys.exit(main({command!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.skipif(os.name == "nt", reason="no file size limits on Windows")
@pytest.mark.parametrize("largest", [1_000, 40_000])
def test_a_limit_of_the_file_size(folder: Path, largest: int) -> None:
    """The operating system limits the size, first of the tokenizer, then of the weights."""
    limit = (
        "import resource, signal, sys\n"
        "sys.dont_write_bytecode = True\n"  # a truncated file would break later imports
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest}))"
    )
    done = in_child(folder, limit, folder / "run")
    assert done.returncode == 1, done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("harken: ")]
    assert len(message) == 1, done.stderr
    assert "cannot be written" in message[0]
    assert "Traceback" not in done.stderr
    assert list((folder / "run").rglob("*unfinished*")) == []


def test_a_run_on_a_full_disk_can_be_resumed(folder: Path, tiny_disk: Path) -> None:
    run = tiny_disk / "run"
    done = in_child(folder, "", run)
    assert done.returncode == 1, done.stderr
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("harken: ")]
    assert "No space left" in message or "os error 28" in message
    assert "Traceback" not in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(tiny_disk)], check=True)
    assert main(["train", str(run / "recipe.toml"), "--resume"]) == 0
