"""The commands of Harken, measured from the start of the process."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from peer_systems.steps import RECIPES

HARKEN = (sys.executable, "-m", "harken")
LOAD = "import sys, torch; from safetensors.torch import load_file; load_file(sys.argv[1]); print()"
# Arguments of `harken data`, and the files that the recipe reads, per task.
DATA = {
    "translate": ("sentences", "--sentences", "4000"),
    "answer": ("people", "--people", "1000"),
}
FILES = {
    "translate": {
        "data.train.source": "train.en",
        "data.train.target": "train.xx",
        "data.dev.source": "dev.en",
        "data.dev.target": "dev.xx",
    },
    "answer": {
        "data.pretrain": "people.txt",
        "data.train": "questions.train.tsv",
        "data.dev": "questions.test.tsv",
    },
}
STAGE = {"translate": "training.pairs", "answer": "training.pretrain"}
INPUTS = {"translate": "train.en", "answer": "questions.train.tsv"}


def train(task: str, folder: Path, steps: int) -> tuple[Path, list[str]]:
    """Train on generated data for a few steps; return the run folder and inputs for `predict`."""
    data, run = folder / "data", folder / "run"
    quietly([*HARKEN, "data", *DATA[task], "--out", str(data)])
    settings = {name: f"{data}/{file}" for name, file in FILES[task].items()}
    settings[f"{STAGE[task]}.steps"] = str(steps)
    pairs = [word for item in settings.items() for word in ("--set", "=".join(item))]
    quietly([*HARKEN, "train", str(RECIPES / f"{task}.toml"), "--run", str(run), *pairs])
    lines = (data / INPUTS[task]).read_text().splitlines()
    return run, [line.split("\t")[0] for line in lines]


def quietly(command: Sequence[str], text: str | None = None) -> str:
    """Run a command and return its output."""
    finished = subprocess.run(command, input=text, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{' '.join(command)}\n{finished.stderr}")
    return finished.stdout


def first_answer(command: Sequence[str], text: str) -> Callable[[], float]:
    """Return a function that runs a command until its first line of output."""

    def run() -> float:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        assert process.stdout.readline(), f"{' '.join(command)} printed nothing"
        process.stdout.close()
        process.kill()
        process.wait()
        return 1.0

    return run


def predict_line(*, steps: int, task: str) -> Callable[[], float]:
    """Predict one line, from process start to the answer."""
    run, inputs = train(task, Path(tempfile.mkdtemp()), steps)
    return first_answer([*HARKEN, "predict", str(run)], inputs[0] + "\n")


def load_weights(*, steps: int, task: str) -> Callable[[], float]:
    """Import PyTorch and read weights of the same sizes, trained for one step."""
    run, _ = train(task, Path(tempfile.mkdtemp()), min(steps, 1))
    return first_answer([sys.executable, "-c", LOAD, str(run / "model.safetensors")], "")


def show_help() -> Callable[[], float]:
    return first_answer([*HARKEN, "--help"], "")


def start_python() -> Callable[[], float]:
    return first_answer([sys.executable, "-c", "print()"], "")


def predict_lines(*, steps: int, lines: int, task: str) -> Callable[[], float]:
    """Predict many lines with one command; the units are lines."""
    run, inputs = train(task, Path(tempfile.mkdtemp()), steps)
    text = "".join(f"{line}\n" for line in (inputs * (1 + lines // len(inputs)))[:lines])

    def work() -> float:
        outputs = quietly([*HARKEN, "predict", str(run)], text)
        assert len(outputs.splitlines()) == lines
        return float(lines)

    return work
