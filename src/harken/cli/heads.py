"""`harken heads`: print a table of all heads, and draw them with --out."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice

from harken.cli.inspected import load_for_inspection
from harken.cli.output import print_json_or_table, print_note
from harken.errors import UserError
from harken.files import check_writable
from harken.foreign import is_huggingface
from harken.formats.text import read_lines
from harken.inspection.heads import HeadInput, HeadSummary, analyze_heads
from harken.report.head_sheet import head_sheet

COLUMNS = {
    "offset\nweights": "weights_offset",
    "band": "weights_band",
    "position": "position",
    "content": "content",
    "copies": "copying",
    "offset\nmeasured": "offset",
    "weight": "share",
    "before": "previous_token",
    "itself": "itself",
    "after": "next_token",
    "first": "first",
    "entropy": "entropy",
    "induction": "induction",
}


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
    print_json_or_table(options, record, *_table(analysis.heads))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        figure = head_sheet(analysis.heads, f"Heads of {options.folder.absolute().name}")
        for path in (options.out / "heads.svg", options.out / "heads.png"):
            figure.write(path)
            print_note(str(path))


def _table(heads: Sequence[HeadSummary]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows, without columns in which every figure is 0 or missing."""
    titles = [title for title in COLUMNS if any(getattr(head, COLUMNS[title]) for head in heads)]
    rows = []
    for head in heads:
        values = asdict(head)
        if head.prefers is False:  # the score does not depend on the offset
            values |= {"weights_offset": "any", "weights_band": "all"}
        label = head.label + ("~" if head.exact is False else "")  # explained in --help
        rows.append([label, *(_cell(values[COLUMNS[title]]) for title in titles)])
    return ["head", *titles], rows


def _cell(value: float | str | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
