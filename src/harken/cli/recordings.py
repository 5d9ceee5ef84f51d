"""What `harken data` does with recordings: make some, list, join and cut those that there are."""

import argparse
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.formats.examples import Utterance

DIGITS = "0=zero,1=one,2=two,3=three,4=four,5=five,6=six,7=seven,8=eight,9=nine"


def spoken_options(parser: argparse.ArgumentParser) -> None:
    """Of `harken data spoken`."""
    parser.add_argument("--utterances", type=int, default=1000, help="a tenth each: dev and test")
    parser.add_argument("--speakers", type=int, default=20, help="a fifth each: dev and test")
    parser.add_argument("--least", type=int, default=1, help="words a sentence")
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--rate", type=int, default=8000, help="samples a second")
    parser.add_argument("--noise", type=float, default=30.0, help="decibels below the words")
    parser.add_argument("--seed", type=int, default=0)


def make_spoken(options: argparse.Namespace) -> list[Path]:
    """Sounds and three manifests."""
    from harken.synthetic.speech.made import SpokenConfig, write_spoken

    config = SpokenConfig(
        utterances=options.utterances,
        speakers=options.speakers,
        least=options.least,
        most=options.most,
        rate=options.rate,
        noise=options.noise,
        seed=options.seed,
    )
    files = write_spoken(config, options.out)
    return [files.train, files.dev, files.test]


def manifest_options(parser: argparse.ArgumentParser) -> None:
    """Of `harken data manifest`."""
    _recordings_options(parser)
    parser.add_argument("--test", action="append", default=[], metavar="GLOB", help="of names")
    parser.add_argument("--dev", action="append", default=[], metavar="GLOB", help="of names")
    parser.add_argument("--test-last", type=int, default=0, metavar="N", help="by name")


def make_manifest(options: argparse.Namespace) -> list[Path]:
    """A manifest for each part that has anything in it."""
    from harken.formats.speech.manifest import write_manifest

    parts: dict[str, list[Utterance]] = {"train": [], "dev": [], "test": []}
    found = _recordings(options)
    last = len(found) - options.test_last
    for number, one in enumerate(found):
        name = one.audio.name
        tested = number >= last or any(fnmatch(name, glob) for glob in options.test)
        held = any(fnmatch(name, glob) for glob in options.dev)
        parts["test" if tested else "dev" if held else "train"].append(one)
    asked = {"train": True, "dev": options.dev, "test": options.test or options.test_last}
    for part, wanted in asked.items():
        if wanted and not parts[part]:
            raise UserError(
                f"{options.folder}: found nothing for {part} among {len(found)} recordings, "
                "wanted some",
                fix="change --test, --test-last or --dev; a GLOB is like '*_[0-4].wav'",
            )
    options.out.mkdir(parents=True, exist_ok=True)
    written = []
    for part, utterances in parts.items():
        if utterances:
            written.append(options.out / f"{part}.jsonl")
            write_manifest(utterances, written[-1])
    return written


def stretches_options(parser: argparse.ArgumentParser) -> None:
    """Of `harken data stretches`."""
    parser.add_argument("manifest", type=Path, help="as `harken data manifest` writes it")
    parser.add_argument("--run", type=Path, metavar="RUN", help="whose times of words are taken")


def make_stretches(options: argparse.Namespace) -> list[Path]:
    """A manifest with each utterance from each of its words on."""
    from harken.formats.speech.manifest import read_utterances, write_manifest
    from harken.formats.speech.sounds import name_of
    from harken.formats.speech.stretches import from_every_word, timed_by
    from harken.run import load

    utterances = read_utterances(options.manifest)
    if options.run is not None:
        names = [name_of(one) for one in utterances]
        found = load(options.run, "auto").predict(names, times=True)
        utterances = timed_by(utterances, [one.words for one in found])
    if not any(one.words for one in utterances):
        raise UserError(
            f"{options.manifest}: found no times of words, wanted some to begin at",
            fix="train a recogniser on it, and name it with --run",
        )
    options.out.mkdir(parents=True, exist_ok=True)
    written: Path = options.out / options.manifest.name
    write_manifest([part for one in utterances for part in from_every_word(one)], written)
    return [written]


def joined_options(parser: argparse.ArgumentParser) -> None:
    """Of `harken data joined`."""
    _recordings_options(parser)
    parser.add_argument("--sentences", type=int, default=1000, help="a tenth each: dev and test")
    parser.add_argument("--least", type=int, default=3, help="words a sentence")
    parser.add_argument("--most", type=int, default=7)
    parser.add_argument("--test-speakers", default="0.15", metavar="NAMES", help="a,b or a share")
    parser.add_argument("--dev-speakers", default="0.15", metavar="NAMES", help="a,b or a share")
    parser.add_argument("--rate", type=int, default=8000, help="samples a second")
    parser.add_argument("--seed", type=int, default=0)


def make_joined(options: argparse.Namespace) -> list[Path]:
    """Sounds of several words each, and three manifests with the time of every word."""
    from harken.synthetic.speech.joined import JoinedConfig, write_joined

    config = JoinedConfig(
        sentences=options.sentences,
        least=options.least,
        most=options.most,
        dev_speakers=_names_or_share(options.dev_speakers),
        test_speakers=_names_or_share(options.test_speakers),
        rate=options.rate,
        seed=options.seed,
    )
    files = write_joined(_recordings(options), config, options.out)
    return [files.train, files.dev, files.test]


def _names_or_share(text: str) -> tuple[str, ...] | float:
    try:
        return float(text)
    except ValueError:
        return tuple(text.split(","))


def _recordings_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--pattern", metavar="NAME", help="what a file's name says, as {text}_{speaker}_{index}.wav"
    )
    parser.add_argument("--words", metavar="A=B,…", help=f"what a text means; `digits`: {DIGITS}")
    parser.add_argument("--split", default="", metavar="MARK", help="between words of a text")


def _recordings(options: argparse.Namespace) -> Sequence["Utterance"]:
    from harken.formats.speech.folders import read_folder
    from harken.formats.speech.names import utterances_from_names

    if options.pattern is None:
        if options.words or options.split:
            raise UserError(
                "data: found --words or --split without --pattern, wanted all or none",
                fix="say what is in the names with --pattern, or leave the texts as they are",
            )
        return read_folder(options.folder)
    words = _meanings(options.words) if options.words else None
    return utterances_from_names(options.folder, options.pattern, words=words, split=options.split)


def _meanings(text: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in (DIGITS if text == "digits" else text).split(",")]
    if not all(all(pair) for pair in pairs):
        raise UserError(
            f"--words: found {text!r}, wanted pairs such as 1=yes,0=no", fix="write A=B,C=D"
        )
    return {of: means for of, _, means in pairs}
