"""Made speech: sentences of a few words in voices that differ, with the times of every word known.

    zero  ->  z i r o  ->  a sound like the word, in one of many voices (`voice.py`)

What there is to learn: sounds are the same in another voice only up to the length of its vocal
tract, its pitch, tempo, level and tilt; the same phones come in several words; the speakers of dev
and test are not those of train. What there is not: a language (any word may follow any other).

Everything is a pure function of the seed, the part and an index: an utterance is the same however
many others there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harken.formats.examples import Utterance
from harken.formats.split import Part, part_sizes
from harken.synthetic.chance import stream
from harken.synthetic.speech.phones import DIGITS, PRONUNCIATIONS
from harken.synthetic.speech.recorded import (
    RecordedFiles,
    Recording,
    place_of,
    timed,
    within_range,
    write_recorded,
)
from harken.synthetic.speech.voice import say, speaker

MOST_UTTERANCES = 100_000
MOST_WORDS = 100  # a sentence
RATES = (4000, 48000)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpokenConfig:
    """How much is said, by how many; a tenth of the utterances each for dev and test."""

    utterances: int = 1000
    least: int = 1  # words a sentence
    most: int = 5
    words: tuple[str, ...] = DIGITS
    speakers: int = 20  # a fifth each for dev and test
    rate: int = 8000  # samples a second
    noise: float = 30.0  # decibels of the words over the noise behind them
    seed: int = 0

    def __post_init__(self) -> None:
        if not 3 <= self.utterances <= MOST_UTTERANCES:
            raise ValueError(
                f"utterances must be from 3 to {MOST_UTTERANCES}, found {self.utterances}"
            )
        if not 1 <= self.least <= self.most <= MOST_WORDS:
            raise ValueError(
                f"least must be from 1 to most, and most at most {MOST_WORDS}, "
                f"found {self.least} and {self.most}"
            )
        unknown = [word for word in self.words if word not in PRONUNCIATIONS]
        if unknown or not self.words:
            raise ValueError(
                f"words must be some of {', '.join(PRONUNCIATIONS)}, "
                f"found {unknown[0] if unknown else 'none'}"
            )
        if not 3 <= self.speakers <= MOST_UTTERANCES:
            raise ValueError(f"speakers must be from 3 to {MOST_UTTERANCES}, found {self.speakers}")
        if not RATES[0] <= self.rate <= RATES[1]:
            raise ValueError(f"rate must be from {RATES[0]} to {RATES[1]}, found {self.rate}")
        if not 0 <= self.noise <= 120:
            raise ValueError(f"noise must be from 0 to 120, found {self.noise}")


def voices(config: SpokenConfig, part: Part) -> range:
    """The numbers of the speakers of a part; no part has a speaker of another."""
    aside = max(config.speakers // 5, 1)
    dev, test, end = config.speakers - 2 * aside, config.speakers - aside, config.speakers
    return {"train": range(dev), "dev": range(dev, test), "test": range(test, end)}[part]


def spoken(config: SpokenConfig, part: Part, index: int) -> Recording:
    """One sentence, said; its path is relative to the manifest that `write_spoken` writes."""
    numbers = voices(config, part)
    voice = speaker(config.seed, numbers[index % len(numbers)])
    random = stream("spoken", config.seed, part, index)
    count = random.integers(config.least, config.most, endpoint=True)
    words = [config.words[one] for one in random.integers(len(config.words), size=count)]
    said = say(words, voice, config.rate, config.noise, random)
    utterance = Utterance(
        audio=place_of("spoken", part, index),
        text=" ".join(words),
        speaker=voice.name,
        words=timed(words, said.edges, config.rate),
    )
    return utterance, within_range(said.signal)


def speak(config: SpokenConfig, part: Part) -> Iterator[Recording]:
    """Every utterance of a part with its sound, in memory."""
    for index in range(part_sizes(config.utterances)[part]):
        yield spoken(config, part, index)


def write_spoken(config: SpokenConfig, folder: Path) -> RecordedFiles:
    """Write every part as `recorded.py` describes it, one sound at a time."""
    parts = {part: speak(config, part) for part in part_sizes(config.utterances)}
    return write_recorded(parts, folder, name="spoken", rate=config.rate)
