"""Change test recordings as if they had been made elsewhere, to measure robustness.

    quiet            unchanged; `quiet:20` is 20 dB lower
    noise:10         white noise at a signal-to-noise ratio of 10 dB
    pink:5           noise with equal power per octave, at 5 dB
    babble:5         up to six other utterances of the set at once, at 5 dB
    talker:5         one other utterance, of another speaker if there is one, at 5 dB
    reverb:0.4       a room with a reverberation time (60 dB) of 0.4 s
    references:0.1   errors in 10 % of the words of the reference; the sound is unchanged

The length does not change. A signal with a peak above 1 is scaled down as a whole, a silent one is
left unchanged. The change of utterance n depends only on the set, the seed and n; another ratio
means the same noise at another level.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from harken.augment.waveform import noise_gain, pink_noise, reverberate, room_response, spoken_part
from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.synthetic.draws import keyed_rng
from harken.synthetic.recordings import Signal, within_range

TALKERS = 6  # of babble


class _Amount(NamedTuple):
    unit: str
    low: float
    high: float
    example: float


_DECIBELS = _Amount("decibels", -60, 120, 10)
KINDS = {
    "quiet": _Amount("decibels", 0, 120, 20),
    "noise": _DECIBELS,
    "pink": _DECIBELS,
    "babble": _DECIBELS,
    "talker": _DECIBELS,
    "reverb": _Amount("seconds", 0.05, 10, 0.4),
    "references": _Amount("share", 0, 1, 0.1),
}


class Condition(NamedTuple):
    """A kind of `KINDS` and its amount."""

    kind: str
    amount: float

    def __str__(self) -> str:
        """Return the spelling that `parse_condition` reads."""
        if self == QUIET:
            return self.kind
        return f"{self.kind}:{self.amount!r}".removesuffix(".0")


QUIET = Condition("quiet", 0.0)


def parse_condition(text: str) -> Condition:
    """Parse a condition such as `noise:10`."""
    kind, colon, number = text.strip().partition(":")
    if kind not in KINDS:
        near = nearest(kind, list(KINDS))
        raise UserError(
            f"condition {text!r}: expected one of {', '.join(KINDS)}, got {kind!r}",
            fix=f"did you mean {near!r}?" if near else "for example noise:10",
        )
    if kind == QUIET.kind and not colon:
        return QUIET
    limits = KINDS[kind]
    try:
        amount = float(number)
    except ValueError:
        amount = float("nan")
    if not limits.low <= amount <= limits.high:  # false for NaN
        raise UserError(
            f"condition {text!r}: expected {kind}:{limits.unit.upper()}, at least {limits.low:g} "
            f"and at most {limits.high:g}, got {number!r}",
            fix=f"for example {kind}:{limits.example:g}",
        )
    return Condition(kind, amount)


class RecordingSet:
    """A set of recordings, from which other speakers and other words are drawn.

    `signals` may read a signal when it is accessed.
    """

    def __init__(
        self, signals: Sequence[Signal], utterances: Sequence[Utterance], rate: int, seed: int
    ) -> None:
        assert len(signals) == len(utterances)
        self.signals, self.utterances, self.rate, self.seed = signals, utterances, rate, seed
        speakers = [utterance.speaker for utterance in utterances]
        self.speakers = np.unique(speakers, return_inverse=True)[1]  # a number per utterance
        self.vocabulary = sorted({word for item in utterances for word in item.text.split()})


def apply_condition(
    condition: Condition,
    signals: Sequence[Signal],
    utterances: Sequence[Utterance],
    rate: int,
    seed: int,
) -> tuple[list[Signal], list[Utterance]]:
    """Return the whole set under a condition."""
    corpus = RecordingSet(signals, utterances, rate, seed)
    changed = [change_recording(condition, corpus, index) for index in range(len(signals))]
    return [signal for signal, _ in changed], [utterance for _, utterance in changed]


def change_recording(
    condition: Condition, corpus: RecordingSet, index: int
) -> tuple[Signal, Utterance]:
    """Return one recording of the set under a condition."""
    signal, utterance = corpus.signals[index], corpus.utterances[index]
    random = keyed_rng("condition", condition.kind, corpus.seed, index)
    if condition.kind == "references":
        return signal, _with_errors(utterance, condition.amount, corpus.vocabulary, random)
    if not signal.any() or condition == QUIET:
        return signal, utterance
    if condition.kind == "quiet":
        changed = signal * 10 ** (-condition.amount / 20)
    elif condition.kind == "reverb":
        changed = reverberate(signal, room_response(condition.amount, corpus.rate, random))
    else:
        noise = _noise(condition, corpus, index, len(signal), random)
        changed = signal + noise * noise_gain(condition.amount, signal, noise, corpus.rate)
    return within_range(changed).astype(np.float32), utterance


def _noise(
    condition: Condition, corpus: RecordingSet, index: int, size: int, random: np.random.Generator
) -> Signal:
    if condition.kind == "noise":
        return random.standard_normal(size)
    if condition.kind == "pink":
        return pink_noise(size, random)
    count = TALKERS if condition.kind == "babble" else 1
    voices = list(islice(_other_voices(corpus, index, random), count))
    if not voices:
        problem = "no other utterance has sound (expected at least one)"
        raise UserError(f"condition {str(condition)!r}: {problem}", fix="add recordings to the set")
    starts = random.integers([len(voice) for voice in voices])
    times = starts[:, None] + np.arange(size)
    repeated = [voice.take(time, mode="wrap") for voice, time in zip(voices, times, strict=True)]
    babble: Signal = np.stack(repeated).sum(axis=0)
    return babble


def _other_voices(
    corpus: RecordingSet, index: int, random: np.random.Generator
) -> Iterator[Signal]:
    """Yield the speech of other utterances in random order, with unit power."""
    others = np.flatnonzero(corpus.speakers != corpus.speakers[index])
    if not len(others):
        others = np.delete(np.arange(len(corpus.speakers)), index)
    for other in random.permutation(others):
        signal = corpus.signals[other]
        if signal.any():
            yield spoken_part(signal, corpus.rate)


def _with_errors(
    utterance: Utterance, share: float, vocabulary: Sequence[str], random: np.random.Generator
) -> Utterance:
    """Delete words, replace them or insert words after them, each with probability `share`."""
    words = utterance.text.split()
    wrong = random.random(len(words)) < share
    if not wrong.any():
        return utterance
    written: list[str] = []
    for word, is_wrong in zip(words, wrong.tolist(), strict=True):
        error = random.integers(3) if is_wrong and len(vocabulary) > 1 else 2
        if not is_wrong:
            written.append(word)
        elif error == 1:
            written.append(_another(word, vocabulary, random))
        elif error == 2:
            written += [word, vocabulary[int(random.integers(len(vocabulary)))]]
    # A text never becomes empty: its last word is replaced instead of deleted.
    text = " ".join(written or [_another(words[-1], vocabulary, random)])
    return replace(utterance, text=text, words=())  # word times no longer apply


def _another(word: str, vocabulary: Sequence[str], random: np.random.Generator) -> str:
    drawn = int(random.integers(len(vocabulary) - 1))
    return vocabulary[drawn + (drawn >= bisect_left(vocabulary, word))]
