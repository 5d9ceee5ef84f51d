"""Show what a model looked at for inputs of your own.

For each input one HTML page with every layer and head, and a PNG and an SVG of each view: words
that look at words, a sound with where each symbol looked, a picture that is clear where each word
did.
"""

import argparse
import re
import unicodedata
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harken.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from harken.report.viewed_attention import ViewedAttention
    from harken.tasks.attention_view import AttentionExample

EPILOG = """input:
  A text in quotes, as `harken predict` takes it; for a recogniser files of sound, for a captioner
  pictures or rows of an array. --file holds one input a line. FOLDER may be one of Hugging Face
  (bert, gpt2 or llama: config.json, model.safetensors, tokenizer.json), which takes texts.

layers and heads:
  Both are counted from 1: L1.H3 is head 3 of layer 1; encoder., decoder. and cross. say which
  attention it is where a model has several. A number alone selects it everywhere.

output:
  The path of every file, one a line; with --json where each query of each head looks most:
  "looks_at" counts keys from 0. Rows of a decoder are named by the token that they decided.
  --save adds a folder of safetensors and an index.json: weights, queries, keys and values of every
  head, read by `harken.inspection.store.open_recording`; its "tokens" are, for each view, the names
  of what looks and of what is looked at.

examples:
  harken inspect runs/translate "A dog runs." "Two men talk." --out looks
  harken inspect runs/demo --file questions.txt --layers 1,3 --heads 2 --out looks
  harken inspect runs/speech one.wav two.flac --out looks
  harken inspect runs/captions beach.jpg test.npz#7 --out looks
  harken inspect models/bert-base-uncased "The bank of the river." --json
"""

MOST_SLUG = 40  # characters of a file's name that come from the input


class Subject(NamedTuple):
    """A model that can be looked into, whoever trained it."""

    name: str
    kind: str
    model: "nn.Module"
    attention: "Callable[[str], AttentionExample | None]"
    of_files: bool  # inputs are names, not texts


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken inspect`."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="or a Hugging Face folder")
    parser.add_argument(
        "inputs", nargs="*", default=[], metavar="INPUT", help="texts, sounds or pictures"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="with one input a line")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="of the pictures")
    parser.add_argument(
        "--layers", default="", metavar="LAYER,…", help="only these, such as 1,3 or cross.L2"
    )
    parser.add_argument(
        "--heads", default="", metavar="HEAD,…", help="only these, such as 2 or L1.H3,cross.L2.H1"
    )
    parser.add_argument(
        "--save", action="store_true", help="keep all of these layers as tensors, for scripts"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the path of each file, or collect what was seen into one object."""
    from harken.cli.output import remark, result, result_json
    from harken.inspection.record import has_attention
    from harken.inspection.refs import parse_heads, parse_layers
    from harken.report.viewed_attention import attention_json, save_attention, view_attention

    layers = parse_layers("--layers", options.layers)
    heads = parse_heads("--heads", options.heads)
    inputs = _inputs(options)
    subject = _subject(options)
    if not has_attention(subject.model):
        raise UserError(
            f"{options.folder}: the model has no attention, so there is nothing to show",
            fix="inspect a run with attention, such as a Transformer",
        )
    collected: list[dict[str, Any]] = []
    for number, asked in enumerate(inputs, start=1):
        example = subject.attention(asked if subject.of_files else _text(asked))
        found = [] if example is None else view_attention(subject.model, example, layers, heads)
        if example is None or not found:
            reason = "the input has no tokens" if example is None else "no attention ran"
            remark(f"{asked[:60]!r}: nothing to show, because {reason}")
            collected.append({"input": asked, "files": [], "views": [], "reason": reason})
            continue
        stem = options.out / f"{_slug(asked, file=subject.of_files)}-{number}"
        if example.truncation is not None:
            remark(f"{asked[:60]!r}: {example.truncation}")
        paths = [str(path) for path in _write(stem, subject, example, found)]
        if options.save:
            folder = stem.with_name(f"{stem.name}-record")
            save_attention(subject.model, example, folder, layers)
            paths.append(str(folder))
        if options.json:
            views = [attention_json(viewed) for viewed in found]
            record: dict[str, Any] = {"input": asked, "title": example.title}
            if example.truncation is not None:
                record["truncation"] = asdict(example.truncation)
            collected.append({**record, "files": paths, "views": views})
        else:
            for path in paths:
                result(path)
    if options.json:
        result_json({"task": subject.kind, "inputs": collected})
    return 0


def _write(
    stem: Path, subject: Subject, example: "AttentionExample", found: "Sequence[ViewedAttention]"
) -> "Iterator[Path]":
    """The page, then the pictures of every view."""
    from harken.files import replacing, write_text
    from harken.report.attention_page import attention_files, attention_page, example_title

    attentions = [layer for viewed in found for layer in viewed.layers]
    facts = {
        "folder": subject.name,
        "model": subject.kind,
        "attentions": str(len(attentions)),
        "heads": str(sum(len(layer.heads) for layer in attentions)),
    }
    path, title = stem.with_name(f"{stem.name}.html"), example_title(example)
    write_text(path, attention_page(title, found, facts))
    yield path
    for number, viewed in enumerate(found, start=1):
        for suffix, content in attention_files(viewed, title).items():
            path = stem.with_name(f"{stem.name}-view-{number}.{suffix}")
            with replacing(path) as file:
                file.write_bytes(content)
            yield path


def _subject(options: argparse.Namespace) -> Subject:
    from harken.foreign import is_huggingface, load_huggingface
    from harken.run import load

    folder: Path = options.folder
    if is_huggingface(folder):
        foreign = load_huggingface(folder, options.device)
        kind = f"{foreign.read.model_type} of Hugging Face"
        return Subject(
            folder.resolve().name, kind, foreign.model, foreign.attention, of_files=False
        )
    loaded = load(folder, options.device)
    return Subject(
        folder.resolve().name,
        loaded.recipe.task,
        loaded.model,
        loaded.attention,
        of_files=loaded.task.inputs != "lines",
    )


def _inputs(options: argparse.Namespace) -> list[str]:
    from harken.formats.text import read_lines

    named = [] if options.file is None else [line.text for line in read_lines(options.file)]
    inputs = [*options.inputs, *named]
    if not inputs:
        raise UserError(
            "found no input, wanted something to look at",
            fix='give texts in quotes, such as "A dog runs.", or --file FILE with one a line',
        )
    return inputs


def _text(asked: str) -> str:
    """What a shell passes as bytes that are no UTF-8 arrives as lone surrogates."""
    if any("\ud800" <= character <= "\udfff" for character in asked):
        raise UserError(
            f"{asked[:60]!a}: found bytes that are no UTF-8, wanted text",
            fix="put the text into a UTF-8 file and use --file",
        )
    return asked


def _slug(asked: str, *, file: bool) -> str:
    """A short name that any file system takes."""
    if file:
        path, mark, rest = Path(asked).name.partition("#")
        asked = f"{Path(path).stem}{mark}{rest}"
    plain = unicodedata.normalize("NFKD", asked).encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if len(words) > MOST_SLUG:
        words = words[:MOST_SLUG].rpartition("-")[0] or words[:MOST_SLUG]
    return words or "input"
