"""The benchmark of large corpora at a small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_benchmark_prints_its_figures() -> None:
    command = [sys.executable, "benchmarks/corpus.py", "--gigabytes", "0.004", "--rounds", "1"]
    ended = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=280, text=True
    )
    figures = json.loads(ended.stdout)
    assert 200_000 < figures["tokens"] < 4_000_000
    assert 0 < figures["max_rss_gib"] < 2
    assert figures["ratio"] > 0
