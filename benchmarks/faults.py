"""Let training under torchrun fail, and check that it ends with the weights of one process.

    python benchmarks/faults.py                   all experiments
    python benchmarks/faults.py agent disk        some of them
    python benchmarks/faults.py kills --runs 20

kills  a random one of two workers is killed at a random time, in every second run during a save;
       torchrun restarts both
agent  torchrun itself is killed at a random time and started again at once
disk   the disk is full during a save; training is resumed when there is space (needs root)
nan    the loss is NaN on rank 1 only; training is resumed without it
delay  rank 1 is 5 s late in one step

Each experiment must end with the weights, metrics and losses of one process, bit for bit. In `disk`
and `nan`, both ranks must end with exit code 1 and one message. A run that takes longer than 240 s
counts as hanging. The last line on standard output is a JSON object. The exit code is 0 if every
experiment that was not skipped gives what it should.
"""

import argparse
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from distributed import (
    digest,
    kill,
    launch,
    micro_batches,
    start,
    train,
    train_arguments,
    wait_for_steps,
    workers,
    write_small_recipes,
)

SETS = (*micro_batches("lm", 2), "training.steps=60", "training.save_every=2")
LAST_STEP = 50  # for a fault; the steps after it are more than a fault takes to happen
TIMEOUT = 240.0
SPARE = 12 * 1024  # bytes left on the full disk: enough for the log, not for a checkpoint


class Ended(NamedTuple):
    """Exit code, or None for a process that hangs, and all output."""

    code: int | None
    output: str

    @property
    def messages(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("harken: ")]

    @property
    def rank_codes(self) -> list[int]:
        """The exit codes of failed ranks, as torchrun prints them."""
        return [int(code) for code in re.findall(r"^  exitcode  : (-?\d+)", self.output, re.M)]


class Bench:
    """A folder with data, a recipe and the weights of one process."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs
        write_small_recipes(folder, ["lm"])
        train(launch(1, self.arguments("one")), folder / "one.txt")
        self.expected = digest(folder / "one")
        assert self.expected, (folder / "one.txt").read_text()

    def arguments(self, run: str) -> list[str]:
        return train_arguments(self.folder / "lm.toml", self.folder / run, SETS)

    def start(self, run: str, restarts: int = 0) -> subprocess.Popen[bytes]:
        return self.start_command(run, launch(2, self.arguments(run), restarts))

    def start_command(self, run: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._output(run).open("wb") as output:
            return start(command, output)

    def finish(self, run: str, process: subprocess.Popen[bytes]) -> Ended:
        try:
            code: int | None = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = None
        return Ended(code, self._output(run).read_text(errors="replace"))

    def is_equal(self, run: str, ended: Ended) -> bool:
        is_equal = ended.code == 0 and digest(self.folder / run) == self.expected
        if not is_equal:
            print(run, ended.code, ended.output[-3000:], sep="\n", file=sys.stderr)
        return is_equal

    def _output(self, run: str) -> Path:
        return self.folder / f"{run.replace('/', '-')}.txt"


def kills(bench: Bench, rng: random.Random) -> dict[str, object]:
    """Kill a random worker of each run."""
    counts = {"runs": bench.runs, "killed": 0, "in a save": 0, "hanging": 0, "equal": 0}
    for number in range(bench.runs):
        run = f"kill-{number}"
        process = bench.start(run, restarts=3)
        wait_for_steps(process, bench.folder / run, rng.randrange(1, LAST_STEP))
        victims = workers(bench.folder / run)
        in_save = number % 2 == 1 and wait_for_save(bench.folder / run)
        time.sleep(rng.uniform(0, 0.002 if in_save else 0.05))
        victim = rng.choice(victims)
        kill(victim)
        unfinished = not (bench.folder / run / "model.safetensors").exists()
        ended = bench.finish(run, process)
        is_equal = bench.is_equal(run, ended)
        counts["killed"] += unfinished
        counts["in a save"] += in_save
        counts["hanging"] += ended.code is None
        counts["equal"] += is_equal
        rank = victims.index(victim)
        print(f"{run}: worker {rank}, save {in_save}, equal {is_equal}", file=sys.stderr)
    return {**counts, "ok": counts["equal"] == counts["killed"] == bench.runs}


def wait_for_save(run: Path) -> bool:
    """Wait until a checkpoint is being written."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if any((run / "checkpoints").glob(".*.unfinished")):
            return True
    return False


