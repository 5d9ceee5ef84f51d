"""Train under torchrun: compare the weights with those of one process, or the speed.

    python benchmarks/distributed.py bits     1, 2 and 4 processes; killed and resumed
    python benchmarks/distributed.py speed    tokens per second, against one process

`bits` trains each task on small synthetic data with 1, 2 and 4 processes. It also kills a run of 4
processes at a random step and resumes it with 1 and with 2. All runs of a task must have the same
weights, metrics and losses, bit for bit. The exit code is 0 if they have.

`speed` trains `recipes/lm.toml` (GPT, 4 layers, width 256) and `recipes/translate.toml`
(Transformer, vocabulary of 4000) with two micro-batches per step, in three ways:

    one     one process with two threads
    exact   two processes with one thread each, reduction = "exact"
    fast    two processes with one thread each, reduction = "fast"

The three ways alternate. The rate of a run is the median of tokens per second over its steps
without the first ones. A ratio is the median over the rounds, with the smallest and the largest
value; of five rounds, these are a 94 % interval of the median. `--batch-tokens 1024 2048 4096`
compares several sizes of micro-batches. Run it on an idle machine. The exit code is 0 if `exact`
reaches 0.95 of `one` and of `fast` for every task and size.

One line per run goes to standard error. The last line, on standard output, is a JSON object.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from kills import DATA, RECIPES

STAGES = {
    "answer": ("pretrain", "finetune"),
    "classify": ("labels",),
    "tag": ("tags",),
    "fill": (),
    "lm": (),
    "translate": ("pairs",),
    "transcribe": ("speech",),
    "caption": ("captions",),
}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
TIMEOUT = 300.0  # seconds; a longer run counts as hanging
WAYS = {"one": (1, "exact", 2), "exact": (2, "exact", 1), "fast": (2, "fast", 1)}
SPEED_STEPS, WARM_UP = 10, 3
REQUIRED = 0.95


def write_small_recipes(folder: Path, tasks: Sequence[str]) -> None:
    """Write synthetic data and the recipe TASK.toml of each task."""
    texts = [RECIPES[task] for task in tasks]
    for command in DATA:
        if any(f'"{command[0]}/' in text for text in texts):
            write_data(folder / command[0], *command)
    for task, text in zip(tasks, texts, strict=True):
        (folder / f"{task}.toml").write_text(f'task = "{task}"\n[data]\n{text}')


def write_data(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "harken", "data", *arguments, "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def train_arguments(recipe: Path, run: Path, sets: Sequence[str], threads: int = 1) -> list[str]:
    """Return the arguments of `harken` that train a recipe, or resume the run."""
    arguments = ["train", str(recipe), "--run", str(run), "--resume"]
    for item in (f"training.runtime.threads={threads}", *sets):
        arguments += ["--set", item]
    return arguments


def launch(processes: int, arguments: Sequence[str], restarts: int = 0) -> list[str]:
    """Return the command that starts Harken in a number of processes."""
    if processes == 1:
        return [sys.executable, "-m", "harken", *arguments]
    endpoint = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    torchrun = [*TORCHRUN, "--nproc-per-node", str(processes), *endpoint]
    return [*torchrun, "--max-restarts", str(restarts), "-m", "--", "harken", *arguments]


def micro_batches(task: str, count: int) -> list[str]:
    """Return the settings for a number of micro-batches in all stages of a task."""
    tables = [f"training.{stage}" for stage in STAGES[task]] or ["training"]
    return [f"{table}.micro_batches={count}" for table in tables]


def train(command: Sequence[str], log: Path) -> int | None:
    """Run a command and return its exit code; None if it hangs."""
    with log.open("ab") as file:
        process = start(command, file)
        try:
            return process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def start(command: Sequence[str], output: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )


def digest(run: Path) -> str:
    """Return the SHA-256 of the weights, metrics and losses; empty without a finished run."""
    if not (run / "metrics.json").exists():
        return ""
    lines = (json.loads(line) for line in (run / "log.jsonl").read_text().splitlines())
    losses = [{key: line[key] for key in line if key != "seconds"} for line in lines]
    parts = [(run / name).read_bytes() for name in ("model.safetensors", "metrics.json")]
    return hashlib.sha256(b"".join([*parts, json.dumps(losses).encode()])).hexdigest()


def workers(run: Path) -> list[int]:
    """Return the process ids of the workers that train in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(run).encode() in words and b"LOCAL_RANK=" in environment:
                found.append(int(entry.name))
    return found


def steps_done(run: Path) -> int:
    """Return the number of lines in the log of a run."""
    with suppress(FileNotFoundError):
        return (run / "log.jsonl").read_bytes().count(b"\n")
    return 0


def wait_for_steps(process: subprocess.Popen[bytes], run: Path, steps: int) -> None:
    while process.poll() is None and steps_done(run) < steps:
        time.sleep(0.002)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def train_and_kill(command: Sequence[str], run: Path, log: Path, steps: int) -> bool:
    """Kill torchrun and all workers after some steps; return whether training was unfinished."""
    with log.open("ab") as file:
        process = start(command, file)
        wait_for_steps(process, run, 1)
        victims = [process.pid, *workers(run)]
        wait_for_steps(process, run, steps)
        for victim in victims:
            kill(victim)
        process.wait()
    while workers(run):
        time.sleep(0.01)
    return not (run / "model.safetensors").exists()


