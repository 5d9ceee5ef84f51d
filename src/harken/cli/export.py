"""`harken export`: write a run in another format, after comparing the outputs."""

import argparse

from harken.cli.output import print_json_or_table, print_note, print_result
from harken.export.engine import export_folder
from harken.export.folder import export_run
from harken.provenance import recorded_version
from harken.run import load
from harken.run_folder import require_run
from harken.version import __version__


def run(options: argparse.Namespace) -> None:
    """Export the run, and print the comparison with the original."""
    require_run(options.folder)
    version = recorded_version(options.folder)
    if version not in (None, __version__):
        print_note(f"{options.folder}: the run was made by Harken {version}, not {__version__}")
    loaded = load(options.folder, "cpu")
    folder = options.out or export_folder(options.folder, options.to, options.precision)
    parity = export_run(loaded, options.to, folder, options.precision)
    rows = [
        (name, f"{agreement.share:.1%}", str(agreement.equal), str(agreement.ties))
        for name, agreement in parity.outputs.items()
    ]
    record = {"folder": str(folder), **parity.to_plain()}
    print_json_or_table(options, record, ("search", "equal outputs", "equal", "ties"), rows)
    if not options.json:
        print_result(f"\nlargest difference of logits: {parity.max_logit_difference:.2g}")
        print_result(str(folder))
