"""Stop training at every kind of moment, resume it, and compare the result bit by bit.

    python benchmarks/kills.py --kills 200 --seed 0

For each of the seven tasks, one run on small synthetic data is left alone. Every other run is
stopped by SIGINT, SIGTERM or SIGKILL, sometimes twice, and resumed to its end:

    file        just before a file operation in the run folder (create, rename, remove: recipe,
                tokenizer, shards, checkpoints, final files), drawn uniformly from all of them
    near-file   up to 5 ms after one, inside a write or a sync
    evaluation  while a dev evaluation is due or running
    step        inside a training step

A run counts as equal if its weights, metrics and log (without times) are those of the
uninterrupted run, and as unusable if it cannot be resumed. Temporary files count as leftovers.
The last line, a JSON object, is the figure in docs/reproducibility.md.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

TRAINING = "evaluate_every = 4\nsave_every = 3\nsteps = 10\n"
GPT = "[model]\nlayers = 1\nwidth = 16\nlength = 64\ndropout = 0.1\nattention.heads = 2\n"
RECIPES = {
    "answer": 'pretrain = "people/people.txt"\ntrain = "people/questions.train.tsv"\n'
    f'dev = "people/questions.test.tsv"\n[encode]\nvocab_size = 500\n{GPT}'
    "[training.pretrain]\nsteps = 6\nbatch_tokens = 512\nquestions = 0.2\nsave_every = 3\n"
    f"[training.finetune]\nbatch_tokens = 256\n{TRAINING}",
    "tag": 'train = "sentences/train.conllu"\ndev = "sentences/dev.conllu"\n'
    f"[training.tags]\nbatch_tokens = 128\n{TRAINING}",
    "fill": f'train = "sentences/text.txt"\n[training]\nbatch_tokens = 128\n{TRAINING}',
    "lm": f'train = "sentences/text.txt"\n{GPT}[training]\nbatch_tokens = 128\n{TRAINING}',
    "translate": 'train = {source = "sentences/train.en", target = "sentences/train.xx"}\n'
    'dev = {source = "sentences/dev.en", target = "sentences/dev.xx"}\n'
    "[model]\nencoder = {kind = 'gru', direction = 'both'}\n"
    "decoder = {kind = 'rnn', width = 16, hidden = 16}\n"
    f"[training.pairs]\nbatch_tokens = 128\n{TRAINING}",
    "transcribe": 'train = "spoken/train.jsonl"\ndev = "spoken/dev.jsonl"\n'
    "[model]\nwidth = 16\nfront.channels = 4\nencoder.layers = 1\n"
    f"[training.speech]\nbatch_frames = 800\n{TRAINING}",
    "caption": 'train = "drawn/train.jsonl"\ndev = "drawn/dev.jsonl"\n'
    "[model]\nwidth = 16\nfront.channels = [4, 5, 6]\n"
    "decoder = {kind = 'rnn', width = 16, hidden = 16}\n"
    f"[training.captions]\nbatch_captions = 8\n{TRAINING}",
}
DATA = (
    ["people", "--people", "40", "--places", "8"],
    ["sentences", "--sentences", "60"],
    ["spoken", "--utterances", "12"],
    ["drawn", "--scenes", "24"],
)
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TRIGGERS = ("file", "near-file", "evaluation", "step")
LIMIT = 120.0  # seconds for one run; a longer one counts as hanging


class Stop:
    """When a child process sends a signal to itself."""

    def __init__(self, trigger: str, number: int, delay: float, which: signal.Signals) -> None:
        self.trigger, self.number, self.delay, self.which = trigger, number, delay, which

    def __str__(self) -> str:
        return f"{self.which.name} at {self.trigger} {self.number}"


def in_child(output: Path, work: Callable[[], int]) -> tuple[int, bool]:
    """Exit code of `work` in a forked process (negative for a signal), and whether it hung."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with output.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + LIMIT
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, True
        time.sleep(0.01)


