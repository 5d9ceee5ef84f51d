"""Run mutants in this process, with limits: `python -m fuzz COUNT [KIND …]` in the folder tests/.

A mutant is a function of its kind, its number and the seed: `python -m fuzz 1 recipe --first 137`
runs number 137 alone. Each must end in success or in one message (`UserError`, `Failure`) within
`MAX_SECONDS` of a processor, and all of them within `MAX_BYTES` of memory. Nothing may be
unpickled, started, connected to or written outside of the temporary folder. The result is one JSON
object per kind on stdout.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["RUST_BACKTRACE"] = "0"

import torch

from fuzz import folders, media, tables, tokenizer_files
from harken.cli.main import is_out_of_memory
from harken.errors import HarkenError
from harken.formats import image_file

MAX_SECONDS = 20.0  # of a processor, for one mutant
MAX_WAIT = 120.0  # seconds after which a mutant that computes nothing is stopped
MAX_BYTES = 2**31
EVENTS = (  # of `sys.addaudithook`
    *("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"),
    *("os.fork", "socket.connect", "ctypes.dlopen"),
)
Runner = Callable[[random.Random], None]


def runners(folder: Path, kinds: list[str]) -> dict[str, Runner]:
    """What one mutant of each kind does; whole files are made once."""
    found: dict[str, Runner] = {}
    data = tables.make_data(folder / "data")
    sounds = {kind: media.sound(kind) for kind in media.SOUNDS}
    images = {kind: media.image(kind) for kind in media.IMAGES}
    arrays = media.arrays()

    def run_sound(rng: random.Random, kind: str) -> None:
        mutant = media.mutate_sound(kind, sounds[kind], rng)
        media.read_mutated_sound(mutant, folder / "sound.wav", rng)

    def run_image(rng: random.Random, kind: str) -> None:
        mutant = media.mutate_image(kind, images[kind], rng)
        media.read_mutated_image(mutant, folder / "image.png", rng)

    def run_array(rng: random.Random) -> None:
        name = rng.choice(sorted(arrays))
        mutant = media.mutate_array(name, arrays[name], rng)
        media.read_mutated_array(name, mutant, folder / "array.npz")

    found |= {kind: partial(run_sound, kind=kind) for kind in sounds}
    found |= {kind: partial(run_image, kind=kind) for kind in images}
    found["npz"] = run_array
    found["conllu"] = lambda rng: tables.run_conllu(data, rng)
    found["tsv"] = lambda rng: tables.run_tsv(data, rng)
    found["table"] = lambda rng: tables.run_table(data, rng)
    found["jsonl"] = lambda rng: tables.run_jsonl(data, rng)
    found["recipe"] = lambda rng: tables.run_recipe(data, rng)
    found["tokenizer"] = lambda rng: tokenizer_files.run_tokenizer(folder / "tokenizer.json", rng)
    if "huggingface" in kinds:
        foreign = folders.make_huggingface(folder / "foreign")
        found["huggingface"] = lambda rng: folders.run_huggingface(foreign, folder / "hf", rng)
    if "run" in kinds:
        runs = folders.make_runs(folder / "runs")
        found["run"] = lambda rng: folders.run_run(runs, folder / "run", rng)
    return {kind: found[kind] for kind in kinds}


KINDS = (
    *(*media.SOUNDS, *media.IMAGES, "npz"),
    *("conllu", "tsv", "table", "jsonl", "recipe", "tokenizer", "huggingface", "run"),
)


def run_kind(kind: str, run: Runner, numbers: range, seed: int, progress: Path) -> dict[str, Any]:
    """Run mutants and tell what became of them."""
    before = _peak_bytes()
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    slowest = (0.0, 0)
    for number in numbers:
        progress.write_text(f"{kind} {number}")
        rng = random.Random(f"{kind} {seed} {number}")
        faulthandler.dump_traceback_later(MAX_WAIT, exit=True)
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(rng)
            counts["accepted"] += 1
        except (HarkenError, folders.Refused) as error:
            counts["refused"] += 1
            message = str(error)
            if "\n" in message or len(message) > 3000:
                failures.setdefault("message", f"{kind} {number}: {message[:3000]!r}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            memory = isinstance(error, MemoryError | RuntimeError) and is_out_of_memory(error)
            if memory and kind == "recipe":  # a step of a model that was accepted
                counts["refused"] += 1
                continue
            counts["failed"] += 1
            frames = traceback.extract_tb(error.__traceback__)
            inside = [frame for frame in frames if "harken" in frame.filename] or frames
            place = f"{type(error).__name__} {inside[-1].filename}:{inside[-1].lineno}"
            told = "".join(traceback.format_exception(error))[-2500:]
            failures.setdefault(place, f"{kind} {number}: {told}")
        finally:
            faulthandler.cancel_dump_traceback_later()
        slowest = max(slowest, (time.process_time() - start, number))
    if slowest[0] > MAX_SECONDS:
        failures["time"] = f"{kind} {slowest[1]}: {slowest[0]:.1f} s"
    return {
        "kind": kind,
        **{name: counts[name] for name in ("accepted", "refused", "failed")},
        "slowest": slowest,
        "growth": _peak_bytes() - before,
        "peak": _peak_bytes(),
        "failures": failures,
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def forbid(folder: Path, progress: Path) -> None:
    """From now on, starting, unpickling, connecting and writing elsewhere is an error."""
    allowed = (str(folder), str(progress.absolute()), os.devnull)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and not (event == "ctypes.dlopen" and arguments[0] is None):
            raise AssertionError(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[1], str):
            path, mode = os.path.abspath(arguments[0]), arguments[1]  # noqa: PTH100 (no link)
            writes = any(letter in mode for letter in "wax+")
            if writes and not path.startswith(allowed):
                raise AssertionError(f"writes {path}")

    sys.addaudithook(hook)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--progress", type=Path, help="file that names the mutant that runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    image_file.MAX_PIXELS = media.MAX_PIXELS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        progress = options.progress or folder / "progress.txt"
        chosen = runners(folder, options.kinds)
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
        forbid(folder, progress)
        numbers = range(options.first, options.first + options.count)
        for kind, run in chosen.items():
            result = run_kind(kind, run, numbers, options.seed, progress)
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
