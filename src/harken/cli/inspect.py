"""`harken inspect`: write pages and figures with the attention for each input."""

import argparse
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harken.cli.inspected import load_for_inspection
from harken.cli.output import print_json, print_note, print_result
from harken.errors import UserError
from harken.files import replacing, write_text
from harken.formats.text import read_lines
from harken.inspection.refs import parse_patterns
from harken.report.attention_page import attention_files, attention_page, example_title
from harken.report.viewed_attention import (
    ViewedAttention,
    attention_json,
    save_attention,
    view_attention,
)
from harken.tasks.attention_view import AttentionExample

MAX_SLUG = 40  # characters of a file name that come from the input


def run(options: argparse.Namespace) -> None:
    """Write the files of each input, and print their paths or one JSON object."""
    layers = parse_patterns("layers", options.layers)
    heads = parse_patterns("heads", options.heads)
    lines = [] if options.file is None else read_lines(options.file)
    inputs = [*options.inputs, *(line.text for line in lines)]
    if not inputs:
        raise UserError(
            "inspect: expected one or more inputs, got none",
            fix='give texts in quotes, such as "A dog runs.", or --file FILE with one per line',
        )
    inspected = load_for_inspection(options.folder, options.device)
    records: list[dict[str, Any]] = []
    for number, text in enumerate(inputs, start=1):
        if not inspected.takes_files and re.search("[\ud800-\udfff]", text):  # undecodable bytes
            problem = f"{text[:60]!a}: expected UTF-8 text, got other bytes"
            raise UserError(problem, fix="put the text into a UTF-8 file and use --file")
        example = inspected.attention(text)
        views = [] if example is None else view_attention(inspected.model, example, layers, heads)
        if example is None or not views:
            reason = "the input has no tokens" if example is None else "no attention layer ran"
            print_note(f"{text[:60]!r}: nothing to show, because {reason}")
            records.append({"input": text, "files": [], "views": [], "reason": reason})
            continue
        stem = options.out / f"{_slug(text, is_file=inspected.takes_files)}-{number}"
        record: dict[str, Any] = {"input": text, "title": example.title}
        if example.truncation is not None:
            print_note(f"{text[:60]!r}: {example.truncation}")
            record["truncation"] = asdict(example.truncation)
        kind_name = "model" if inspected.run is None else "task"
        facts = {"folder": options.folder.resolve().name, kind_name: inspected.kind}
        paths = [str(path) for path in _write(stem, facts, example, views)]
        if options.save:
            folder = stem.with_name(f"{stem.name}-record")
            save_attention(inspected.model, example, folder, layers)
            paths.append(str(folder))
        if options.json:
            records.append({**record, "files": paths, "views": list(map(attention_json, views))})
        else:
            for path in paths:
                print_result(path)
    if options.json:
        print_json({"task": inspected.kind, "inputs": records})


def _write(
    stem: Path, facts: dict[str, str], example: AttentionExample, views: Sequence[ViewedAttention]
) -> Iterator[Path]:
    """Write the page and the figures of every view, and yield their paths."""
    attentions = [layer for viewed in views for layer in viewed.layers]
    facts["attention layers"] = str(len(attentions))
    facts["heads"] = str(sum(len(layer.heads) for layer in attentions))
    path, title = stem.with_name(f"{stem.name}.html"), example_title(example)
    write_text(path, attention_page(title, views, facts))
    yield path
    for number, viewed in enumerate(views, start=1):
        for suffix, content in attention_files(viewed, title).items():
            path = stem.with_name(f"{stem.name}-view-{number}.{suffix}")
            with replacing(path) as file:
                file.write_bytes(content)
            yield path


def _slug(text: str, *, is_file: bool) -> str:
    """Return a short name that any file system accepts."""
    if is_file:  # without the suffix, but with the segment of talk.wav#t=1,2 or the row of a.npz#7
        name, mark, part = Path(text).name.partition("#")
        text = f"{Path(name).stem}{mark}{part}"
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if len(words) > MAX_SLUG:
        words = words[:MAX_SLUG].rpartition("-")[0] or words[:MAX_SLUG]
    return words or "input"
