from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jiwer
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harken.augment.conditions import (
    BABBLE_UTTERANCES,
    KINDS,
    UNCHANGED,
    Condition,
    RecordingSet,
    apply_condition,
    change_recording,
    parse_condition,
)
from harken.errors import UserError
from harken.formats.examples import SpokenWord, Utterance
from harken.synthetic.recordings import Signal

RATE = 8000
ADDITIVE = ("noise", "pink", "babble", "talker")
EVERY = ("quiet:20", "noise:10", "pink:5", "babble:5", "talker:5", "reverb:0.4")


def utterance(text: str = "one two", speaker: str = "ann") -> Utterance:
    return Utterance(Path("x.wav"), text, speaker, words=(SpokenWord(text.split()[0], 0.0, 0.1),))


def speechlike(seed: int, size: int = 4001, loudness: float = 0.02) -> Signal:
    """Return noise in bursts with pauses, and silence at both ends."""
    random = np.random.default_rng(seed)
    envelope = np.interp(np.arange(size), np.linspace(500, size - 700, 9), random.random(9))
    envelope[:500] = envelope[-700:] = envelope[1500:1900] = 0.0
    return (loudness * envelope * random.standard_normal(size)).astype(np.float32)


SIGNALS = [speechlike(seed, 3001 + 211 * seed) for seed in range(11)]
UTTERANCES = [utterance(speaker=f"speaker {seed % 5}") for seed in range(11)]


def decibels_over(signal: Signal, added: Signal) -> float:
    """Return the signal-to-noise ratio by its definition, in loops over frames."""
    frames = [slice(start, start + 160) for start in range(0, len(signal), 160)]
    powers = [float(np.mean(signal[frame].astype(np.float64) ** 2)) for frame in frames]
    counted = [
        frame for frame, power in zip(frames, powers, strict=True) if power >= max(powers) / 1e3
    ]
    above, below = (
        sum(float(np.sum(part[frame].astype(np.float64) ** 2)) for frame in counted)
        for part in (signal, added)
    )
    return float(10 * np.log10(above / below))


