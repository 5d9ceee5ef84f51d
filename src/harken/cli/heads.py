"""Read every head's offset out of its weights, and measure beside it where it looks.

A table of all heads; with --out also one sheet of pictures, as SVG and PNG.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harken.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from harken.attention.multihead import MultiHead
    from harken.inspection.behaviour import Behaviour, Tally
    from harken.inspection.readout import Readout
    from harken.report.head_sheet import HeadRow
    from harken.tasks.task import AttentionExample

INPUTS = 50
LENGTH = 8, 64  # tokens of the rows that weights are read over: as long as inputs are, within these
REPEATED = 8, 16  # rows of random tokens that come twice, and how many come
NAMES = "previous", "itself", "next", "induction"
NAMED = 0.3  # mean weight from which a head is called after what it looks at
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
    from harken.files import replacing
    from harken.inspection.record import attentions, has_attention
    from harken.inspection.refs import HeadRef
    from harken.report.head_sheet import sheet_png, sheet_svg

    _check(options)
    model, glimpses = _loaded(options)
    if not has_attention(model):
        raise UserError(
            f"{options.folder}: the model has no attention, so it has no heads",
            fix="choose a Transformer in the recipe",
        )
    seen = _measured(model, glimpses)
    again = _repeated(model, options.seed)
    length = options.length or min(max(seen.longest, LENGTH[0]), LENGTH[1])
    rows: list[HeadRow] = []
    heads: list[dict[str, Any]] = []
    for name, attention in attentions(model).items():
        read, measured = _read(model, name, length, options.seed), seen.heads.get(name)
        found = _figures(attention, read, measured, seen.entropy.get(name), again.get(name))
        heads += [
            {**HeadRef(name, head).to_json(), **figures}
            for head, figures in enumerate(found, start=1)
        ]
        rows.append(_row(name, found, read, measured))
    if options.json:
        notes = _notes(attentions(model).values())
        result_json({"inputs": seen.inputs, "length": length, "notes": notes, "heads": heads})
    else:
        table(*_table(heads))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        title = f"Heads of {options.folder.absolute().name}"
        for ending, content in (
            ("svg", sheet_svg(rows, title).encode()),
            ("png", sheet_png(rows, title)),
        ):
            with replacing(options.out / f"heads.{ending}") as file:
                file.write_bytes(content)
            remark(str(options.out / f"heads.{ending}"))
    return 0


def _check(options: argparse.Namespace) -> None:
    for name, value, least in (
        ("--inputs", options.inputs, 1),
        ("--length", options.length, LENGTH[0]),
    ):
        if value is not None and value < least:
            raise UserError(
                f"{name} {value}: found too few, wanted {least} or more", fix="choose such a number"
            )


def _loaded(options: argparse.Namespace) -> tuple["nn.Module", Iterable["AttentionExample | None"]]:
    """The model, and inputs as it meets them, made one by one."""
    from itertools import islice

    from harken.foreign import is_foreign, read_foreign
    from harken.formats.text import read_lines
    from harken.run import load
    from harken.tasks.task import Looking

    texts = None
    if options.text is not None:
        texts = [line.text for line in islice(read_lines(options.text), options.inputs)]
    if is_foreign(options.folder):
        if texts is None:
            raise UserError(
                f"{options.folder}: found a Hugging Face folder and no --text, wanted inputs",
                fix="name a file with a text a line: --text sentences.txt",
            )
        foreign = read_foreign(options.folder, options.device)
        return foreign.model, map(foreign.look, texts)
    loaded = load(options.folder, options.device)
    assert isinstance(loaded.task, Looking), "every task shows what it looks at"
    task, trained = loaded.task, loaded.trained
    asked = task.inputs(trained, options.inputs) if texts is None else texts
    return loaded.model, (task.look(trained, one) for one in asked)


class _Measured(NamedTuple):
    """Of all inputs together, by the path of each attention."""

    inputs: int
    longest: int  # tokens
    heads: "dict[str, Behaviour]"  # of attention to a row of tokens
    entropy: "dict[str, Tally]"


def _measured(model: "nn.Module", glimpses: Iterable["AttentionExample | None"]) -> _Measured:
    import torch

    from harken.inspection.behaviour import behaviour, entropies
    from harken.inspection.readout import entrance_of
    from harken.inspection.record import record

    found: dict[str, Behaviour] = {}
    entropy: dict[str, Tally] = {}
    inputs = longest = 0
    for glimpse in glimpses:
        if glimpse is None:
            continue
        inputs += 1
        with torch.inference_mode(), record(model) as seen:
            glimpse.run()
        for one in seen:
            weights = one.weights.float().cpu()
            spread = entropies(weights)
            entropy[one.name] = entropy[one.name] + spread if one.name in entropy else spread
            if entrance_of(model, one.name) is not None:
                longest = max(longest, weights.shape[-1])
                new = behaviour(weights)
                found[one.name] = found[one.name] + new if one.name in found else new
    return _Measured(inputs, longest, found, entropy)


def _repeated(model: "nn.Module", seed: int) -> dict[str, "Tally"]:
    """Induction by attention, for a language model; others do not write on."""
    import torch

    from harken.inspection.behaviour import induction, repeated_tokens
    from harken.inspection.record import record
    from harken.models.language_model import GPT

    if not isinstance(model, GPT):
        return {}
    rows, period = REPEATED[0], min(REPEATED[1], model.length // 2)
    table = model.embedding
    tokens = repeated_tokens(table.num_embeddings, rows=rows, period=period, seed=seed)
    with torch.inference_mode(), record(model) as seen:
        model.states(tokens.to(table.weight.device))
    return {one.name: induction(one.weights.float().cpu(), tokens) for one in seen}


def _read(model: "nn.Module", name: str, length: int, seed: int) -> "Readout | None":
    from harken.attention.multihead import MultiHead
    from harken.inspection.readout import entrance_of, read_out

    entrance, attention = entrance_of(model, name), model.get_submodule(name)
    if entrance is None:
        return None
    assert isinstance(attention, MultiHead)
    length = min(length, entrance.position.length or length)
    return read_out(attention, entrance, length=length, seed=seed)


def _figures(
    attention: Any,
    read: "Readout | None",
    measured: "Behaviour | None",
    entropy: "Tally | None",
    again: "Tally | None",
) -> list[dict[str, Any]]:
    """Plain figures of each head; None where there is none."""
    from harken.inspection.circuits import (
        copying,
        effective_rank,
        output_value,
        query_key,
        singular_values,
    )

    columns: dict[str, Any] = {
        "score": attention.score_kind,
        "exact": None if read is None else read.exact,
    }
    if read is not None:
        columns |= {
            "weights_offset": read.preferred,
            "prefers": read.prefers,
            "weights_band": read.band,
            "weights_share": read.expected.amax(dim=-1),
            "position": read.position,
            "mixed": read.mixed,
            "content": read.content,
        }
    for name, made in (("query_key", query_key), ("output_value", output_value)):
        try:
            product = made(attention)
        except UserError:  # `_notes` says why
            continue
        columns[f"{name}_rank"] = effective_rank(singular_values(product).detach())
        if name == "output_value" and product.left.shape[2] == product.right.shape[2]:
            columns["copying"] = copying(product).detach()
    if measured is not None:
        commonest = measured.commonest()
        columns |= {
            "queries": measured.queries,
            "offset": commonest,
            "share": measured.histogram().gather(1, commonest[:, None] + measured.reach)[:, 0],
            "mean_offset": measured.offset.mean,
            "mean_distance": measured.distance.mean,
            "evenness": measured.evenness.mean,
            "previous": measured.looks(1),
            "itself": measured.looks(0),
            "next": measured.looks(-1),
            "first": measured.first.mean,
        }
    if entropy is not None:
        columns |= {"queries": entropy.count, "entropy": entropy.mean}
    if again is not None:
        columns["induction"] = again.mean
    every = range(attention.heads)
    found = [{key: _plain(value, head) for key, value in columns.items()} for head in every]
    return [{"pattern": _pattern(figures), **figures} for figures in found]


def _notes(attentions: Iterable["MultiHead"]) -> list[str]:
    """Why some heads have no figures of their query-key or value-output matrix."""
    from harken.inspection.circuits import output_value, query_key

    notes = []
    for attention in attentions:
        for product in (query_key, output_value):
            try:
                product(attention)
            except UserError as error:
                notes.append(error.message)
    return list(dict.fromkeys(notes))


def _plain(value: Any, head: int) -> Any:
    """A head's figure out of a tensor of all; no figure is None."""
    own = value[head].item() if hasattr(value, "item") else value
    return None if isinstance(own, float) and own != own else own


