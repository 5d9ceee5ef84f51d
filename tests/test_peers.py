"""The benchmark of other libraries at a small size."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = ("decode-beam-1-batch-8", "tagger", "tokenization")


@pytest.mark.slow
def test_ratios_have_intervals() -> None:
    command = [sys.executable, "benchmarks/peers.py", "--small", "--json", "--rounds", "3"]
    ended = subprocess.run(
        [*command, "--rows", *ROWS], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=280
    )
    rows = json.loads(ended.stdout)["rows"]
    assert {row["name"] for row in rows} == set(ROWS)
    for row in rows:
        harken, *peers = row["systems"]
        assert harken["ratio"] == harken["low"] == harken["high"] == 1
        assert len(peers) + len(row["skipped"]) >= 1
        assert sum(measured["counted"] for measured in row["rounds"]) == 3
        for peer in peers:
            assert 0 < peer["low"] <= peer["ratio"] <= peer["high"] < math.inf
        for measured in row["rounds"]:
            assert measured["gflops"] > 0 < measured["gb_per_s"]
            assert measured["seconds"].keys() == {system["name"] for system in row["systems"]}
