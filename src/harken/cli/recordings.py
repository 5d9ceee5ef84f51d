"""Data sets made from your own recordings: `harken data manifest`, `joined` and `suffixes`."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from harken.cli.arguments import Parser
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.manifest import read_utterances, with_word_times, word_suffixes, write_manifest
from harken.formats.sound import segment_name
from harken.formats.speech_folders import read_speech_folder, utterances_from_names
from harken.synthetic.joined import JoinedConfig, write_joined

DIGITS = "0=zero,1=one,2=two,3=three,4=four,5=five,6=six,7=seven,8=eight,9=nine"


def add_recordings(parser: Parser) -> None:
    """Add the folder of recordings and the options that describe their file names."""
    add, pattern = parser.add_argument, "{text}_{speaker}_{index}.wav"
    add("folder", type=Path, metavar="FOLDER", help="Folder of recordings")
    add("--pattern", metavar="NAME", help=f"Pattern of file names, such as {pattern}")
    add("--words", metavar="A=B,…", help="Map {text} to words: 1=yes,0=no, or digits for 0 to 9")
    text = "Separator of words within {text}"
    add("--split", default="", metavar="SEPARATOR", dest="separator", help=text)


def manifest_options(parser: Parser) -> None:
    """Add the options of `harken data manifest`."""
    add_recordings(parser)
    add = parser.add_argument
    for part in ("test", "dev"):
        text = f"Use matching file names for {part} (repeatable)"
        add(f"--{part}", action="append", default=[], metavar="GLOB", help=text)
    add("--test-last", type=int, default=0, metavar="N", help="Use the last N file names for test")


def write_manifests(
    out: Path, *, test: Sequence[str], dev: Sequence[str], test_last: int, **source: Any
) -> list[Path]:
    """Write a manifest for each split that has recordings."""
    splits: dict[str, list[Utterance]] = {"train": [], "dev": [], "test": []}
    recordings = _read_recordings(**source)
    for number, recording in enumerate(recordings):
        name = recording.audio.name
        is_test = number >= len(recordings) - test_last or any(fnmatch(name, glob) for glob in test)
        is_dev = any(fnmatch(name, glob) for glob in dev)
        splits["test" if is_test else "dev" if is_dev else "train"].append(recording)
    required = {"train": True, "dev": dev, "test": test or test_last}
    for split, is_required in required.items():
        if is_required and not splits[split]:
            raise UserError(
                f"{source['folder']}: no recording in the {split} split (of {len(recordings)})",
                fix="change --test, --test-last or --dev, for example --test '*_[0-4].wav'",
            )
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, utterances in splits.items():
        if utterances:
            paths.append(out / f"{split}.jsonl")
            write_manifest(utterances, paths[-1])
    return paths


def suffixes_options(parser: Parser) -> None:
    """Add the options of `harken data suffixes`."""
    add = parser.add_argument
    add("manifest", type=Path, metavar="MANIFEST", help="Manifest of utterances")
    add("--run", type=Path, metavar="RUN", help="Speech recognizer that finds the word times")


def write_suffixes(out: Path, *, manifest: Path, run: Path | None) -> list[Path]:
    """Write a manifest with every suffix of every utterance, starting at a word."""
    from harken.run import load

    utterances = read_utterances(manifest)
    if run is not None:
        predictions = load(run, "auto").predict(list(map(segment_name, utterances)), times=True)
        utterances = with_word_times(utterances, [prediction.words for prediction in predictions])
    if not any(utterance.words for utterance in utterances):
        problem = f"{manifest}: the utterances have no word times"
        fix = "train a speech recognizer on this manifest, and pass its run folder with --run"
        raise UserError(problem, fix=fix if run is None else "choose another --run")
    out.mkdir(parents=True, exist_ok=True)
    path = out / manifest.name
    suffixes = [suffix for utterance in utterances for suffix in word_suffixes(utterance)]
    write_manifest(suffixes, path)
    return [path]


def joined_options(parser: Parser) -> None:
    """Add the options of `harken data joined`."""
    add_recordings(parser)
    add = parser.add_argument
    parser.add_fields(
        JoinedConfig,
        sentences="Number of sentences, a tenth each in dev and test",
        min_words="Minimum number of words per sentence",
        max_words="Maximum number of words per sentence",
        sample_rate="Sampling rate in Hz",
        seed="Seed of the sentences",
    )
    for part in ("test", "dev"):
        text = f"Speakers of the {part} split: names such as a,b, or a share"
        add(f"--{part}-speakers", type=_parse_speakers, default=0.15, metavar="NAMES", help=text)


def write_joined_words(
    out: Path,
    *,
    folder: Path,
    pattern: str | None,
    words: str | None,
    separator: str,
    **settings: Any,
) -> list[Path]:
    """Write sounds of several words each, and manifests with the time of every word."""
    recordings = _read_recordings(folder, pattern, words, separator)
    return write_joined(recordings, JoinedConfig(**settings), out)


def _parse_speakers(text: str) -> tuple[str, ...] | float:
    try:
        return float(text)
    except ValueError:
        return tuple(text.split(","))


def _read_recordings(
    folder: Path, pattern: str | None, words: str | None, separator: str
) -> Sequence[Utterance]:
    if pattern is not None:
        transcripts = _parse_words(words) if words else None
        return utterances_from_names(folder, pattern, words=transcripts, split=separator)
    if words or separator:
        problem = "data: --words and --split require --pattern"
        raise UserError(problem, fix="add --pattern, or leave out both")
    return read_speech_folder(folder)


def _parse_words(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in (DIGITS if text == "digits" else text).split(",")]
    if not all(all(pair) for pair in pairs):
        problem = f"--words: expected pairs such as 1=yes,0=no, got {text!r}"
        raise UserError(problem, fix="write A=B,C=D")
    return {key: transcript for key, _, transcript in pairs}
