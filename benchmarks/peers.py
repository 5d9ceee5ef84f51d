"""Compare the speed of Harken with other libraries that do the same work on the same cores.

    python benchmarks/peers.py                                  all rows
    python benchmarks/peers.py --rows 'gpt-*' --rounds 9 --json
    python benchmarks/peers.py --list                           the names of the rows
    python benchmarks/peers.py --small --rounds 2               tiny sizes, to test the benchmark

Every system runs in a process of its own, which stays alive and does one piece of work at a time
when it is asked to. In every round all systems of a row do the same work in random order. "+
allocator" is a peer with Harken's allocator settings (`training/runtime.py`).

For each system the benchmark prints the median time per unit of work over the rounds, and the ratio
of this median to that of Harken, with the 95 % interval of a paired bootstrap over the rounds.
Above 1, Harken is faster.

Before and after each round, two more processes measure the machine: GFLOP/s of float32 matrix
products, and GB/s of a copy (bytes copied, not read plus written). The slower measurement counts
for the round. A round with less than 80 % of the best rate of the run is throttled and repeated, at
most as many times as there are rounds. The rounds with the best rates count; all are in the JSON.

A system whose package is missing is skipped; `pip install "harken[peers]"` installs all.
"""

import argparse
import ctypes
import importlib
import importlib.util
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

from peer_systems.catalog import MACHINE, PACKAGES, ROWS, Row, System

THROTTLED = 0.8  # of the best rate
PAUSE = 0.25  # seconds after a measurement: idle OpenMP threads of Intel's runtime spin for 0.2 s
MAX_IDLE = 2**30  # bytes that a waiting process may keep
RESAMPLES = 10_000  # of the bootstrap
MIN_SECONDS, SMALL_SECONDS = 0.3, 0.005  # of a measurement; shorter work is repeated


# --- a process that does the work of one system


def serve(system: System, sizes: dict[str, Any], threads: int, min_seconds: float) -> None:
    """Prepare a system, then write the seconds per unit of work for each line on stdin.

    For the first line the system warms up.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    file, function = system.start.split(".")
    if system.pytorch:
        import torch

        from harken.training.runtime import configure_process

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        if system.heap:
            configure_process(torch.device("cpu"))
    start = getattr(importlib.import_module(f"peer_systems.{file}"), function)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        tempfile.tempdir = folder
        work: Callable[[], float] = start(**sizes, **system.options)
        print("ready", file=answers, flush=True)
        repeats, is_released = 0, False
        for _ in sys.stdin:
            if repeats:
                if is_released:
                    work()
                started = time.perf_counter()
                units = sum(work() for _ in range(repeats))
                seconds = (time.perf_counter() - started) / units
            else:
                repeats, seconds = calibrate(work, min_seconds), math.nan
            is_released = release_memory()
            print(seconds, file=answers, flush=True)


def calibrate(work: Callable[[], float], min_seconds: float) -> int:
    """Warm up, and return how often the work is repeated in a measurement."""
    seconds = 0.0
    for _ in range(2):
        if seconds < min_seconds:  # the first time is longer
            started = time.perf_counter()
            work()
            seconds = time.perf_counter() - started
    return max(1, round(min_seconds / seconds))


def release_memory() -> bool:
    """Return freed memory to the system if the process keeps much of it, and whether it did.

    Harken's allocator settings keep the memory of a training step in the process. The next step has
    to allocate it again, so it is not measured.
    """
    status, allocator = Path("/proc/self/statm"), ctypes.CDLL(None)
    if not status.exists() or not hasattr(allocator, "malloc_trim"):
        return False
    resident = int(status.read_text().split()[1]) * resource.getpagesize()
    return resident > MAX_IDLE and bool(allocator.malloc_trim(0))


class Worker:
    """A process that runs `serve`."""

    def __init__(self, system: System, sizes: dict[str, Any], options: argparse.Namespace) -> None:
        self.system = system
        work = {"system": asdict(system), "sizes": sizes}
        command = [sys.executable, __file__, "--worker", json.dumps(work)]
        command += ["--threads", str(options.threads), *["--small"] * options.small]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
        )

    def wait(self) -> None:
        """Wait until the system is ready."""
        self._read()

    def measure(self) -> float:
        """Return the seconds per unit of work."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `_read` reports a process that has ended
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        seconds = float(self._read())
        time.sleep(PAUSE)
        return seconds

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self.system.name}: the process ended with code {self._process.wait()}")
        return line


