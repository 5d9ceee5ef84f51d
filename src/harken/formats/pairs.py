"""Read pairs of sentences from many files, in constant memory.

    train.en  train.de   line n of one is the translation of line n of the other
    train.tsv            a duck swims<TAB>eine Ente schwimmt
    train.csv            a table with the columns source and target, also .jsonl and .parquet

Pairs with a blank side are skipped; with `keep_blank`, as in evaluation, every line is a pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from harken.errors import UserError
from harken.formats.corpus import Files, find_files
from harken.formats.examples import Pair
from harken.formats.split import HashSplit, split_by_hash
from harken.formats.table import is_table, read_table
from harken.formats.text import STDIN, display_path, read_lines

MAX_HELD_OUT = 2**16  # distinct sources, however large the share is


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelFiles:
    """Two texts whose lines correspond; each is one path, a list of paths or a glob."""

    source: Files  # sentences, one per line
    target: Files  # their translations


class PairsSize(NamedTuple):
    """Numbers of pairs and of characters."""

    pairs: int
    source_characters: int
    target_characters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PairCorpus:
    """The pairs of some files, without those that `split` holds out."""

    files: tuple[Path, ...]  # of pairs, or of sources if there are `targets`
    targets: tuple[Path, ...] = ()
    columns: tuple[str, str] = ("source", "target")  # of tables
    split: HashSplit | None = None

    def pairs(self, *, keep_blank: bool = False) -> Iterator[Pair]:
        """Yield the pairs in order."""
        has_pair = False
        files = chain.from_iterable(map(self._file_pairs, self.files))
        for pair in self._aligned_lines() if self.targets else files:
            is_complete = bool(pair.source.strip() and pair.target.strip())
            has_pair = has_pair or is_complete
            if not (is_complete or keep_blank):
                continue
            if self.split is None or not self.split.holds_out(pair.source):
                yield pair
        if not has_pair:
            where = " and ".join(map(_describe, filter(None, (self.files, self.targets))))
            message = f"{where}: no sentence with a translation (expected at least one)"
            fix = "check that the files were written or downloaded completely"
            raise UserError(message, fix=fix)

    def size(self) -> PairsSize:
        """Count pairs and characters."""
        pairs = source = target = 0
        for pair in self.pairs():
            pairs, source, target = pairs + 1, source + len(pair.source), target + len(pair.target)
        return PairsSize(pairs, source, target)

    def sample(self, share: float) -> Iterator[Pair]:
        """Yield pairs with this share of the characters, spread evenly; all if it is 1 or more."""
        seen = taken = 0
        for pair in self.pairs():
            length = len(pair.source) + len(pair.target)
            if share >= 1 or taken <= share * seen:
                yield pair
                taken += length
            seen += length

    def _file_pairs(self, path: Path) -> Iterator[Pair]:
        columns = dict(zip(("source", "target"), self.columns, strict=True))
        return (Pair(**row.texts) for row in read_table(path, columns, keep_empty=True))

    def _aligned_lines(self) -> Iterator[Pair]:
        sources, targets = (
            (line.text for path in files for line in read_lines(path, keep_blank=True))
            for files in (self.files, self.targets)
        )
        for count, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = count + 1 + sum(1 for _ in chain(sources, targets))
                counts = (longer, count) if target is None else (count, longer)
                raise UserError(
                    f"expected as many lines in {_describe(self.files)} as in "
                    f"{_describe(self.targets)}, got {counts[0]} and {counts[1]}",
                    fix="line n of one must be the translation of line n of the other",
                )
            yield Pair(source, target)


class PairSample(list[Pair]):
    """An evenly spread sample of the training pairs; `corpus` reads all of them."""

    def __init__(self, corpus: PairCorpus, max_characters: int) -> None:
        size = corpus.size()
        share = max_characters / (size.source_characters + size.target_characters)
        super().__init__(corpus.sample(share))
        self.corpus, self.size = corpus, size


def find_pairs(
    files: ParallelFiles | Files, columns: tuple[str, str] = ("source", "target")
) -> PairCorpus:
    """Return the corpus of two texts, or of files with both sides; its texts are not read yet."""
    if not isinstance(files, ParallelFiles):
        return PairCorpus(files=find_files(files), columns=columns)
    if files.source == files.target == STDIN:
        message = "<stdin>: expected two texts, got standard input as both"
        raise UserError(message, fix="name a file for one of them")
    sources, targets = find_files(files.source), find_files(files.target)
    for path in filter(is_table, (*sources, *targets)):
        problem = f"{path}: expected a side as plain text, got a table"
        raise UserError(problem, fix="set data.train, data.dev or data.test to the file itself")
    return PairCorpus(files=sources, targets=targets)


def hold_out_pairs(corpus: PairCorpus, share: float, seed: int) -> tuple[PairCorpus, list[Pair]]:
    """Return the corpus of the training pairs and the list of held-out pairs.

    `share` is the share of distinct sources that is held out, so equal sources are not separated.
    """
    sources = (pair.source for pair in corpus.pairs())
    split = split_by_hash(sources, share, seed, MAX_HELD_OUT)
    held_out = [pair for pair in corpus.pairs() if split.holds_out(pair.source)]
    return replace(corpus, split=split), held_out


def _describe(files: tuple[Path, ...]) -> str:
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return f"{display_path(files[0])}{more}"
