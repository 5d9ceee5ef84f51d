"""Measure how well the attention of a translator aligns words, head by head.

The translator is told the given translations, and what each head looked at as each word was decided
is held against links that people drew (alignment error rate, Och and Ney).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.formats.examples import Pair
    from harken.formats.links import GoldLinks
    from harken.measure.alignment import AlignmentPair, AttentionAlignment, WordTokens
    from harken.run import Run

EPILOG = """which words are linked:
  looked            each target word with the source word that it looked most at
  intersection      those of them where nothing looked at the source word more
  union             those, and each source word with what looked most at it
  grow-diag-final   the two directions symmetrized as by Moses' symal
  threshold         all whose weight is at least --least

Words are what spaces part; tokens of a source word are summed, of a target word averaged. The best
head is best on these very pairs; `chosen elsewhere` is what a head gives that is chosen on half of
the pairs and measured on the other.

examples:
  harken align runs/translate --source test.en --target test.de --links test.talp
  harken align runs/translate --source test.en --target test.de --links test.talp --first target
"""
METHODS = ("looked", "intersection", "union", "grow-diag-final", "threshold")


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken align`."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="of the task translate")
    parser.add_argument("--source", type=Path, required=True, metavar="FILE", help="sentences")
    parser.add_argument("--target", type=Path, required=True, metavar="FILE", help="translations")
    parser.add_argument(
        "--links", type=Path, required=True, metavar="FILE", help="3-4 is sure, 3p4 possible"
    )
    parser.add_argument(
        "--first",
        choices=("source", "target"),
        default="source",
        help="whose words the first number of a link counts; source if absent",
    )
    parser.add_argument("--how", choices=METHODS, default="looked", help="see below")
    parser.add_argument("--least", type=float, default=0.2, metavar="X", help="of threshold; 0.2")
    parser.add_argument(
        "--credit",
        choices=("decided", "told"),
        default="decided",
        help="the step that decides a word, or the next, which is told it",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print a row for every head, every layer and all of them, in the order of the model."""
    from harken.cli.output import counting_progress, remark
    from harken.encode.vocabulary import END
    from harken.formats.links import read_links
    from harken.formats.tsv import read_parallel
    from harken.measure.alignment import align_attention
    from harken.run import load

    if not 0 < options.least <= 1:
        raise UserError(
            f"--least: expected more than 0 and at most 1, got {options.least}",
            fix="choose such a number",
        )
    pairs = read_parallel(options.source, options.target, keep_blank=True).pairs
    gold = read_links(options.links, pairs, options.first)
    loaded = load(options.folder, options.device)
    if loaded.recipe.task != "translate":
        raise UserError(
            f"{loaded.folder}: expected a run of task 'translate', got {loaded.recipe.task!r}",
            fix="name a translation run",
        )
    with counting_progress("pairs", lambda: len(pairs)) as advance:
        alignment = align_attention(
            loaded.model,
            _pairs(loaded, pairs, gold, advance),
            start=END,
            method=options.how,
            min_weight=options.least,
            after_input=options.credit == "told",
        )
    if alignment is None:
        raise UserError(
            f"{options.source}: no pair fits the model",
            fix="take sentences that are shorter than model.encoder.length and decoder.length",
        )
    skipped = len(pairs) - alignment.n
    if skipped:
        remark(f"{skipped} of {len(pairs)} pairs skipped: blank, or longer than the model")
    _print(options, alignment, skipped)
    return 0


def _pairs(
    loaded: "Run",
    pairs: Sequence["Pair"],
    gold: Sequence["GoldLinks"],
    advance: Callable[[], None],
) -> Iterator["AlignmentPair"]:
    """Yield the pairs that fit the model."""
    from harken.measure.alignment import AlignmentPair
    from harken.tasks.translate import TranslateRecipe, max_lengths

    assert isinstance(loaded.recipe, TranslateRecipe)
    max_source, max_target = max_lengths(loaded.recipe.model)
    for pair, links in zip(pairs, gold, strict=True):
        advance()
        source, target = (word_tokens(loaded, text) for text in (pair.source, pair.target))
        if 0 < len(source.tokens) <= max_source and 0 < len(target.tokens) < max_target:
            yield AlignmentPair(source, target, links)


def word_tokens(loaded: "Run", text: str) -> "WordTokens":
    """Encode word by word: a word begins with a space, so its tokens are those of the text."""
    from harken.encode.vocabulary import Vocabulary
    from harken.measure.alignment import WordTokens

    assert isinstance(loaded.vocabulary, Vocabulary)
    encoded = loaded.vocabulary.encode(text.split())
    return WordTokens(
        [int(token) for tokens in encoded for token in tokens],
        [number for number, tokens in enumerate(encoded) for _ in tokens],
    )


def _print(options: argparse.Namespace, alignment: "AttentionAlignment", skipped: int) -> None:
    from dataclasses import asdict

    from harken.cli.output import remark, result_json, spelled, table

    if options.json:
        result_json(
            {
                "n": alignment.n,
                "skipped": skipped,
                "how": options.how,
                "credit": options.credit,
                "best": alignment.best,
                "attention": {
                    name: {metric: asdict(estimate) for metric, estimate in metrics.items()}
                    for name, metrics in alignment.estimates.items()
                },
            }
        )
        return
    table(
        ("attention", "AER", "95 % interval", "precision", "recall"),
        [
            (
                name,
                *spelled(metrics["aer"]),
                spelled(metrics["precision"])[0],
                spelled(metrics["recall"])[0],
            )
            for name, metrics in alignment.estimates.items()
        ],
    )
    remark(f"{alignment.n} pairs; best: {alignment.best}")
