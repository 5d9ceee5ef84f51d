"""Words and a voice -> sound, by a source behind resonances that glide from phone to phone.

    e(t) = √v(t) · pulses(t) + √(1 - v(t)) · noise(t)               the source; v is its voicing
    A²(f, t) = f^tilt · Σ_i 1 / (1 + ((f - s·F_i(t)) / (B(t)/2))²)   the resonances, mean power one
    x(t) = g(t) · Σ_frames w · IFFT[A · FFT[w · e]]                 w² of overlapping frames is one

The phones of a word (`phones.py`) say F, B, v and g; between their middles all four run straight
from one to the next. g is zero outside words, so that their times are exact to the sample. What is
not here: stress, melody, and anything that a room or a microphone does (`speech/interference.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.synthetic.chance import stream
from harken.synthetic.speech.phones import PHONES, PRONUNCIATIONS
from harken.synthetic.speech.recorded import Signal

_FRAME = 0.032  # seconds: finer than a resonance in frequency, shorter than a phone in time
_PAUSE = (0.03, 0.2)  # seconds between two words
_EDGE = (0.1, 0.3)  # seconds before the first word and behind the last
_STEADY = (0.25, 0.75)  # of a phone: between these shares of it nothing glides
# How far one saying of a phone is from another, in natural logarithms: its length, its level, its
# three resonances.
_CHANGES = np.array([0.25, 0.12, 0.08, 0.08, 0.08])

Knots = Float[np.ndarray, "7 knots"]  # time in samples, gain, voicing, bandwidth, resonances
Track = Float[np.ndarray, "_times"]


class Speaker(NamedTuple):
    """What tells one voice from another."""

    name: str
    pitch: float  # Hz
    scale: float  # of the resonances: above 1 for a vocal tract shorter than average
    tempo: float  # of the phones: above 1 is slow
    level: float  # decibels below full scale, of the mean square over words
    tilt: float  # decibels an octave


class Said(NamedTuple):
    """A sound, and the samples at which each of its words starts and ends."""

    signal: Signal
    edges: list[tuple[int, int]]


def speaker(seed: int, number: int) -> Speaker:
    """One voice; high ones tend to come from short vocal tracts, as with people."""
    random = stream("speaker", seed, number)
    height, own = random.uniform(-1.0, 1.0), random.uniform(-0.4, 0.4)
    return Speaker(
        name=f"speaker{number + 1:02}",
        pitch=140.0 * 1.7**height,
        scale=1.17 ** (height + own),
        tempo=1.3 ** random.uniform(-1.0, 1.0),
        level=random.uniform(-34.0, -22.0),
        tilt=random.uniform(-12.0, 0.0),
    )


def say(
    words: Sequence[str], voice: Speaker, rate: int, noise: float, random: np.random.Generator
) -> Said:
    """Say words with pauses around them, and white noise `noise` decibels below them."""
    knots, edges, size = _plan(words, voice, rate, random)
    samples, times = np.arange(size), knots[0]
    gain, voicing = (np.interp(samples, times, knots[row]) for row in (1, 2))
    source = np.sqrt(voicing) * _pulses(_melody(voice, size, random), rate)
    source += np.sqrt(1 - voicing) * random.standard_normal(size)
    sound = gain * _resonate(source, knots, voice.tilt, rate)
    power = np.mean(np.concatenate([sound[start:end] for start, end in edges]) ** 2)
    sound *= 10 ** (voice.level / 20) / np.sqrt(power)
    sound += 10 ** ((voice.level - noise) / 20) * random.standard_normal(size)
    return Said(sound.astype(np.float32), edges)


def _plan(
    words: Sequence[str], voice: Speaker, rate: int, random: np.random.Generator
) -> tuple[Knots, list[tuple[int, int]], int]:
    """Two knots around the middle of each phone, and one without gain at each edge of a word."""
    knots: list[tuple[float, ...]] = []
    edges = []
    clock = round(random.uniform(*_EDGE) * rate)
    for word in words:
        first, start = len(knots), clock
        for phone in (PHONES[name] for name in PRONUNCIATIONS[word]):
            length, level, *scales = np.exp(random.standard_normal(5) * _CHANGES)
            samples = round(phone.milliseconds / 1000 * rate * voice.tempo * length)
            resonances = np.multiply(phone.resonances, scales) * voice.scale
            target = (phone.level * level, phone.voicing, phone.bandwidth, *resonances)
            knots += [(clock + share * samples, *target) for share in _STEADY]
            clock += samples
        knots.insert(first, (start, 0.0, *knots[first][2:]))
        knots.append((clock, 0.0, *knots[-1][2:]))
        edges.append((start, clock))
        clock += round(random.uniform(*_PAUSE) * rate)
    return np.array(knots).T, edges, edges[-1][1] + round(random.uniform(*_EDGE) * rate)


def _melody(voice: Speaker, size: int, random: np.random.Generator) -> Track:
    """The pitch: it falls from the beginning to the end, by an amount of its own each time."""
    first, last = voice.pitch * np.exp((0.1, -0.1) + 0.05 * random.standard_normal(2))
    return np.linspace(first, last, size)


def _pulses(pitch: Track, rate: int) -> Signal:
    """All harmonics below half the rate, as loud as one another, of mean power one.

    Σ_h cos(h·φ) for h = 1 … n is sin((n + 1/2)·φ) / (2·sin(φ/2)) - 1/2.
    """
    phase = np.cumsum(pitch) * (2 * np.pi / rate)
    count = int(rate / 2 / pitch.max())
    half = np.sin(phase / 2)
    at_pulse = np.abs(half) < 1e-6
    total = np.sin((count + 0.5) * phase) / (2 * np.where(at_pulse, 1.0, half)) - 0.5
    pulses: Signal = np.where(at_pulse, count, total) * np.sqrt(2 / count)
    return pulses


def _resonate(source: Signal, knots: Knots, tilt: float, rate: int) -> Signal:
    """The source behind the resonances, frame by frame; each overlaps half of the next."""
    hop = round(_FRAME / 2 * rate)
    count = -(-len(source) // hop) + 1
    padded = np.zeros((count + 1) * hop)
    padded[hop : hop + len(source)] = source
    halves = padded.reshape(count + 1, hop)
    window = np.sin(np.pi * (np.arange(2 * hop) + 0.5) / (2 * hop))
    frames = np.concatenate((halves[:-1], halves[1:]), axis=1) * window

    centres = np.arange(count) * hop
    bandwidth, *resonances = (np.interp(centres, knots[0], row)[:, None] for row in knots[3:])
    frequencies = np.arange(hop + 1) * (rate / (2 * hop))
    power = sum(1 / (1 + ((frequencies - one) / (bandwidth / 2)) ** 2) for one in resonances)
    # Below 100 Hz there is no voice; and 0 Hz has no octave.
    power *= np.maximum(frequencies, 100.0) ** (tilt / (10 * np.log10(2)))
    power /= power.mean(axis=1, keepdims=True)
    spectra = np.fft.rfft(frames, axis=1) * np.sqrt(power)
    frames = np.fft.irfft(spectra, n=2 * hop, axis=1) * window
    joined = frames[:-1, hop:] + frames[1:, :hop]
    return joined.ravel()[: len(source)]
