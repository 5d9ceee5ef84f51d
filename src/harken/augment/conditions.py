"""Add noise, reverberation or wrong references to test recordings, to measure robustness.

    quiet:20         the level reduced by 20 dB; `quiet` alone changes nothing
    noise:10         white noise at a signal-to-noise ratio of 10 dB
    pink:5           noise with equal power per octave, at 5 dB
    babble:5         up to six other utterances at once, by other speakers if possible, at 5 dB
    talker:5         one other utterance, by another speaker if possible, at 5 dB
    reverb:0.4       a room with a reverberation time (RT60) of 0.4 s
    references:0.1   errors in 10 % of the words of the reference; the sound is unchanged

The length does not change. A result with a peak above 1 is scaled down, and silence stays silence.
The noise of utterance n depends only on the kind of the condition, the set, the seed and n: another
signal-to-noise ratio scales the same noise.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from harken.augment.waveform import active_part, noise_gain, pink_noise, reverberate, room_response
from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.synthetic.draws import keyed_rng
from harken.synthetic.recordings import Signal, limit_peak

BABBLE_UTTERANCES = 6
WORD_ERRORS = ("delete", "replace", "insert")


class _AmountRange(NamedTuple):
    unit: str
    low: float
    high: float
    example: float


_SNR = _AmountRange("decibels", -60, 120, 10)
KINDS = {
    "quiet": _AmountRange("decibels", 0, 120, 20),
    "noise": _SNR,
    "pink": _SNR,
    "babble": _SNR,
    "talker": _SNR,
    "reverb": _AmountRange("seconds", 0.05, 10, 0.4),
    "references": _AmountRange("share", 0, 1, 0.1),
}


class Condition(NamedTuple):
    """A kind of `KINDS` and its amount."""

    kind: str
    amount: float

    def __str__(self) -> str:
        """Return the text that `parse_condition` parses."""
        if self == UNCHANGED:
            return self.kind
        return f"{self.kind}:{self.amount!r}".removesuffix(".0")


UNCHANGED = Condition("quiet", 0.0)


def parse_condition(text: str) -> Condition:
    """Parse a condition such as `noise:10`."""
    kind, colon, number = text.strip().partition(":")
    if kind not in KINDS:
        near = nearest(kind, list(KINDS))
        raise UserError(
            f"condition {text!r}: expected one of {', '.join(KINDS)}, got {kind!r}",
            fix=f"did you mean {near!r}?" if near else "for example noise:10",
        )
    if kind == UNCHANGED.kind and not colon:
        return UNCHANGED
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
    """A set of recordings, from which conditions take speech and words of other utterances.

    `signals` may be a lazy sequence that reads a signal when it is accessed.
    """

    def __init__(
        self, signals: Sequence[Signal], utterances: Sequence[Utterance], rate: int, seed: int
    ) -> None:
        assert len(signals) == len(utterances)
        self.signals, self.utterances, self.rate, self.seed = signals, utterances, rate, seed
        speakers = [utterance.speaker for utterance in utterances]
        self.speakers = np.unique(speakers, return_inverse=True)[1]  # an index per utterance
        self.vocabulary = sorted(
            {word for utterance in utterances for word in utterance.text.split()}
        )


def apply_condition(
    condition: Condition,
    signals: Sequence[Signal],
    utterances: Sequence[Utterance],
    rate: int,
    seed: int,
) -> tuple[list[Signal], list[Utterance]]:
    """Return all recordings, changed by a condition."""
    corpus = RecordingSet(signals, utterances, rate, seed)
    changed = [change_recording(condition, corpus, index) for index in range(len(signals))]
    return [signal for signal, _ in changed], [utterance for _, utterance in changed]


def change_recording(
    condition: Condition, corpus: RecordingSet, index: int
) -> tuple[Signal, Utterance]:
    """Return a recording of the set, changed by a condition."""
    signal, utterance = corpus.signals[index], corpus.utterances[index]
    rng = keyed_rng("condition", condition.kind, corpus.seed, index)
    if condition.kind == "references":
        return signal, _add_errors(utterance, condition.amount, corpus.vocabulary, rng)
    if not signal.any() or condition == UNCHANGED:
        return signal, utterance
    if condition.kind == "quiet":
        changed = signal * 10 ** (-condition.amount / 20)
    elif condition.kind == "reverb":
        changed = reverberate(signal, room_response(condition.amount, corpus.rate, rng))
    else:
        noise = _noise(condition, corpus, index, len(signal), rng)
        changed = signal + noise * noise_gain(condition.amount, signal, noise, corpus.rate)
    return limit_peak(changed).astype(np.float32), utterance


def _noise(
    condition: Condition, corpus: RecordingSet, index: int, size: int, rng: np.random.Generator
) -> Signal:
    if condition.kind == "noise":
        return rng.standard_normal(size)
    if condition.kind == "pink":
        return pink_noise(size, rng)
    count = BABBLE_UTTERANCES if condition.kind == "babble" else 1
    speech = list(islice(_other_speech(corpus, index, rng), count))
    if not speech:
        problem = "no other utterance has sound (expected at least one)"
        raise UserError(f"condition {str(condition)!r}: {problem}", fix="add recordings to the set")
    starts = rng.integers([len(signal) for signal in speech])
    times = starts[:, None] + np.arange(size)
    repeated = [signal.take(time, mode="wrap") for signal, time in zip(speech, times, strict=True)]
    babble: Signal = np.stack(repeated).sum(axis=0)
    return babble


def _other_speech(corpus: RecordingSet, index: int, rng: np.random.Generator) -> Iterator[Signal]:
    """Yield other utterances in random order, of other speakers if possible, with unit power."""
    others = np.flatnonzero(corpus.speakers != corpus.speakers[index])
    if not len(others):
        others = np.delete(np.arange(len(corpus.speakers)), index)
    for other in rng.permutation(others):
        signal = corpus.signals[other]
        if signal.any():
            yield active_part(signal, corpus.rate)


def _add_errors(
    utterance: Utterance, share: float, vocabulary: Sequence[str], rng: np.random.Generator
) -> Utterance:
    """With probability `share` for each word, delete it, replace it or insert a word after it."""
    words = utterance.text.split()
    wrong = rng.random(len(words)) < share
    if not wrong.any():
        return utterance
    output: list[str] = []
    for word, is_wrong in zip(words, wrong.tolist(), strict=True):
        if not is_wrong:
            output.append(word)
            continue
        # A vocabulary of one word has no replacement, so words are only inserted.
        error = WORD_ERRORS[rng.integers(3)] if len(vocabulary) > 1 else "insert"
        if error == "replace":
            output.append(_other_word(word, vocabulary, rng))
        elif error == "insert":
            output += [word, vocabulary[int(rng.integers(len(vocabulary)))]]
    # If all words were deleted, replace the last one instead, so that the text is not empty.
    text = " ".join(output or [_other_word(words[-1], vocabulary, rng)])
    return replace(utterance, text=text, words=())  # word times no longer apply


def _other_word(word: str, vocabulary: Sequence[str], rng: np.random.Generator) -> str:
    """Draw a word other than `word` from a sorted vocabulary that contains it."""
    index = int(rng.integers(len(vocabulary) - 1))
    return vocabulary[index + 1 if index >= bisect_left(vocabulary, word) else index]
