"""Compare the engines of `harken predict`: PyTorch, ONNX Runtime and CTranslate2.

    python benchmarks/engines.py RUN … [--threads 2] [--rounds 3] [--examples 200]

RUN is a run folder of the task `translate` or `answer`. Prints one table, with a row per run,
engine and precision:

    startup     seconds from the start of Python to the first output
    ms/token    milliseconds per generated token, one input at a time, greedy search
    tokens/s    generated tokens per second, all inputs in batches, with the search of the recipe
    metric      the main metric on the first examples of the dev split
    difference  from PyTorch, with its 95 % interval and p of a paired test

Times are medians over rounds in new processes, in which the engines alternate. Exports are made
before the measurement and kept in the run folders.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

CONFIGURATIONS = (
    ("torch", "float32"),
    ("onnx", "float32"),
    ("onnx", "int8"),
    ("ctranslate2", "float32"),
    ("ctranslate2", "int8"),
)
SINGLE = 20  # inputs that are predicted one at a time
HEADER = ("run", "engine", "precision", "startup", "ms/token", "tokens/s", "metric", "difference")


def measure(folder: Path, engine: Any, precision: Any, examples: int) -> dict[str, float]:
    """Return the times of one process, which started at `HARKEN_STARTED`."""
    from harken.decode.search import SearchConfig
    from harken.export.engine import with_engine
    from harken.run import load

    run = with_engine(load(folder, "cpu"), engine, precision)
    inputs = run.inputs(examples)
    greedy = run.with_search(SearchConfig(max_tokens=run.search.max_tokens))
    greedy.predict(inputs[:1])
    startup = time.time() - float(os.environ["HARKEN_STARTED"])

    def tokens(predictions: Any) -> int:
        outputs = [prediction.output for prediction in predictions]
        return sum(len(row) + 1 for row in run.vocabulary.encode(outputs))

    begin = time.perf_counter()
    count = sum(tokens(greedy.predict([text])) for text in inputs[:SINGLE])
    single = (time.perf_counter() - begin) / count
    run.predict(inputs[:64])
    begin = time.perf_counter()
    count = tokens(run.predict(inputs))
    rate = count / (time.perf_counter() - begin)
    return {"startup": startup, "single": 1000 * single, "rate": rate}


def measure_in_process(
    options: argparse.Namespace, folder: Path, engine: str, precision: str
) -> dict[str, float]:
    """Return the times of a new process."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(options.threads),
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "5000"),  # as `harken` sets it
        "HARKEN_STARTED": str(time.time()),
    }
    command = [sys.executable, __file__, str(folder), "--examples", str(options.examples)]
    command += ["--child", engine, precision]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout
    return json.loads(output.splitlines()[-1])


def available(run: Any) -> Iterator[tuple[str, str]]:
    """Yield the engines and precisions that can hold a run, and make their exports."""
    from harken.errors import HarkenError
    from harken.export.engine import with_engine

    for engine, precision in CONFIGURATIONS:
        try:
            with_engine(run, engine, precision)
            yield engine, precision
        except (HarkenError, ModuleNotFoundError) as error:
            print(f"{run.folder.name}, {engine}, {precision}: {error}", file=sys.stderr)


def rows(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a run."""
    from harken.export.engine import with_engine
    from harken.measure.paired import difference
    from harken.run import load

    run = load(folder, "cpu")
    examples = run.splits["dev"][: options.examples]
    names = list(available(run))
    times: dict[tuple[str, str], list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            times[name].append(measure_in_process(options, folder, *name))
    reference = None
    for engine, precision in names:
        predictor = with_engine(run, engine, precision).predictor
        metric, sample = next(iter(predictor.evaluate(examples).samples.items()))
        compared = "reference"
        if reference is None:
            reference = sample
        else:
            result = difference(reference, sample)
            compared = f"{result.value:+.4f} (p = {result.p:.2g})"
            if result.low is not None:
                compared = f"{result.value:+.4f} [{result.low:+.4f}, {result.high:+.4f}], "
                compared += f"p = {result.p:.2g}"
        startup, single, rate = (
            median(entry[key] for entry in times[engine, precision])
            for key in ("startup", "single", "rate")
        )
        figure = f"{metric} {sample.estimate().value:.4f}"
        yield (
            *(folder.name, engine, precision),
            *(f"{startup:.2f}", f"{single:.2f}", f"{rate:.0f}"),
            *(figure, compared),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2, help="of each engine (2)")
    parser.add_argument("--rounds", type=int, default=3, help="processes per row (3)")
    parser.add_argument("--examples", type=int, default=200, help="of the dev split (200)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.runs[0], *options.child, options.examples)))
        return
    print("| " + " | ".join(HEADER) + " |")
    print("| --- | --- | --- | ---: | ---: | ---: | --- | --- |")
    for folder in options.runs:
        for row in rows(options, folder):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
