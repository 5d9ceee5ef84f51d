"""Kill training with SIGKILL at random moments, resume it, compare the weights bit by bit.

    python benchmarks/kills.py --kills 20 --seed 0

One run is left alone. Every other one is killed once, shortly after a step drawn uniformly from all
of its steps, every second one only once a checkpoint is being written, and then resumed to its end.
The last line is the figure of docs/results.md.
"""

import argparse
import hashlib
import json
import random
import shutil
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
width = 128
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


def steps_done(run: Path) -> int:
    """Lines of the log: one a step, and one for each of the few evaluations."""
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill_once(folder: Path, name: str, step: int, wait: float, *, in_save: bool) -> bool:
    """Kill some time after a step, or in the next save; True where a save was cut in two."""
    run, process = folder / name, start(folder, name)
    while process.poll() is None and steps_done(run) < step:
        time.sleep(0.001)
    time.sleep(wait)
    while in_save and process.poll() is None and not saving(run):
        pass  # a save lasts milliseconds
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
        assert start(folder, "alone").wait() == 0
        wanted = digest(folder / "alone")
        steps = steps_done(folder / "alone")
        equal = in_saves = 0
        for number in range(options.kills):
            run, finished = f"killed-{number}", True
            while finished:  # a kill that came too late is drawn again
                shutil.rmtree(folder / run, ignore_errors=True)
                step, wait = draw.randrange(steps), draw.uniform(0, 0.02)
                in_save = kill_once(folder, run, step, wait, in_save=number % 2 == 0)
                finished = (folder / run / "model.safetensors").exists()
            assert start(folder, run, "--resume").wait() == 0
            same = digest(folder / run) == wanted
            equal, in_saves = equal + same, in_saves + in_save
            print(
                f"kill {number + 1} at {step}: in a save {in_save}, equal {same}", file=sys.stderr
            )
    print(json.dumps({"kills": options.kills, "in_a_save": in_saves, "equal": equal}))
    sys.exit(equal != options.kills)


if __name__ == "__main__":
    main()
