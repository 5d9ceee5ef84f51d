"""Answer the lines of files or of stdin, one line of output for each, in order."""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harken.run import Run
    from harken.tasks.task import Prediction

EPILOG = """examples:
  harken predict runs/demo questions.txt
  echo "Where was … born?" | harken predict runs/demo --confidence
"""

TOGETHER = 64  # lines read before any is answered; stdin is answered as it comes


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken predict`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("files", nargs="*", metavar="FILE", help="`-`, or nothing, is stdin")
    parser.add_argument("--confidence", action="store_true", help="add a tab and the probability")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Stream predictions; a blank line stays a blank line, so that lines keep their numbers."""
    from harken.cli.output import result, result_json
    from harken.data.text import require_file
    from harken.run import load

    names = options.files or ["-"]
    for name in names:
        if name != "-":
            require_file(Path(name))
    loaded = load(options.folder, options.device)
    collected = []
    for prediction in _predictions(loaded, names):
        if options.json:
            collected.append(
                {"input": "", "output": "", "confidence": None}
                if prediction is None
                else {
                    "input": prediction.input,
                    "output": prediction.output,
                    "confidence": prediction.confidence,
                }
            )
        elif prediction is None:
            result("")
        elif options.confidence:
            result(f"{prediction.output}\t{prediction.confidence:.4f}")
        else:
            result(prediction.output)
    if options.json:
        result_json({"task": loaded.recipe.task, "predictions": collected})
    return 0


def _predictions(loaded: "Run", names: list[str]) -> Iterator["Prediction | None"]:
    for name in names:
        lines = _lines(name)
        while chunk := list(islice(lines, 1 if name == "-" and sys.stdin.isatty() else TOGETHER)):
            asked = iter(loaded.predict([line for line in chunk if line.strip()]))
            yield from (next(asked) if line.strip() else None for line in chunk)
            sys.stdout.flush()


def _lines(name: str) -> Iterator[str]:
    from harken.data.text import read_every_line

    if name == "-":
        yield from (line.text for line in read_every_line(sys.stdin.buffer, Path("<stdin>")))
    else:
        with Path(name).open("rb") as file:
            yield from (line.text for line in read_every_line(file, Path(name)))
