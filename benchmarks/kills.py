"""Kill training runs at random moments, resume them, and compare the results bit for bit.

    python benchmarks/kills.py --kills 200 --seed 0

The benchmark trains each task once on small synthetic data without interruption. It
then repeats these runs, stops each once or twice by SIGINT, SIGTERM or SIGKILL, and resumes it
until it ends. The moment of the signal is drawn from four kinds:

    file        before a file in the run folder is opened for writing, renamed or removed, drawn
                uniformly from all such operations of the run
    near-file   up to 5 ms after such an operation starts, for example inside a write or fsync
    evaluation  before an evaluation on the dev set
    step        up to 5 ms after a training step starts

One line per run goes to standard error. The last line, on standard output, is a JSON object:

    kills            runs that were interrupted
    equal            runs whose weights, metrics and log (without times) equal those of the
                     uninterrupted run
    unusable         runs that could not be resumed, or that hung
    leftovers        runs that left temporary files
    stopped          signals that ended a process (a signal after the last step may not)
    unexpected_exit  runs with an exit code other than success or that of the signal

The exit code is 0 if all runs are equal, without leftovers and unexpected exit codes.
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
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

TRAINING = "evaluate_every = 4\nsave_every = 3\nsteps = 10\n"
GPT = "[model]\nlayers = 1\nwidth = 16\nmax_length = 64\ndropout = 0.1\nattention.heads = 2\n"
RECIPES = {
    "answer": 'pretrain = "people/people.txt"\ntrain = "people/questions.train.tsv"\n'
    f'dev = "people/questions.test.tsv"\n[encode]\nvocab_size = 500\n{GPT}'
    "[training.pretrain]\nsteps = 6\nbatch_tokens = 512\nquestion_ratio = 0.2\nsave_every = 3\n"
    f"[training.finetune]\nbatch_tokens = 256\n{TRAINING}",
    "classify": 'input = "text"\ntrain = "sentences/train.tsv"\ndev = "sentences/dev.tsv"\n'
    f"[training.labels]\nbatch_size = 16\n{TRAINING}",
    "tag": 'train = "sentences/train.conllu"\ndev = "sentences/dev.conllu"\n'
    f"[training.tags]\nbatch_tokens = 128\n{TRAINING}",
    "fill": f'train = "sentences/text.txt"\n[training]\nbatch_tokens = 128\n{TRAINING}',
    "lm": f'train = "sentences/text.txt"\n{GPT}[training]\nbatch_tokens = 128\n{TRAINING}'
    'average = {kind = "ema"}\n',
    "translate": 'train = {source = "sentences/train.en", target = "sentences/train.xx"}\n'
    'dev = {source = "sentences/dev.en", target = "sentences/dev.xx"}\n'
    "[model]\nencoder = {kind = 'gru', direction = 'both'}\n"
    "decoder = {kind = 'rnn', width = 16, hidden = 16}\n"
    f"[training.pairs]\nbatch_tokens = 128\n{TRAINING}",
    "transcribe": 'train = "speech/train.jsonl"\ndev = "speech/dev.jsonl"\n'
    "[model]\nwidth = 16\nfrontend.channels = 4\nencoder.layers = 1\n"
    f"[training.speech]\nbatch_frames = 800\n{TRAINING}"
    'average = {kind = "checkpoints", last = 2}\n',
    "caption": 'train = "scenes/train.jsonl"\ndev = "scenes/dev.jsonl"\n'
    "[model]\nwidth = 16\nfrontend.channels = [4, 5, 6]\n"
    "decoder = {kind = 'rnn', width = 16, hidden = 16}\n"
    f"[training.captions]\nbatch_captions = 8\n{TRAINING}",
}
DATA = (
    ["people", "--people", "40", "--places", "8"],
    ["sentences", "--sentences", "60"],
    ["speech", "--utterances", "12"],
    ["scenes", "--scenes", "24"],
)
FILE_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXIT_CODES = {0, *(-signum for signum in SIGNALS), *(128 + signum for signum in SIGNALS)}
TRIGGERS = ("file", "near-file", "evaluation", "step")
TIMEOUT = 120.0  # seconds; a longer run counts as hanging


class Stop(NamedTuple):
    """The moment at which a training process sends a signal to itself."""

    trigger: str  # one of TRIGGERS
    number: int  # the n-th event of this trigger in the run, from 1
    delay: float  # seconds from the event to the signal
    signum: signal.Signals

    def __str__(self) -> str:
        return f"{self.signum.name} at {self.trigger} {self.number}"


def run_in_child(output: Path, work: Callable[[], int]) -> tuple[int, bool]:
    """Run `work` in a forked process that prints to the file `output`.

    Return its exit code (negative for a signal) and whether it was killed after the timeout.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with output.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            # A shell starts background jobs with SIGINT ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + TIMEOUT
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, True
        time.sleep(0.01)


