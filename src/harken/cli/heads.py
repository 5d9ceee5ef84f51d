"""Read every head's offset out of its weights, and measure beside it where it looks.

A table of all heads; with --out also one sheet of pictures, as SVG and PNG.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from harken.inspection.heads import HeadSummary
    from harken.report.head_sheet import HeadRow
    from harken.tasks.attention_view import AttentionExample

INPUTS = 50
MIN_LENGTH = 8
EPILOG = """L1.H3 is head 3 of layer 1, both counted from 1; encoder., decoder. and cross. say which
attention it is where a model has several.

columns, from weights:
  offset     T, how many steps back the score of random tokens is highest (negative: ahead);
             any, where it falls by less than one nat over all offsets
  band       how many offsets around T lose at most one nat
  place      share of the score's variance that is known before any token is seen
  content    share that the token looked at decides; the query's token decides the rest
  copies     eigenvalues of W_OV: 1 writes what it read, -1 its opposite
and measured over the inputs, each a mean over their tokens:
  offset     that gets most weight, and how much the tokens give that have one there
  before, itself, after, first    weight on these tokens
  entropy    nats
  induction  weight on what came after an earlier copy, over random tokens that come twice

Weights are exact in the first layer; above (~) they do not know what earlier layers write.

examples:
  harken heads runs/gpt
  harken heads runs/tagger --inputs 200 --out pictures
  harken heads folder-of-bert --text sentences.txt --json
"""
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken heads`."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="or a Hugging Face folder")
    parser.add_argument("--inputs", type=int, default=INPUTS, metavar="N", help="to measure on")
    parser.add_argument("--text", type=Path, metavar="FILE", help="inputs of your own, one a line")
    parser.add_argument(
        "--length", type=int, metavar="N", help="of the rows that weights are read over"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="of heads.svg and heads.png")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random tokens")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print a row for every head."""
    from harken.cli.output import remark, result_json, table
    from harken.files import check_writable
    from harken.inspection.heads import HeadInput, analyze_heads
    from harken.inspection.record import has_attention
    from harken.report.head_sheet import head_sheet

    for name, value, least in (
        ("--inputs", options.inputs, 1),
        ("--length", options.length, MIN_LENGTH),
    ):
        if value is not None and value < least:
            raise UserError(f"{name}: expected {least} or more, got {value}", fix="use more")
    if options.out is not None:
        check_writable(options.out / "heads.svg")
    model, examples = _load(options)
    if not has_attention(model):
        raise UserError(
            f"{options.folder}: the model has no attention, so it has no heads",
            fix="choose a Transformer in the recipe",
        )
    inputs = (HeadInput(example.run) for example in examples if example is not None)
    analysis = analyze_heads(model, inputs, length=options.length, seed=options.seed)
    if options.json:
        heads = [head.to_json() for head in analysis.heads]
        counts = {"inputs": analysis.inputs, "length": analysis.length}
        result_json({**counts, "notes": list(analysis.notes), "heads": heads})
    else:
        table(*_table(analysis.heads))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        title = f"Heads of {options.folder.absolute().name}"
        drawing = head_sheet(_sheet(analysis.heads), title)
        for path in (options.out / "heads.svg", options.out / "heads.png"):
            drawing.write(path)
            remark(str(path))
    return 0


def _load(options: argparse.Namespace) -> tuple["nn.Module", Iterable["AttentionExample | None"]]:
    from itertools import islice

    from harken.foreign import is_huggingface, load_huggingface
    from harken.formats.text import read_lines
    from harken.run import load

    texts = None
    if options.text is not None:
        texts = [line.text for line in islice(read_lines(options.text), options.inputs)]
    if is_huggingface(options.folder):
        if texts is None:
            raise UserError(
                f"{options.folder}: a Hugging Face folder has no inputs of its own",
                fix="name a file with one text per line: --text sentences.txt",
            )
        foreign = load_huggingface(options.folder, options.device)
        return foreign.model, map(foreign.attention, texts)
    loaded = load(options.folder, options.device)
    inputs = loaded.inputs(options.inputs) if texts is None else texts
    return loaded.model, map(loaded.attention, inputs)


def _sheet(heads: Sequence["HeadSummary"]) -> list["HeadRow"]:
    from itertools import groupby

    from harken.inspection.refs import layer_label
    from harken.report.head_sheet import HeadPlot, HeadRow, OffsetWeight

    def plot(head: "HeadSummary") -> HeadPlot:
        return HeadPlot(
            name=head.pattern,
            measured=[OffsetWeight(*pair) for pair in head.measured_offsets],
            weights=[OffsetWeight(*pair) for pair in head.expected_offsets],
            preferred=head.weights_offset if head.prefers else None,
        )

    return [
        HeadRow(name=layer_label(module), heads=[plot(head) for head in group])
        for module, group in groupby(heads, key=lambda head: head.module)
    ]


def _table(heads: Sequence["HeadSummary"]) -> tuple[list[str], list[list[str]]]:
    # A column without any figure other than 0, such as `after` of a causal model, is left out.
    kept = {
        title: key for title, key in COLUMNS.items() if any(getattr(head, key) for head in heads)
    }
    rows = []
    for head in heads:
        cells = {key: _cell(getattr(head, key)) for key in kept.values()}
        if head.prefers is False:
            cells |= {"weights_offset": "any", "weights_band": "all"}
        rows.append([head.label + ("~" if head.exact is False else ""), *cells.values()])
    return ["head", *kept], rows


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
