"""`harken data speech`, `manifest` and `joined`."""

from pathlib import Path

import numpy as np
import pytest

from command_line import Cli
from harken.formats.manifest import read_utterances
from harken.synthetic.recordings import write_wav

PATTERN = "{text}_{speaker}_{index}.wav"


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Three digits of three speakers, twice each."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    random = np.random.default_rng(0)
    for text in "017":
        for speaker in ("ann", "bob", "cyd"):
            for index in range(2):
                sound = random.normal(0, 0.1, 1600).astype(np.float32)
                write_wav(folder / f"{text}_{speaker}_{index}.wav", sound, 8000)
    return folder


def written(cli: Cli, *arguments: object) -> list[Path]:
    return [Path(line) for line in cli("data", *arguments).out.splitlines()]


def test_a_manifest_from_file_names_with_splits_by_glob(
    recordings: Path, tmp_path: Path, cli: Cli
) -> None:
    options = ("--pattern", PATTERN, "--words", "digits", "--out", tmp_path / "out")
    globs = ("--test", "*_1.wav", "--dev", "*_cyd_*")
    paths = written(cli, "manifest", recordings, *options, *globs)
    result = {path.stem: read_utterances(path) for path in paths}
    sizes = {name: len(utterances) for name, utterances in result.items()}
    assert sizes == {"train": 6, "dev": 3, "test": 9}
    assert {item.text for item in result["test"]} == {"zero", "one", "seven"}
    assert {item.speaker for item in result["dev"]} == {"cyd"}
    assert all(item.audio.name.endswith("_1.wav") for item in result["test"])


def test_the_last_names_are_the_test_split(recordings: Path, tmp_path: Path, cli: Cli) -> None:
    options = ("--pattern", PATTERN, "--test-last", 6, "--out", tmp_path / "out")
    _, test = written(cli, "manifest", recordings, *options)
    assert {item.text for item in read_utterances(test)} == {"7"}


def test_separated_words_of_a_name(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "yesno"
    folder.mkdir()
    write_wav(folder / "0_1_1.wav", np.zeros(800, dtype=np.float32), 8000)
    options = ("--pattern", "{text}.wav", "--split", "_", "--words", "1=yes,0=no")
    (train,) = written(cli, "manifest", folder, *options, "--out", tmp_path / "out")
    assert [item.text for item in read_utterances(train)] == ["no yes yes"]


def test_joined_words_have_times_and_different_speakers_by_split(
    recordings: Path, tmp_path: Path, cli: Cli
) -> None:
    options = ("--pattern", PATTERN, "--words", "digits", "--sentences", 20)
    speakers = ("--test-speakers", "ann", "--dev-speakers", "bob", "--out", tmp_path / "out")
    parts = written(cli, "joined", recordings, *options, *speakers)
    for part, speaker in zip(parts, ("cyd", "bob", "ann"), strict=True):
        for item in read_utterances(part):
            assert item.speaker == speaker
            assert [word.word for word in item.words] == item.text.split()
            assert 3 <= len(item.words) <= 7


def test_synthetic_speech(tmp_path: Path, cli: Cli) -> None:
    options = ("--utterances", 10, "--speakers", 5, "--out", tmp_path / "out")
    parts = written(cli, "speech", *options)
    assert [len(read_utterances(part)) for part in parts] == [8, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--pattern", PATTERN, "--test", "*.flac"), "no recording in the test split (of 18)"),
        (("--pattern", PATTERN, "--test", "*"), "no recording in the train split (of 18)"),
        (
            ("--pattern", PATTERN, "--words", "1"),
            "--words: expected pairs such as 1=yes,0=no, got '1'",
        ),
        (("--words", "1=one"), "require --pattern"),
        ((), "expected a folder of Kaldi"),
    ],
)
def test_wrong_options_of_manifest(
    options: tuple[str, ...], sentence: str, recordings: Path, tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "out"
    assert sentence in cli.error("data", "manifest", recordings, *options, "--out", out)
    assert not out.exists()
