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
from harken.formats.split import PARTS
from harken.synthetic.joined import (
    JoinedConfig,
    joined,
    part_by_speaker,
    trimmed,
    write_joined,
)
from harken.synthetic.recordings import Signal

RATE = 8000
WORDS = ("zero", "one", "two")
SPEAKERS = ("ann", "bob", "cid", "dan", "eve")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    """Two sayings of three words by five people, no two alike, with silence at their ends."""
    folder = tmp_path_factory.mktemp("recordings")
    found = []
    for number in range(30):
        word, speaker = WORDS[number % 3], SPEAKERS[number // 6]
        sound = np.random.default_rng(number).integers(-9000, 9000, 401 + 10 * number)
        sound[:100] = sound[-150:] = 0
        path = folder / f"{word}_{speaker}_{number}.wav"
        soundfile.write(path, sound.astype(np.int16), RATE)
        found.append(Utterance(path, word, speaker))
    return found


def sound_of(one: Utterance) -> Signal:
    return soundfile.read(one.audio, dtype="float32")[0]


def pieces(utterance: Utterance, signal: Signal) -> list[Signal]:
    return [signal[round(one.start * RATE) : round(one.end * RATE)] for one in utterance.words]


@pytest.fixture(scope="module")
def by_sound(recordings: list[Utterance]) -> dict[bytes, Utterance]:
    """The recording that a piece is, sample by sample."""
    return {sound_of(one).tobytes(): one for one in recordings}


def test_words_are_whole_recordings_of_one_speaker_with_silence_between(
    recordings: list[Utterance], by_sound: dict[bytes, Utterance]
) -> None:
    config = JoinedConfig(shortest_pause=10.0, longest_pause=30.0)
    lengths = Counter()
    for utterance, signal in joined(recordings, config, "train", 41):
        sources = [by_sound[piece.tobytes()] for piece in pieces(utterance, signal)]
        assert utterance.text == " ".join(one.text for one in sources)
        assert [one.word for one in utterance.words] == utterance.text.split()
        assert {one.speaker for one in sources} == {utterance.speaker}
        lengths[len(sources)] += 1
        assert utterance.words[0].start == 0
        assert round(utterance.words[-1].end * RATE) == len(signal)
        for before, after in pairwise(utterance.words):
            assert 0.01 - 1e-3 <= after.start - before.end <= 0.03 + 1e-3
            assert not signal[round(before.end * RATE) : round(after.start * RATE)].any()
    assert set(lengths) == {3, 4, 5, 6, 7}


def test_every_recording_is_used(recordings: list[Utterance]) -> None:
    heard = Counter(
        (utterance.speaker, word)
        for utterance, _ in joined(recordings, JoinedConfig(), "train", 97)
        for word in utterance.text.split()
    )
    assert len(heard) == 15
    assert max(heard.values()) < 3 * min(heard.values())


def test_a_sentence_does_not_depend_on_how_many_there_are(recordings: list[Utterance]) -> None:
    few, many = (list(joined(recordings, JoinedConfig(seed=5), "dev", count)) for count in (3, 7))
    for (utterance, signal), (same, alike) in zip(few, many[:3], strict=True):
        assert utterance == same
        np.testing.assert_array_equal(signal, alike)
    assert len({utterance.text for utterance, _ in many}) > 3
    other = next(joined(recordings, JoinedConfig(seed=6), "dev", 1))[0]
    assert next(joined(recordings, JoinedConfig(seed=5), "test", 1))[0] != few[0][0] != other


# --- who is heard where


def heard(parts: dict[str, list[Utterance]]) -> list[set[str]]:
    return [{one.speaker for one in parts[part]} for part in PARTS]


def test_speakers_are_apart_by_name(recordings: list[Utterance]) -> None:
    config = JoinedConfig(dev_speakers=("bob",), test_speakers=("eve", "ann"))
    parts = part_by_speaker(recordings, config)
    assert heard(parts) == [{"cid", "dan"}, {"bob"}, {"ann", "eve"}]
    assert sum(map(len, parts.values())) == len(recordings)


@pytest.mark.parametrize(("share", "sizes"), [(0.15, [3, 1, 1]), (0.4, [2, 1, 2])])
def test_speakers_are_apart_by_share(
    recordings: list[Utterance], share: float, sizes: list[int]
) -> None:
    found = []
    for seed in range(9):
        config = JoinedConfig(dev_speakers=share, test_speakers=share, seed=seed)
        speakers = heard(part_by_speaker(recordings, config))
        assert [len(part) for part in speakers] == sizes
        assert set.union(*speakers) == set(SPEAKERS)
        found.append(frozenset(speakers[2]))
    assert len(set(found)) > 1  # the seed draws


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"test_speakers": ("eva",)}, "test_speakers: expected one of ann, bob"),
        (
            {"test_speakers": ("eve",), "dev_speakers": ("eve",)},
            "dev_speakers: expected one of ann, bob, cid, dan, got 'eve'; a speaker is in one part",
        ),
        ({"test_speakers": SPEAKERS}, "test_speakers: expected a speaker left for train"),
        ({"test_speakers": SPEAKERS[1:]}, "dev_speakers: expected .* at least 2 speakers"),
    ],
)
def test_speakers_that_cannot_be_set_apart(
    recordings: list[Utterance], changed: dict[str, tuple[str, ...]], found: str
) -> None:
    with pytest.raises(UserError, match=found):
        part_by_speaker(recordings, JoinedConfig(**changed))  # type: ignore[arg-type]


def test_recordings_of_nobody_in_particular_cannot_be_parted(recordings: list[Utterance]) -> None:
    nobodys = [replace(one, speaker="") for one in recordings]
    with pytest.raises(UserError, match=r"got 1; .*name the speakers"):
        part_by_speaker(nobodys, JoinedConfig())