def _pattern(figures: dict[str, Any]) -> str:
    """After what gets much of its weight; the first token last, for heads also rest there."""
    near = max((figures.get(kind) or 0.0, kind) for kind in NAMES)
    for weight, kind in (near, (figures.get("first") or 0.0, "first")):
        if weight >= NAMED:
            return f"{kind} {weight:.2f}"
    return ""


def _row(
    name: str,
    figures: Sequence[dict[str, Any]],
    read: "Readout | None",
    measured: "Behaviour | None",
) -> "HeadRow":
    """For the sheet."""
    from harken.inspection.refs import layer_label
    from harken.report.head_sheet import HeadPlot, HeadRow, Share

    offsets = [] if read is None else read.offsets.tolist()
    counted = range(0) if measured is None else range(-measured.reach, measured.reach + 1)
    plots = []
    for head, one in enumerate(figures):
        expected = [] if read is None else read.expected[head].tolist()
        seen = [] if measured is None else measured.histogram()[head].tolist()
        plots.append(
            HeadPlot(
                name=one["pattern"],
                measured=[Share(*pair) for pair in zip(counted, seen, strict=True)],
                weights=[Share(*pair) for pair in zip(offsets, expected, strict=True)],
                preferred=one["weights_offset"] if one.get("prefers") else None,
            )
        )
    return HeadRow(name=layer_label(name), heads=plots)


COLUMNS = {
    "offset\nweights": "weights_offset",
    "band": "weights_band",
    "place": "position",
    "content": "content",
    "copies": "copying",
    "offset\nseen": "offset",
    "weight": "share",
    "before": "previous",
    "itself": "itself",
    "after": "next",
    "first": "first",
    "entropy": "entropy",
    "induction": "induction",
}


def _table(heads: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    # What no head does (a causal one never looks after itself) would only take room.
    kept = {title: key for title, key in COLUMNS.items() if any(one.get(key) for one in heads)}
    rows = []
    for one in heads:
        shown = {key: _shown(one.get(key)) for key in kept.values()}
        if one.get("prefers") is False:
            shown |= {"weights_offset": "any", "weights_band": "all"}
        rows.append([one["label"] + ("~" if one["exact"] is False else ""), *shown.values()])
    return ["head", *kept], rows


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
