from itertools import pairwise

import numpy as np
import pytest

from harken.synthetic import speech as module
from harken.synthetic.draws import keyed_rng
from harken.synthetic.recordings import Signal
from harken.synthetic.speech import (
    DIGITS,
    PHONES,
    PRONUNCIATIONS,
    Speaker,
    _pulses,
    _resonate,
    draw_speaker,
    synthesize,
)

RATE = 8000
AVERAGE = Speaker("average", pitch=120.0, scale=1.0, duration_scale=1.0, level=-26.0, tilt=-6.0)


def said(
    words: str, voice: Speaker, *, noise: float = 120.0, seed: int = 3
) -> tuple[Signal, list[tuple[int, int]]]:
    return synthesize(words.split(), voice, RATE, noise, keyed_rng(seed))


def spectrum(signal: np.ndarray, smooth: float = 150.0) -> np.ndarray:
    """Power in decibels at each of 4000 frequencies, one a hertz, smoothed over harmonics."""
    power = np.abs(np.fft.rfft(signal * np.hanning(len(signal)), 2 * 4000)) ** 2
    width = np.hanning(2 * round(smooth))
    return 10 * np.log10(np.convolve(power, width / width.sum(), mode="same")[:4000] + 1e-20)


# --- words


def test_words_are_two_to_four_known_phones_and_no_two_sound_alike() -> None:
    assert all(2 <= len(phones) <= 4 for phones in PRONUNCIATIONS.values())
    assert {phone for phones in PRONUNCIATIONS.values() for phone in phones} == set(PHONES)
    assert len(set(PRONUNCIATIONS.values())) == len(PRONUNCIATIONS)
    assert set(DIGITS) <= set(PRONUNCIATIONS)
    for phone in PHONES.values():
        assert all(low < high for low, high in pairwise(phone.resonances))
        assert 0 <= phone.voicing <= 1


# --- the source


@pytest.mark.parametrize("rate", [8000, 11025])
def test_pulses_are_the_harmonics_of_the_pitch(rate: int) -> None:
    pitch = np.linspace(97.0, 131.0, 1009)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    harmonics = [n for n in range(1, 999) if n * 131.0 <= rate / 2]
    slow = sum(np.cos(n * phase) for n in harmonics) * np.sqrt(2 / len(harmonics))
    np.testing.assert_allclose(_pulses(pitch, rate), slow, atol=1e-7)


def test_pulses_are_finite_at_the_pulse_itself() -> None:
    made = _pulses(np.full(401, 100.0), 8000)  # every 80th sample falls on a whole turn
    assert made[79] == pytest.approx(40 * np.sqrt(2 / 40))
    assert made[159] == pytest.approx(made[79], rel=1e-6)
    assert np.mean(made[:400] ** 2) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("pitch", [80.0, 137.0, 240.0])
