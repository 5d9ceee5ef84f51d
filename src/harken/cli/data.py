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
from harken.cli.output import print_json_or_table, print_note, print_result
from harken.config.spelling import nearest
from harken.corpora import catalog
from harken.corpora.catalog import Corpus
from harken.corpora.download import Event, RetryPolicy, RetryScheduled, download, download_url
from harken.errors import UserError
from harken.synthetic.people import PeopleConfig, write_people
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.sentences import SentencesConfig, write_sentences
from harken.synthetic.speech import SpeechConfig, write_speech

LOG_SECONDS = 10.0  # between progress lines if stderr is not a terminal
Config = TypeVar("Config")
Written = TypeVar("Written")  # what a generator returns


def run(options: argparse.Namespace) -> None:
    """Print the list of data sets, or write one and print the paths of its files."""
    name = options.name
    if name is None or options.list:
        _print_list(options)
        return
    if options.json:
        problem = f"data {name}: --json applies only to the list of data sets"
        raise UserError(problem, fix="leave out --json; the written paths are printed one per line")
    settings = vars(build_data_parser(name).parse_args(options.options))
    if name in catalog.CATALOG:
        paths = _download(catalog.CATALOG[name], **settings)
    else:
        try:
            paths = list(GENERATORS[name].write(**settings))
        except ValueError as error:
            raise UserError(f"data {name}: {error}", fix="change this option") from None
    for path in paths:
        print_result(str(path))


def build_data_parser(name: str) -> Parser:
    """Build the parser for the options of a data set."""
    parser = Parser(prog=f"harken data {name}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder to write")
    if name in GENERATORS:
        parser.description = f"Write {GENERATORS[name].title}."
        GENERATORS[name].add_options(parser)
    elif name in catalog.CATALOG:
        parser.description = f"Download {catalog.CATALOG[name].title}."
        text = "URL of a mirror, which has the files as BASE/NAME/FILE"
        parser.add_argument("--from", dest="mirror", metavar="BASE", help=text)
    else:
        names = [*GENERATORS, *catalog.CATALOG]
        near = nearest(name, names)
        raise UserError(
            f"data: expected one of {', '.join(names)}, got {name!r}",
            fix=f"did you mean {near!r}?" if near else "run `harken data` for the list",
        )
    return parser


class DataGenerator(NamedTuple):
    """Writes a data set; `write` takes the folder and the values of the options."""

    title: str
    add_options: Callable[[Parser], None]
    write: Callable[..., Iterable[Path]]


def _config_generator(
    title: str,
    config: type[Config],
    write: Callable[[Config, Path], Written],
    paths: Callable[[Written], Iterable[Path]],
    **help_texts: str,
) -> DataGenerator:
    """Return a generator whose options are fields of a config."""
    return DataGenerator(
        title,
        lambda parser: parser.add_fields(config, **help_texts, seed="Seed of the data"),
        lambda out, **settings: paths(write(config(**settings), out)),
    )


GENERATORS = {
    "people": _config_generator(
        "biographies of fictional people, with questions (answer)",
        PeopleConfig,
        write_people,
        attrgetter("texts", "train", "test"),
        people="Number of people",
        places="Number of places",
        biographies="Number of biographies per person",
        facts="Number of facts per biography",
        train_share="Share of people whose question is in the training file, not in the test file",
        rewrite="Use the same wording in all biographies of a person",
        permute="Use the same order of sentences in all biographies",
    ),
    "sentences": _config_generator(
        "sentences of a grammar, tagged, labeled, translated (tag, classify, fill, lm, translate)",
        SentencesConfig,
        write_sentences,
        astuple,
        sentences="Number of sentences, a tenth each in dev and test",
        words="Number of generated word stems",
    ),
    "speech": _config_generator(
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
    "manifest": DataGenerator(
        "a manifest of your own recordings (transcribe)",
        recordings.manifest_options,
        recordings.write_manifests,
    ),
    "scenes": _config_generator(
        "scenes of shapes with captions and boxes (caption)",
        ScenesConfig,
        write_scenes,
        list,
        scenes="Number of scenes, a tenth each in dev and test",
        size="Height and width in pixels",
        min_shapes="Minimum number of shapes per scene",
        max_shapes="Maximum number of shapes per scene",
        noise="Standard deviation of the noise; white is 255",
        new_pairs="Use pairs of color and shape in test that are not in train and dev",
    ),
    "suffixes": DataGenerator(
        "the parts of your utterances from each word to the end (transcribe)",
        recordings.suffixes_options,
        recordings.write_suffixes,
    ),
    "joined": DataGenerator(
        "sentences joined from your recordings of words (transcribe)",
        recordings.joined_options,
        recordings.write_joined_words,
    ),
}


def _print_list(options: argparse.Namespace) -> None:
    generated = [{"name": name, "title": GENERATORS[name].title} for name in GENERATORS]
    sources = dict.fromkeys(("manifest", "suffixes", "joined"), "your recordings")
    rows = [
        (name, generator.title, "-", "-", sources.get(name, "generated"))
        for name, generator in GENERATORS.items()
    ]
    public: list[dict[str, object]] = []
    keys = ("stored", "url", "sha256", "bytes", "packing")
    for corpus in catalog.CATALOG.values():
        size, terms = f"{corpus.bytes / 1e6:.1f} MB", corpus.license
        rows.append((corpus.name, corpus.title, terms.name, size, corpus.page))
        files = [{key: getattr(item, key) for key in keys} for item in corpus.items]
        record = {"name": corpus.name, "title": corpus.title, "license": asdict(terms)}
        public.append({**record, "page": corpus.page, "bytes": corpus.bytes, "files": files})
    header = ("name", "content", "license", "size", "source")
    print_json_or_table(
        options, {"generated": generated, "public": public}, header, rows, text_columns=(0, 1, 2, 4)
    )


def _download(corpus: Corpus, out: Path, mirror: str | None) -> list[Path]:
    print_note(f"{corpus.name}: {corpus.title}")
    print_note(f"license: {corpus.license.name}, {corpus.license.url}")
    for item in corpus.items:
        print_note(f"from {download_url(corpus, item, mirror)}")
    with _progress() as report:
        return download(corpus, out, mirror=mirror, retry=RetryPolicy(), report=report)


@contextmanager
def _progress() -> Iterator[Callable[[Event], None]]:
    """Yield a callback that draws a bar per file, or prints a line every ten seconds."""
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
        if isinstance(event, RetryScheduled):
            print_note(f"{event.file}: {event.reason}; trying again in {event.seconds:.0f} s")
            return
        if event.file not in tasks:
            tasks[event.file] = bars.add_task(event.file)
        bars.update(tasks[event.file], completed=event.bytes, total=event.total)
        if bars.disable and time.monotonic() - logged > LOG_SECONDS:
            logged = time.monotonic()
            print_note(f"{event.file}: {event.bytes / 1e6:.1f} MB")

    with bars:
        yield report
