"""Load a run for `predict` and `evaluate`: with search options, and with another engine."""

import argparse

from harken.cli.output import print_note
from harken.cli.search_options import with_search_options
from harken.errors import UserError
from harken.run import Run, load
from harken.training.distributed import world


def load_run(options: argparse.Namespace) -> Run:
    """Return the run, with the model of `--engine`."""
    if options.engine == "torch":
        return with_search_options(load(options.folder, options.device), options)
    from harken.export.engine import with_engine  # other commands do not need it

    if options.device not in ("auto", "cpu"):
        problem = f"--engine {options.engine}: expected --device cpu, got {options.device}"
        raise UserError(problem, fix="leave out --device or --engine")
    if world().size > 1:
        problem = f"--engine {options.engine}: expected one process, got {world().size}"
        raise UserError(problem, fix="start the command without torchrun")
    run = with_search_options(load(options.folder, "cpu"), options)
    return with_engine(run, options.engine, note=print_note)