# Notation


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("quiet", UNCHANGED),
        ("quiet:20", Condition("quiet", 20.0)),
        ("noise:-5.5", Condition("noise", -5.5)),
        ("reverb:0.4", Condition("reverb", 0.4)),
    ],
)
def test_notation_of_conditions(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition
    assert str(condition) == text


@given(st.sampled_from(sorted(KINDS)), st.floats(0.05, 1.0))
def test_round_trip_of_conditions(kind: str, amount: float) -> None:
    condition = Condition(kind, amount)
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nois:10", "expected one of quiet, noise, .*got 'nois'.*did you mean 'noise'"),
        ("", "expected one of"),
        ("rain:10", "expected one of .*for example noise:10"),
        ("noise", "expected noise:DECIBELS, .*for example noise:10"),
        ("noise:", "got ''"),
        ("noise:loud", "got 'loud'"),
        ("noise:nan", "got 'nan'"),
        ("noise:1:2", "got '1:2'"),
        ("noise:inf", "at least -60 and at most 120"),
        ("noise:-61", "at least -60 and at most 120"),
        ("quiet:-1", "at least 0 and at most 120"),
        ("reverb:0", "expected reverb:SECONDS, at least 0.05 and at most 10"),
        ("references:10", "expected references:SHARE, at least 0 and at most 1, .*references:0.1"),
    ],
)
def test_wrong_conditions(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_condition(text)


# All conditions


@pytest.mark.parametrize("text", EVERY)
def test_length_and_words_are_unchanged(text: str) -> None:
    signals, utterances = apply_condition(parse_condition(text), SIGNALS, UTTERANCES, RATE, 3)
    assert utterances == UTTERANCES
    for before, after in zip(SIGNALS, signals, strict=True):
        assert (after.shape, after.dtype) == (before.shape, np.float32)
        assert np.abs(after).max() <= 1  # which NaN is not
        assert not np.array_equal(before, after)


@pytest.mark.parametrize("text", [*EVERY, "references:0.5"])
def test_a_change_depends_only_on_the_seed_and_the_index(text: str) -> None:
    condition = parse_condition(text)
    signals, utterances = apply_condition(condition, SIGNALS, UTTERANCES, RATE, 3)
    whole = RecordingSet(SIGNALS, UTTERANCES, RATE, 3)
    for index in (7, 2, 7):
        signal, alone = change_recording(condition, whole, index)
        np.testing.assert_array_equal(signal, signals[index])
        assert alone == utterances[index]
    if text == "quiet:20":
        return
    others, other_words = apply_condition(condition, SIGNALS, UTTERANCES, RATE, 4)
    assert other_words != utterances or not np.array_equal(others[7], signals[7])
    twice, twice_words = apply_condition(condition, [SIGNALS[7]] * 9, [UTTERANCES[7]] * 9, RATE, 3)
    sounds, texts = {s.tobytes() for s in twice}, {u.text for u in twice_words}
    assert len(sounds | texts) > 2


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("samples", [[], [0.0], [0.0] * 997, [0.1]], ids=len)
def test_silence_is_unchanged_and_one_sample_is_enough(text: str, samples: list[float]) -> None:
    signal = np.array(samples, dtype=np.float32)
    whole = RecordingSet([signal, SIGNALS[0]], UTTERANCES[:2], RATE, 3)
    changed, _ = change_recording(parse_condition(text), whole, 0)
    assert changed.shape == signal.shape and np.isfinite(changed).all()
    assert signal.any() or changed is signal


def test_quiet_changes_the_level_alone() -> None:
    assert apply_condition(UNCHANGED, SIGNALS, UTTERANCES, RATE, 3)[0][0] is SIGNALS[0]
    lower = apply_condition(Condition("quiet", 20.0), SIGNALS, UTTERANCES, RATE, 3)[0]
    np.testing.assert_allclose(lower[5], SIGNALS[5] / 10, rtol=1e-6)


# Noise


@given(st.sampled_from(ADDITIVE), st.floats(-10, 60), st.integers(0, 10), st.integers(0, 2**64))
@settings(max_examples=60)
def test_signal_to_noise_ratio(kind: str, decibels: float, index: int, seed: int) -> None:
    signal, whole = SIGNALS[index], RecordingSet(SIGNALS, UTTERANCES, RATE, seed)
    noisy, _ = change_recording(Condition(kind, decibels), whole, index)
    assume(np.abs(noisy).max() < 1)  # the next test has the others
    assert decibels_over(signal, noisy - signal) == pytest.approx(decibels, abs=0.1)


@pytest.mark.parametrize("kind", ADDITIVE)
def test_loud_mixtures_are_scaled_down_instead_of_clipped(kind: str) -> None:
    whole = RecordingSet([10 * signal for signal in SIGNALS], UTTERANCES, RATE, 3)
    signal = whole.signals[4]
    soft, loud = (
        change_recording(Condition(kind, decibels), whole, 4)[0] for decibels in (40.0, -20.0)
    )
    assert np.abs(soft).max() < 1
    assert np.sum(np.abs(loud) == 1) == 1  # one peak, no plateau
    # Another ratio means the same noise: the loud mixture has the same two components.
    both = np.stack((signal, soft - signal), axis=1).astype(np.float64)
    amounts, residual, *_ = np.linalg.lstsq(both, loud, rcond=None)
    assert residual < 1e-6 * np.sum(loud**2)
    assert decibels_over(amounts[0] * both[:, 0], amounts[1] * both[:, 1]) == pytest.approx(
        -20, abs=0.1
    )


def tone(frequency: int, size: int = 8000) -> Signal:
    """Return a talker with a distinct frequency."""
    return (0.01 * np.sin(2 * np.pi * frequency * np.arange(size) / RATE)).astype(np.float32)


def tones(signal: Signal) -> set[int]:
    """Return the frequencies in one second of sound."""
    amplitudes = np.abs(np.fft.rfft(signal))
    return set(np.flatnonzero(amplitudes > amplitudes.max() / 4).tolist())


def added(condition: Condition, signals: Sequence[Signal], speakers: str) -> list[set[int]]:
    utterances = [utterance(speaker=speaker) for speaker in speakers]
    noisy, _ = apply_condition(condition, signals, utterances, RATE, 3)
    return [tones(after - before) for before, after in zip(signals, noisy, strict=True)]


def test_the_talker_is_another_speaker_if_there_is_one() -> None:
    frequencies = [200, 300, 400, 500, 600, 700, 800]
    signals = [tone(frequency) for frequency in frequencies]
    talkers = added(Condition("talker", 5.0), signals, "aabbbbb")
    assert all(len(talker) == 1 for talker in talkers)
    assert set.union(*talkers[:2]) <= set(frequencies[2:])
    assert set.union(*talkers[2:]) == set(frequencies[:2])
    alone = added(Condition("talker", 5.0), signals, "aaaaaaa")
    assert all(own not in talker for own, talker in zip(frequencies, alone, strict=True))
    assert len(set.union(*alone)) > 2


def test_babble_is_six_others_of_equal_power() -> None:
    frequencies = range(200, 1300, 100)
    signals = [tone(frequency) * (1 + frequency % 7) for frequency in frequencies]
    babble = added(Condition("babble", 5.0), signals, "abcdefghijk")
    for own, talkers in zip(frequencies, babble, strict=True):
        assert len(talkers) == BABBLE_UTTERANCES
        assert talkers <= set(frequencies) - {own}
    few = added(Condition("babble", 5.0), signals[:4], "abcd")
    assert few[0] == {300, 400, 500}


def test_silent_utterances_are_not_talkers() -> None:
    silent = np.zeros(8000, dtype=np.float32)
    signals = [tone(200), silent, silent, tone(300), silent]
    assert added(Condition("talker", 5.0), signals, "abcde")[0] == {300}
    for condition in (Condition("talker", 5.0), Condition("babble", 5.0)):
        for alone in (signals[:1], signals[:3]):
            with pytest.raises(UserError, match=rf"{condition}.*no other utterance has sound"):
                added(condition, alone, "abcde"[: len(alone)])


def test_a_talker_who_pauses_adds_nothing() -> None:
    """A second of silence between two words covers an utterance of a hundredth of a second."""
    pausing = np.concatenate((tone(300, 400), np.zeros(8000, dtype=np.float32), tone(300, 400)))
    signals = [tone(200, 80), pausing]
    sets = [RecordingSet(signals, UTTERANCES[:2], RATE, seed) for seed in range(20)]
    noisy = [change_recording(Condition("talker", 0.0), whole, 0)[0] for whole in sets]
    assert sum(np.array_equal(signal, signals[0]) for signal in noisy) > 10
    assert np.abs(noisy).max() < 0.1


def test_a_short_talker_is_repeated() -> None:
    short = speechlike(1, 1501)[500:801]  # all of it sounds
    signals = [tone(200), short]
    noisy = apply_condition(Condition("talker", 0.0), signals, UTTERANCES[:2], RATE, 3)[0]
    other = noisy[0] - signals[0]
    assert np.abs(other[301:] - other[:-301]).max() < 1e-4 * np.abs(other).max()


# Reverberation


def test_reverberation_of_a_click() -> None:
    click = np.zeros(8000, dtype=np.float32)
    click[1000] = 0.5
    echoes, _ = apply_condition(Condition("reverb", 0.4), [click, click], UTTERANCES[:2], RATE, 3)
    for echo in echoes:
        assert np.abs(echo[:1000]).max() < 1e-6
        assert np.argmax(echo) == 1000
        assert np.sum(echo**2) == pytest.approx(0.25, rel=1e-4)
        energy = 10 * np.log10(np.cumsum(echo[::-1] ** 2)[::-1][1000:] / 0.25)
        fitted = (energy < -5) & (energy > -35)
        slope = np.polyfit(np.flatnonzero(fitted) / RATE, energy[fitted], 1)[0]
        assert -60 / slope == pytest.approx(0.4, rel=0.15)
    assert not np.allclose(echoes[0], echoes[1], atol=1e-3)  # in different rooms


def test_reverberation_preserves_the_level() -> None:
    echoes = apply_condition(Condition("reverb", 0.2), SIGNALS, UTTERANCES, RATE, 3)[0]
    for before, after in zip(SIGNALS, echoes, strict=True):
        assert 10 * np.log10(np.sum(after**2) / np.sum(before**2)) == pytest.approx(0, abs=1.5)


# References


def edit_count(before: str, after: str) -> int:
    counted = jiwer.process_words(before, after)
    return counted.substitutions + counted.deletions + counted.insertions


WORDS = [f"word{number}" for number in range(997)]
TEXTS = [utterance(" ".join(WORDS[start : start + 7])) for start in range(0, 990, 7)]
SOUNDS = SIGNALS[:1] * len(TEXTS)


@pytest.mark.parametrize("share", [0.03, 0.1, 0.2])
def test_share_of_wrong_words(share: float) -> None:
    signals, faulty = apply_condition(Condition("references", share), SOUNDS, TEXTS, RATE, 3)
    assert all(after is before for before, after in zip(SOUNDS, signals, strict=True))
    errors, words = 0, 0
    changes = Counter()
    for before, after in zip(TEXTS, faulty, strict=True):
        errors += edit_count(before.text, after.text)
        words += len(before.text.split())
        changes[len(after.text.split()) - len(before.text.split())] += before != after
        assert after.words == (before.words if after.text == before.text else ())
        assert set(after.text.split()) <= set(WORDS)
    assert abs(errors - share * words) < 3 * (share * (1 - share) * words) ** 0.5
    if share < 0.05:  # mostly one error per text: deletions, substitutions, insertions
        assert min(changes[-1], changes[0], changes[1]) > 0.15 * changes.total()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_reference_is_wrong_or_all_are(share: float) -> None:
    wrong = apply_condition(Condition("references", share), SOUNDS, TEXTS, RATE, 3)[1]
    changed = [before != after for before, after in zip(TEXTS, wrong, strict=True)]
    assert set(changed) == {share == 1.0}


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), st.integers(0, 99))
def test_a_wrong_reference_is_not_empty(words: list[str], seed: int) -> None:
    texts = [utterance(" ".join(words)), utterance("a b c")]
    wrong = apply_condition(Condition("references", 1.0), SIGNALS[:2], texts, RATE, seed)[1]
    assert wrong[0].text.split()
    if len(words) == 1:
        assert wrong[0].text != texts[0].text


def test_a_vocabulary_of_one_word_allows_only_insertions() -> None:
    texts = [utterance("go go"), utterance("go")]
    wrong = apply_condition(Condition("references", 1.0), SIGNALS[:2], texts, RATE, 3)[1]
    assert [utterance.text for utterance in wrong] == ["go go go go", "go go"]
