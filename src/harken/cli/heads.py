"""`harken heads`: print a table of all heads, and draw them."""

import argparse
from collections.abc import Sequence
from itertools import islice
from typing import Any

from harken.cli.output import json_or_table, remark
from harken.cli.subject import load_subject
from harken.errors import UserError
from harken.files import check_writable
from harken.foreign import is_huggingface
from harken.formats.text import read_lines
from harken.inspection.heads import HeadInput, HeadSummary, analyze_heads
from harken.report.head_sheet import head_sheet

COLUMNS = {
    "offset\nweights": "weights_offset",
    "band": "weights_band",
    "place": "position",
    "content": "content",
    "copies": "copying",
    "offset\nseen": "offset",
    "weight": "share",
    "before": "previous_token",
    "itself": "itself",
    "after": "next_token",
    "first": "first",
    "entropy": "entropy",
    "induction": "induction",
}


def run(options: argparse.Namespace) -> int:
    """Print a row for every head."""
    if options.out is not None:
        check_writable(options.out / "heads.svg")
    texts = None
    if options.text is not None:
        texts = [line.text for line in islice(read_lines(options.text), options.inputs)]
    elif is_huggingface(options.folder):
        raise UserError(
            f"{options.folder}: a Hugging Face folder has no inputs of its own",
            fix="name a file with one text per line: --text sentences.txt",
        )
    subject = load_subject(options.folder, options.device)
    if texts is None:
        assert subject.run is not None
        texts = subject.run.inputs(options.inputs)
    examples = map(subject.attention, texts)
    inputs = (HeadInput(example.run) for example in examples if example is not None)
    analysis = analyze_heads(subject.model, inputs, length=options.length, seed=options.seed)
    record = {"inputs": analysis.inputs, "length": analysis.length, "notes": list(analysis.notes)}
    record["heads"] = [head.to_json() for head in analysis.heads]
    json_or_table(options, record, *_table(analysis.heads))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        title = f"Heads of {options.folder.absolute().name}"
        drawing = head_sheet(analysis.heads, title)
        for path in (options.out / "heads.svg", options.out / "heads.png"):
            drawing.write(path)
            remark(str(path))
    return 0


def _table(heads: Sequence[HeadSummary]) -> tuple[list[str], list[list[str]]]:
    # A column in which every figure is 0 or missing is left out.
    columns = {
        title: key for title, key in COLUMNS.items() if any(getattr(head, key) for head in heads)
    }
    rows = []
    for head in heads:
        cells = {key: _cell(getattr(head, key)) for key in columns.values()}
        if head.prefers is False:
            cells |= {"weights_offset": "any", "weights_band": "all"}
        rows.append([head.label + ("~" if head.exact is False else ""), *cells.values()])
    return ["head", *columns], rows


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
