"""`harken COMMAND …`: run a command and turn errors into one line and an exit code.

0 done    1 failed (disk full, damaged weights)    2 the input is wrong
130 Ctrl-C    143 SIGTERM    129 SIGHUP    (saved and resumable)
"""

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from harken.cli.arguments import Parser
from harken.cli.output import print_note
from harken.cli.parsers import inspection, laboratory, training
from harken.errors import DataWarning, HarkenError, error_text, is_wrong_path
from harken.version import __version__

# The functions `NAME_options` of these modules add the options; their docstrings are summaries.
GROUPS = {
    "train and evaluate": (training, "demo new train evaluate compare predict report"),
    "inspect": (inspection, "inspect heads ablate patch align"),
    "laboratory": (laboratory, "design claims cost"),
    "data and machine": (laboratory, "data doctor"),
}

# Iterations that an OpenMP thread spins before it sleeps. GNU's default of 300,000 suits an idle
# machine; on a busy one each wait lasts a time slice, ten times the work itself
# (`benchmarks/neighbor.py`).
SPINS = "5000"
OUT_OF_MEMORY = re.compile(r"out of memory|allocate memory|not enough memory")

EPILOG = """quickstart:
  harken new answer texts.txt questions.tsv       write a recipe for your own files
  harken train recipe.toml --run runs/mine        train and evaluate; Ctrl-C and --resume are safe
  echo "Where was … born?" | harken predict runs/mine

`harken demo` does all of this on generated data. `harken COMMAND --help` shows the options.
"""


def parser() -> Parser:
    """Build the parser of all commands."""
    lines = ["Train, evaluate and inspect attention models on your own files."]
    top = Parser(prog="harken", usage="harken COMMAND …", epilog=EPILOG)
    top.add_argument("--version", action="version", version=f"harken {__version__}")
    commands = top.add_subparsers(prog="harken", metavar="COMMAND", help=argparse.SUPPRESS)
    for title, (module, names) in GROUPS.items():
        lines.append(f"\n{title}:")
        for name in names.split():
            add_options = getattr(module, f"{name}_options")
            summary: str = add_options.__doc__ or ""
            lines.append(f"    {name:10}{summary.rstrip('.')}")
            command = commands.add_parser(name, description=summary)
            add_options(command)
            command.set_defaults(command=name, parser=command)
    top.description = "\n".join(lines)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    top = parser()
    options = top.parse_args(arguments)
    if "command" not in options:
        top.print_help(sys.stderr)
        return 2
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when PyTorch is imported
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return import_module(f"harken.cli.{options.command}").run(options) or 0
    except HarkenError as error:
        print_note(f"harken: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        print_note("harken: interrupted; a saved run can be resumed")
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed it, as `head` does: end without a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        print_note(f"harken: {error_text(error)}")
        return 2 if is_wrong_path(error) else 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print_note("harken: out of memory; use a smaller model, shorter inputs or smaller batches")
        return 1


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return whether an allocation failed, for which PyTorch raises RuntimeError."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print one line for a warning about the data, and others as Python does."""
    if issubclass(category, DataWarning):
        print_note(f"harken: warning: {message}")
    else:
        print_note(warnings.formatwarning(message, category, filename, lineno).rstrip())
