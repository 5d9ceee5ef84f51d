"""Make or fetch a corpus by name.

Made here, in constant memory at any size: `people` with biographies and questions, `sentences` with
tags and translations, `spoken` words, `drawn` scenes; of your own recordings, `manifest` makes a
list and `joined` sentences. The others are public corpora: fetched from where they are published,
and checked.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harken.cli.arguments import Parser
from harken.cli.pictures import drawn_options, make_drawn
from harken.cli.recordings import (
    joined_options,
    make_joined,
    make_manifest,
    make_spoken,
    make_stretches,
    manifest_options,
    spoken_options,
    stretches_options,
)
from harken.errors import UserError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from harken.corpora.catalogue import Corpus
    from harken.corpora.download import Event

EPILOG = """examples:
  harken data                                      the list, with licences and sizes
  harken data people --people 1000 --biographies 4 --out data/people
  harken data people --people 10000000 --out /data/people
  harken data sentences --sentences 2000 --out data/sentences
  harken data spoken --utterances 1000 --out data/spoken
  harken data drawn --scenes 2000 --out data/drawn
  harken data manifest recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test "*_[0-4].wav" --out data/digits       what is said in files, from their names
  harken data joined recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test-speakers theo --out data/connected    sentences of single words, joined
  harken data stretches data/yesno/train.jsonl --run runs/yesno --out data/cut
  harken data multi30k --out data/multi30k         fetch it (Ctrl-C is safe: run it again)
  harken data multi30k --out data/multi30k --from https://mirror.example/corpora
  harken data people --help                        the options of one corpus
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken data`; those of one corpus are read when its name is known."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a corpus; without it, the list")
    parser.add_argument("--list", action="store_true", help="print what there is")
    parser.add_argument("--json", action="store_true", help="print the list as one JSON object")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="…", help="of that corpus")


def run(options: argparse.Namespace) -> int:
    """List, make or fetch."""
    from harken.cli.output import result
    from harken.corpora.catalogue import CATALOGUE

    name = options.name
    if name is None or options.list:
        _list(as_json=options.json)
        return 0
    if options.json:
        raise UserError(
            f"data {name}: found --json, wanted it for the list only",
            fix="leave it out: the written paths are printed one a line",
        )
    parser = Parser(prog=f"harken data {name}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    if name in MADE:
        _, configure_it, make = MADE[name]
        configure_it(parser)
        try:
            paths = make(parser.parse_args(options.options))
        except ValueError as error:
            raise UserError(f"data {name}: {error}", fix="change that option") from None
    elif name in CATALOGUE:
        parser.add_argument("--from", dest="mirror", metavar="BASE", help="get BASE/NAME/FILE")
        chosen = parser.parse_args(options.options)
        paths = _fetch(CATALOGUE[name], chosen.out, chosen.mirror)
    else:
        raise _unknown(name, [*MADE, *CATALOGUE])
    for path in paths:
        result(str(path))
    return 0


def _unknown(name: str, names: list[str]) -> UserError:
    from harken.config.spelling import nearest

    meant = nearest(name, names)
    return UserError(
        f"data: found no corpus {name!r}, wanted one of {', '.join(names)}",
        fix=f"did you mean {meant!r}?" if meant else "`harken data` says what they are",
    )


def _people_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--places", type=int, default=120)
    parser.add_argument("--biographies", type=int, default=1, help="a person")
    parser.add_argument("--facts", type=int, default=6, help="a biography")
    parser.add_argument("--asked", type=float, default=0.5, help="share of people with a question")
    parser.add_argument("--same-words", action="store_true", help="one phrasing a person")
    parser.add_argument("--same-order", action="store_true", help="one order of sentences")
    parser.add_argument("--seed", type=int, default=0)


def _make_people(options: argparse.Namespace) -> list[Path]:
    """The texts and both sets of questions."""
    from harken.synthetic.people import PeopleConfig, write_people

    config = PeopleConfig(
        people=options.people,
        places=options.places,
        biographies=options.biographies,
        facts=options.facts,
        asked=options.asked,
        rewrite=not options.same_words,
        permute=not options.same_order,
        seed=options.seed,
    )
    files = write_people(config, options.out)
    return [files.read, files.train, files.test]


def _sentences_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentences", type=int, default=1000, help="a tenth each: dev and test")
    parser.add_argument("--words", type=int, default=400, help="stems that are made up")
    parser.add_argument("--seed", type=int, default=0)


def _make_sentences(options: argparse.Namespace) -> list[Path]:
    """Three parts, each as CoNLL-U and as parallel text, and all of them as one text."""
    from dataclasses import astuple

    from harken.synthetic.sentences import SentencesConfig, write_sentences

    config = SentencesConfig(sentences=options.sentences, words=options.words, seed=options.seed)
    return list(astuple(write_sentences(config, options.out)))


Made = tuple[
    str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], list[Path]]
]
# What Harken makes, itself or of your recordings: what it is, its options, and what writes it.
MADE: dict[str, Made] = {
    "people": ("invented people, biographies, questions (answer)", _people_options, _make_people),
    "sentences": (
        "a grammar's sentences, tagged and translated (tag, fill, lm, translate)",
        _sentences_options,
        _make_sentences,
    ),
    "spoken": ("spoken-like words and their times (transcribe)", spoken_options, make_spoken),
    "manifest": ("a list of your own recordings (transcribe)", manifest_options, make_manifest),
    "drawn": ("scenes of shapes with captions and boxes (caption)", drawn_options, make_drawn),
    "stretches": (
        "your sentences from each of their words on (transcribe)",
        stretches_options,
        make_stretches,
    ),
    "joined": ("your recordings of words, as sentences (transcribe)", joined_options, make_joined),
}


def _list(*, as_json: bool) -> None:
    from harken.cli.output import result_json, table
    from harken.corpora.catalogue import CATALOGUE

    if as_json:
        made = [{"name": name, "title": title} for name, (title, _, _) in MADE.items()]
        result_json({"made": made, "public": [_record(one) for one in CATALOGUE.values()]})
        return
    rows = [(name, title, "as Harken", "any", "made here") for name, (title, _, _) in MADE.items()]
    rows += [
        (one.name, one.title, one.licence.name, _size(one.bytes), one.page)
        for one in CATALOGUE.values()
    ]
    table(("name", "what", "licence", "size", "address"), rows, text_columns=(0, 1, 2, 4))


def _record(corpus: "Corpus") -> dict[str, object]:
    return {
        "name": corpus.name,
        "title": corpus.title,
        "licence": {"name": corpus.licence.name, "address": corpus.licence.address},
        "page": corpus.page,
        "bytes": corpus.bytes,
        "files": [
            {
                "stored": item.stored,
                "address": item.address,
                "sha256": item.sha256,
                "bytes": item.bytes,
                "packing": item.packing,
            }
            for item in corpus.items
        ],
    }


def _fetch(corpus: "Corpus", folder: Path, mirror: str | None) -> list[Path]:
    """Say whose it is and where it comes from, then get it."""
    from harken.cli.output import remark
    from harken.corpora.download import RetryPolicy, address_of, download

    remark(f"{corpus.name}: {corpus.title}")
    remark(f"licence: {corpus.licence.name}, {corpus.licence.address}")
    for item in corpus.items:
        remark(f"from {address_of(corpus, item, mirror)}")
    with _progress() as listen:
        return download(corpus, folder, mirror=mirror, retry=RetryPolicy(), listen=listen)


@contextmanager
def _progress() -> Iterator[Callable[["Event"], None]]:
    """A listener that draws one line a file, or logs one every ten seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from harken.cli.output import QUIET_SECONDS, remark
    from harken.corpora.download import Waiting

    drawn = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    bars: dict[str, TaskID] = {}
    said = time.monotonic()

    def listen(event: "Event") -> None:
        nonlocal said
        if isinstance(event, Waiting):
            remark(f"{event.file}: {event.why}; trying again in {event.seconds:.0f} s")
            return
        if event.file not in bars:
            bars[event.file] = drawn.add_task(event.file)
        drawn.update(bars[event.file], completed=event.bytes, total=event.total)
        if drawn.disable and time.monotonic() - said > QUIET_SECONDS:
            said = time.monotonic()
            remark(f"{event.file}: {_size(event.bytes)}")

    with drawn:
        yield listen


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
