from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.manifest import read_utterances
from harken.formats.sound import read_sound
from harken.formats.split import SPLITS
from harken.synthetic.joined import (
    JoinedConfig,
    joined_sentences,
    split_by_speaker,
    write_joined,
)
from harken.synthetic.recordings import Signal

RATE = 8000
WORDS = ("zero", "one", "two")
SPEAKERS = ("ann", "bob", "cid", "dan", "eve")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    """Two different recordings of three words by five speakers, with silence at their ends."""
    folder = tmp_path_factory.mktemp("recordings")
    recordings = []
    for number in range(30):
        word, speaker = WORDS[number % 3], SPEAKERS[number // 6]
        sound = np.random.default_rng(number).integers(-9000, 9000, 401 + 10 * number)
        sound[:100] = sound[-150:] = 0
        path = folder / f"{word}_{speaker}_{number}.wav"
        soundfile.write(path, sound.astype(np.int16), RATE)
        recordings.append(Utterance(path, word, speaker))
    return recordings


def sound_of(recording: Utterance) -> Signal:
    return soundfile.read(recording.audio, dtype="float32")[0]


def pieces(utterance: Utterance, signal: Signal) -> list[Signal]:
    return [signal[round(word.start * RATE) : round(word.end * RATE)] for word in utterance.words]


@pytest.fixture(scope="module")
def by_sound(recordings: list[Utterance]) -> dict[bytes, Utterance]:
    """Recordings by their samples."""
    return {sound_of(recording).tobytes(): recording for recording in recordings}


def test_words_are_whole_recordings_of_one_speaker_with_silence_between(
    recordings: list[Utterance], by_sound: dict[bytes, Utterance]
) -> None:
    lengths = Counter()
    for utterance, signal in joined_sentences(recordings, JoinedConfig(), "train", 41):
        sources = [by_sound[piece.tobytes()] for piece in pieces(utterance, signal)]
        assert utterance.text == " ".join(source.text for source in sources)
        assert [word.word for word in utterance.words] == utterance.text.split()
        assert {source.speaker for source in sources} == {utterance.speaker}
        lengths[len(sources)] += 1
        assert utterance.words[0].start == 0
        assert round(utterance.words[-1].end * RATE) == len(signal)
        for before, after in pairwise(utterance.words):
            assert 0.05 - 1e-3 <= after.start - before.end <= 0.25 + 1e-3
            assert not signal[round(before.end * RATE) : round(after.start * RATE)].any()
    assert set(lengths) == {3, 4, 5, 6, 7}


def test_every_recording_is_used(recordings: list[Utterance]) -> None:
    counts = Counter(
        (utterance.speaker, word)
        for utterance, _ in joined_sentences(recordings, JoinedConfig(), "train", 97)
        for word in utterance.text.split()
    )
    assert len(counts) == 15
    assert max(counts.values()) < 3 * min(counts.values())


def test_a_sentence_does_not_depend_on_how_many_there_are(recordings: list[Utterance]) -> None:
    few, many = (
        list(joined_sentences(recordings, JoinedConfig(seed=5), "dev", count)) for count in (3, 7)
    )
    for (utterance, signal), (same, alike) in zip(few, many[:3], strict=True):
        assert utterance == same
        np.testing.assert_array_equal(signal, alike)
    assert len({utterance.text for utterance, _ in many}) > 3
    other = next(joined_sentences(recordings, JoinedConfig(seed=6), "dev", 1))[0]
    test = next(joined_sentences(recordings, JoinedConfig(seed=5), "test", 1))[0]
    assert test != few[0][0] != other


# --- speakers of splits


def speakers_of(splits: dict[str, list[Utterance]]) -> list[set[str]]:
    return [{recording.speaker for recording in splits[split]} for split in SPLITS]


def test_speakers_are_apart_by_name(recordings: list[Utterance]) -> None:
    config = JoinedConfig(dev_speakers=("bob",), test_speakers=("eve", "ann"))
    splits = split_by_speaker(recordings, config)
    assert speakers_of(splits) == [{"cid", "dan"}, {"bob"}, {"ann", "eve"}]
    assert sum(map(len, splits.values())) == len(recordings)


@pytest.mark.parametrize(("share", "sizes"), [(0.15, [3, 1, 1]), (0.4, [2, 1, 2])])
def test_speakers_are_apart_by_share(
    recordings: list[Utterance], share: float, sizes: list[int]
) -> None:
    test_speakers = set()
    for seed in range(9):
        config = JoinedConfig(dev_speakers=share, test_speakers=share, seed=seed)
        speakers = speakers_of(split_by_speaker(recordings, config))
        assert [len(split) for split in speakers] == sizes
        assert set.union(*speakers) == set(SPEAKERS)
        test_speakers.add(frozenset(speakers[2]))
    assert len(test_speakers) > 1  # they depend on the seed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test_speakers": ("eva",)}, "test_speakers: expected one of ann, bob"),
        (
            {"test_speakers": ("eve",), "dev_speakers": ("eve",)},
            "dev_speakers: expected one of ann, bob, cid, dan, got 'eve'; check the spelling",
        ),
        ({"test_speakers": SPEAKERS}, "test_speakers: no speaker is left for train"),
        ({"test_speakers": SPEAKERS[1:]}, "dev_speakers: expected .* at least 2 speakers"),
    ],
)
def test_speakers_that_cannot_be_set_apart(
    recordings: list[Utterance], changed: dict[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        split_by_speaker(recordings, JoinedConfig(**changed))  # type: ignore[arg-type]


def test_recordings_without_speakers(recordings: list[Utterance]) -> None:
    unnamed = [replace(recording, speaker="") for recording in recordings]
    with pytest.raises(UserError, match=r"got 1; set the speakers"):
        split_by_speaker(unnamed, JoinedConfig())


# --- files


def test_files_are_read_back(
    recordings: list[Utterance], by_sound: dict[bytes, Utterance], tmp_path: Path
) -> None:
    config = JoinedConfig(sentences=23, test_speakers=("eve",), dev_speakers=("dan",))
    write_joined(recordings, config, tmp_path)
    splits = split_by_speaker(recordings, config)
    for split, size in (("train", 19), ("dev", 2), ("test", 2)):
        utterances = read_utterances(tmp_path / f"{split}.jsonl")
        assert len(utterances) == size
        speakers = {recording.speaker for recording in splits[split]}  # type: ignore[index]
        for utterance in utterances:
            assert utterance.speaker in speakers
            signal = read_sound(utterance.audio, rate=RATE)  # 16 bits in, the same 16 bits out
            texts = [by_sound[piece.tobytes()].text for piece in pieces(utterance, signal)]
            assert utterance.text == " ".join(texts)


def test_only_single_words_are_joined(recordings: list[Utterance], tmp_path: Path) -> None:
    for text in ("one two", " "):
        wrong = [*recordings[:-1], replace(recordings[-1], text=text)]
        with pytest.raises(UserError, match=rf"expected a text of one word, got '{text}'"):
            write_joined(wrong, JoinedConfig(sentences=3), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_missing_recording_writes_nothing(recordings: list[Utterance], tmp_path: Path) -> None:
    gone = [replace(recording, audio=tmp_path / "gone.wav") for recording in recordings]
    with pytest.raises(UserError, match=r"gone\.wav"):
        write_joined(gone, JoinedConfig(sentences=3), tmp_path / "new")
    assert not [*(tmp_path / "new").iterdir()]


# --- segments and rates


def test_segments_are_joined(recordings: list[Utterance]) -> None:
    segments = [replace(recording, start=0.01, end=0.04) for recording in recordings]
    for utterance, signal in joined_sentences(segments, JoinedConfig(), "train", 3):
        for piece in pieces(utterance, signal):
            assert any(np.array_equal(piece, sound_of(source)[80:320]) for source in recordings)


def test_another_rate_keeps_the_times(recordings: list[Utterance]) -> None:
    slow, fast = (
        next(joined_sentences(recordings, JoinedConfig(sample_rate=rate), "train", 1))
        for rate in (8000, 16000)
    )
    assert len(fast[1]) == pytest.approx(2 * len(slow[1]), abs=10)
    for word, other in zip(slow[0].words, fast[0].words, strict=True):
        assert (word.start, word.end) == pytest.approx((other.start, other.end), abs=1e-3)
