"""`harken COMMAND …`: run a command and turn errors into one line and an exit code.

0 success    1 failure (disk full, damaged weights)    2 wrong input
130 Ctrl-C    143 SIGTERM    129 SIGHUP    (training saves a checkpoint first)
"""

import argparse
import gc
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from harken.cli.arguments import Parser
from harken.cli.output import print_note
from harken.cli.parsers import inspection, laboratory, training
from harken.errors import DataWarning, HarkenError, UserError, error_text, is_wrong_path
from harken.version import __version__

# In these modules, `NAME_options` adds the options of a command, and its docstring is the summary.
GROUPS = {
    "train and evaluate": (
        training,
        "demo new train evaluate compare predict export report runs serve",
    ),
    "inspect": (inspection, "inspect heads ablate patch align"),
    "laboratory": (laboratory, "design claims cost"),
    "data and machine": (laboratory, "data doctor completion"),
}

DISTRIBUTED = ("train", "evaluate", "predict")  # commands that torchrun may start

# Iterations that a waiting OpenMP thread spins before it sleeps. With GNU's default of 300,000, a
# step next to a busy process can take ten times as long (`benchmarks/neighbor.py`).
SPINS = "5000"
OUT_OF_MEMORY = re.compile(r"out of memory|allocate memory|not enough memory")

EPILOG = """quickstart:
  harken new answer texts.txt questions.tsv       write a recipe for your own files
  harken train recipe.toml --run runs/mine        train and evaluate; after Ctrl-C, add --resume
  echo "Where was … born?" | harken predict runs/mine

`harken demo` trains and evaluates on generated data. `harken COMMAND --help` shows the options.
"""


def build_parser() -> Parser:
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
            lines.append(f"    {name:11}{summary.rstrip('.')}")
            command = commands.add_parser(name, description=summary)
            add_options(command)
            command.set_defaults(command=name, parser=command)
    top.description = "\n".join(lines)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    top = build_parser()
    options = top.parse_args(arguments)
    if "command" not in options:
        top.print_help(sys.stderr)
        return 2
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when PyTorch is imported
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(options)
    except HarkenError as error:
        if not _is_printed_by_rank_0(error):
            print_note(f"harken: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        resumable = "; continue with --resume" if options.command == "train" else ""
        print_note(f"harken: interrupted{resumable}")
        return 130
    except BrokenPipeError:
        # The reader of stdout, such as `head`, has closed it: exit without a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:  # no file of the user caused it: keep the traceback
            raise
        if not _is_printed_by_rank_0(error):
            print_note(f"harken: {error_text(error)}")
        return 2 if is_wrong_path(error) else 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print_note("harken: out of memory; use a smaller model, shorter inputs or smaller batches")
        return 1


def _run(options: argparse.Namespace) -> int:
    """Run a command in this process, or together with the other processes of torchrun."""
    command = _import_command(options.command)
    if not _is_distributed():
        return command.run(options) or 0
    if options.command not in DISTRIBUTED:
        raise UserError(
            f"torchrun: `harken {options.command}` runs in one process (expected "
            f"{' or '.join(DISTRIBUTED)})",
            fix="start it without torchrun",
        )
    from harken.training.distributed import joined

    with ExitStack() as stack:
        if not stack.enter_context(joined()).is_main:
            nowhere = stack.enter_context(Path(os.devnull).open("w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        return command.run(options) or 0


def _import_command(name: str) -> Any:
    """Import the module of a command without garbage collection.

    Imported objects stay alive, so the collector would scan them in vain. That takes a tenth of the
    time of `import torch`, and more than half of the time of the imports after it.
    """
    if "torch" in sys.modules:  # leave garbage collection to the caller
        return import_module(f"harken.cli.{name}")
    gc.disable()
    try:
        return import_module(f"harken.cli.{name}")
    finally:
        gc.freeze()
        gc.enable()


def _is_distributed() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _is_printed_by_rank_0(error: Exception) -> bool:
    """Return whether this process is not rank 0 and all ranks raised the error."""
    if not _is_distributed():
        return False
    from harken.training.distributed import is_reported_by_main

    return is_reported_by_main(error)


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return whether an allocation failed; PyTorch then raises RuntimeError."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a `DataWarning` as one line, and any other warning as Python does."""
    if issubclass(category, DataWarning):
        print_note(f"harken: warning: {message}")
    else:
        print_note(warnings.formatwarning(message, category, filename, lineno).rstrip())