def compare_bits(folder: Path, tasks: Sequence[str], seed: int) -> bool:
    """Print the digests of all runs of each task, and return whether they are equal."""
    write_small_recipes(folder, tasks)
    rng, equal = random.Random(seed), {}
    for task in tasks:
        sets, digests = micro_batches(task, 4), {}
        recipe, log = folder / f"{task}.toml", folder / f"{task}.log"
        for processes in (1, 2, 4):
            run = folder / "runs" / f"{task}-{processes}"
            train(launch(processes, train_arguments(recipe, run, sets)), log)
            digests[f"{processes} processes"] = digest(run)
        killed, steps = folder / "runs" / f"{task}-killed", rng.randrange(3, 7)
        command = launch(4, train_arguments(recipe, killed, sets))
        is_unfinished = train_and_kill(command, killed, log, steps)
        for processes in (1, 2):
            run = folder / "runs" / f"{task}-killed-{processes}"
            shutil.copytree(killed, run)
            train(launch(processes, train_arguments(recipe, run, sets)), log)
            digests[f"4, killed, {processes}"] = digest(run)
        values = set(digests.values())
        equal[task] = is_unfinished and len(values) == 1 and "" not in values
        shown = {name: value[:12] for name, value in digests.items()}
        print(task, shown, f"killed after {steps_done(killed)} events", file=sys.stderr, flush=True)
        if not equal[task]:
            print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
    print(json.dumps({"equal": equal}))
    return all(equal.values())


def compare_speed(
    folder: Path, tasks: Sequence[str], sizes: Sequence[int], rounds: int, steps: int
) -> bool:
    """Print the ratios of tokens per second, and return whether `exact` is fast enough."""
    write_data(folder / "data", "sentences", "--sentences", "4000")
    for name in ("dev.en", "dev.xx"):  # the evaluation after training is not measured
        path = folder / "data" / name
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:8]))
    result = {}
    measured = [task for task in ("lm", "translate") if task in tasks]
    for task, tokens in product(measured, sizes):
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way in WAYS:
                run = folder / "runs" / f"{task}-{tokens}-{way}-{number}"
                rates[way].append(tokens_per_second(folder, run, task, tokens, way, steps))
        result[f"{task}, {tokens} tokens"] = ratios = {
            f"{way} / {other}": ratio(rates[way], rates[other])
            for way, other in (("exact", "one"), ("fast", "one"), ("exact", "fast"))
        }
        print(task, tokens, ratios, file=sys.stderr, flush=True)
    print(json.dumps(result))
    required = ("exact / one", "exact / fast")
    return all(case[name][0] >= REQUIRED for case in result.values() for name in required)


def tokens_per_second(
    folder: Path, run: Path, task: str, tokens: int, way: str, steps: int
) -> float:
    """Train and return the median of tokens per second over the steps."""
    processes, reduction, threads = WAYS[way]
    table = ".".join(["training", *STAGES[task]])
    values = {"batch_tokens": tokens, "steps": steps, "evaluate_every": 0, "save_every": steps}
    sets = [f"{table}.{key}={value}" for key, value in values.items()]
    sets += [*micro_batches(task, 2), f"training.runtime.reduction={reduction}"]
    data = folder / "data"
    if task == "lm":
        sets += [f"data.train={data / 'text.txt'}"]
    else:
        sides = (("source", "en"), ("target", "xx"))
        files = ((split, side, ending) for split in ("train", "dev") for side, ending in sides)
        sets += [f"data.{split}.{side}={data / split}.{ending}" for split, side, ending in files]
        sets += ["search.beam=1"]
    recipe, log = Path(__file__).parent.parent / "recipes" / f"{task}.toml", folder / "speed.log"
    code = train(launch(processes, train_arguments(recipe, run, sets, threads)), log)
    assert code == 0, log.read_text(errors="replace")[-3000:]
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    stepped = [line for line in lines if line["event"] == "stepped"][WARM_UP:]
    rate = statistics.median(line["tokens"] / line["seconds"] for line in stepped)
    print(f"{run.name}: {rate:.0f} tokens per second", file=sys.stderr, flush=True)
    return rate


def ratio(rates: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Return median, minimum and maximum of the ratios of the rounds."""
    values = [rate / other for rate, other in zip(rates, others, strict=True)]
    low, middle, high = (
        round(value, 3) for value in (min(values), statistics.median(values), max(values))
    )
    return middle, low, high


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=("bits", "speed"))
    parser.add_argument("--tasks", nargs="*", default=list(STAGES), choices=STAGES)
    parser.add_argument("--batch-tokens", nargs="*", type=int, default=[2048], help="for `speed`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=SPEED_STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.experiment == "bits":
            is_ok = compare_bits(Path(name), options.tasks, options.seed)
        else:
            sizes, rounds, steps = options.batch_tokens, options.rounds, options.steps
            is_ok = compare_speed(Path(name), options.tasks, sizes, rounds, steps)
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
