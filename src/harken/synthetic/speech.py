"""Generate speech: sentences of a few words in different voices, with word times.

    zero  ->  z i r o  ->  signal

Voices differ in the length of the vocal tract, pitch, tempo, level and spectral tilt. No speaker of
dev or test is in train. Everything is a function of the config, the split and an index. A word is a
source filtered by resonances (formants) that are interpolated between phones:

    e(t) = √v(t) · pulses(t) + √(1 - v(t)) · noise(t)                source
    A²(f, t) = f^p · Σ_i 1 / (1 + ((f - s·F_i(t)) / (B(t)/2))²)      filter, scaled to mean 1 over f
    x(t) = g(t) · Σ_frames w · IFFT[A · FFT[w · e]]                  signal

    v, F_i, B, g    voicing, resonances, bandwidth, gain: constant in the middle of a phone, else
                    linear; g is zero outside of words, so word times are exact
    s, p            scale of the resonances and exponent of the tilt, both of the speaker
    w               sine window; frames overlap by half, so that the sum of w² is 1

White noise is added to the whole signal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from harken.formats.split import Split, split_sizes
from harken.synthetic.draws import keyed_rng, require_bounds, require_ranges
from harken.synthetic.recordings import (
    Recording,
    Signal,
    audio_path,
    make_recording,
    write_recordings,
)

MAX_UTTERANCES = 100_000
MAX_WORDS = 100  # per sentence
RATES = (4000, 48000)
_FRAME = 0.032  # seconds
_PAUSE = (0.03, 0.2)  # seconds between two words
_EDGE = (0.1, 0.3)  # seconds before the first word and after the last
_STEADY = (0.25, 0.75)  # where a phone is constant, as fractions of its length
# Standard deviations of the logarithms of length, level and resonances of a phone.
_DEVIATIONS = np.array([0.25, 0.12, 0.08, 0.08, 0.08])

# Rows: time in samples, gain, voicing, bandwidth and three resonances.
Knots = Float[np.ndarray, "7 knots"]
Track = Float[np.ndarray, "_times"]


class Phone(NamedTuple):
    """The steady middle of a phone, with values close to English speech."""

    resonances: tuple[float, float, float]  # Hz
    bandwidth: float  # Hz, of each resonance
    voicing: float  # share of the power that comes from the voice; the rest is noise
    level: float  # amplitude, 1 for a vowel
    milliseconds: float


PHONES = {
    "i": Phone((300, 2250, 2950), 100, 1.0, 0.9, 100),
    "e": Phone((530, 1850, 2500), 100, 1.0, 1.0, 110),
    "a": Phone((730, 1180, 2450), 100, 1.0, 1.0, 120),
    "o": Phone((480, 880, 2400), 100, 1.0, 1.0, 120),
    "u": Phone((320, 950, 2250), 100, 1.0, 0.9, 110),
    "w": Phone((300, 650, 2200), 120, 1.0, 0.6, 65),
    "r": Phone((400, 1150, 1550), 120, 1.0, 0.7, 65),
    "l": Phone((360, 1050, 2700), 120, 1.0, 0.7, 65),
    "n": Phone((270, 1400, 2300), 200, 1.0, 0.5, 75),
    "v": Phone((300, 1200, 2400), 400, 0.7, 0.35, 65),
    "z": Phone((300, 2900, 3500), 500, 0.5, 0.35, 80),
    "s": Phone((2800, 3300, 3700), 700, 0.0, 0.35, 100),
    "f": Phone((1300, 2300, 3400), 1500, 0.0, 0.2, 90),
    "th": Phone((1500, 2700, 3600), 1500, 0.0, 0.15, 80),
    "t": Phone((2300, 3000, 3600), 900, 0.0, 0.4, 45),
    "k": Phone((1500, 1900, 2400), 500, 0.0, 0.4, 50),
    "p": Phone((500, 1000, 1800), 800, 0.0, 0.35, 40),
    "d": Phone((300, 1800, 2800), 500, 0.5, 0.4, 45),
    "g": Phone((300, 1600, 2100), 400, 0.5, 0.4, 50),
}

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_SPELLINGS = """
    zero z i r o,  one w a n,  two t u,  three th r i,  four f o r,  five f a i v,  six s i k s,
    seven s e v n,  eight e i t,  nine n a i n,  yes i e s,  no n o,  up a p,  down d a u n,
    left l e f t,  right r a i t,  on o n,  off o f,  stop s t o p,  go g o
