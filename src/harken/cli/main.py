"""`harken COMMAND …`: choose the command, run it, turn what went wrong into a sentence and a code.

0 done    1 failed (disk full, damaged weights)    2 the input is wrong
130 Ctrl-C    143 SIGTERM    129 SIGHUP    (saved and resumable)
"""

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from harken.cli import (
    ablate,
    align,
    claims,
    compare,
    cost,
    data,
    demo,
    design,
    doctor,
    evaluate,
    heads,
    inspect,
    new,
    patch,
    predict,
    report,
    train,
)
from harken.cli.arguments import Parser
from harken.cli.output import remark
from harken.errors import Complaint, DataWarning, error_text, is_wrong_path
from harken.version import __version__

COMMANDS = (
    demo,
    new,
    train,
    evaluate,
    compare,
    predict,
    inspect,
    heads,
    ablate,
    patch,
    align,
    design,
    claims,
    cost,
    report,
    data,
    doctor,
)

# How often a thread that waits for the others looks before it sleeps. GNU's own 300,000 suit a
# machine that has nothing else to do; where somebody wants one of its cores, each wait then lasts
# as long as the system gives that core away, ten times the work itself (`benchmarks/neighbour.py`).
SPINS = "5000"
OUT_OF_MEMORY = re.compile(r"out of memory|allocate memory|not enough memory")

EPILOG = """examples:
  harken demo                                   the whole way on made data, in minutes
  harken new answer texts.txt questions.tsv     a recipe for your own files
  harken train recipe.toml --run runs/mine      train it (Ctrl-C and --resume are safe)
  harken evaluate runs/mine --json              its figures, for a script
  echo "Where was … born?" | harken predict runs/mine
"""


def parser() -> argparse.ArgumentParser:
    """All commands; each module says its own options."""
    top = Parser(
        prog="harken",
        description="Train, measure and look inside attention models, on your own files.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"harken {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for module in COMMANDS:
        name = module.__name__.rsplit(".", 1)[-1]
        summary = (module.__doc__ or "").strip().split("\n")[0].rstrip(".")
        command = commands.add_parser(
            name,
            help=summary,
            description=summary + ".",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
        command.set_defaults(run=module.run, parser=command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    top = parser()
    options = top.parse_args(arguments)
    if "run" not in options:
        top.print_help(sys.stderr)
        return 2
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when PyTorch is imported
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(options.run(options))
    except Complaint as complaint:
        remark(f"harken: {complaint}")
        return complaint.exit_code
    except KeyboardInterrupt:
        remark("harken: stopped; whatever was saved can be resumed")
        return 130
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; closing quietly is what it expects.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        remark(f"harken: {error_text(error)}")
        return 2 if is_wrong_path(error) else 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        remark("harken: out of memory; use a smaller model, shorter inputs or smaller batches")
        return 1


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Whether an allocation failed; PyTorch raises RuntimeError for it."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line for a warning about the data; others as Python writes them."""
    if issubclass(category, DataWarning):
        remark(f"harken: warning: {message}")
    else:
        remark(warnings.formatwarning(message, category, filename, lineno, line).rstrip())