# --- files


def test_files_are_read_back(
    recordings: list[Utterance], by_sound: dict[bytes, Utterance], tmp_path: Path
) -> None:
    config = JoinedConfig(sentences=23, test_speakers=("eve",), dev_speakers=("dan",))
    files = write_joined(recordings, config, tmp_path)
    wanted = part_by_speaker(recordings, config)
    for part, size in (("train", 19), ("dev", 2), ("test", 2)):
        found = read_utterances(getattr(files, part))
        assert len(found) == size
        assert {one.speaker for one in found} <= {one.speaker for one in wanted[part]}  # type: ignore[index]
        for utterance in found:
            signal = read_sound(utterance.audio, rate=RATE)  # 16 bits in, the same 16 bits out
            texts = [by_sound[piece.tobytes()].text for piece in pieces(utterance, signal)]
            assert utterance.text == " ".join(texts)
    assert files.audio == tmp_path / "joined"


def test_only_single_words_are_joined(recordings: list[Utterance], tmp_path: Path) -> None:
    for text in ("one two", " "):
        wrong = [*recordings[:-1], replace(recordings[-1], text=text)]
        with pytest.raises(UserError, match=rf"expected a text of one word, got '{text}'"):
            write_joined(wrong, JoinedConfig(sentences=3), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_missing_recording_writes_nothing(recordings: list[Utterance], tmp_path: Path) -> None:
    gone = [replace(one, audio=tmp_path / "gone.wav") for one in recordings]
    with pytest.raises(UserError, match=r"gone\.wav"):
        write_joined(gone, JoinedConfig(sentences=3), tmp_path / "new")
    assert not [*(tmp_path / "new").iterdir()]


# --- what is done to a recording


def test_only_the_stretch_of_an_utterance_is_joined(recordings: list[Utterance]) -> None:
    stretches = [replace(one, start=0.01, end=0.04) for one in recordings]
    for utterance, signal in joined(stretches, JoinedConfig(), "train", 3):
        for piece in pieces(utterance, signal):
            assert any(np.array_equal(piece, sound_of(one)[80:320]) for one in recordings)


def test_another_rate_keeps_the_times(recordings: list[Utterance]) -> None:
    slow, fast = (
        next(joined(recordings, JoinedConfig(rate=rate), "train", 1)) for rate in (8000, 16000)
    )
    assert len(fast[1]) == pytest.approx(2 * len(slow[1]), abs=10)
    for one, other in zip(slow[0].words, fast[0].words, strict=True):
        assert (one.start, one.end) == pytest.approx((other.start, other.end), abs=1e-3)


def test_trimming_cuts_what_is_quiet_at_the_ends_only(recordings: list[Utterance]) -> None:
    config = JoinedConfig(trim=40.0)
    for utterance, signal in joined(recordings, config, "train", 5):
        for piece in pieces(utterance, signal):
            assert piece[:80].any() and piece[-80:].any()  # 10 ms
            whole = [sound_of(one) for one in recordings]
            assert any(np.array_equal(piece, one[80 : 80 + len(piece)]) for one in whole)


def test_trimming_by_hand() -> None:
    sound = np.repeat([0.0, 0.005, 0.5, 0.0, 1.0, 0.05, 0.001], 10)  # at 1 kHz, 10 ms each
    for decibels, kept in ((7, sound[20:50]), (40, sound[20:60]), (50, sound[10:60])):
        np.testing.assert_array_equal(trimmed(sound, 1000, decibels), kept)
    np.testing.assert_array_equal(trimmed(sound[:53], 1000, 60), sound[10:53])
    silence = np.zeros(37)
    np.testing.assert_array_equal(trimmed(silence, 1000, 40), silence)


def test_jitter_changes_levels_and_nothing_is_clipped(recordings: list[Utterance]) -> None:
    config = JoinedConfig(level_jitter=20.0, seed=1)
    plain = JoinedConfig(seed=1)
    gains = []
    for (utterance, signal), (same, untouched) in zip(
        joined(recordings, config, "train", 29), joined(recordings, plain, "train", 29), strict=True
    ):
        assert utterance == same
        assert np.abs(signal).max() <= 1
        for piece, before in zip(pieces(utterance, signal), pieces(same, untouched), strict=True):
            gain = float(piece @ before / (before @ before))
            np.testing.assert_allclose(piece, gain * before, atol=1e-6)
            gains.append(20 * np.log10(gain))
    # Recordings peak at 0.27, so that sentences above 11 dB were made quieter as a whole.
    assert -30 < min(gains) < -15
    assert 9 < max(gains) < 11.6


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"sentences": 2}, "sentences must be from 3 to 100000, got 2"),
        ({"least": 0}, "least must be .*got 0 and 7"),
        ({"least": 8}, "least must be .*got 8 and 7"),
        ({"most": 101}, "most at most 100, got 3 and 101"),
        ({"shortest_pause": -1.0}, "shortest_pause must be .*got -1.0 and 250.0"),
        ({"longest_pause": 1e9}, "longest_pause at most 10000, got 50.0 and 1000000000.0"),
        ({"shortest_pause": 300.0}, "shortest_pause must be .*got 300.0 and 250.0"),
        ({"dev_speakers": ()}, r"dev_speakers must be names or a share .*got \(\)"),
        ({"test_speakers": 1.0}, "test_speakers must be .*got 1.0"),
        ({"trim": 0.0}, "trim must be above 0 .*got 0.0"),
        ({"level_jitter": -1.0}, "level_jitter must be .*got -1.0"),
        ({"rate": 100}, "rate must be .*got 100"),
    ],
)
def test_impossible_configs_are_refused(changed: dict[str, object], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        JoinedConfig(**changed)  # type: ignore[arg-type]