def test_the_voice_has_its_pitch(pitch: float) -> None:
    signal, ((start, end),) = said("one", AVERAGE._replace(pitch=pitch))
    middle = signal[(start + end) // 2 - 400 : (start + end) // 2 + 400]
    likeness = np.correlate(middle, middle, mode="full")[len(middle) - 1 :]
    lags = range(round(RATE / pitch / 1.4), round(RATE / pitch * 1.4))
    best = max(lags, key=lambda lag: likeness[lag])
    assert likeness[best] > 0.5 * likeness[0]
    assert RATE / best == pytest.approx(pitch, rel=0.2)  # it falls from 10 % above to 10 % below


# --- the resonances


def test_with_level_resonances_nothing_changes() -> None:
    """Resonances far wider than the spectrum and no tilt: frames give back the source."""
    source = np.random.default_rng(0).standard_normal(1009)
    knots = np.array([[0.0], [1.0], [1.0], [1e9], [100.0], [200.0], [300.0]])
    np.testing.assert_allclose(_resonate(source, knots, 0.0, RATE), source, atol=1e-9)


def resonances(signal: np.ndarray, order: int = 10) -> np.ndarray:
    """Formants by linear prediction, as speech is measured: the angles of the sharp poles."""
    signal = signal * np.hamming(len(signal))
    signal = np.append(signal[0], signal[1:] - 0.9 * signal[:-1])
    lags = np.correlate(signal, signal, mode="full")[len(signal) - 1 :][: order + 1]
    matrix = np.array([[lags[abs(i - j)] for j in range(order)] for i in range(order)])
    matrix += 1e-6 * lags[0] * np.eye(order)
    poles = np.roots(np.append(1.0, -np.linalg.solve(matrix, lags[1:])))
    sharp = poles[(poles.imag > 0) & (np.abs(poles) > 0.85)]
    return np.sort(np.angle(sharp)) * RATE / (2 * np.pi)


@pytest.mark.parametrize(("vowel", "word"), [("a", "up"), ("o", "off"), ("e", "eight")])
@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_vowels_have_their_formants(
    vowel: str, word: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DEVIATIONS", np.zeros(5))  # said as it is written
    voice = AVERAGE._replace(pitch=90.0, scale=scale, duration_scale=2.0)
    errors: list[float] = []
    for seed in range(7):
        signal, ((start, _),) = said(word, voice, seed=seed)
        length = PHONES[vowel].milliseconds * 2 * RATE / 1000
        middle = round(start + length / 2)
        found = resonances(signal[middle - 300 : middle + 300])
        wanted = np.array(PHONES[vowel].resonances[:2]) * scale
        errors += np.abs(np.log(found[:, None] / wanted)).min(axis=0).tolist()
    assert max(errors) < 0.12  # where other vowels are 0.3 away


@pytest.mark.parametrize("scale", [0.88, 1.14])
def test_another_voice_is_the_same_spectrum_on_another_scale(scale: float) -> None:
    """Of all stretchings, that of the vocal tracts makes two voices most alike."""
    factors = np.arange(0.80, 1.25, 0.01)
    heard = np.arange(200, 3100)  # what both have below half the rate

    def likest(word: str) -> float:
        voices = [AVERAGE, AVERAGE._replace(scale=scale, pitch=170.0)]
        one, other = (spectrum(said(word, voice)[0]) for voice in voices)
        distances = [
            np.std(np.interp(heard * factor, np.arange(4000), other) - one[heard])
            for factor in factors
        ]
        return float(factors[np.argmin(distances)])

    found = [likest(word) for word in ("one", "two", "right", "left", "nine", "go")]
    assert np.median(found) == pytest.approx(scale, abs=0.03)


def test_tilt_is_decibels_an_octave() -> None:
    source = np.random.default_rng(0).standard_normal(4001)
    knots = np.array([[0.0], [1.0], [1.0], [500.0], [500.0], [1500.0], [2500.0]])
    flat, tilted = (spectrum(_resonate(source, knots, tilt, RATE)) for tilt in (-3.0, -9.0))
    slopes = [(tilted - flat)[high] - (tilted - flat)[high // 2] for high in (800, 1600, 3200)]
    np.testing.assert_allclose(slopes, -6.0, atol=0.3)


# --- times and levels


def test_words_sound_within_their_edges_only() -> None:
    signal, spans = said("six one zero two", AVERAGE)
    assert len(spans) == 4
    outside = np.ones(len(signal), dtype=bool)
    for start, end in spans:
        outside[start:end] = False
        ends = [signal[start : start + 160], signal[end - 160 : end]]  # 20 ms
        assert all(np.abs(part).max() > 1e-3 for part in ends)
    assert np.abs(signal[outside]).max() < 1e-6  # where words are 0.05 on average
    gaps = [after - before for (_, before), (after, _) in pairwise(spans)]
    assert all(0.03 * RATE <= gap <= 0.2 * RATE for gap in gaps)
    assert 0.1 * RATE <= spans[0][0] <= 0.3 * RATE
    assert 0.1 * RATE <= len(signal) - spans[-1][1] <= 0.3 * RATE


@pytest.mark.parametrize("noise", [10.0, 30.0])
def test_levels_are_those_of_the_voice_and_the_noise(noise: float) -> None:
    signal, spans = said("four eight seven", AVERAGE, noise=noise)
    words = np.concatenate([signal[start:end] for start, end in spans]) ** 2
    between = np.concatenate([signal[: spans[0][0]], signal[spans[-1][1] :]]) ** 2
    clean = words.mean() - between.mean()
    assert 10 * np.log10(clean) == pytest.approx(-26.0, abs=0.3)
    assert 10 * np.log10(clean / between.mean()) == pytest.approx(noise, abs=0.5)


def test_slow_voices_take_their_time() -> None:
    lengths = []
    for scale in (0.8, 1.2):
        _, spans = said("stop down", AVERAGE._replace(duration_scale=scale))
        lengths.append(sum(end - start for start, end in spans))
    assert lengths[1] / lengths[0] == pytest.approx(1.5, rel=0.01)


def test_a_word_is_never_said_twice_in_the_same_way() -> None:
    (one, spans), (other, others) = said("nine", AVERAGE, seed=1), said("nine", AVERAGE, seed=2)
    assert spans[0][1] - spans[0][0] != others[0][1] - others[0][0]
    difference = np.abs(spectrum(one) - spectrum(other))[200:3500].mean()
    assert 0.5 < difference < np.abs(spectrum(one) - spectrum(said("six", AVERAGE)[0])).mean()


def test_speakers_differ_and_high_voices_have_short_vocal_tracts() -> None:
    voices = [draw_speaker(5, number) for number in range(199)]
    assert draw_speaker(5, 7) == voices[7] != draw_speaker(6, 7)
    assert len({voice.name for voice in voices}) == 199
    traits = np.array([voice[1:] for voice in voices])
    lowest, highest = traits.min(axis=0), traits.max(axis=0)
    assert (lowest >= [82, 0.80, 0.76, -34, -12]).all()
    assert (highest <= [239, 1.25, 1.31, -22, 0]).all()
    assert ((highest - lowest) > [140, 0.35, 0.5, 11, 11]).all()  # and the ranges are used
    alike = np.corrcoef(traits.T)
    assert alike[0, 1] > 0.8  # pitch and scale
    assert np.abs(alike[2:, :2]).max() < 0.25  # and nothing else
