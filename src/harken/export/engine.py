"""Predict with an export instead of PyTorch (`harken predict --engine`).

The export is made on first use and kept in the run folder. It is made again if the weights of the
run or the version of Harken changed.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from harken.export.folder import check_export, export_run, is_current
from harken.export.format import FormatName, Precision, export_format
from harken.inputs import exists
from harken.run import Run

Engine = Literal["torch", "ctranslate2", "onnx"]
EXPORTS = "exports"  # folder in the run folder


def with_engine(
    run: Run,
    engine: Engine,
    precision: Precision = "float32",
    note: Callable[[str], None] = lambda text: None,
) -> Run:
    """Return the run with a model that computes with another engine, and the same outputs.

    Call it after `Run.with_search`, or before: the engine does not depend on the search.
    """
    if engine == "torch":
        return run
    chosen = export_format(engine)
    folder = export_folder(run.folder, engine, precision)
    if exists(folder):
        check_export(folder)
    if not exists(folder) or not is_current(folder, run):
        note(f"exporting the run to {folder} (once)")
        export_run(run, engine, folder, precision)
    return replace(run, model=chosen.load(folder, run))


def export_folder(run: Path, name: FormatName, precision: Precision) -> Path:
    """Return the folder in which an export of a run is kept."""
    return run / EXPORTS / f"{name}-{precision}"
