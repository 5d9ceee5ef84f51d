"""`harken data`: list, generate or download data sets."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from harken.cli.arguments import Parser
from harken.cli.output import LOG_SECONDS, remark, result, result_json, table
from harken.cli.recordings import (
    joined_options,
    make_joined,
    make_manifest,
    make_stretches,
    manifest_options,
    stretches_options,
)
from harken.config.spelling import nearest
from harken.corpora import catalog
from harken.corpora.catalog import Corpus
from harken.corpora.download import Event, RetryPolicy, Waiting, address_of, download
from harken.errors import UserError
from harken.synthetic.people import PeopleConfig, write_people
from harken.synthetic.scenes import DrawnConfig, write_drawn
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpokenConfig, write_spoken

C = TypeVar("C")
F = TypeVar("F")


def run(options: argparse.Namespace) -> int:
    """Print the list, or the paths that were written."""
    name = options.name
    if name is None or options.list:
        _print_list(as_json=options.json)
        return 0
    if options.json:
        raise UserError(
            f"data {name}: --json is for the list only",
            fix="leave it out: the written paths are printed, one per line",
        )
    parser = parser_of(name)
    settings = vars(parser.parse_args(options.options))
    if name in catalog.CATALOG:
        paths = _download(catalog.CATALOG[name], **settings)
    else:
        try:
            paths = GENERATED[name].make(**settings)
        except ValueError as error:
            raise UserError(f"data {name}: {error}", fix="change that option") from None
    for path in paths:
        result(str(path))
    return 0


def parser_of(name: str) -> Parser:
    """Return the parser of the options of a data set."""
    parser = Parser(prog=f"harken data {name}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder to write")
    if name in GENERATED:
        GENERATED[name].configure(parser)
    elif name in catalog.CATALOG:
        text = "Address of a mirror: download BASE/NAME/FILE"
        parser.add_argument("--from", dest="mirror", metavar="BASE", help=text)
    else:
        names = [*GENERATED, *catalog.CATALOG]
        near = nearest(name, names)
        raise UserError(
            f"data: expected one of {', '.join(names)}, got {name!r}",
            fix=f"did you mean {near!r}?" if near else "`harken data` describes them",
        )
    return parser


def _people_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--people", type=int, default=1000, help="Number of people")
    add("--places", type=int, default=120, help="Number of places")
    add("--biographies", type=int, default=1, help="Number of biographies per person")
    add("--facts", type=int, default=6, help="Number of facts per biography")
    add("--asked", type=float, default=0.5, help="Share of people with a training question")
    for flag, field, text in (
        ("--same-words", "rewrite", "Use one wording per person"),
        ("--same-order", "permute", "Use one order of sentences"),
    ):
        add(flag, dest=field, action="store_false", help=text)
    add("--seed", type=int, default=0, help="Seed of the data")


def _sentences_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sentences", type=int, default=1000, help="Number of sentences; a tenth each: dev, test")
    add("--words", type=int, default=400, help="Number of generated word stems")
    add("--seed", type=int, default=0, help="Seed of the data")


def _spoken_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--utterances", type=int, default=1000, help="Number of sounds; a tenth each: dev, test")
    add("--speakers", type=int, default=20, help="Number of speakers; a fifth each: dev, test")
    add("--least", type=int, default=1, help="Minimum number of words per utterance")
    add("--most", type=int, default=5, help="Maximum number of words per utterance")
    add("--rate", type=int, default=8000, help="Sampling rate in Hz")
    add("--noise", type=float, default=30.0, help="Signal-to-noise ratio in dB")
    add("--seed", type=int, default=0, help="Seed of the data")


def _drawn_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--scenes", type=int, default=2000, help="Number of scenes; a tenth each: dev, test")
    add("--size", type=int, default=48, help="Height and width in pixels")
    add("--least", type=int, default=1, help="Minimum number of shapes per scene")
    add("--most", type=int, default=3, help="Maximum number of shapes per scene")
    add("--noise", type=float, default=3.0, help="Standard deviation of the noise, of 255 steps")
    add("--new-pairs", action="store_true", help="Test on pairs of color and shape not in train")
    add("--seed", type=int, default=0, help="Seed of the data")


def _maker(
    config: Callable[..., C], write: Callable[[C, Path], F], paths: Callable[[F], Iterable[Path]]
) -> Callable[..., list[Path]]:
    return lambda out, **settings: list(paths(write(config(**settings), out)))


class Generated(NamedTuple):
    """A data set that Harken writes: its title, its options, and the function that writes it."""

    title: str
    configure: Callable[[argparse.ArgumentParser], None]
    make: Callable[..., list[Path]]


GENERATED = {
    "people": Generated(
        "fictional people, biographies, questions (answer)",
        _people_options,
        _maker(PeopleConfig, write_people, attrgetter("read", "train", "test")),
    ),
    "sentences": Generated(
        "sentences of a grammar, tagged and translated (tag, fill, lm, translate)",
        _sentences_options,
        _maker(SentencesConfig, write_sentences, astuple),
    ),
    "spoken": Generated(
        "synthetic speech with word times (transcribe)",
        _spoken_options,
        _maker(SpokenConfig, write_spoken, attrgetter("train", "dev", "test")),
    ),
    "manifest": Generated(
        "a list of your own recordings (transcribe)", manifest_options, make_manifest
    ),
    "drawn": Generated(
        "scenes of shapes with captions and boxes (caption)",
        _drawn_options,
        _maker(
            DrawnConfig,
            write_drawn,
            lambda files: [*files.captions.values(), *files.images.values(), files.examples],
        ),
    ),
    "stretches": Generated(
        "your sentences from each of their words on (transcribe)", stretches_options, make_stretches
    ),
    "joined": Generated(
        "your recordings of words, joined to sentences (transcribe)", joined_options, make_joined
    ),
}


def _print_list(*, as_json: bool) -> None:
    titles = {name: generated.title for name, generated in GENERATED.items()}
    if as_json:
        made = [{"name": name, "title": title} for name, title in titles.items()]
        public = [_record(corpus) for corpus in catalog.CATALOG.values()]
        result_json({"made": made, "public": public})
        return
    rows = [(name, title, "as Harken", "any", "generated") for name, title in titles.items()]
    rows += [
        (corpus.name, corpus.title, corpus.license.name, _size(corpus.bytes), corpus.page)
        for corpus in catalog.CATALOG.values()
    ]
    table(("name", "content", "license", "size", "address"), rows, text_columns=(0, 1, 2, 4))


def _record(corpus: Corpus) -> dict[str, object]:
    keys = ("stored", "address", "sha256", "bytes", "packing")
    return {
        "name": corpus.name,
        "title": corpus.title,
        "license": asdict(corpus.license),
        "page": corpus.page,
        "bytes": corpus.bytes,
        "files": [{key: getattr(item, key) for key in keys} for item in corpus.items],
    }


def _download(corpus: Corpus, out: Path, mirror: str | None) -> list[Path]:
    remark(f"{corpus.name}: {corpus.title}")
    remark(f"license: {corpus.license.name}, {corpus.license.address}")
    for item in corpus.items:
        remark(f"from {address_of(corpus, item, mirror)}")
    with _progress() as listen:
        return download(corpus, out, mirror=mirror, retry=RetryPolicy(), listen=listen)


@contextmanager
def _progress() -> Iterator[Callable[[Event], None]]:
    """Yield a listener that draws a bar per file, or logs a line every ten seconds."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TransferSpeedColumn,
    )

    drawn = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    bars: dict[str, TaskID] = {}
    logged = time.monotonic()

    def listen(event: Event) -> None:
        nonlocal logged
        if isinstance(event, Waiting):
            remark(f"{event.file}: {event.why}; trying again in {event.seconds:.0f} s")
            return
        if event.file not in bars:
            bars[event.file] = drawn.add_task(event.file)
        drawn.update(bars[event.file], completed=event.bytes, total=event.total)
        if drawn.disable and time.monotonic() - logged > LOG_SECONDS:
            logged = time.monotonic()
            remark(f"{event.file}: {_size(event.bytes)}")

    with drawn:
        yield listen


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
