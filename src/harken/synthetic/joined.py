"""Concatenate recordings of single words by the same speaker into sentences.

    three.wav  pause  one.wav  pause  four.wav   ->   "three one four", with word times

Word times are those of the recordings, including silence at their ends. Pauses are digital silence.
No speaker of dev or test is in train. A sentence depends only on the config, the split, its index
and the recordings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound import read_sound
from harken.formats.split import Split, hold_out, split_sizes
from harken.synthetic.draws import keyed_rng, require_bounds, require_ranges
from harken.synthetic.recordings import Recording, audio_path, make_recording, write_recordings

MAX_SENTENCES = 100_000
MAX_WORDS = 100  # per sentence
MAX_SECONDS = 30.0  # of a recording of a single word
_PAUSE = (50.0, 250.0)  # milliseconds between two recordings

Speakers = tuple[str, ...] | float  # names, or a fraction of the speakers


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinedConfig:
    """Number and length of sentences, a tenth each for dev and test, and the held-out speakers."""

    sentences: int = 1000
    min_words: int = 3  # words per sentence
    max_words: int = 7
    test_speakers: Speakers = 0.15  # names, or a fraction of the speakers
    dev_speakers: Speakers = 0.15  # names, or a fraction of the speakers that are not in test
    sample_rate: int = 8000  # samples per second
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(self, sentences=(3, MAX_SENTENCES), sample_rate=(1000, 48_000))
        require_bounds(self, "words", MAX_WORDS)
        for name in ("dev_speakers", "test_speakers"):
            speakers = getattr(self, name)
            if not speakers or (isinstance(speakers, float) and not 0 < speakers < 1):
                raise ValueError(f"{name} must be names or a fraction in (0, 1), got {speakers}")


def split_by_speaker(
    recordings: Sequence[Utterance], config: JoinedConfig
) -> dict[Split, list[Utterance]]:
    """Split recordings into train, dev and test by speaker."""
    rest, test = _hold_out_speakers(recordings, "test_speakers", config.test_speakers, config.seed)
    train, dev = _hold_out_speakers(rest, "dev_speakers", config.dev_speakers, config.seed)
    return {"train": train, "dev": dev, "test": test}


def _hold_out_speakers(
    recordings: Sequence[Utterance], name: str, speakers: Speakers, seed: int
) -> tuple[list[Utterance], list[Utterance]]:
    known = {recording.speaker for recording in recordings}
    if isinstance(speakers, float):
        if len(known) < 2:
            raise UserError(
                f"{name}: expected recordings of at least 2 speakers, got {len(known)}",
                fix="set the speakers of the recordings; train, dev and test need at least 3",
            )
        return hold_out(recordings, speakers, seed, key=lambda recording: recording.speaker)
    for speaker in speakers:
        if speaker not in known:
            message = f"{name}: expected one of {', '.join(sorted(known))}, got {speaker!r}"
            raise UserError(message, fix="check the spelling; dev and test cannot share a speaker")
    if known <= set(speakers):
        message = f"{name}: no speaker is left for train (got all {len(known)})"
        raise UserError(message, fix=f"remove a name from {name}")
    rest = [recording for recording in recordings if recording.speaker not in speakers]
    return rest, [recording for recording in recordings if recording.speaker in speakers]


def joined_sentences(
    recordings: Sequence[Utterance], config: JoinedConfig, split: Split, count: int
) -> Iterator[Recording]:
    """Generate `count` sentences; the speaker of each is drawn uniformly."""
    speakers: dict[str, list[Utterance]] = {}
    for recording in recordings:
        if len(recording.text.split()) != 1:
            message = f"{recording.audio}: expected a text of one word, got {recording.text!r}"
            raise UserError(message, fix="only recordings of single words can be joined")
        speakers.setdefault(recording.speaker, []).append(recording)
    names = sorted(speakers)
    for index in range(count):
        rng = keyed_rng("joined", config.seed, split, index)
        candidates = speakers[names[rng.integers(len(names))]]
        length = rng.integers(config.min_words, config.max_words, endpoint=True)
        chosen = [candidates[number] for number in rng.integers(len(candidates), size=length)]
        yield _join(chosen, config, audio_path("joined", split, index), rng)


def write_joined(recordings: Sequence[Utterance], config: JoinedConfig, folder: Path) -> list[Path]:
    """Write all splits, one sentence at a time, and return the paths of the manifests."""
    splits, sizes = split_by_speaker(recordings, config), split_sizes(config.sentences)
    sentences = {
        split: joined_sentences(splits[split], config, split, sizes[split]) for split in splits
    }
    return write_recordings(sentences, folder, name="joined", rate=config.sample_rate)


def _join(
    chosen: Sequence[Utterance], config: JoinedConfig, audio: Path, rng: np.random.Generator
) -> Recording:
    pauses = rng.uniform(*_PAUSE, size=len(chosen))
    gaps = np.rint(pauses / 1000 * config.sample_rate).astype(np.int64)
    gaps[0] = 0
    sounds = [
        read_sound(
            recording.audio,
            rate=config.sample_rate,
            start=recording.start,
            end=recording.end,
            max_seconds=MAX_SECONDS,
        )
        for recording in chosen
    ]
    lengths = np.array([len(sound) for sound in sounds])
    ends = np.cumsum(gaps + lengths)
    starts = ends - lengths
    signal = np.zeros(ends[-1], dtype=np.float32)
    for sound, start, end in zip(sounds, starts, ends, strict=True):
        signal[start:end] = sound
    words = [recording.text.strip() for recording in chosen]
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return make_recording(audio, chosen[0].speaker, words, spans, signal, config.sample_rate)
