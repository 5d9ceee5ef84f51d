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

from harken.cli import recordings
from harken.cli.arguments import Parser
from harken.cli.output import json_or_table, print_note, result
from harken.config.spelling import nearest
from harken.corpora import catalog
from harken.corpora.catalog import Corpus
from harken.corpora.download import Event, RetryPolicy, Waiting, address_of, download
from harken.errors import UserError
from harken.synthetic.people import PeopleConfig, write_people
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpeechConfig, write_speech

LOG_SECONDS = 10.0  # between lines of progress without a terminal
C = TypeVar("C")
F = TypeVar("F")


def run(options: argparse.Namespace) -> None:
    """Print the list, or the paths that were written."""
    name = options.name
    if name is None or options.list:
        _print_list(options)
        return
    if options.json:
        problem = f"data {name}: --json is for the list only"
        raise UserError(problem, fix="remove --json; written paths are printed, one per line")
    settings = vars(parser_of(name).parse_args(options.options))
    if name in catalog.CATALOG:
        paths = _download(catalog.CATALOG[name], **settings)
    else:
        try:
            paths = list(GENERATED[name].write(**settings))
        except ValueError as error:
            raise UserError(f"data {name}: {error}", fix="change that option") from None
    for path in paths:
        result(str(path))


def parser_of(name: str) -> Parser:
    """Return the parser of the options of a data set."""
    parser = Parser(prog=f"harken data {name}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder to write")
    if name in GENERATED:
        parser.description = f"Write {GENERATED[name].title}."
        GENERATED[name].add_options(parser)
    elif name in catalog.CATALOG:
        parser.description = f"Download {catalog.CATALOG[name].title}."
        text = "Download BASE/NAME/FILE from a mirror"
        parser.add_argument("--from", dest="mirror", metavar="BASE", help=text)
    else:
        names = [*GENERATED, *catalog.CATALOG]
        near = nearest(name, names)
        raise UserError(
            f"data: expected one of {', '.join(names)}, got {name!r}",
            fix=f"did you mean {near!r}?" if near else "`harken data` describes them",
        )
    return parser


class Generated(NamedTuple):
    """A data set that Harken writes; `write` takes the folder and the values of the options."""

    title: str
    add_options: Callable[[Parser], None]
    write: Callable[..., Iterable[Path]]


def _generated(
    title: str,
    config: type[C],
    write: Callable[[C, Path], F],
    paths: Callable[[F], Iterable[Path]],
    **help_texts: str,
) -> Generated:
    """Return a data set whose options are fields of a config."""
    return Generated(
        title,
        lambda parser: parser.add_fields(config, **help_texts, seed="Seed of the data"),
        lambda out, **settings: paths(write(config(**settings), out)),
    )


GENERATED = {
    "people": _generated(
        "fictional people, biographies, questions (answer)",
        PeopleConfig,
        write_people,
        attrgetter("texts", "train", "test"),
        people="Number of people",
        places="Number of places",
        biographies="Number of biographies per person",
        facts="Number of facts per biography",
        question_ratio="Share of people with a training question",
        rewrite="Use the same wording in all biographies of a person",
        permute="Use the same order of sentences in all biographies",
    ),
    "sentences": _generated(
        "sentences of a grammar, tagged and translated (tag, fill, lm, translate)",
        SentencesConfig,
        write_sentences,
        astuple,
        sentences="Number of sentences, a tenth each in dev and test",
        words="Number of generated word stems",
    ),
    "speech": _generated(
        "synthetic speech with word times (transcribe)",
        SpeechConfig,
        write_speech,
        list,
        utterances="Number of utterances, a tenth each in dev and test",
        speakers="Number of speakers, a fifth each in dev and test",
        min_words="Minimum number of words per utterance",
        max_words="Maximum number of words per utterance",
        sample_rate="Sampling rate in Hz",
        snr="Signal-to-noise ratio in dB",
    ),
    "manifest": Generated(
        "a list of your own recordings (transcribe)",
        recordings.manifest_options,
        recordings.write_manifests,
    ),
    "scenes": _generated(
        "scenes of shapes with captions and boxes (caption)",
        ScenesConfig,
        write_scenes,
        list,
        scenes="Number of scenes, a tenth each in dev and test",
        size="Height and width in pixels",
        min_shapes="Minimum number of shapes per scene",
        max_shapes="Maximum number of shapes per scene",
        noise="Standard deviation of the noise; white is 255",
        new_pairs="Test only on color-shape pairs that train lacks",
    ),
    "suffixes": Generated(
        "your utterances, cut before each word (transcribe)",
        recordings.suffixes_options,
        recordings.write_suffixes,
    ),
    "joined": Generated(
        "sentences joined from your recordings of words (transcribe)",
        recordings.joined_options,
        recordings.write_joined_words,
    ),
}


def _print_list(options: argparse.Namespace) -> None:
    generated = [{"name": name, "title": GENERATED[name].title} for name in GENERATED]
    rows = [(name, GENERATED[name].title, "-", "-", "generated") for name in GENERATED]
    public: list[dict[str, object]] = []
    keys = ("stored", "address", "sha256", "bytes", "packing")
    for corpus in catalog.CATALOG.values():
        size, terms = f"{corpus.bytes / 1e6:.1f} MB", corpus.license
        rows.append((corpus.name, corpus.title, terms.name, size, corpus.page))
        files = [{key: getattr(item, key) for key in keys} for item in corpus.items]
        record = {"name": corpus.name, "title": corpus.title, "license": asdict(terms)}
        public.append({**record, "page": corpus.page, "bytes": corpus.bytes, "files": files})
    header = ("name", "content", "license", "size", "source")
    json_or_table(
        options, {"made": generated, "public": public}, header, rows, text_columns=(0, 1, 2, 4)
    )


def _download(corpus: Corpus, out: Path, mirror: str | None) -> list[Path]:
    print_note(f"{corpus.name}: {corpus.title}")
    print_note(f"license: {corpus.license.name}, {corpus.license.address}")
    for item in corpus.items:
        print_note(f"from {address_of(corpus, item, mirror)}")
    with _progress() as report:
        return download(corpus, out, mirror=mirror, retry=RetryPolicy(), report=report)


@contextmanager
def _progress() -> Iterator[Callable[[Event], None]]:
    """Yield a listener that draws a bar per file, or logs a line every ten seconds."""
    from rich import console, progress

    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        console=console.Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    tasks: dict[str, progress.TaskID] = {}
    logged = time.monotonic()

    def report(event: Event) -> None:
        nonlocal logged
        if isinstance(event, Waiting):
            print_note(f"{event.file}: {event.why}; trying again in {event.seconds:.0f} s")
            return
        if event.file not in tasks:
            tasks[event.file] = bars.add_task(event.file)
        bars.update(tasks[event.file], completed=event.bytes, total=event.total)
        if bars.disable and time.monotonic() - logged > LOG_SECONDS:
            logged = time.monotonic()
            print_note(f"{event.file}: {event.bytes / 1e6:.1f} MB")

    with bars:
        yield report