def start_workers(
    systems: Sequence[tuple[System, dict[str, Any]]], options: argparse.Namespace
) -> list[Worker]:
    """Start systems with their sizes; when all are ready, warm them up one by one."""
    workers = [Worker(system, sizes, options) for system, sizes in systems]
    for worker in workers:
        worker.wait()
    for worker in workers:
        worker.measure()
    return workers


# --- rounds


@dataclass
class Round:
    """The rates of the machine, and the seconds per unit of work of each system."""

    gflops: float
    gb_per_s: float
    seconds: dict[str, float]


class Machine:
    """The processes that measure the machine, and its best rates so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        systems = [(system, {}) for system in MACHINE.values()]
        self._workers = dict(zip(MACHINE, start_workers(systems, options), strict=True))
        self._best = dict.fromkeys(MACHINE, 0.0)

    def rates(self) -> dict[str, float]:
        rates = {rate: 1 / worker.measure() for rate, worker in self._workers.items()}
        self._best = {rate: max(best, rates[rate]) for rate, best in self._best.items()}
        return rates

    def speed(self, measured: Round) -> float:
        """Return the rates of a round as a share of the best ones; the smaller share."""
        return min(getattr(measured, rate) / best for rate, best in self._best.items())

    def is_throttled(self, measured: Round) -> bool:
        return self.speed(measured) < THROTTLED

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def run_round(workers: Sequence[Worker], machine: Machine, order: random.Random) -> Round:
    """Measure every system once, in random order."""
    before = machine.rates()
    shuffled = order.sample(workers, len(workers))
    seconds = {worker.system.name: worker.measure() for worker in shuffled}
    after = machine.rates()
    return Round(**{rate: min(before[rate], after[rate]) for rate in before}, seconds=seconds)


def ratio_interval(
    peer: Sequence[float], harken: Sequence[float], seed: int
) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of medians: a bootstrap over rounds."""
    generator, count, ratios = random.Random(seed), len(peer), []
    for _ in range(RESAMPLES):
        chosen = generator.choices(range(count), k=count)
        medians = (statistics.median([times[n] for n in chosen]) for times in (peer, harken))
        ratios.append(next(medians) / next(medians))
    ratios.sort()
    return ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES)]


def missing_packages(system: System) -> list[str]:
    return [PACKAGES[name] for name in system.requires if not importlib.util.find_spec(name)]


