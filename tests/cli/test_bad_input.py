"""Wrong input and failing machines: one sentence, the right code, and nothing damaged."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.cli.main import main
from harken.synthetic.people import PeopleFiles
from small_recipe import SMALL

SETS = [part for item in SMALL for part in ("--set", item)]


@pytest.fixture
def folder(recipe_file: Path, tmp_path: Path) -> Path:
    """A copy of the data and its recipe that a test may spoil."""
    for path in recipe_file.parent.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; a traceback or a second line fails."""
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("harken: ")
    return line


def spoil(path: Path, old: bytes, new: bytes) -> None:
    contents = path.read_bytes()
    assert old in contents
    path.write_bytes(contents.replace(old, new, 1))


def train(folder: Path) -> int:
    return main(["train", str(folder / "recipe.toml"), *SETS, "--run", str(folder / "run")])


def test_a_misspelt_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "recipe.toml").open("a") as file:
        file.write("\n[model]\nlayrs = 2\n")
    assert train(folder) == 2
    message = complaint(capsys)
    assert "recipe.toml:10: " in message
    assert "'layrs'" in message
    assert "did you mean 'layers'?" in message
    assert not (folder / "run").exists()


def test_a_missing_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "people.txt").rename(folder / "peoples.txt")
    assert train(folder) == 2
    message = complaint(capsys)
    assert "people.txt: file not found" in message
    assert "did you mean 'peoples.txt'?" in message
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", ["people.txt", "questions.train.tsv", "questions.test.tsv"])
def test_an_empty_file(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / name).write_text("\n \n")
    assert train(folder) == 2
    assert f"{name}: the file is empty" in complaint(capsys)


def test_a_line_without_a_tab(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(folder / "questions.train.tsv", b"\t", b"   ")
    assert train(folder) == 2
    message = complaint(capsys)
    assert "questions.train.tsv:1: expected question" in message
    assert "replace the run of spaces by one tab" in message


@pytest.mark.parametrize("name", ["people.txt", "questions.train.tsv"])
def test_invalid_utf8(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(folder / name, b"\n", b"\nA\xe9")
    assert train(folder) == 2
    assert f"{name}:2: invalid byte 0xe9 at column 2 (expected UTF-8)" in complaint(capsys)


def test_an_illegal_pair_of_choices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "recipe.toml").open("a") as file:
        file.write('\n[model]\nposition.kind = "rotary"\n')
        file.write('attention.score.kind = "synthesizer"\n')
    assert train(folder) == 2
    message = complaint(capsys)
    assert "recipe.toml:9: " in message
    assert "'synthesizer' has none" in message


def test_a_device_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device that the test wants to miss")
    where = ["--device", "cuda", "--run", str(folder / "run")]
    code = main(["train", str(folder / "recipe.toml"), *SETS, *where])
    assert code == 2
    assert "device 'cuda' is not available" in complaint(capsys)


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_damaged_weights(
    small_run: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    contents = bytearray((run / "model.safetensors").read_bytes())
    if damage == "truncated":
        del contents[-100:]
    else:
        contents[-100] ^= 64
    (run / "model.safetensors").write_bytes(contents)
    for command in ("evaluate", "predict", "report"):
        assert main([command, str(run)]) == 1
        assert "model.safetensors: the file is damaged" in complaint(capsys)
    assert (run / "model.safetensors").read_bytes() == contents


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
def test_two_things_to_measure_on(
    small_run: Path, options: str, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(small_run), *options.split()]) == 2
    message = complaint(capsys)
    assert result in message
    assert message.endswith("use --split, or --data, or --source together with --target")


def test_a_measure_that_does_not_suit_the_task(
    small_run: Path, people: PeopleFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["--source", str(people.texts), "--target", str(people.texts)]
    assert main(["evaluate", str(small_run), *sides]) == 2
    assert "expected one file of questions, got 2" in complaint(capsys)
    assert main(["evaluate", str(small_run), "--split", "test"]) == 2
    assert "there is no data.test to evaluate on" in complaint(capsys)
    assert main(["evaluate", str(small_run), "--beam", "0"]) == 2
    assert "--beam: expected a number at least 1 and at most 1024, got 0" in complaint(capsys)


def in_child(folder: Path, before: str, where: Path) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own, after some lines that make the disk refuse."""
    command = ["train", str(folder / "recipe.toml"), *SETS, "--run", str(where)]
    code = f"{before}\nimport sys\nfrom harken.cli.main import main\nsys.exit(main({command!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.skipif(os.name == "nt", reason="no file size limits on Windows")
@pytest.mark.parametrize("largest", [1_000, 40_000])
def test_a_disk_that_refuses_a_large_file(folder: Path, largest: int) -> None:
    """The system's own refusal: first of the tokenizer, then of the weights."""
    limit = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest}))"
    )
    done = in_child(folder, limit, folder / "run")
    assert done.returncode == 1, done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("harken: ")]
    assert len(message) == 1
    assert "cannot be written" in message[0]
    assert "Traceback" not in done.stderr
    leftovers = [path for path in (folder / "run").rglob("*") if "unfinished" in path.name]
    assert leftovers == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_and_then_room(folder: Path, tiny_disk: Path) -> None:
    """A run that ran out of room is whole as far as it got, and goes on once there is room."""
    run = tiny_disk / "run"
    done = in_child(folder, "", run)
    assert done.returncode == 1, done.stderr
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("harken: ")]
    assert "No space left" in message or "os error 28" in message
    assert "Traceback" not in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(tiny_disk)], check=True)
    assert main(["train", str(run / "recipe.toml"), "--resume"]) == 0