def train(
    folder: Path, task: str, run: str, stop: Stop | None, counts_file: Path | None = None
) -> int:
    """Call `harken train` in this process and send it the signal of `stop`.

    With `counts_file`, write how often each trigger occurred to this file.
    """
    from harken.cli.main import main
    from harken.training.loop import Training

    os.chdir(folder)
    counts: Counter[str] = Counter()
    run_prefix = os.fspath(folder / run) + os.sep
    finished = False

    def count(trigger: str) -> None:
        counts[trigger] += 1
        if stop is not None and stop.trigger.endswith(trigger) and stop.number == counts[trigger]:
            if stop.delay:
                threading.Timer(stop.delay, os.kill, (os.getpid(), stop.signum)).start()
            else:
                os.kill(os.getpid(), stop.signum)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if finished or (event not in FILE_EVENTS and event != "open"):
            return
        path = arguments[0]
        is_path = isinstance(path, str | os.PathLike)
        if not is_path or not os.path.abspath(path).startswith(run_prefix):  # noqa: PTH100
            return
        if event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR):
            count("file")

    def count_calls(name: str, trigger: str) -> None:
        method = getattr(Training, name)

        def counted(self: Training, *arguments: Any) -> Any:
            count(trigger)
            return method(self, *arguments)

        setattr(Training, name, counted)

    sys.addaudithook(audit)
    count_calls("_evaluate", "evaluation")
    count_calls("_step", "step")
    resume = ["--resume"] if (folder / run / "recipe.toml").exists() else []
    code = main(["train", f"{task}.toml", "--run", run, "--json", *resume])
    finished = True
    if counts_file is not None:
        counts_file.write_text(json.dumps(counts), encoding="utf-8")
    return code


def result(run: Path) -> tuple[str, str, list[Any]]:
    """Return a digest of the weights, the metrics and the log of a finished run."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for event in events:
        event.pop("seconds", None)
    weights = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    return weights, (run / "metrics.json").read_text(), events


def draw_stops(rng: random.Random, counts: Mapping[str, int]) -> list[Stop]:
    """Draw one or two interruptions of a run in which each trigger occurs `counts` times."""
    stops = []
    for _ in range(rng.choice((1, 1, 2))):
        trigger, signum = rng.choice(TRIGGERS), rng.choice(SIGNALS)
        delay = rng.uniform(0, 0.005) if trigger in ("near-file", "step") else 0.0
        number = rng.randint(1, counts[trigger.removeprefix("near-")])
        stops.append(Stop(trigger, number, delay, signum))
    return stops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="runs to interrupt (200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the interruptions (0)")
    parser.add_argument(
        "--tasks", nargs="*", choices=RECIPES, default=list(RECIPES), help="tasks to train (all)"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    # Imported before the forks, so that no child process spends time on it.
    import harken.cli.main
    import harken.pipeline

    assert harken.pipeline.train is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        output = folder / "output.txt"
        for arguments in DATA:
            command = ["data", *arguments, "--out", str(folder / arguments[0])]
            assert run_in_child(output, partial(harken.cli.main.main, command)) == (0, False)
        expected, counts = {}, {}
        for task in options.tasks:
            text = f'task = "{task}"\nseed = 11\n[data]\n{RECIPES[task]}'
            (folder / f"{task}.toml").write_text(text, encoding="utf-8")
            counts_file = folder / f"{task}.json"
            code, _ = run_in_child(output, partial(train, folder, task, task, None, counts_file))
            assert code == 0, f"the uninterrupted run of {task} failed: {output.read_text()}"
            expected[task] = result(folder / task)
            counts[task] = json.loads(counts_file.read_text())
        totals: Counter[str] = Counter(kills=options.kills)
        for number in range(options.kills):
            task = options.tasks[number % len(options.tasks)]
            run = f"{task}-{number}"
            stops = draw_stops(rng, counts[task])
            exits = [
                run_in_child(output, partial(train, folder, task, run, stop)) for stop in stops
            ]
            codes = [code for code, _ in exits]
            final_code, hung = run_in_child(output, partial(train, folder, task, run, None))
            usable = final_code == 0 and not hung and not any(stuck for _, stuck in exits)
            equal = usable and result(folder / run) == expected[task]
            clean = not any((folder / run).rglob(".*"))
            totals.update(
                equal=equal,
                unusable=not usable,
                leftovers=not clean,
                stopped=sum(code != 0 for code in codes),
                unexpected_exit=any(code not in EXIT_CODES for code in codes),
            )
            print(
                f"{number + 1} {task}: {', '.join(map(str, stops))}; exit codes {codes}, "
                f"after resuming {final_code}; equal: {equal}, no leftovers: {clean}",
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
