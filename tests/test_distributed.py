"""Commands under torchrun: the results of one process, and one message for an error."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import harken
from harken import config
from harken.files import write_text
from harken.recipe import load_recipe
from untrained import task_recipe

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
# Python imports this file when it starts. Rank 1 then runs in another folder, like a node with a
# disk of its own, or with another version.
ON_RANK_1 = """
import os
if os.environ.get("RANK") == "1":
    import harken.version
    harken.version.__version__ = os.environ.get("VERSION_1", harken.version.__version__)
    os.chdir(os.environ.get("FOLDER_1", "."))
"""


def torchrun(
    *arguments: object, options: Sequence[str] = (), **keywords: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command of Harken in two processes."""
    command = [*TORCHRUN, *options, "-m", "--", "harken", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, **keywords)


def benchmark(script: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark, which fails if it does not give what it should, and return its result."""
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_weights_do_not_depend_on_the_number_of_processes() -> None:
    result = benchmark("distributed.py", "bits", "--tasks", "lm", "transcribe")
    assert result["equal"] == {"lm": True, "transcribe": True}


@pytest.mark.slow
def test_faults_do_not_change_the_weights() -> None:
    result = benchmark("faults.py", "kills", "disk", "nan", "--runs", "2")
    assert result["kills"]["equal"] == result["kills"]["killed"] == 2
    assert "the loss is nan" in result["nan"]["messages"][0]
    if "skipped" not in result["disk"]:
        assert "No space left" in result["disk"]["messages"][0]


@pytest.mark.slow
def test_two_nodes_give_the_same_weights() -> None:
    result = benchmark("two_nodes.py", "--network", "plain")
    if "skipped" in result:
        pytest.skip(result["skipped"])
    assert result["plain"]["equal"]


@pytest.mark.slow
def test_evaluate_and_predict_print_the_same(untrained_run, cli, tmp_path: Path) -> None:
    run, inputs = untrained_run("tag"), tmp_path / "inputs.txt"
    write_text(inputs, "the dog sees a cat\n" * 3)
    for command in (["evaluate", run, "--json"], ["predict", run, inputs, "--confidence"]):
        done = torchrun(*command)
        assert done.returncode == 0, done.stderr
        assert done.stdout == cli(*command).out


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a recipe and an empty folder for rank 1, and install `ON_RANK_1`."""
    write_text(tmp_path / "site" / "sitecustomize.py", ON_RANK_1)
    paths = (tmp_path / "site", Path(harken.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    task_recipe("lm", tmp_path)
    (tmp_path / "node-1").mkdir()
    return tmp_path


TWO = "training.micro_batches=2"
WRONG_STARTS = {
    "world size": ([], {}, "2 processes cannot share 1 micro-batches (expected a multiple of 2)"),
    "missing file": ([TWO, "data.train=missing.txt"], {}, "missing.txt"),
    "other version": ([TWO], {"VERSION_1": "0.0"}, "rank 1 has '0.0'"),
    "other recipe": ([TWO], {"FOLDER_1": "node-1"}, "rank 1 has 'steps = 7'"),
    "other disk": ([TWO], {"FOLDER_1": "node-1"}, "rank 1: run: the run folder of rank 0 is not"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_STARTS)
def test_rank_0_alone_reports_an_error(
    case: str, nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets, environment, message = WRONG_STARTS[case]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    recipe = nodes / "lm.toml"
    if case == "other recipe":
        text = config.dumps(load_recipe(recipe))  # with absolute paths
        write_text(nodes / "node-1" / "lm.toml", re.sub("steps = .*", "steps = 7", text))
        recipe = Path("lm.toml")
    given = [word for item in sets for word in ("--set", item)]
    tee = ["--tee", "3", "--log-dir", str(nodes / "logs")]  # names the rank in front of each line
    done = torchrun("train", recipe, "--run", "run", *given, options=tee, cwd=nodes)
    output = done.stdout + done.stderr
    (line,) = [line for line in output.splitlines() if "harken: " in line]
    assert line.startswith("[default0]:harken: ") and message in line
    assert re.findall(r"exitcode  : (-?\d+)", output) == ["2", "2"]
    assert not (nodes / "run").exists() and not any((nodes / "node-1").glob("run*"))


@pytest.mark.slow
def test_rank_0_alone_writes_event_files(nodes: Path) -> None:
    pytest.importorskip("tensorboard")
    sets = ["--set", TWO, "--set", 'training.track=["tensorboard"]', "--set", "training.steps=2"]
    done = torchrun("train", "lm.toml", "--run", "run", *sets, cwd=nodes)
    assert done.returncode == 0, done.stderr
    files = (nodes / "run" / "tensorboard").rglob("events.*")
    assert sorted(path.parent.name for path in files) == ["dev", "train"]


@pytest.mark.slow
def test_a_port_in_use_is_reported(nodes: Path) -> None:
    """Without torchrun, which opens the port itself and otherwise reports EADDRINUSE."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        done = subprocess.run(
            [sys.executable, "-m", "harken", "train", "lm.toml", "--run", "run"],
            cwd=nodes,
            env={**os.environ, **ranks},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert f"127.0.0.1:{port}: rank 0 cannot listen on this port" in done.stderr
