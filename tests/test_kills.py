"""Run `benchmarks/kills.py` briefly: kill training, resume it and compare the weights exactly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "kills.py"


@pytest.mark.slow
def test_killed_and_resumed_runs_have_equal_weights() -> None:
    tasks = ["answer", "lm", "transcribe"]
    command = [sys.executable, SCRIPT, "--kills", "8", "--seed", "1", "--tasks", *tasks]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] == 8
