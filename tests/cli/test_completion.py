"""Completion scripts, run by the shells themselves."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from command_line import Cli
from harken.cli.completion import SHELLS, Subcommand, bash, subcommand
from harken.cli.main import build_parser
from harken.cli.parsers.training import TASK_NAMES
from harken.recipe import TASKS


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} on this machine")


@pytest.fixture(scope="module")
def root() -> Subcommand:
    return subcommand(build_parser())


def completed(script: str, lines: Sequence[Sequence[str]], folder: Path) -> list[list[str]]:
    """Return what bash offers for the last word of each line."""
    calls = []
    for words in lines:
        quoted = " ".join(map(shlex.quote, words))
        calls.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _harken")
        calls.append('echo "${COMPREPLY[@]}"')
    command = ["bash", "--norc", "-c", "\n".join([script, *calls])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert not done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@needs("bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("harken tr", "train"),
        ("harken train --de", "--device"),
        ("harken train recipe.toml --device ", "auto cpu cuda mps"),
        ("harken train --device = c", "cpu cuda"),
        ("harken train --device =", "auto cpu cuda mps"),
        ("harken train --seed ", ""),
        ("harken train re", "recipe.toml recipes"),
        ("harken train --run r", "recipes runs"),
        ("harken evaluate r", "recipes runs"),
        ("harken predict runs r", "recipe.toml recipes runs"),
        ("harken new t", "tag translate transcribe"),
        ("harken design l", "lookup"),
        ("harken design shift --position ", "sinusoid fourier"),
        ("harken completion ", "-h --help bash zsh fish"),
    ],
)
def test_bash(root: Subcommand, line: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").touch()
    for name in ("runs", "recipes"):
        (tmp_path / name).mkdir()
    (found,) = completed(bash(root), [line.split(" ")], tmp_path)
    assert sorted(found) == sorted(expected.split())


@needs("bash")
def test_bash_completes_every_command_and_option(root: Subcommand, tmp_path: Path) -> None:
    commands = [*root.walk()]
    lines = [["harken", *command.path, start] for command in commands for start in ("-", "")]
    found = completed(bash(root), lines, tmp_path)
    for index, command in enumerate(commands):
        names = {name for option in command.options for name in option.names}
        assert set(found[2 * index]) == names
        assert names | {child.path[-1] for child in command.children} <= set(found[2 * index + 1])
    assert {" ".join(command.path) for command in commands} >= {"", "train", "design shift"}


@needs("zsh")
def test_zsh_accepts_the_script(cli: Cli) -> None:
    subprocess.run(["zsh", "-n"], input=cli("completion", "zsh").out, text=True, check=True)


@needs("fish")
def test_fish(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "complete.fish").write_text(cli("completion", "fish").out)
    script = "source complete.fish; complete -C 'harken train --dev'; complete -C 'harken design '"
    command = ["fish", "--no-config", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert words == ["--device", "average", "band", "copy", "induction", "lookup", "shift"]


def test_the_names_of_tasks_are_those_of_the_registry() -> None:
    assert sorted(TASK_NAMES) == sorted(TASKS)


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_have_no_paths_of_this_machine(shell: str, cli: Cli) -> None:
    script = cli("completion", shell).out
    assert str(Path.home()) not in script and str(Path.cwd()) not in script
