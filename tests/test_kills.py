"""A few of the kills that `benchmarks/kills.py` does twenty of: SIGKILL, resume, equal bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "kills.py"


@pytest.mark.slow
def test_killed_runs_end_with_the_same_bits() -> None:
    command = [sys.executable, str(SCRIPT), "--kills", "3", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] == 3
