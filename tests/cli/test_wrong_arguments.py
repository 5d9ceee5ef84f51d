"""Every command with wrong arguments, for every task: one line on stderr, nothing written."""

import argparse
import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from harken.cli.data import GENERATORS, build_data_parser
from harken.cli.main import GROUPS, build_parser
from harken.corpora.catalog import CATALOG
from harken.recipe import TASKS

UntrainedRun = Callable[[str], Path]

# In place of a run folder; LONG stands for a path of 5,000 characters.
RUNS = ("nowhere", "text.txt", "folder", "unfinished", "garbage", "LONG")
OF_A_RUN = (
    "evaluate {}",
    "predict {}",
    "inspect {} they",
    "heads {}",
    "ablate {}",
    "report {}",
    "compare {} runs/lm",
    "compare runs/lm {}",
    "align {} --source train.en --target train.de --links links.txt",
    "data suffixes train.jsonl --out new --run {}",
    "claims B8 --run {}",
)
# In place of an input or data file.
FILES = ("nowhere", "noise", ".", "LONG")
OF_A_FILE = (
    "predict runs/{task} {file}",
    "evaluate runs/{task} --data {file}",
    "evaluate runs/{task} --source {file} --target train.de",
    "ablate runs/{task} --data {file}",
    "inspect runs/{task} --file {file}",
    "train {task}.toml --run new --set data.train={file}",
    "train {task}.toml --run new --set data.dev={file}",
    "new {task} {files} --out new.toml",
)
# Options that suit no run, or not the one of this task.
OF_A_TASK = (
    "predict runs/{task} text.txt --nbest 0",
    "predict runs/{task} text.txt --beam 0",
    "predict runs/{task} text.txt --mode foo",
    "predict runs/{task} text.txt --temperature nan",
    "evaluate runs/{task} --split dev --data text.txt",
    "evaluate runs/{task} --split test",
    "evaluate runs/{task} --condition foo",
    "evaluate runs/{task} --source text.txt",
    "inspect runs/{task} they --layers 0",
    "report runs/{task} --out folder",
    "train {task}.toml --run text.txt",
    "train {task}.toml --run runs/{task}",
    "train {task}.toml --run new --set seed=-1",
    "train {task}.toml --run new --set modle.width=3",
    "cost {task}.toml --set model=3",
    "new {task} nowhere nowhere nowhere nowhere nowhere",
    "new {task} - --out new.toml",
)
RECIPES = ("nowhere.toml", "folder", "noise", "empty", "text.txt", "text.txt/x", "LONG")
FAST = ("lm", "transcribe", "caption")  # tasks of lines, sounds and pictures; the others are slow
OTHERS = (
    "inspect runs/lm they --out text.txt",
    "data people --people 5 --out text.txt",
    "data manifest . --pattern {text}.wav --out text.txt",
    "data manifest nowhere --out new",
    "data manifest LONG --out new",
    "train LONG/recipe.toml --resume",
    "data peple --out new",
    "design shift --length 0",
    "design shift --out folder/x.gif",
    "claims ZZ",
    "demo --run text.txt",
    "compare runs/lm",
    "compare runs/lm runs/tag",
)


def cases() -> list[Any]:
    general = [command.format(run) for command in OF_A_RUN for run in RUNS]
    general += [f"{command} {recipe}" for command in ("train", "cost") for recipe in RECIPES]
    result: list[Any] = [*general, *OTHERS]
    for task, layout in ((name, task.layout) for name, task in TASKS.items()):
        *good, _ = next(iter(layout.calls)).split()
        own = [command.format(task=task) for command in OF_A_TASK]
        own += [
            command.format(task=task, file=file, files=" ".join((*good, file)))
            for command in OF_A_FILE
            for file in FILES
        ]
        marks = () if task in FAST else (pytest.mark.slow,)
        result += [pytest.param(case, marks=marks) for case in own]
    return result


