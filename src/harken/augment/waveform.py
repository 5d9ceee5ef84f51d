"""Noise at a given signal-to-noise ratio, reverberation and speed perturbation.

    10·log10(P(signal) / P(gain · noise)) = snr in decibels,   P the mean square over active samples

Frames of 20 ms are active if they are at most 30 dB below the loudest one. The power of the noise
is measured over the same samples, so silence around the words does not change the ratio.
"""

import math

import numpy as np
import soxr
from jaxtyping import Bool

from harken.synthetic.recordings import Signal

_FRAME = 0.02  # seconds
_MIN_POWER = 1e-3  # -30 dB relative to the loudest frame, or to noise of unit power


def active_samples(signal: Signal, rate: int) -> Bool[np.ndarray, "_samples"]:
    """Return the mask of the samples over which power is measured, those of active frames."""
    size = max(round(_FRAME * rate), 1)
    starts = np.arange(0, len(signal), size)
    lengths = np.diff(np.append(starts, len(signal)))
    power = np.add.reduceat(np.square(signal, dtype=np.float64), starts) / lengths
    return np.repeat(power >= power.max() * _MIN_POWER, lengths)


def _power(signal: Signal, mask: Bool[np.ndarray, "_samples"]) -> float:
    return float(np.mean(np.square(signal[mask], dtype=np.float64)))


def noise_gain(snr: float, signal: Signal, noise: Signal, rate: int) -> float:
    """Return the gain of noise that results in a signal-to-noise ratio of `snr` decibels.

    If the power of the noise over active samples is below 0.001, because the noise pauses there,
    the gain is that for a power of 0.001. White and pink noise have unit power, as has each
    utterance in babble.
    """
    mask = active_samples(signal, rate)
    noise_power = max(_power(noise, mask), _MIN_POWER)
    return math.sqrt(_power(signal, mask) / noise_power) * 10 ** (-snr / 20)


def active_part(signal: Signal, rate: int) -> Signal:
    """Return the signal from its first to its last active sample, with unit power."""
    mask = active_samples(signal, rate)
    indices = np.flatnonzero(mask)
    part: Signal = signal[indices[0] : indices[-1] + 1] / math.sqrt(_power(signal, mask))
    return part


def pink_noise(size: int, rng: np.random.Generator) -> Signal:
    """Return noise of unit power with equal power per octave."""
    spectrum = np.fft.rfft(rng.standard_normal(size))
    noise: Signal = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), size)
    noise /= np.sqrt(np.mean(noise**2))
    return noise


def room_response(seconds: float, rate: int, rng: np.random.Generator) -> Signal:
    """Return an impulse response: the direct sound and noise that decays by 60 dB in `seconds`.

    h(0) = √Σ_t>0 h(t)²,   h(t) = n(t) · 10^(-3·t/seconds),   n(t) ~ N(0, 1),   scaled to Σ h² = 1.
    """
    times = np.arange(max(round(seconds * rate), 2)) / rate
    response: Signal = rng.standard_normal(len(times)) * 10 ** (-3 * times / seconds)
    response[0] = np.sqrt(np.sum(response[1:] ** 2))
    response /= np.sqrt(np.sum(response**2))
    return response


def reverberate(signal: Signal, response: Signal) -> Signal:
    """Convolve the signal with an impulse response and keep its length."""
    size = 1 << (len(signal) + len(response) - 1).bit_length()  # a power of 2, without wraparound
    spectrum = np.fft.rfft(signal, size) * np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(signal)]


def change_speed(signal: Signal, rate: int, factor: float) -> Signal:
    """Return s(factor * t), which changes pitch and tempo. The length is divided by `factor`."""
    if factor == 1:
        return signal
    changed: Signal = soxr.resample(signal, rate * factor, rate, quality="HQ")
    return changed
