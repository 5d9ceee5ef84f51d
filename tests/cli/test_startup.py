"""Commands import only what they need: the robust form of a limit on their time."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from harken.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {"matplotlib", "sacrebleu", "sacremoses", "jiwer", "soundfile", "soxr", "PIL"}
HEAVY |= {"transformers", "rich", "jinja2", "torch._dynamo", "torch.distributed.tensor"}


def imported(*arguments: object) -> set[str]:
    """Return the modules that a command in a new process imports."""
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    assert finished.stdout
    return set(json.loads(finished.stderr.splitlines()[-1]))


def test_help_imports_neither_torch_nor_numpy() -> None:
    modules = imported("--help")
    assert not modules & {"torch", "numpy", *HEAVY}
    assert imported("predict", "--help") == modules
    assert not imported("completion", "bash") & {"torch", "numpy", *HEAVY}


def test_listing_runs_does_not_import_torch(
    untrained_run: Callable[[str], Path],
) -> None:
    modules = imported("runs", untrained_run("tag").parent, "--json")
    assert "harken.run_list" in modules
    assert not modules & {"torch", *HEAVY}


@pytest.mark.parametrize("task", ["translate", pytest.param("answer", marks=pytest.mark.slow)])
def test_predict_imports_only_its_task(
    task: str, untrained_run: Callable[[str], Path], tmp_path: Path
) -> None:
    line = tmp_path / "line.txt"
    line.write_text("one line\n", encoding="utf-8")
    modules = imported("predict", untrained_run(task), line)
    assert not modules & HEAVY
    tasks = {"answer", "caption", "fill", "lm", "tag", "transcribe", "translate"}
    assert {name for name in tasks if f"harken.tasks.{name}" in modules} == {task}
