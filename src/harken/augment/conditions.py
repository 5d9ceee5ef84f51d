"""Change test recordings as if they had been made elsewhere, to measure robustness.

    quiet            as it is; `quiet:20` is 20 dB lower
    noise:10         white noise, the speech 10 dB above it
    pink:5           noise with as much power in each octave
    babble:5         six other utterances of the set at once, or as many as there are
    talker:5         one other utterance, of another speaker if there is one
    reverb:0.4       a room in which sound falls by 60 dB in 0.4 s
    references:0.1   one word in ten of the reference is wrong; the sound stays as it is

Sounds keep their length. Nothing is clipped: if a peak would exceed 1, the whole result is scaled
down. A silent utterance is left as it is. What happens to utterance n depends on the set, the seed
and n only; other decibels mean the same noise, louder or quieter.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from harken.augment.interference import (
    heard_in,
    level_for,
    pink_noise,
    repeated,
    room_response,
    spoken_part,
    white_noise,
)
from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.synthetic.draws import rng
from harken.synthetic.recordings import Signal, within_range

TALKERS = 6  # of babble


class _Amount(NamedTuple):
    """The number of a condition."""

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


class Scene(NamedTuple):
    """A set of recordings, from which other talkers and other words are drawn."""

    signals: Sequence[Signal]
    utterances: Sequence[Utterance]
    speakers: Int[np.ndarray, "utterances"]  # a number for each name
    vocabulary: list[str]
    rate: int
    seed: int


def scene(
    signals: Sequence[Signal], utterances: Sequence[Utterance], rate: int, seed: int
) -> Scene:
    """The set and what is known of it; `signals` may read each sound when it is asked for."""
    assert len(signals) == len(utterances)
    speakers = np.unique([utterance.speaker for utterance in utterances], return_inverse=True)[1]
    vocabulary = sorted({word for utterance in utterances for word in utterance.text.split()})
    return Scene(signals, utterances, speakers, vocabulary, rate, seed)


def apply_condition(
    condition: Condition,
    signals: Sequence[Signal],
    utterances: Sequence[Utterance],
    rate: int,
    seed: int,
) -> tuple[list[Signal], list[Utterance]]:
    """The whole set under a condition."""
    whole = scene(signals, utterances, rate, seed)
    changed = [change(condition, whole, place) for place in range(len(signals))]
    return [signal for signal, _ in changed], [utterance for _, utterance in changed]


def change(condition: Condition, whole: Scene, place: int) -> tuple[Signal, Utterance]:
    """One recording of the set under a condition."""
    signal, utterance = whole.signals[place], whole.utterances[place]
    random = rng("condition", condition.kind, whole.seed, place)
    if condition.kind == "references":
        return signal, _mistaken(utterance, condition.amount, whole.vocabulary, random)
    if not signal.any() or condition == QUIET:
        return signal, utterance
    if condition.kind == "quiet":
        changed = signal * 10 ** (-condition.amount / 20)
    elif condition.kind == "reverb":
        changed = heard_in(signal, room_response(condition.amount, whole.rate, random))
    else:
        added = _added(condition, whole, place, len(signal), random)
        changed = signal + added * level_for(condition.amount, signal, added, whole.rate)
    return within_range(changed).astype(np.float32), utterance


def _added(
    condition: Condition, whole: Scene, place: int, size: int, random: np.random.Generator
) -> Signal:
    if condition.kind == "noise":
        return white_noise(size, random)
    if condition.kind == "pink":
        return pink_noise(size, random)
    count = TALKERS if condition.kind == "babble" else 1
    voices = list(islice(_others(whole, place, random), count))
    if not voices:
        raise UserError(
            f"condition {str(condition)!r}: no other utterance has sound (expected at least one)",
            fix="add recordings to the set",
        )
    starts = random.integers([len(voice) for voice in voices])
    talk = [repeated(*both, size) for both in zip(voices, starts.tolist(), strict=True)]
    together: Signal = np.stack(talk).sum(axis=0)
    return together


def _others(whole: Scene, place: int, random: np.random.Generator) -> Iterator[Signal]:
    """Other utterances with sound in an order drawn by lot, each as loud."""
    others = np.flatnonzero(whole.speakers != whole.speakers[place])
    if not len(others):
        others = np.delete(np.arange(len(whole.speakers)), place)
    for other in random.permutation(others):
        signal = whole.signals[other]
        if signal.any():
            yield spoken_part(signal, whole.rate)


def _mistaken(
    utterance: Utterance, share: float, vocabulary: Sequence[str], random: np.random.Generator
) -> Utterance:
    """With mistakes in its text, each word by its own lot; its times are then not known."""
    words = utterance.text.split()
    wrong = random.random(len(words)) < share
    if not wrong.any():
        return utterance
    written = []
    for word, is_wrong in zip(words, wrong.tolist(), strict=True):
        written += _mistake(word, vocabulary, random) if is_wrong else [word]
    # No text becomes empty: instead of its last word left out, another is written.
    text = " ".join(written or [_another(words[-1], vocabulary, random)])
    return replace(utterance, text=text, words=())


def _mistake(word: str, vocabulary: Sequence[str], random: np.random.Generator) -> list[str]:
    """Nothing, another word, or one too many."""
    fault = random.integers(3) if len(vocabulary) > 1 else 2
    if fault == 0:
        return []
    if fault == 1:
        return [_another(word, vocabulary, random)]
    return [word, vocabulary[int(random.integers(len(vocabulary)))]]


def _another(word: str, vocabulary: Sequence[str], random: np.random.Generator) -> str:
    drawn = int(random.integers(len(vocabulary) - 1))
    return vocabulary[drawn + (drawn >= bisect_left(vocabulary, word))]
