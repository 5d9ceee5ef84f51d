from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Failure, UserError
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import read_utterances
from harken.formats.sound import read_sound
from harken.formats.split import SPLITS, Split, split_sizes
from harken.synthetic import recordings as module
from harken.synthetic.recordings import (
    Recording,
    audio_path,
    limit_peak,
    make_recording,
    write_recordings,
    write_wav,
)
from small_files import peak_memory

RATE = 7919


def made(split: Split, count: int, size: int = 101) -> Iterator[Recording]:
    for index in range(count):
        signal = np.random.default_rng(index).uniform(-1, 1, size).astype(np.float32)
        words = (SpokenWord("zwölf", 0.001, 0.01),)
        yield (
            Utterance(audio_path("made", split, index), "zwölf", f"{split} {index}", words=words),
            signal,
        )


def write(folder: Path, count: int = 3) -> None:
    write_recordings(
        {split: made(split, count) for split in SPLITS}, folder, name="made", rate=RATE
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write(folder)
    for split in SPLITS:
        found = read_utterances(folder / f"{split}.jsonl")
        for utterance, (wanted, signal) in zip(found, made(split, 3), strict=True):
            assert utterance == replace(wanted, audio=folder / wanted.audio)
            read = read_sound(utterance.audio, rate=RATE)
            np.testing.assert_allclose(read, signal, atol=1 / 65000)
    assert len([*folder.glob("made/*/*.wav")]) == 9


def test_the_folder_can_be_moved(tmp_path: Path) -> None:
    write(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert str(tmp_path) not in (tmp_path / "there" / "dev.jsonl").read_text(encoding="utf-8")
    for utterance in read_utterances(tmp_path / "there" / "dev.jsonl"):
        assert len(read_sound(utterance.audio, rate=RATE)) == 101


def test_wav_files_are_what_others_read(tmp_path: Path) -> None:
    signal = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 7.0, -7.0, 1e-5])  # 7 is clipped, not wrapped
    write_wav(tmp_path / "sound.wav", signal, RATE)
    theirs, rate = soundfile.read(tmp_path / "sound.wav", dtype="int16")
    assert rate == RATE
    assert soundfile.info(tmp_path / "sound.wav").subtype == "PCM_16"
    assert theirs.tolist() == [0, 16384, -16384, 32767, -32768, 32767, -32768, 0]


def test_sounds_of_16_bits_come_out_the_same(tmp_path: Path) -> None:
    steps = np.arange(-(2**15), 2**15, dtype=np.int16)
    soundfile.write(tmp_path / "theirs.wav", steps, RATE)
    write_wav(tmp_path / "ours.wav", read_sound(tmp_path / "theirs.wav", rate=RATE), RATE)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "ours.wav", dtype="int16")[0], steps)


@pytest.mark.parametrize("name", ["diary.txt", "train/00001.flac", "train/more/00001.wav", "mine"])
def test_what_somebody_else_put_there_is_not_replaced(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    stranger = tmp_path / "made" / name
    stranger.parent.mkdir(exist_ok=True)
    stranger.mkdir() if name == "mine" else stranger.write_bytes(b"precious")
    with pytest.raises(UserError, match="expected generated files only"):
        write(tmp_path)
    assert stranger.exists()


def test_every_sound_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync", synced.append)
    write(tmp_path)
    assert {path.parent.parent.name for path in synced} == {".made.unfinished"}
    names = {path.relative_to(tmp_path / "made") for path in tmp_path.glob("made/*/*")}
    assert {path.relative_to(path.parent.parent) for path in synced} == names


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "sync", refusing)
    with pytest.raises(Failure, match="No space left"):
        write(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_memory_holds_one_sound_at_a_time(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        splits = {"train": made("train", count, 2**16)}
        return peak_memory(write_recordings, splits, tmp_path, name="made", rate=RATE)

    peak(1)  # what is imported on the way
    assert peak(23) < peak(3) + 2**17  # twenty sounds would take 5 MiB


@given(st.integers(3, 10**6))
def test_a_tenth_each_is_set_aside(count: int) -> None:
    sizes = split_sizes(count)
    assert list(sizes) == list(SPLITS)
    assert sum(sizes.values()) == count
    assert sizes["dev"] == sizes["test"] == max(1, count // 10)
    assert sizes["train"] >= 1


@given(st.integers(4000, 192_000), st.lists(st.integers(0, 10**7), min_size=2, max_size=9))
def test_times_are_exact_to_the_sample(rate: int, samples: list[int]) -> None:
    spans = [(sample, sample + 1) for sample in samples]
    words, signal = ["x"] * len(spans), np.zeros(3)
    utterance, _ = make_recording(Path("x.wav"), "ann", words, spans, signal, rate)
    for word, (start, end) in zip(utterance.words, spans, strict=True):
        assert (round(word.start * rate), round(word.end * rate)) == (start, end)


@given(st.lists(st.floats(-100, 100), max_size=9))
def test_a_signal_is_made_quieter_as_a_whole_or_left_alone(samples: list[float]) -> None:
    signal = np.array(samples)
    found = limit_peak(signal)
    if np.abs(signal).max(initial=0) <= 1:
        assert found is signal
    else:
        assert np.abs(found).max() == 1
        np.testing.assert_allclose(found * np.abs(signal).max(), signal, rtol=1e-12, atol=1e-300)
