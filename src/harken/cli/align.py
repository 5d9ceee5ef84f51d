"""Measure how well the attention of a translator aligns words, head by head.

The translator is told the given translations, and what each head looked at as each word was decided
is held against links that people drew (alignment error rate, Och and Ney).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harken.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from harken.formats.examples import Pair
    from harken.measure.alignment import Links, Weights
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
WAYS = ("looked", "intersection", "union", "grow-diag-final", "threshold")
ALL = "all heads"
DIAGONAL = "diagonal, no model"
ELSEWHERE = "best head, chosen elsewhere"


class Words(NamedTuple):
    """Tokens of a sentence, and the number of each one's word."""

    tokens: list[int]
    owners: list[int]


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
    parser.add_argument("--how", choices=WAYS, default="looked", help="see below")
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
    """Print a row for every head, every layer and all of them, as they stand in the model."""
    from harken.cli.output import remark
    from harken.formats.links import read_links
    from harken.formats.tsv import read_parallel
    from harken.measure.alignment import best_of, chosen_elsewhere, link_counts
    from harken.run import load

    if not 0 < options.least <= 1:
        raise UserError(
            f"--least {options.least}: wanted more than 0 and at most 1",
            fix="choose such a number",
        )
    pairs = read_parallel(options.source, options.target, keep_blank=True).pairs
    gold = read_links(options.links, pairs, options.first)
    loaded = load(options.folder, options.device)
    _require_translator(loaded)
    found: dict[str, list[Links]] = {}
    kept = []
    for number, links in _linked(loaded, pairs, options):
        kept.append(number)
        for name, one in links.items():
            found.setdefault(name, []).append(one)
    skipped = len(pairs) - len(kept)
    if not kept:
        raise UserError(
            f"{options.source}: found no pair that fits the model, wanted one at least",
            fix="take sentences that are shorter than model.encoder.length and decoder.length",
        )
    if skipped:
        remark(f"{skipped} of {len(pairs)} pairs skipped: blank, or longer than the model")
    wanted = [gold[number] for number in kept]
    counts = {name: link_counts(one, wanted) for name, one in found.items()}
    heads = {name: one for name, one in counts.items() if ".H" in name}
    best = best_of(heads)
    if len(heads) > 1:
        counts[ELSEWHERE] = chosen_elsewhere(heads)
    _say(options, counts, best, skipped)
    return 0


def _require_translator(loaded: "Run") -> None:
    if loaded.recipe.task != "translate":
        raise UserError(
            f"{loaded.folder}: found a run of task {loaded.recipe.task!r}, wanted a translator",
            fix="name a run of the task translate",
        )


def _linked(
    loaded: "Run", pairs: Sequence["Pair"], options: argparse.Namespace
) -> Iterator[tuple[int, dict[str, "Links"]]]:
    """Of every pair that fits the model, its number and the links by each head and each mean."""
    from harken.cli.output import counting_progress
    from harken.measure.alignment import diagonal, over_words
    from harken.tasks.translate import TranslateRecipe, max_lengths

    assert isinstance(loaded.recipe, TranslateRecipe)
    ways = _way(options)
    most_source, most_target = max_lengths(loaded.recipe.model)
    with counting_progress("pairs", lambda: len(pairs)) as advance:
        for number, pair in enumerate(pairs):
            advance()
            source, target = (_words(loaded, text) for text in (pair.source, pair.target))
            if not source.tokens or not target.tokens:
                continue
            if len(source.tokens) > most_source or len(target.tokens) >= most_target:
                continue
            looks = _looks(loaded, source.tokens, target.tokens, told=options.credit == "told")
            links = {
                name: ways(over_words(weights, target.owners, source.owners))
                for name, weights in _candidates(looks)
            }
            links[DIAGONAL] = diagonal(target.owners[-1] + 1, source.owners[-1] + 1)
            yield number, links


def _words(loaded: "Run", text: str) -> Words:
    """Word by word: each begins with a space, so its tokens are those that it has in the text."""
    from harken.encode.vocabulary import Vocabulary

    assert isinstance(loaded.vocabulary, Vocabulary)
    encoded = loaded.vocabulary.encode(text.split())
    return Words(
        [int(token) for tokens in encoded for token in tokens],
        [number for number, tokens in enumerate(encoded) for _ in tokens],
    )


def _looks(
    loaded: "Run", source: Sequence[int], target: Sequence[int], *, told: bool
) -> dict[str, "np.ndarray"]:
    """[heads, target, source] of each attention over the source, from one forced pass."""
    import numpy as np
    import torch

    from harken.encode.vocabulary import END
    from harken.inspection.record import record
    from harken.inspection.refs import is_cross_attention

    device = loaded.device
    read = torch.tensor([list(source)], device=device)
    written = torch.tensor([[END, *target]], device=device)
    with torch.inference_mode(), record(loaded.model) as seen:
        loaded.model(read, torch.ones_like(read, dtype=torch.bool), written)
    calls: dict[str, list[np.ndarray]] = {}
    for one in seen:
        if is_cross_attention(one.name):
            calls.setdefault(one.name, []).append(one.weights[0].double().cpu().numpy())
    first = 1 if told else 0
    return {
        name: np.concatenate(parts, axis=1)[:, first : first + len(target)]
        for name, parts in calls.items()
    }


def _candidates(looks: dict[str, "np.ndarray"]) -> Iterator[tuple[str, "np.ndarray"]]:
    """Each head, the mean of each layer's, and the mean of all."""
    import numpy as np

    from harken.inspection.refs import HeadRef, layer_label

    for module, heads in looks.items():
        yield from (
            (HeadRef(module, number).label, weights)
            for number, weights in enumerate(heads, start=1)
        )
        if len(heads) > 1:
            yield f"{layer_label(module)} mean", heads.mean(axis=0)
    if len(looks) > 1:
        yield ALL, np.concatenate(list(looks.values())).mean(axis=0)


def _way(options: argparse.Namespace) -> Callable[["Weights"], "Links"]:
    from harken.measure.alignment import above, argmax_source, argmax_target, grow_diag_final

    ways: dict[str, Callable[[Weights], Links]] = {
        "looked": argmax_source,
        "intersection": lambda weights: argmax_source(weights) & argmax_target(weights),
        "union": lambda weights: argmax_source(weights) | argmax_target(weights),
        "grow-diag-final": lambda weights: grow_diag_final(
            argmax_source(weights), argmax_target(weights)
        ),
        "threshold": lambda weights: above(weights, options.least),
    }
    return ways[options.how]


def _say(
    options: argparse.Namespace, counts: dict[str, "np.ndarray"], best: str, skipped: int
) -> None:
    from dataclasses import asdict

    from harken.cli.output import remark, result_json, spelled, table
    from harken.measure.alignment import samples_of

    figures = {
        name: {metric: sample.estimate() for metric, sample in samples_of(one).items()}
        for name, one in counts.items()
    }
    if options.json:
        result_json(
            {
                "n": len(counts[best]),
                "skipped": skipped,
                "how": options.how,
                "credit": options.credit,
                "best": best,
                "attention": {
                    name: {metric: asdict(one) for metric, one in metrics.items()}
                    for name, metrics in figures.items()
                },
            }
        )
        return
    table(
        ("attention", "AER", "95 % interval", "precision", "recall"),
        [
            (name, *spelled(one["aer"]), spelled(one["precision"])[0], spelled(one["recall"])[0])
            for name, one in figures.items()
        ],
    )
    remark(f"{len(counts[best])} pairs; best: {best}")
