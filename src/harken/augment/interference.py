"""What is added to a signal, how loud, and the room that it is heard in.

    10·log10(P(signal) / P(level · added)) = decibels,   P the mean square over active samples

Active are the frames of 20 ms that are at most 30 dB below the loudest one; `added` is counted over
the same samples, so that the stated decibels are what the words meet, however long the silence
around them. What is not here: who talks when (conditions.py).
"""

import math

import numpy as np
from jaxtyping import Bool

from harken.synthetic.recordings import Signal

_FRAME = 0.02  # seconds
_QUIETEST = 1e-3  # 30 dB below


def active(signal: Signal, rate: int) -> Bool[np.ndarray, "_samples"]:
    """Which samples count for power."""
    size = max(round(_FRAME * rate), 1)
    starts = np.arange(0, len(signal), size)
    lengths = np.diff(np.append(starts, len(signal)))
    power = np.add.reduceat(np.square(signal, dtype=np.float64), starts) / lengths
    return np.repeat(power >= power.max() * _QUIETEST, lengths)


def power_over(signal: Signal, counted: Bool[np.ndarray, "_samples"]) -> float:
    """The mean square of the counted samples."""
    return float(np.mean(np.square(signal[counted], dtype=np.float64)))


def level_for(decibels: float, signal: Signal, added: Signal, rate: int) -> float:
    """The factor that brings `added`, which is of power one on the whole, so far below the signal.

    Where it pauses just then, it is taken for 30 dB below one, lest it become a roar elsewhere.
    """
    counted = active(signal, rate)
    below = max(power_over(added, counted), _QUIETEST)
    return math.sqrt(power_over(signal, counted) / below) * 10 ** (-decibels / 20)


def spoken_part(signal: Signal, rate: int) -> Signal:
    """From the first active sample to the last, of power one."""
    counted = active(signal, rate)
    places = np.flatnonzero(counted)
    part: Signal = signal[places[0] : places[-1] + 1] / math.sqrt(power_over(signal, counted))
    return part


def repeated(signal: Signal, start: int, size: int) -> Signal:
    """So many samples from `start` on, from the beginning again at each end."""
    return np.take(signal, np.arange(start, start + size), mode="wrap")


def white_noise(size: int, random: np.random.Generator) -> Signal:
    """As much power in each hertz; one in all."""
    return random.standard_normal(size)


def pink_noise(size: int, random: np.random.Generator) -> Signal:
    """As much power in each octave: it falls as 1/frequency; one in all."""
    spectrum = np.fft.rfft(random.standard_normal(size))
    noise: Signal = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), size)
    noise /= np.sqrt(np.mean(noise**2))
    return noise


def room_response(seconds: float, rate: int, random: np.random.Generator) -> Signal:
    """The direct sound and, as strong as it, noise that falls by 60 dB in so many seconds.

    h(0) = √Σ_t>0 h(t)²,   h(t) = n(t) · 10^(-3·t/seconds),   then Σ h² is made one.
    """
    times = np.arange(max(round(seconds * rate), 2)) / rate
    response: Signal = random.standard_normal(len(times)) * 10 ** (-3 * times / seconds)
    response[0] = np.sqrt(np.sum(response[1:] ** 2))
    response /= np.sqrt(np.sum(response**2))
    return response


def heard_in(signal: Signal, response: Signal) -> Signal:
    """The convolution of both, cut to the length of the signal."""
    size = 1 << (len(signal) + len(response) - 1).bit_length()
    spectrum = np.fft.rfft(signal, size) * np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(signal)]
