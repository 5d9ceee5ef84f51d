"""Write and check export folders.

files of the format   weights, config and, for text, tokenizer.json
README.md             model card with the metrics of the run
parity.json           comparison with the run (`parity.py`)
manifest.json         SHA-256 of the files, and of the run's weights
"""

from pathlib import Path

from harken.errors import Failure, UserError
from harken.export.format import ExportFormat, FormatName, Precision, export_format
from harken.export.model_card import export_card
from harken.export.parity import Parity, compare_export
from harken.files import json_text, replacing_folder, sha256, write_text
from harken.inputs import is_file, read_json
from harken.run import Run
from harken.run_folder import CARD, MODEL
from harken.training.checkpoint import MANIFEST, check_digests, write_digests

PARITY = "parity.json"
RUN_DIGEST = "run_sha256"  # key of parity.json
MAX_BYTES = 2**20


def export_run(run: Run, name: FormatName, folder: Path, precision: Precision) -> Parity:
    """Export a run, compare the export with it, and publish the folder if they agree."""
    chosen = export_format(name)
    check_exportable(chosen, run, precision)
    if folder.exists() and not is_file(folder / PARITY):
        raise UserError(
            f"{folder}: it already exists and is not an export",
            fix="choose another folder",
        )
    with replacing_folder(folder) as unfinished:
        chosen.write(run, unfinished, precision)
        parity = compare_export(run, chosen.load(unfinished, run), chosen, precision)
        parity.require()
        record = {**parity.to_plain(), RUN_DIGEST: sha256(run.folder / MODEL)}
        write_text(unfinished / PARITY, json_text(record, indent=1))
        write_text(unfinished / CARD, export_card(run, parity, chosen.usage(run, folder.name)))
        paths = (path for path in sorted(unfinished.rglob("*")) if path.is_file())
        names = [path.relative_to(unfinished).as_posix() for path in paths]
        write_digests(unfinished, {file: file for file in names})
    return parity


def check_exportable(chosen: ExportFormat, run: Run, precision: Precision) -> None:
    """Raise `UserError` if the format cannot hold the model in this precision."""
    if precision not in chosen.precisions:
        raise UserError(
            f"precision: format {chosen.name} does not support {precision!r} (expected "
            f"{' or '.join(chosen.precisions)})",
            fix=f"use {chosen.precisions[0]}",
        )
    chosen.check(run, precision)


def check_export(folder: Path) -> None:
    """Raise `Failure` if a file of an export is missing or damaged."""
    try:
        manifest = read_json(folder / MANIFEST, "the manifest of an export", max_bytes=MAX_BYTES)
        check_digests(folder, list(manifest["sha256"]))
    except (UserError, Failure, KeyError, TypeError, AttributeError) as error:
        problem = error.message if isinstance(error, UserError | Failure) else str(error)
        fix = f"delete {folder}; it is then exported again"
        raise Failure(f"damaged export: {problem}", fix=fix) from None


def is_current(folder: Path, run: Run) -> bool:
    """Whether an export was made from the present weights by this version of Harken."""
    from harken.version import __version__

    stored = read_json(folder / PARITY, "the comparison of an export", max_bytes=MAX_BYTES)
    try:
        same_version = stored["versions"]["harken"] == __version__
        return bool(same_version and stored[RUN_DIGEST] == sha256(run.folder / MODEL))
    except (KeyError, TypeError):
        return False
