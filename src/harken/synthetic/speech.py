"""Generate speech: sentences of a few words in different voices, with the times of every word.

    zero  ->  z i r o  ->  a sound like the word, in one of many voices

The sounds of voices differ in the length of the vocal tract, pitch, tempo, level and tilt; the same
phones come in several words; the speakers of dev and test are not those of train. Any word may
follow any other. Everything is a pure function of the seed, the part and an index.

A word is a source behind resonances that glide from phone to phone (`phones.py`):

    e(t) = √v(t) · pulses(t) + √(1 - v(t)) · noise(t)               the source; v is its voicing
    A²(f, t) = f^tilt · Σ_i 1 / (1 + ((f - s·F_i(t)) / (B(t)/2))²)   the resonances, mean power one
    x(t) = g(t) · Σ_frames w · IFFT[A · FFT[w · e]]                 w² of overlapping frames is one

F, B, v and g run straight from the middle of one phone to that of the next. g is zero outside
words, so that their times are exact to the sample. There is no stress, room or microphone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.formats.examples import Utterance
from harken.formats.split import Part, part_sizes
from harken.synthetic.draws import require_bounds, require_range, rng
from harken.synthetic.phones import DIGITS, PHONES, PRONUNCIATIONS
from harken.synthetic.recordings import (
    RecordedFiles,
    Recording,
    Signal,
    place_of,
    timed,
    within_range,
    write_recorded,
)

MAX_UTTERANCES = 100_000
MAX_WORDS = 100  # per sentence
RATES = (4000, 48000)
_FRAME = 0.032  # seconds: finer than a resonance in frequency, shorter than a phone in time
_PAUSE = (0.03, 0.2)  # seconds between two words
_EDGE = (0.1, 0.3)  # seconds before the first word and behind the last
_STEADY = (0.25, 0.75)  # of a phone: between these shares of it nothing glides
# How far one saying of a phone is from another, in natural logarithms: its length, its level, its
# three resonances.
_CHANGES = np.array([0.25, 0.12, 0.08, 0.08, 0.08])

Knots = Float[np.ndarray, "7 knots"]  # time in samples, gain, voicing, bandwidth, resonances
Track = Float[np.ndarray, "_times"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpokenConfig:
    """The size of the corpus; a tenth of the utterances each for dev and test."""

    utterances: int = 1000
    least: int = 1  # words a sentence
    most: int = 5
    words: tuple[str, ...] = DIGITS
    speakers: int = 20  # a fifth each for dev and test
    rate: int = 8000  # samples a second
    noise: float = 30.0  # decibels of the words over the noise behind them
    seed: int = 0

    def __post_init__(self) -> None:
        require_range("utterances", self.utterances, 3, MAX_UTTERANCES)
        require_bounds(self.least, self.most, MAX_WORDS)
        unknown = [word for word in self.words if word not in PRONUNCIATIONS]
        if unknown or not self.words:
            raise ValueError(
                f"words must be some of {', '.join(PRONUNCIATIONS)}, "
                f"got {unknown[0] if unknown else 'none'}"
            )
        require_range("speakers", self.speakers, 3, MAX_UTTERANCES)
        require_range("rate", self.rate, *RATES)
        require_range("noise", self.noise, 0, 120)


def voices(config: SpokenConfig, part: Part) -> range:
    """Return the numbers of the speakers of a part; no part has a speaker of another."""
    aside = max(config.speakers // 5, 1)
    dev, test, end = config.speakers - 2 * aside, config.speakers - aside, config.speakers
    return {"train": range(dev), "dev": range(dev, test), "test": range(test, end)}[part]


def spoken(config: SpokenConfig, part: Part, index: int) -> Recording:
    """Generate one utterance; its path is relative to the manifest that `write_spoken` writes."""
    numbers = voices(config, part)
    voice = speaker(config.seed, numbers[index % len(numbers)])
    random = rng("spoken", config.seed, part, index)
    count = random.integers(config.least, config.most, endpoint=True)
    words = [config.words[number] for number in random.integers(len(config.words), size=count)]
    said = say(words, voice, config.rate, config.noise, random)
    utterance = Utterance(
        audio=place_of("spoken", part, index),
        text=" ".join(words),
        speaker=voice.name,
        words=timed(words, said.edges, config.rate),
    )
    return utterance, within_range(said.signal)


def speak(config: SpokenConfig, part: Part) -> Iterator[Recording]:
    """Generate every utterance of a part with its sound."""
    for index in range(part_sizes(config.utterances)[part]):
        yield spoken(config, part, index)


def write_spoken(config: SpokenConfig, folder: Path) -> RecordedFiles:
    """Write every part as `recordings.py` describes it, one sound at a time."""
    parts = {part: speak(config, part) for part in part_sizes(config.utterances)}
    return write_recorded(parts, folder, name="spoken", rate=config.rate)


# --- voices


class Speaker(NamedTuple):
    """What tells one voice from another."""

    name: str
    pitch: float  # Hz
    scale: float  # of the resonances: above 1 for a vocal tract shorter than average
    tempo: float  # of the phones: above 1 is slow
    level: float  # decibels below full scale, of the mean square over words
    tilt: float  # decibels an octave


class SpokenSignal(NamedTuple):
    """A sound, and the samples at which each of its words starts and ends."""

    signal: Signal
    edges: list[tuple[int, int]]


def speaker(seed: int, number: int) -> Speaker:
    """One voice; high ones tend to come from short vocal tracts, as with people."""
    random = rng("speaker", seed, number)
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
) -> SpokenSignal:
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
    return SpokenSignal(sound.astype(np.float32), edges)


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

    centers = np.arange(count) * hop
    bandwidth, *resonances = (np.interp(centers, knots[0], row)[:, None] for row in knots[3:])
    frequencies = np.arange(hop + 1) * (rate / (2 * hop))
    power = sum(1 / (1 + ((frequencies - center) / (bandwidth / 2)) ** 2) for center in resonances)
    # Below 100 Hz there is no voice; and 0 Hz has no octave.
    power *= np.maximum(frequencies, 100.0) ** (tilt / (10 * np.log10(2)))
    power /= power.mean(axis=1, keepdims=True)
    spectra = np.fft.rfft(frames, axis=1) * np.sqrt(power)
    frames = np.fft.irfft(spectra, n=2 * hop, axis=1) * window
    joined = frames[:-1, hop:] + frames[1:, :hop]
    return joined.ravel()[: len(source)]
