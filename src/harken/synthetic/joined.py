"""Join recordings of single words of one speaker to sentences.

    three.wav  pause  one.wav  pause  four.wav   ->   "three one four", with the times of each

A word's times are those of its recording: silence at the ends of a recording belongs to the word,
unless `trim` cuts it off. A pause is digital silence, and recordings never overlap. So this is
easier than speech: no word changes its neighbor.

The speakers of dev and test are not heard in train. Sentence n of a part depends on the seed, the
part, n and the recordings alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound import read_sound
from harken.formats.split import Part, hold_out, part_sizes
from harken.synthetic.draws import require_bounds, require_range, rng
from harken.synthetic.recordings import (
    RecordedFiles,
    Recording,
    Signal,
    place_of,
    timed,
    within_range,
    write_recorded,
)

MAX_SENTENCES = 100_000
MAX_WORDS = 100  # a sentence
MAX_SECONDS = 30.0  # a recording of a single word
MAX_PAUSE = 10_000.0  # milliseconds
_FRAME = 0.01  # seconds, in which `trim` looks for silence

Speakers = tuple[str, ...] | float


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinedConfig:
    """How many sentences, a tenth each for dev and test, and how they are put together."""

    sentences: int = 1000
    least: int = 3  # words a sentence
    most: int = 7
    shortest_pause: float = 50.0  # milliseconds between two recordings
    longest_pause: float = 250.0
    dev_speakers: Speakers = 0.15  # names, or a share of the speakers
    test_speakers: Speakers = 0.15
    trim: float | None = None  # decibels below the loudest 10 ms: quieter ends are cut off
    level_jitter: float = 0.0  # decibels by which a recording may become louder or quieter
    rate: int = 8000  # samples a second
    seed: int = 0

    def __post_init__(self) -> None:
        require_range("sentences", self.sentences, 3, MAX_SENTENCES)
        require_bounds(self.least, self.most, MAX_WORDS)
        if not 0 <= self.shortest_pause <= self.longest_pause <= MAX_PAUSE:
            raise ValueError(
                "shortest_pause must be from 0 to longest_pause, and longest_pause at most "
                f"{MAX_PAUSE:g}, got {self.shortest_pause} and {self.longest_pause}"
            )
        for name in ("dev_speakers", "test_speakers"):
            speakers = getattr(self, name)
            if not speakers or (isinstance(speakers, float) and not 0 < speakers < 1):
                raise ValueError(f"{name} must be names or a share between 0 and 1, got {speakers}")
        if self.trim is not None and not 0 < self.trim <= 120:
            raise ValueError(f"trim must be above 0 and at most 120, got {self.trim}")
        require_range("level_jitter", self.level_jitter, 0, 40)
        require_range("rate", self.rate, 1000, 48_000)


def part_by_speaker(
    recordings: Sequence[Utterance], config: JoinedConfig
) -> dict[Part, list[Utterance]]:
    """Split recordings into train, dev and test by speaker; the seed draws a share of them."""
    rest, test = _set_apart(recordings, "test_speakers", config.test_speakers, config.seed)
    train, dev = _set_apart(rest, "dev_speakers", config.dev_speakers, config.seed)
    return {"train": train, "dev": dev, "test": test}


def _set_apart(
    recordings: Sequence[Utterance], name: str, speakers: Speakers, seed: int
) -> tuple[list[Utterance], list[Utterance]]:
    known = {recording.speaker for recording in recordings}
    if isinstance(speakers, float):
        if len(known) < 2:
            raise UserError(
                f"{name}: expected recordings of at least 2 speakers, got {len(known)}",
                fix="train, dev and test need a speaker each: name the speakers of the recordings",
            )
        return hold_out(recordings, speakers, seed, key=lambda recording: recording.speaker)
    for speaker in speakers:
        if speaker not in known:
            raise UserError(
                f"{name}: expected one of {', '.join(sorted(known))}, got {speaker!r}",
                fix="a speaker is in one part only; check the spelling",
            )
    if known <= set(speakers):
        raise UserError(
            f"{name}: expected a speaker left for train, got all of them",
            fix="leave one out",
        )
    kept = [recording for recording in recordings if recording.speaker not in speakers]
    return kept, [recording for recording in recordings if recording.speaker in speakers]


def joined(
    recordings: Sequence[Utterance], config: JoinedConfig, part: Part, count: int
) -> Iterator[Recording]:
    """Generate sentences of these recordings; each speaker is as likely."""
    speakers: dict[str, list[Utterance]] = {}
    for recording in recordings:
        if len(recording.text.split()) != 1:
            raise UserError(
                f"{recording.audio}: expected a text of one word, got {recording.text!r}",
                fix="only recordings of single words can be joined",
            )
        speakers.setdefault(recording.speaker, []).append(recording)
    names = sorted(speakers)
    for index in range(count):
        random = rng("joined", config.seed, part, index)
        own = speakers[names[random.integers(len(names))]]
        words = random.integers(config.least, config.most, endpoint=True)
        chosen = [own[number] for number in random.integers(len(own), size=words)]
        yield _join(chosen, config, place_of("joined", part, index), random)


def write_joined(
    recordings: Sequence[Utterance], config: JoinedConfig, folder: Path
) -> RecordedFiles:
    """Write every part as `recordings.py` describes it, one sentence at a time."""
    parts, sizes = part_by_speaker(recordings, config), part_sizes(config.sentences)
    sentences = {part: joined(parts[part], config, part, sizes[part]) for part in parts}
    return write_recorded(sentences, folder, name="joined", rate=config.rate)


def _join(
    chosen: Sequence[Utterance], config: JoinedConfig, audio: Path, random: np.random.Generator
) -> Recording:
    pauses = random.uniform(config.shortest_pause, config.longest_pause, size=len(chosen))
    gaps = np.rint(pauses / 1000 * config.rate).astype(np.int64)
    gaps[0] = 0
    gains = 10 ** (config.level_jitter / 20 * random.uniform(-1.0, 1.0, size=len(chosen)))
    sounds = [_read(recording, config) for recording in chosen]
    lengths = np.array([len(sound) for sound in sounds])
    ends = np.cumsum(gaps + lengths)
    starts = ends - lengths
    signal = np.zeros(ends[-1], dtype=np.float32)
    for sound, gain, start, end in zip(sounds, gains, starts, ends, strict=True):
        signal[start:end] = sound * np.float32(gain)
    words = [recording.text.strip() for recording in chosen]
    edges = zip(starts.tolist(), ends.tolist(), strict=True)
    utterance = Utterance(
        audio=audio,
        text=" ".join(words),
        speaker=chosen[0].speaker,
        words=timed(words, edges, config.rate),
    )
    return utterance, within_range(signal)


def _read(recording: Utterance, config: JoinedConfig) -> Signal:
    sound = read_sound(
        recording.audio,
        rate=config.rate,
        start=recording.start,
        end=recording.end,
        max_seconds=MAX_SECONDS,
    )
    return sound if config.trim is None else trimmed(sound, config.rate, config.trim)


def trimmed(sound: Signal, rate: int, decibels: float) -> Signal:
    """Return the sound without ends that are quieter by so much than the loudest 10 ms."""
    size = max(round(_FRAME * rate), 1)
    starts = np.arange(0, len(sound), size)
    power = np.add.reduceat(np.square(sound, dtype=np.float64), starts)
    loud = np.flatnonzero(power >= power.max() * 10 ** (-decibels / 10))
    return sound[starts[loud[0]] : starts[loud[-1]] + size]
