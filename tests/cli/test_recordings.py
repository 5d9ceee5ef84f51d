"""`harken data speech`, `manifest` and `joined` as a script calls them."""

from pathlib import Path

import numpy as np
import pytest

from harken.cli.main import main
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


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Path]:
    assert main(["data", *map(str, arguments)]) == 0
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["data", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_names_of_files_become_manifests_kept_apart_by_a_glob(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--pattern", PATTERN, "--words", "digits")
    out = tmp_path / "out"
    train, dev, test = printed(
        capsys,
        "manifest",
        recordings,
        *options,
        "--test",
        "*_1.wav",
        "--dev",
        "*_cyd_*",
        "--out",
        out,
    )
    result = {path.stem: read_utterances(path) for path in (train, dev, test)}
    assert {name: len(some) for name, some in result.items()} == {"train": 6, "dev": 3, "test": 9}
    assert {item.text for item in result["test"]} == {"zero", "one", "seven"}
    assert {item.speaker for item in result["dev"]} == {"cyd"}
    assert all(item.audio.name.endswith("_1.wav") for item in result["test"])


def test_the_last_in_order_can_be_kept_apart(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--pattern", PATTERN, "--test-last", 6, "--out", tmp_path / "out")
    _, test = printed(capsys, "manifest", recordings, *options)
    assert {item.text for item in read_utterances(test)} == {"7"}


def test_words_between_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "yesno"
    folder.mkdir()
    write_wav(folder / "0_1_1.wav", np.zeros(800, dtype=np.float32), 8000)
    options = ("--pattern", "{text}.wav", "--split", "_", "--words", "1=yes,0=no")
    (train,) = printed(capsys, "manifest", folder, *options, "--out", tmp_path / "out")
    assert [item.text for item in read_utterances(train)] == ["no yes yes"]


def test_joined_words_have_times_and_speakers_of_their_own(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--pattern", PATTERN, "--words", "digits", "--sentences", 20)
    speakers = ("--test-speakers", "ann", "--dev-speakers", "bob", "--out", tmp_path / "out")
    parts = printed(capsys, "joined", recordings, *options, *speakers)
    for part, speaker in zip(parts, ("cyd", "bob", "ann"), strict=True):
        for item in read_utterances(part):
            assert item.speaker == speaker
            assert [word.word for word in item.words] == item.text.split()
            assert 3 <= len(item.words) <= 7


def test_made_words_need_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = printed(
        capsys, "speech", "--utterances", 10, "--speakers", 5, "--out", tmp_path / "out"
    )
    assert [len(read_utterances(part)) for part in parts] == [8, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--pattern", PATTERN, "--test", "*.flac"), "none of 18 recordings is for test"),
        (("--pattern", PATTERN, "--test", "*"), "none of 18 recordings is for train"),
        (
            ("--pattern", PATTERN, "--words", "1"),
            "--words: expected pairs such as 1=yes,0=no, got '1'",
        ),
        (("--words", "1=one"), "need --pattern"),
        ((), "expected a folder of Kaldi"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    options: tuple[str, ...],
    sentence: str,
    recordings: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert sentence in refused(capsys, "manifest", recordings, *options, "--out", out)
    assert not out.exists()