def run_row(row: Row, machine: Machine, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all systems of a row and return its JSON object."""
    sizes = dict(row.small if options.small else row.sizes)
    chosen = [system for system in row.systems if fnmatch(system.name, options.systems)]
    harken = row.systems[0]
    if harken not in chosen:
        chosen.insert(0, harken)
    skipped = {system.name: missing_packages(system) for system in chosen}
    available = not skipped[harken.name]
    systems = [system for system in chosen if available and not skipped[system.name]]
    workers = start_workers([(system, sizes) for system in systems], options)
    order, rounds, enough = random.Random(options.seed), list[Round](), not workers
    while not enough and len(rounds) < 2 * options.rounds:
        rounds.append(run_round(workers, machine, order))
        print_progress(row, len(rounds), rounds[-1])
        throttled = sum(map(machine.is_throttled, rounds))
        enough = len(rounds) - throttled >= options.rounds
    for worker in workers:
        worker.close()
    counted = sorted(rounds, key=machine.speed)[-options.rounds :]
    times = {
        system.name: [measured.seconds[system.name] for measured in counted] for system in systems
    }
    results = []
    for system in systems:
        low, high = ratio_interval(times[system.name], times[harken.name], options.seed)
        seconds = statistics.median(times[system.name])
        ratio = seconds / statistics.median(times[harken.name])
        result = {"name": system.name, "seconds": seconds}
        results.append({**result, "ratio": ratio, "low": low, "high": high})
    return {
        "name": row.name,
        "title": row.title,
        "unit": row.unit,
        "sizes": sizes,
        "systems": results,
        "skipped": {
            name: f"pip install {' '.join(packages)}"
            for name, packages in skipped.items()
            if packages
        },
        "rounds": [
            {
                **asdict(measured),
                "throttled": machine.is_throttled(measured),
                "counted": measured in counted,
            }
            for measured in rounds
        ],
    }


# --- output


def print_progress(row: Row, number: int, measured: Round) -> None:
    """Print the rates of the machine and the ratios of a round."""
    harken = measured.seconds[row.systems[0].name]
    ratios = ", ".join(f"{name} {t / harken:.2f}" for name, t in sorted(measured.seconds.items()))
    rates = f"{measured.gflops:.0f} GFLOP/s, {measured.gb_per_s:.1f} GB/s"
    print(f"{row.name}: round {number}, {rates}; {ratios}", file=sys.stderr, flush=True)


def print_row(result: dict[str, Any]) -> None:
    rounds = [measured for measured in result["rounds"] if measured["counted"]]
    throttled = sum(measured["throttled"] for measured in rounds)
    counts = f"{len(rounds)} of {len(result['rounds'])} rounds count, {throttled} throttled"
    rates = [
        f"{min(values):.3g} to {max(values):.3g} {unit}"
        for unit, rate in (("GFLOP/s", "gflops"), ("GB/s", "gb_per_s"))
        if (values := [measured[rate] for measured in rounds])
    ]
    print(f"\n{result['title']}   [{result['name']}]")
    print("  " + "; ".join([counts, *rates]))
    print(f"  {'':48}{'ms per ' + result['unit']:>20}{'ratio':>8}   95 % interval")
    for system in result["systems"]:
        times = f"{system['name']:48}{1000 * system['seconds']:20.4g}"
        interval = f"{system['low']:.2f} to {system['high']:.2f}"
        print(f"  {times}{system['ratio']:8.2f}   {interval}")
    for name, command in result["skipped"].items():
        print(f"  {name:48}{'skipped':>20}   {command}")
    sys.stdout.flush()


def versions() -> dict[str, str]:
    """Return the version of each installed package."""
    found = {"python": platform.python_version()}
    for package in ("harken", "torch", *PACKAGES.values()):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", default=["*"], help="names or patterns of rows (*)")
    parser.add_argument("--systems", default="*", help="pattern of the systems of each row (*)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds per row (7)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order (0)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every system (2)")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to test the benchmark")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of tables")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if options.worker:
        work = json.loads(options.worker)
        min_seconds = SMALL_SECONDS if options.small else MIN_SECONDS
        serve(System(**work["system"]), work["sizes"], options.threads, min_seconds)
        return
    rows = [row for name, row in ROWS.items() if any(fnmatch(name, p) for p in options.rows)]
    if options.list or not rows:
        print("\n".join(f"{row.name:28}{row.title}" for row in ROWS.values()))
        return
    machine, results = Machine(options), []
    for row in rows:
        results.append(run_row(row, machine, options))
        if not options.json:
            print_row(results[-1])
    machine.close()
    if options.json:
        settings = {"seed": options.seed, "threads": options.threads, "small": options.small}
        print(json.dumps({**settings, "versions": versions(), "rows": results}))


if __name__ == "__main__":
    main()
