import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.formats.examples import SpokenWord
from harken.formats.manifest import read_utterances
from harken.formats.sound import read_sound
from harken.formats.split import SPLITS
from harken.synthetic import speech as module
from harken.synthetic.recordings import Recording
from harken.synthetic.speech import (
    DIGITS,
    PRONUNCIATIONS,
    SpeechConfig,
    draw_utterance,
    draw_utterances,
    speaker_numbers,
    write_speech,
)


def test_a_seed_keeps_its_utterances() -> None:
    # Written down once: published figures name a seed, so a change here is a change of data.
    utterance, signal = draw_utterance(SpeechConfig(seed=7), "test", 11)
    assert (utterance.text, utterance.speaker) == ("seven two one nine", "speaker20")
    assert utterance.words[2] == SpokenWord("one", 0.943375, 1.141875)
    assert len(signal) == 13972
    assert float(np.abs(signal).mean()) == pytest.approx(0.0128394, rel=1e-4)


def test_words_have_the_times_at_which_they_sound() -> None:
    config = SpeechConfig(utterances=60, snr=60.0, sample_rate=11025, min_words=2, max_words=4)
    lengths = Counter()
    for utterance, signal in draw_utterances(config, "train"):
        assert utterance.text == " ".join(word.word for word in utterance.words)
        assert signal.dtype == np.float32 and np.abs(signal).max() <= 1
        lengths[len(utterance.words)] += 1
        inside = np.zeros(len(signal), dtype=bool)
        for word in utterance.words:
            inside[round(word.start * 11025) : round(word.end * 11025)] = True
        powers = [np.mean(signal[where] ** 2) for where in (inside, ~inside)]
        assert 10 * np.log10(powers[0] / powers[1]) == pytest.approx(60, abs=1.5)
    assert set(lengths) == {2, 3, 4}


def test_every_word_comes_as_often() -> None:
    config = SpeechConfig(words=("yes", "no", "go"), utterances=150, max_words=3, sample_rate=4000)
    texts = (utterance.text for utterance, _ in draw_utterances(config, "train"))
    counts = Counter(word for text in texts for word in text.split())
    assert set(counts) == {"yes", "no", "go"}
    total = sum(counts.values())
    assert max(abs(count - total / 3) for count in counts.values()) < 4 * (total * 2 / 9) ** 0.5


@given(st.integers(3, 10**5))
def test_no_speaker_is_in_two_parts(count: int) -> None:
    config = SpeechConfig(speakers=count)
    train, dev, test = (speaker_numbers(config, split) for split in SPLITS)
    assert (train.start, train.stop, dev.stop, test.stop) == (0, dev.start, test.start, count)
    assert len(dev) == len(test) == max(1, count // 5)
    assert len(train) >= 1


# --- can it be learned, and must it be


def pictures(recordings: list[Recording], rate: int, moments: int) -> tuple[np.ndarray, np.ndarray]:
    """(words, log power of 16 bands at so many moments of each), cut at the known times."""
    labels, features = [], []
    for utterance, signal in recordings:
        for word in utterance.words:
            heard = signal[round(word.start * rate) : round(word.end * rate)]
            frames = np.lib.stride_tricks.sliding_window_view(heard, 160)[::40] * np.hanning(160)
            power = np.abs(np.fft.rfft(frames, 256, axis=1)[:, :128]) ** 2
            bands = np.log(power.reshape(len(frames), 16, 8).sum(axis=2) + 1e-9)
            parts = np.array_split(bands, moments)
            picture = np.concatenate([part.mean(axis=0) for part in parts])
            labels.append(word.word)
            features.append(picture - picture.mean())
    return np.array(labels), np.array(features)


@pytest.mark.parametrize("seed", [0, 1])
def test_words_of_strangers_are_recognized_by_templates_but_not_all(seed: int) -> None:
    """The mean picture of each word over the speakers of train, and the nearest for the others."""
    config = SpeechConfig(utterances=200, seed=seed)
    train = list(draw_utterances(config, "train"))
    test = [*draw_utterances(config, "dev"), *draw_utterances(config, "test")]

    def accuracy(moments: int) -> float:
        labels, features = pictures(train, config.sample_rate, moments)
        templates = np.array([features[labels == word].mean(axis=0) for word in DIGITS])
        wanted, unseen = pictures(test, config.sample_rate, moments)
        distances = np.square(unseen[:, None] - templates).sum(axis=2)
        return float(np.mean(np.array(DIGITS)[distances.argmin(axis=1)] == wanted))

    assert 0.7 < accuracy(moments=8) < 0.98  # chance is 0.1
    assert accuracy(moments=1) < accuracy(moments=8) - 0.1  # the order of sounds matters


# --- files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoken")
    paths = write_speech(SpeechConfig(utterances=53), folder)
    assert paths == [folder / f"{split}.jsonl" for split in SPLITS]
    return folder


def test_files_are_what_was_said(folder: Path) -> None:
    config = SpeechConfig(utterances=53)
    speakers = {}
    for split, size in (("train", 43), ("dev", 5), ("test", 5)):
        read = read_utterances(folder / f"{split}.jsonl")
        assert len(read) == size
        speakers[split] = {utterance.speaker for utterance in read}
        for found, (utterance, signal) in zip(read, draw_utterances(config, split), strict=True):  # type: ignore[arg-type]
            assert found == replace(utterance, audio=folder / utterance.audio)
            np.testing.assert_allclose(read_sound(found.audio, rate=8000), signal, atol=1 / 65000)
    assert [len(speakers[split]) for split in SPLITS] == [12, 4, 4]
    assert len(speakers["train"] | speakers["dev"] | speakers["test"]) == 20


def test_a_line_has_what_the_formats_page_says(folder: Path) -> None:
    line = json.loads((folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert line["audio"] == "spoken/dev/00001.wav"
    assert set(line) == {"audio", "text", "speaker", "words"}
    assert [set(word) for word in line["words"]] == [{"word", "start", "end"}] * len(line["words"])


def test_loud_noise_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = module.draw_speaker(0, 0)._replace(level=-3.0)
    monkeypatch.setattr(module, "draw_speaker", lambda seed, number: loud)
    signal = draw_utterance(SpeechConfig(snr=0.0), "train", 0)[1]
    assert np.sum(np.abs(signal) >= 1) == 1  # the one peak that everything was scaled by


def test_every_word_there_is_can_be_said() -> None:
    config = SpeechConfig(words=tuple(PRONUNCIATIONS), min_words=100, max_words=100)
    assert set(draw_utterance(config, "train", 0)[0].text.split()) > {"yes", "stop", "down"}
