"""`harken heads`: print a table of all heads, and draw them with --out."""

import argparse
from itertools import islice

from harken.cli.inspected import load_for_inspection
from harken.cli.output import print_json_or_table, print_note
from harken.errors import UserError
from harken.files import check_writable
from harken.foreign import is_huggingface
from harken.formats.text import read_lines
from harken.inspection.heads import HeadInput, analyze_heads
from harken.report.head_sheet import head_sheet
from harken.report.head_table import head_rows


def run(options: argparse.Namespace) -> None:
    """Print a row for every head."""
    if options.out is not None:
        check_writable(options.out / "heads.svg")
    texts = None
    if options.text is not None:
        texts = [line.text for line in islice(read_lines(options.text), options.inputs)]
    elif is_huggingface(options.folder):
        problem = f"{options.folder}: a Hugging Face folder has no inputs of its own"
        raise UserError(problem, fix="pass a file with one text per line: --text sentences.txt")
    inspected = load_for_inspection(options.folder, options.device)
    if texts is None:
        assert inspected.run is not None
        texts = inspected.run.inputs(options.inputs)
    examples = map(inspected.attention, texts)
    inputs = (HeadInput(example.run) for example in examples if example is not None)
    analysis = analyze_heads(inspected.model, inputs, length=options.length, seed=options.seed)
    record = {"inputs": analysis.inputs, "length": analysis.length, "notes": list(analysis.notes)}
    record["heads"] = [head.to_json() for head in analysis.heads]
    print_json_or_table(options, record, *head_rows(analysis.heads))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        figure = head_sheet(analysis.heads, f"Heads of {options.folder.absolute().name}")
        for path in (options.out / "heads.svg", options.out / "heads.png"):
            figure.write(path)
            print_note(str(path))
