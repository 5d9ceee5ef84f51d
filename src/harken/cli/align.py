"""`harken align`: print the alignment error rate of every cross-attention head."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from harken.cli.output import json_or_table, print_note, progress_bar, value_and_interval
from harken.encode.vocabulary import END, Vocabulary
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.links import GoldLinks, read_links
from harken.formats.tsv import read_parallel
from harken.measure.alignment import AlignmentPair, WordTokens, align_attention
from harken.run import Run, load
from harken.tasks.translate import TranslateRecipe, max_lengths


def run(options: argparse.Namespace) -> None:
    """Print a row for every head, every layer and all of them."""
    if not 0 < options.min_weight <= 1:
        problem = f"--min-weight: expected more than 0 and at most 1, got {options.min_weight}"
        raise UserError(problem, fix="choose another number")
    pairs = read_parallel(options.source, options.target, keep_blank=True)
    gold = read_links(options.links, pairs, options.first)
    loaded = load(options.folder, options.device)
    if loaded.recipe.task != "translate":
        problem = f"{loaded.folder}: expected a run of task 'translate', got {loaded.recipe.task!r}"
        raise UserError(problem, fix="name a translation run")
    with progress_bar("pairs", lambda: len(pairs)) as advance:
        alignment = align_attention(
            loaded.model,
            _pairs(loaded, pairs, gold, advance),
            start=END,
            method=options.how,
            min_weight=options.min_weight,
            after_input=options.step == "reading",
        )
    if alignment is None:
        limits = "model.encoder.max_length and model.decoder.max_length"
        problem = f"{options.source}: no pair fits the model"
        raise UserError(problem, fix=f"use sentences shorter than {limits}")
    if skipped := len(pairs) - alignment.n:
        print_note(f"{skipped} of {len(pairs)} pairs skipped: blank, or longer than the model")
    rows, attention = [], {}
    for name, metrics in alignment.estimates.items():
        attention[name] = {metric: asdict(estimate) for metric, estimate in metrics.items()}
        precision, recall = (value_and_interval(metrics[key])[0] for key in ("precision", "recall"))
        rows.append((name, *value_and_interval(metrics["aer"]), precision, recall))
    record = {"n": alignment.n, "skipped": skipped, "how": options.how}
    record |= {"step": options.step, "best": alignment.best, "attention": attention}
    header = ("attention", "AER", "95 % interval", "precision", "recall")
    json_or_table(options, record, header, rows)
    if not options.json:
        print_note(f"{alignment.n} pairs; best: {alignment.best}")


def _pairs(
    loaded: Run, pairs: Sequence[Pair], gold: Sequence[GoldLinks], advance: Callable[[], None]
) -> Iterator[AlignmentPair]:
    """Yield the pairs that fit the model."""
    assert isinstance(loaded.recipe, TranslateRecipe)
    max_source, max_target = max_lengths(loaded.recipe.model)
    for pair, links in zip(pairs, gold, strict=True):
        advance()
        source, target = (word_tokens(loaded, text) for text in (pair.source, pair.target))
        if 0 < len(source.tokens) <= max_source and 0 < len(target.tokens) < max_target:
            yield AlignmentPair(source, target, links)


def word_tokens(loaded: Run, text: str) -> WordTokens:
    """Encode word by word; tokens do not cross words, so these are the tokens of the text."""
    assert isinstance(loaded.vocabulary, Vocabulary)
    encoded = loaded.vocabulary.encode(text.split())
    return WordTokens(
        [int(token) for tokens in encoded for token in tokens],
        [number for number, tokens in enumerate(encoded) for _ in tokens],
    )