@pytest.fixture(scope="module")
def desk(untrained_run: UntrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and runs of all tasks, and some that are none."""
    folder = tmp_path_factory.mktemp("wrong") / "desk"
    shutil.copytree(untrained_run("lm").parent.parent, folder)
    for task in TASKS:
        shutil.copytree(untrained_run(task), folder / "runs" / task, dirs_exist_ok=True)
        shutil.copy(untrained_run(task).parent.parent / f"{task}.toml", folder)
    for name in ("folder", "unfinished", "garbage"):
        (folder / name).mkdir()
    shutil.copy(folder / "runs" / "lm" / "recipe.toml", folder / "unfinished")
    for name in ("recipe.toml", "tokenizer.json", "model.safetensors", "manifest.json"):
        (folder / "garbage" / name).write_bytes(b"\xff\x00")
    (folder / "noise").write_bytes(bytes(range(255, 0, -1)))
    (folder / "empty").write_bytes(b"")
    (folder / "links.txt").write_text("1-1\n" * 31)
    return folder


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns if path.is_file() else 0)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("case", cases())
def test_wrong_arguments_are_explained_in_one_line(
    case: str, desk: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    before = contents(desk)
    # Of the damaged run, `compare` only reads the recipe.
    code = 1 if "garbage" in case and "compare" not in case else 2
    line = cli.error(*case.replace("LONG", "x" * 5000).split(), code=code)
    assert len(line) < 1000
    assert contents(desk) == before


# The command line itself.


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("trian", "harken: unknown command 'trian'; did you mean 'train'? See `harken --help`"),
        ("--verbose", "harken: unknown option --verbose; did you mean --version?"),
        (
            "evaluate x --spilt dev",
            "harken evaluate: unknown option --spilt; did you mean --split?",
        ),
        ("evaluate x --split dve", "--split: unknown value 'dve'; did you mean 'dev'?"),
        ("new tga x", "TASK: unknown value 'tga'; did you mean 'tag'?"),
        ("predict x y --beem=3", "harken predict: unknown option --beem; did you mean --beam?"),
        ("design shfit", "harken design: unknown kind 'shfit'; did you mean 'shift'?"),
        ("design shift --ofset 3", "design shift: unknown option --ofset; did you mean --offset?"),
        ("data people --otu x", "harken data people: unknown option --otu; did you mean --out?"),
        ("predict", "harken predict: the following arguments are required: RUN. See"),
        ("doctor now", "harken doctor: unexpected argument 'now'. See `harken doctor --help`"),
        ("predict x --beam 2 y", "unexpected argument 'y'; write files and texts before"),
        ("demo tag", "argument TASK: unknown value 'tag'; choose answer. See"),
        ("predict x --nbest -x", "harken predict: argument --nbest: expected one argument"),
        ("heads x --inputs 0", "harken heads: argument --inputs: expected 1 or more, got 0. See"),
        ("heads x --length 7", "argument --length: expected 8 or more, got 7"),
        ("ablate x --examples 0", "argument --examples: expected 1 or more, got 0"),
        ("ablate x --seed -1", "argument --seed: expected 0 or more, got -1"),
        (f"ablate x --seed {1 << 63}", f"argument --seed: expected less than {1 << 63}, got"),
        ("demo --seed -1", "argument --seed: expected 0 or more, got -1"),
        ("predict x --max-error 0", "--max-error: expected a number above 0 and below 1, got 0.0"),
        ("predict x --max-error 1", "above 0 and below 1, got 1.0"),
        ("predict x --max-error nan", "above 0 and below 1, got nan"),
        ("new tag x --dev 1.5", "argument --dev: expected a number above 0 and below 1, got 1.5"),
    ],
)
def test_arguments_that_cannot_be_parsed(arguments: str, line: str, cli: Cli) -> None:
    printed = cli(*arguments.split(), code=2)
    assert printed.out == ""
    (message,) = printed.err.splitlines()
    assert line in message


def test_no_command_shows_all_of_them(cli: Cli) -> None:
    printed = cli(code=2)
    assert printed.out == ""
    groups = re.findall(r"^([a-z ]+):\n((?:    \w+ +[A-Z].*\n)+)", printed.err, re.M)
    assert [title for title, _ in groups] == list(GROUPS)
    listed = [[line.split()[0] for line in lines.splitlines()] for _, lines in groups]
    assert listed == [names.split() for _, names in GROUPS.values()]
    assert len(printed.err.split("quickstart:\n")[1].split("\n\n")[0].splitlines()) == 3


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options_of(command)
        else:
            yield parser.prog, action


def test_every_option_says_what_it_does() -> None:
    parsers = [build_parser(), *(build_data_parser(name) for name in (*GENERATORS, *CATALOG))]
    own = [
        (command, action.dest, action.help or "")
        for top in parsers
        for command, action in options_of(top)
        if action.dest not in ("help", "version")
    ]
    assert len(own) > 150
    assert [option for option in own if not re.match(r"(?!Of )[A-Z]\w+.*[^.]$", option[2])] == []


def test_too_little_memory_is_told(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def allocate(options: object) -> int:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …")

    monkeypatch.setattr("harken.cli.doctor.run", allocate)
    assert cli.error("doctor", code=1).startswith("harken: out of memory; ")
