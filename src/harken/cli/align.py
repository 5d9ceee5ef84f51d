"""`harken align`: print the alignment error rate of every cross-attention head."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from harken.cli.output import estimate_cells, print_json_or_table, print_note, progress_bar
from harken.encode.vocabulary import END, Vocabulary
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.links import GoldLinks, read_links
from harken.formats.pairs import ParallelFiles, find_pairs
from harken.measure.alignment import AlignmentPair, WordTokens, align_attention
from harken.run import Run, load
from harken.tasks.translate import TranslateRecipe, max_lengths


def run(options: argparse.Namespace) -> None:
    """Print AER, precision and recall of each head, of means over heads, and of the diagonal."""
    if not 0 < options.min_weight <= 1:
        problem = f"--min-weight: expected more than 0 and at most 1, got {options.min_weight}"
        raise UserError(problem, fix="choose a number in this range")
    files = ParallelFiles(source=options.source, target=options.target)
    pairs = list(find_pairs(files).pairs(keep_blank=True))
    gold = read_links(options.links, pairs, first=options.first)
    loaded = load(options.folder, options.device)
    if loaded.recipe.task != "translate":
        problem = f"{loaded.folder}: expected a run of task 'translate', got {loaded.recipe.task!r}"
        raise UserError(problem, fix="name a translation run")
    with progress_bar("pairs", lambda: len(pairs)) as advance:
        alignment = align_attention(
            loaded.model,
            _pairs(loaded, pairs, gold, advance),
            start=END,
            method=options.method,
            min_weight=options.min_weight,
            after_input=options.step == "reading",
        )
    if alignment is None:
        problem = f"{options.source}: every pair has a blank sentence or one too long for the model"
        keys = "model.encoder.max_length and model.decoder.max_length"
        raise UserError(problem, fix=f"use sentences shorter than {keys}")
    if skipped := len(pairs) - alignment.n:
        print_note(f"{skipped} of {len(pairs)} pairs skipped: blank, or too long for the model")
    rows, attention = [], {}
    for name, metrics in alignment.estimates.items():
        attention[name] = {metric: asdict(estimate) for metric, estimate in metrics.items()}
        (precision, _), (recall, _) = map(estimate_cells, (metrics["precision"], metrics["recall"]))
        rows.append((name, *estimate_cells(metrics["aer"]), precision, recall))
    record = {"n": alignment.n, "skipped": skipped, "how": options.method}
    record |= {"step": options.step, "best": alignment.best, "attention": attention}
    header = ("attention", "AER", "95 % interval", "precision", "recall")
    print_json_or_table(options, record, header, rows)
    if not options.json:
        print_note(f"{alignment.n} pairs; best: {alignment.best}")


def _pairs(
    loaded: Run, pairs: Sequence[Pair], gold: Sequence[GoldLinks], advance: Callable[[], None]
) -> Iterator[AlignmentPair]:
    """Encode the pairs, without those that are blank or too long for the model."""
    assert isinstance(loaded.recipe, TranslateRecipe)
    max_source, max_target = max_lengths(loaded.recipe.model)
    for pair, links in zip(pairs, gold, strict=True):
        advance()
        source, target = (word_tokens(loaded, text) for text in (pair.source, pair.target))
        # `max_target` includes the start token, which the decoder reads before the target.
        if 0 < len(source.tokens) <= max_source and 0 < len(target.tokens) < max_target:
            yield AlignmentPair(source, target, links)


def word_tokens(loaded: Run, text: str) -> WordTokens:
    """Encode a text word by word: no token crosses words, so the tokens are those of the text."""
    assert isinstance(loaded.vocabulary, Vocabulary)
    encoded = loaded.vocabulary.encode(text.split())
    return WordTokens(
        [int(token) for tokens in encoded for token in tokens],
        [number for number, tokens in enumerate(encoded) for _ in tokens],
    )
