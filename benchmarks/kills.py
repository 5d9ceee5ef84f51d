"""Kill training with SIGKILL at random moments, resume it, compare the weights bit by bit.

    python benchmarks/kills.py --kills 20 --seed 0

One run is left alone. Every other one is killed once, at a moment drawn uniformly over the time
that the run needs, half of them only once a checkpoint is being written, and then resumed to its
end. The last line is the figure of docs/results.md.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = """task = "answer"
seed = 11
[data]
read = "data/people.txt"
train = "data/questions.train.tsv"
dev = "data/questions.test.tsv"
[encode]
size = 600
[model]
layers = 2
width = 64
length = 96
dropout = 0.1
[training.pretrain]
steps = 40
batch_tokens = 1024
questions = 0.2
save_every = 3
[training.finetune]
steps = 30
batch_tokens = 512
evaluate_every = 10
save_every = 3
"""


def start(folder: Path, run: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "harken", "train", "recipe.toml", "--run", run, *more]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def saving(run: Path) -> bool:
    """Whether a checkpoint is half written at this moment."""
    return any((run / "checkpoints").glob(".*.unfinished"))


def kill_once(folder: Path, name: str, seconds: float, *, in_save: bool) -> bool:
    """Start, wait, kill; True where a half-written checkpoint was left behind."""
    run, process = folder / name, start(folder, name)
    due = time.monotonic() + seconds
    while process.poll() is None and (time.monotonic() < due or (in_save and not saving(run))):
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return saving(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make = ["data", "people", "--people", "80", "--places", "12", "--out", "data"]
        subprocess.run(
            [sys.executable, "-m", "harken", *make],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
        began = time.monotonic()
        assert start(folder, "alone").wait() == 0
        whole = time.monotonic() - began
        wanted = digest(folder / "alone")
        equal = in_saves = finished = 0
        for number in range(options.kills):
            run = f"killed-{number}"
            # The first second or two is the start of Python and PyTorch; kills there count too.
            in_save = kill_once(folder, run, draw.uniform(0, whole), in_save=number % 2 == 0)
            done = (folder / run / "model.safetensors").exists()
            for _ in range(3):
                if start(folder, run, "--resume").wait() == 0:
                    break
            same = digest(folder / run) == wanted
            equal, in_saves, finished = equal + same, in_saves + in_save, finished + done
            print(f"kill {number + 1}: in a save {in_save}, equal {same}", file=sys.stderr)
    figures = {"kills": options.kills, "in_a_save": in_saves, "after_the_end": finished}
    print(json.dumps({**figures, "equal": equal}))
    sys.exit(equal != options.kills)


if __name__ == "__main__":
    main()