"""
PRONUNCIATIONS = {word: tuple(phones) for word, *phones in map(str.split, _SPELLINGS.split(","))}


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechConfig:
    """Number and length of utterances, a tenth each for dev and test, and their voices."""

    utterances: int = 1000
    min_words: int = 1  # words per sentence
    max_words: int = 5
    words: tuple[str, ...] = DIGITS
    speakers: int = 20  # a fifth each for dev and test
    sample_rate: int = 8000  # samples per second
    snr: float = 30.0  # signal-to-noise ratio in decibels
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(
            self,
            utterances=(3, MAX_UTTERANCES),
            speakers=(3, MAX_UTTERANCES),
            sample_rate=RATES,
            snr=(0, 120),
        )
        require_bounds(self, "words", MAX_WORDS)
        unknown = [word for word in self.words if word not in PRONUNCIATIONS]
        if unknown or not self.words:
            raise ValueError(
                f"words must be some of {', '.join(PRONUNCIATIONS)}, "
                f"got {unknown[0] if unknown else 'none'}"
            )


def speaker_numbers(config: SpeechConfig, split: Split) -> range:
    """Return the numbers of the speakers of a split; splits share no speakers."""
    held_out = max(config.speakers // 5, 1)
    dev, test, end = config.speakers - 2 * held_out, config.speakers - held_out, config.speakers
    return {"train": range(dev), "dev": range(dev, test), "test": range(test, end)}[split]


def draw_utterance(config: SpeechConfig, split: Split, index: int) -> Recording:
    """Generate one utterance; its path is relative to the manifest."""
    numbers = speaker_numbers(config, split)
    voice = draw_speaker(config.seed, numbers[index % len(numbers)])
    rng = keyed_rng("spoken", config.seed, split, index)
    count = rng.integers(config.min_words, config.max_words, endpoint=True)
    words = [config.words[number] for number in rng.integers(len(config.words), size=count)]
    signal, spans = synthesize(words, voice, config.sample_rate, config.snr, rng)
    audio = audio_path("spoken", split, index)
    return make_recording(audio, voice.name, words, spans, signal, config.sample_rate)


def draw_utterances(config: SpeechConfig, split: Split) -> Iterator[Recording]:
    """Generate all utterances of a split."""
    count = split_sizes(config.utterances)[split]
    return (draw_utterance(config, split, index) for index in range(count))


def write_speech(config: SpeechConfig, folder: Path) -> list[Path]:
    """Write all splits, one utterance at a time, and return the paths of the manifests."""
    splits = {split: draw_utterances(config, split) for split in split_sizes(config.utterances)}
    return write_recordings(splits, folder, name="spoken", rate=config.sample_rate)


# --- voices


class Speaker(NamedTuple):
    """The parameters of a voice."""

    name: str
    pitch: float  # Hz
    scale: float  # of the resonances: above 1 for a short vocal tract
    duration_scale: float  # of the phones: above 1 is slow
    level: float  # decibels relative to full scale, of the mean square over words; negative
    tilt: float  # decibels per octave


def draw_speaker(seed: int, number: int) -> Speaker:
    """Return a voice; high voices tend to have short vocal tracts."""
    rng = keyed_rng("speaker", seed, number)
    # From -1, a low voice and a long vocal tract, to 1, a high voice and a short vocal tract.
    relative_pitch, deviation = rng.uniform(-1.0, 1.0), rng.uniform(-0.4, 0.4)
    return Speaker(
        name=f"speaker{number + 1:02}",
        pitch=140.0 * 1.7**relative_pitch,
        scale=1.17 ** (relative_pitch + deviation),
        duration_scale=1.3 ** rng.uniform(-1.0, 1.0),
        level=rng.uniform(-34.0, -22.0),
        tilt=rng.uniform(-12.0, 0.0),
    )


def synthesize(
    words: Sequence[str], voice: Speaker, rate: int, snr: float, rng: np.random.Generator
) -> tuple[Signal, list[tuple[int, int]]]:
    """Return the signal of words with pauses and white noise, and start and end of each word."""
    knots, spans, size = _draw_knots(words, voice, rate, rng)
    times, gains, voicings, *_ = knots
    gain, voicing = (np.interp(np.arange(size), times, track) for track in (gains, voicings))
    # The pitch falls from the start to the end.
    first, last = voice.pitch * np.exp((0.1, -0.1) + 0.05 * rng.standard_normal(2))
    source = np.sqrt(voicing) * _pulses(np.linspace(first, last, size), rate)
    source += np.sqrt(1 - voicing) * rng.standard_normal(size)
    sound = gain * _resonate(source, knots, voice.tilt, rate)
    power = np.mean(np.concatenate([sound[start:end] for start, end in spans]) ** 2)
    sound *= 10 ** (voice.level / 20) / np.sqrt(power)
    sound += 10 ** ((voice.level - snr) / 20) * rng.standard_normal(size)
    return sound.astype(np.float32), spans


def _draw_knots(
    words: Sequence[str], voice: Speaker, rate: int, rng: np.random.Generator
) -> tuple[Knots, list[tuple[int, int]], int]:
    """Return the knots, the start and end of each word, and the number of samples.

    A phone has two knots, at the ends of its steady part. A word has knots with gain 0 at its start
    and at its end.
    """
    knots: list[tuple[float, ...]] = []
    spans = []
    position = round(rng.uniform(*_EDGE) * rate)
    for word in words:
        first, start = len(knots), position
        for phone in (PHONES[name] for name in PRONUNCIATIONS[word]):
            length, level, *scales = np.exp(rng.standard_normal(5) * _DEVIATIONS)
            samples = round(phone.milliseconds / 1000 * rate * voice.duration_scale * length)
            resonances = np.multiply(phone.resonances, scales) * voice.scale
            target = (phone.level * level, phone.voicing, phone.bandwidth, *resonances)
            knots += [(position + share * samples, *target) for share in _STEADY]
            position += samples
        knots.insert(first, (start, 0.0, *knots[first][2:]))
        knots.append((position, 0.0, *knots[-1][2:]))
        spans.append((start, position))
        position += round(rng.uniform(*_PAUSE) * rate)
    return np.array(knots).T, spans, spans[-1][1] + round(rng.uniform(*_EDGE) * rate)


def _pulses(pitch: Track, rate: int) -> Signal:
    """Return all harmonics below half the rate, with equal amplitudes and mean power one.

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
    """Filter the source in frames that overlap by half."""
    hop = round(_FRAME / 2 * rate)
    count = -(-len(source) // hop) + 1
    padded = np.zeros((count + 1) * hop)
    padded[hop : hop + len(source)] = source
    halves = padded.reshape(count + 1, hop)
    window = np.sin(np.pi * (np.arange(2 * hop) + 0.5) / (2 * hop))
    frames = np.concatenate((halves[:-1], halves[1:]), axis=1) * window

    centers = np.arange(count) * hop  # of the frames, in samples
    times, _, _, *tracks = knots
    bandwidth, *resonances = (np.interp(centers, times, track)[:, None] for track in tracks)
    frequencies = np.arange(hop + 1) * (rate / (2 * hop))
    power = sum(1 / (1 + ((frequencies - peak) / (bandwidth / 2)) ** 2) for peak in resonances)
    # Twice the frequency (an octave) changes the power by `tilt` decibels, but not below 100 Hz.
    exponent = tilt / (10 * np.log10(2))
    power *= np.maximum(frequencies, 100.0) ** exponent
    power /= power.mean(axis=1, keepdims=True)
    spectra = np.fft.rfft(frames, axis=1) * np.sqrt(power)
    frames = np.fft.irfft(spectra, n=2 * hop, axis=1) * window
    joined = frames[:-1, hop:] + frames[1:, :hop]
    return joined.ravel()[: len(source)]
