from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.augment.waveform import (
    active_part,
    active_samples,
    change_speed,
    noise_gain,
    pink_noise,
    reverberate,
    room_response,
)
from harken.synthetic.draws import keyed_rng

RATE = 7919


def decay_time(response: np.ndarray, rate: int) -> float:
    """Return the time in which the energy falls by 60 dB (Schroeder integration)."""
    energy = np.cumsum(response[::-1] ** 2)[::-1]
    decibels = 10 * np.log10(energy / energy[0])
    fitted = (decibels < -5) & (decibels > -35)
    slope = np.polyfit(np.flatnonzero(fitted) / rate, decibels[fitted], 1)[0]
    return float(-60 / slope)


def octaves(signal: np.ndarray, rate: int) -> np.ndarray:
    """Return the mean power density, in decibels, of each octave from 62.5 Hz."""
    power = np.abs(np.fft.rfft(signal)) ** 2
    frequencies = np.fft.rfftfreq(len(signal), 1 / rate)
    edges = [62.5 * 2**octave for octave in range(6)]
    return np.array(
        [
            10 * np.log10(power[(frequencies >= low) & (frequencies < high)].mean())
            for low, high in pairwise(edges)
        ]
    )


# Power


def test_active_samples_are_those_of_loud_frames() -> None:
    rate, frame = 1000, 20
    levels = [0.0, 1.0, 0.04, 0.03, 1.0, 0.0]  # 0.04 is 28 dB down, 0.03 is 30.5 dB down
    signal = np.repeat(levels, frame)
    signal[::2] *= -1
    mask = active_samples(np.append(signal, 0.5), rate)  # and a frame of one sample
    np.testing.assert_array_equal(
        mask, np.append(np.repeat([False, True, True, False, True, False], frame), True)
    )


@pytest.mark.parametrize("size", [1, 2, 19, 158, 159])
def test_short_signals_are_active(size: int) -> None:
    assert active_samples(np.ones(size), RATE).all()
    assert active_samples(np.ones(size), 1).all()


def test_noise_that_pauses_is_not_amplified_without_bound() -> None:
    signal, added = np.zeros((2, 8000))
    signal[:4000], added[4000:] = 1.0, 1.0
    assert noise_gain(0.0, signal, added, 8000) == pytest.approx(1000**0.5)
    added[:4000] = 0.1
    assert noise_gain(0.0, signal, added, 8000) == pytest.approx(10.0)
    assert noise_gain(20.0, signal, added, 8000) == pytest.approx(1.0)


def test_the_spoken_part_has_unit_power() -> None:
    signal = np.zeros(2000)
    signal[500:1500] = 0.25 * np.sign(np.sin(np.arange(1, 1001)))
    signal[900:1000] = 0.0  # a pause stays, and is not active
    np.testing.assert_allclose(active_part(signal, 1000), signal[500:1500] * 4)


# Noise


def test_pink_noise_falls_by_3_decibels_per_octave() -> None:
    random = keyed_rng("noise")
    pink = np.mean([octaves(pink_noise(RATE, random), RATE) for _ in range(31)], axis=0)
    np.testing.assert_allclose(np.diff(pink), -3.01, atol=0.5)


@pytest.mark.parametrize("size", [1, 2, 3, 1009, 1024])
def test_size_and_power_of_noise(size: int) -> None:
    noise = pink_noise(size, keyed_rng(size))
    assert noise.shape == (size,)
    assert np.isfinite(noise).all()
    assert noise.any()
    assert size < 1000 or np.mean(noise**2) == pytest.approx(1.0, rel=0.2)


# Rooms


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.4, 1.3])
def test_decay_time_of_rooms(seconds: float, rate: int) -> None:
    times = [decay_time(room_response(seconds, rate, keyed_rng(seed)), rate) for seed in range(23)]
    np.testing.assert_allclose(times, seconds, rtol=0.15)
    assert np.mean(times) == pytest.approx(seconds, rel=0.03)
    assert np.std(times) > 0  # the rooms differ


def test_half_of_the_energy_is_direct_sound() -> None:
    response = room_response(0.3, RATE, keyed_rng(3))
    assert np.sum(response**2) == pytest.approx(1.0)
    assert response[0] ** 2 == pytest.approx(0.5)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 9))
@settings(max_examples=30)
def test_reverberation_is_a_convolution(length: int, echoes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    signal, response = random.standard_normal(length), random.standard_normal(echoes)
    theirs = np.convolve(signal, response)[:length]
    np.testing.assert_allclose(reverberate(signal, response), theirs, atol=1e-10)


# Speed

SPEECH_RATE = 16000


@pytest.mark.parametrize("factor", [0.9, 1.1, 0.5, 1.37])
def test_times_change_by_the_factor(factor: float) -> None:
    """The result is s(factor * t), so the pitch changes by the factor and the amplitude stays."""
    at = np.arange(8009) / SPEECH_RATE

    def click(time: np.ndarray) -> np.ndarray:
        return np.exp(-(((time - 0.21) / 0.002) ** 2)).astype(np.float32)

    changed = change_speed(click(at), SPEECH_RATE, factor)
    assert changed.dtype == np.float32
    expected = click(factor * np.arange(len(changed)) / SPEECH_RATE)
    np.testing.assert_allclose(changed, expected, atol=1e-3)


def test_no_aliasing() -> None:
    tone = np.sin(2 * np.pi * 7900 * np.arange(SPEECH_RATE) / SPEECH_RATE).astype(np.float32)
    faster = change_speed(tone, SPEECH_RATE, 1.1)  # 8690 Hz is above half the rate
    assert np.abs(faster[100:-100]).max() < 1e-3


@given(st.integers(0, 5000), st.sampled_from([0.5, 0.9, 0.97, 1.0, 1.1, 2.0]))
def test_length_changes_by_the_factor(samples: int, factor: float) -> None:
    signal = np.random.default_rng(samples).normal(size=samples).astype(np.float32)
    changed = change_speed(signal, SPEECH_RATE, factor)
    assert abs(len(changed) - samples / factor) <= 1
    assert np.array_equal(changed, change_speed(signal, SPEECH_RATE, factor))
    if factor == 1:
        assert np.array_equal(changed, signal)