def train(
    folder: Path, task: str, run: str, early_stopping: bool | None, count: Path | None = None
) -> int:
    """`harken train`, in this process; with `count`, the moments that a stop can name go there."""
    from harken.cli.main import main
    from harken.training.loop import Training

    os.chdir(folder)
    counts: Counter[str] = Counter()
    inside = os.fspath(folder / run) + os.sep
    busy = False  # our own file must not count

    def moment(trigger: str) -> None:
        counts[trigger] += 1
        if stop is not None and stop.trigger.endswith(trigger) and stop.number == counts[trigger]:
            if stop.delay:
                threading.Timer(stop.delay, os.kill, (os.getpid(), stop.which)).start()
            else:
                os.kill(os.getpid(), stop.which)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if busy or (event not in CHANGES and event != "open"):
            return
        path = arguments[0]
        is_path = isinstance(path, str | os.PathLike)
        if not is_path or not os.path.abspath(path).startswith(inside):  # noqa: PTH100
            return
        if event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR):
            moment("file")

    def before(name: str, trigger: str) -> None:
        method = getattr(Training, name)

        def wrapped(self: Training, *arguments: Any) -> Any:
            moment(trigger)
            return method(self, *arguments)

        setattr(Training, name, wrapped)

    sys.addaudithook(audit)
    before("_evaluate", "evaluation")
    before("_step", "step")
    resume = ["--resume"] if (folder / run / "recipe.toml").exists() else []
    code = main(["train", f"{task}.toml", "--run", run, "--json", *resume])
    busy = True
    if count is not None:
        count.write_text(json.dumps(counts), encoding="utf-8")
    return code


def result(run: Path) -> tuple[str, str, list[Any]]:
    """Weights, metrics and log of a finished run."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for event in events:
        event.pop("seconds", None)
    weights = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    return weights, (run / "metrics.json").read_text(), events


def leftovers(run: Path) -> list[str]:
    """Temporary files of a run folder."""
    return [path.name for path in run.rglob(".*")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="*", choices=RECIPES, default=list(RECIPES))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    import harken.cli.main
    import harken.pipeline  # imported once, here: a fork costs nothing

    assert harken.pipeline.train is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        output = folder / "output.txt"
        for words in DATA:
            make = ["data", *words, "--out", str(folder / words[0])]
            assert in_child(output, partial(harken.cli.main.main, make)) == (0, False)
        wanted, moments = {}, {}
        for task in options.tasks:
            text = f'task = "{task}"\nseed = 11\n[data]\n{RECIPES[task]}'
            (folder / f"{task}.toml").write_text(text, encoding="utf-8")
            count = folder / f"{task}.json"
            code, _ = in_child(output, partial(train, folder, task, task, None, count))
            assert code == 0, f"the uninterrupted run of {task} failed: {output.read_text()}"
            wanted[task], moments[task] = result(folder / task), json.loads(count.read_text())
        totals: Counter[str] = Counter(kills=options.kills)
        for number in range(options.kills):
            task = options.tasks[number % len(options.tasks)]
            run = f"{task}-{number}"
            stops = []
            for _ in range(draw.choice((1, 1, 2))):
                trigger, which = draw.choice(TRIGGERS), draw.choice(SIGNALS)
                count_of = moments[task][trigger.removeprefix("near-")]
                delay = draw.uniform(0, 0.005) if trigger in ("near-file", "step") else 0.0
                stops.append(Stop(trigger, draw.randint(1, count_of), delay, which))
            codes = [in_child(output, partial(train, folder, task, run, stop)) for stop in stops]
            code, hung = in_child(output, partial(train, folder, task, run, None))
            usable = code == 0 and not hung and not any(stuck for _, stuck in codes)
            equal = usable and result(folder / run) == wanted[task]
            clean = not leftovers(folder / run)
            expected = {0, *(-which for which in SIGNALS), *(128 + which for which in SIGNALS)}
            totals.update(
                equal=equal,
                unusable=not usable,
                leftovers=not clean,
                stopped=sum(code != 0 for code, _ in codes),
                unexpected_exit=any(code not in expected for code, _ in codes),
            )
            print(
                f"{number + 1} {task}: {', '.join(map(str, stops))}; exit codes "
                f"{[code for code, _ in codes]}, then {code}: equal {equal}, clean {clean}",
                file=sys.stderr,
                flush=True,
            )
            if not usable:
                print(output.read_text(), file=sys.stderr)
            shutil.rmtree(folder / run, ignore_errors=True)
    print(json.dumps(totals))
    failed = totals["unusable"] + totals["leftovers"] + totals["unexpected_exit"]
    sys.exit(failed > 0 or totals["equal"] != options.kills)


if __name__ == "__main__":
    main()