def agent(bench: Bench, rng: random.Random) -> dict[str, object]:
    """Kill torchrun and start it again at once, five times."""
    equal = 0
    for number in range(5):
        run = f"agent-{number}"
        first = bench.start(run, restarts=3)
        wait_for_steps(first, bench.folder / run, rng.randrange(1, LAST_STEP))
        kill(first.pid)
        first.wait()
        second = bench.start(run, restarts=3)
        equal += bench.is_equal(run, bench.finish(run, second))
    return {"runs": 5, "equal": equal, "ok": equal == 5}


def disk(bench: Bench, rng: random.Random) -> dict[str, object]:
    """Fill the disk of the run folder during training, then free it and resume."""
    mount, run = bench.folder / "disk", "disk/run"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount)]
    if os.geteuid() or subprocess.run(command).returncode:
        return {"skipped": "mounting a small file system needs root"}
    try:
        process = bench.start(run)
        wait_for_steps(process, mount / "run", rng.randrange(1, LAST_STEP))
        with (mount / "filler").open("wb", buffering=0) as filler:
            for size in (2**20, 2**12):  # large blocks first, to be faster than training
                with suppress(OSError):
                    while filler.write(bytes(size)):
                        pass
            filler.truncate(filler.tell() - SPARE)
        failed = bench.finish(run, process)
        (mount / "filler").unlink()
        return resume(bench, run, failed)
    finally:
        subprocess.run(["umount", mount], check=True)


def nan(bench: Bench, rng: random.Random) -> dict[str, object]:
    """Compute a NaN on rank 1, then resume without it."""
    process = start_with_fault(bench, "nan", rng.randrange(3, LAST_STEP))
    return resume(bench, "nan", bench.finish("nan", process))


def resume(bench: Bench, run: str, failed: Ended) -> dict[str, object]:
    """Check how both ranks have failed, then resume the run."""
    equal = bench.is_equal(run, bench.finish(run, bench.start(run)))
    ok = len(failed.messages) == 1 and failed.rank_codes == [1, 1] and equal
    if not ok:
        print(failed.output[-3000:], file=sys.stderr)
    codes = failed.rank_codes
    return {"messages": failed.messages, "exit codes": codes, "equal": equal, "ok": ok}


def delay(bench: Bench, rng: random.Random) -> dict[str, object]:
    """Let rank 1 sleep for 5 s."""
    process = start_with_fault(bench, "delay", rng.randrange(3, LAST_STEP))
    equal = bench.is_equal("delay", bench.finish("delay", process))
    return {"equal": equal, "ok": equal}


def start_with_fault(bench: Bench, fault: str, step: int) -> subprocess.Popen[bytes]:
    """Start training with a fault on rank 1, in which this file replaces `python -m harken`."""
    command = launch(2, bench.arguments(fault))
    split = command.index("harken")
    worker = [__file__, "--fault", fault, str(step)]
    return bench.start_command(fault, [*command[: split - 2], "--", *worker, *command[split + 1 :]])


def run_with_fault(fault: str, step: int, arguments: Sequence[str]) -> int:
    """Run a command of Harken in a worker; rank 1 has a fault in this step."""
    from harken.cli.main import main
    from harken.training.loop import Training

    if os.environ["RANK"] == "1":
        backward = Training._backward

        def faulty_backward(self: Training[Any], *values: Any) -> float:
            loss = backward(self, *values)
            if self.progress.step != step:
                return loss
            if fault == "delay":
                time.sleep(5)
            return math.nan if fault == "nan" else loss

        Training._backward = faulty_backward  # type: ignore[method-assign]
    return main(arguments)


EXPERIMENTS = {function.__name__: function for function in (kills, agent, disk, nan, delay)}


def main() -> int:
    if sys.argv[1:2] == ["--fault"]:
        return run_with_fault(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=" ".join(EXPERIMENTS))
    parser.add_argument("--runs", type=int, default=20, help="runs of `kills` (20)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.experiments) - set(EXPERIMENTS):
        parser.error(f"unknown experiments: {', '.join(unknown)}")
    results = {}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.runs)
        for experiment in options.experiments or EXPERIMENTS:
            results[experiment] = EXPERIMENTS[experiment](bench, random.Random(options.seed))
            print(experiment, json.dumps(results[experiment]), file=sys.stderr, flush=True)
    print(json.dumps(results))
    return 0 if all(result.get("ok", True) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
