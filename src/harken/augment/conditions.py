"""Test conditions: clean recordings as they would have been heard, or written down, elsewhere.

    quiet            as it is; `quiet:20` is 20 dB lower
    noise:10         white noise, the speech 10 dB above it
    pink:5           noise with as much power in each octave
    babble:5         six other utterances of the set at once, or as many as there are
    talker:5         one other utterance, of another speaker where there is one
    reverb:0.4       a room in which sound falls by 60 dB in 0.4 s
    references:0.1   one word in ten of the reference is wrong; the sound stays as it is

Sounds keep their length. Nothing is clipped: where a peak would pass 1, the whole result is made
quieter, which changes no ratio. A silent utterance is left as it is. What happens to utterance n
depends on the set, the seed and n only; other decibels mean the same noise, louder or quieter.

What is not here: the sounds themselves and what their decibels count (interference.py);
microphones, codecs, and people who speak up because of the noise.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple, get_args

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
from harken.config import bounded
from harken.config.schema import Slot, kinds_of, slots
from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.synthetic.draws import rng
from harken.synthetic.recordings import Signal, within_range

TALKERS = 6  # of babble
_EXAMPLES = {"decibels": 10, "seconds": 0.4, "share": 0.1}


class _Condition:
    """What conditions have in common: the spelling that the command line reads."""

    __slots__ = ()
    kind: str

    def __str__(self) -> str:
        name, slot = _amount(type(self))
        amount = getattr(self, name)
        if amount == slot.field.default:
            return self.kind
        return f"{self.kind}:{amount!r}".removesuffix(".0")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietConfig(_Condition):
    """As it is, or lower by so many decibels."""

    kind: Literal["quiet"] = "quiet"
    decibels: float = bounded(0.0, at_least=0, at_most=120)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseConfig(_Condition):
    """White noise."""

    kind: Literal["noise"] = "noise"
    decibels: float = bounded(at_least=-60, at_most=120)  # of the speech over the noise


@dataclass(frozen=True, kw_only=True, slots=True)
class PinkConfig(_Condition):
    """Noise with as much power in each octave."""

    kind: Literal["pink"] = "pink"
    decibels: float = bounded(at_least=-60, at_most=120)


@dataclass(frozen=True, kw_only=True, slots=True)
class BabbleConfig(_Condition):
    """Many who talk at once."""

    kind: Literal["babble"] = "babble"
    decibels: float = bounded(at_least=-60, at_most=120)


@dataclass(frozen=True, kw_only=True, slots=True)
class TalkerConfig(_Condition):
    """Somebody else who talks."""

    kind: Literal["talker"] = "talker"
    decibels: float = bounded(at_least=-60, at_most=120)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReverbConfig(_Condition):
    """A room."""

    kind: Literal["reverb"] = "reverb"
    seconds: float = bounded(at_least=0.05, at_most=10)  # until sound has fallen by 60 dB


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferencesConfig(_Condition):
    """Mistakes of whoever wrote down what was said."""

    kind: Literal["references"] = "references"
    share: float = bounded(at_least=0, at_most=1)  # of the words


Additive = NoiseConfig | PinkConfig | BabbleConfig | TalkerConfig
ConditionConfig = QuietConfig | Additive | ReverbConfig | ReferencesConfig


def parse_condition(text: str) -> ConditionConfig:
    """The condition that is spelled so."""
    kinds = kinds_of(get_args(ConditionConfig))[1]
    kind, colon, number = text.strip().partition(":")
    if kind not in kinds:
        meant = nearest(kind, [str(one) for one in kinds])
        raise UserError(
            f"condition {text!r}: found {kind!r}, wanted one of {', '.join(map(str, kinds))}",
            fix=f"did you mean {meant!r}?" if meant else "for example noise:10",
        )
    name, slot = _amount(kinds[kind])
    found: ConditionConfig
    if not colon and slot.field.default is not MISSING:
        found = kinds[kind]()
        return found
    try:
        amount = float(number)
    except ValueError:
        amount = float("nan")
    if not slot.within(amount):  # NaN is not, either
        raise UserError(
            f"condition {text!r}: found {number!r} behind {kind!r}, "
            f"wanted {kind}:{name.upper()}, {slot.bounds}",
            fix=f"for example {kind}:{_EXAMPLES[name]}",
        )
    found = kinds[kind](**{name: amount})
    return found


def _amount(record: type) -> tuple[str, Slot]:
    """The one number of a condition: the name of its field, and its bounds."""
    ((name, slot),) = ((name, slot) for name, slot in slots(record).items() if name != "kind")
    return name, slot


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
    speakers = np.unique([one.speaker for one in utterances], return_inverse=True)[1]
    vocabulary = sorted({word for one in utterances for word in one.text.split()})
    return Scene(signals, utterances, speakers, vocabulary, rate, seed)


def apply(
    condition: ConditionConfig,
    signals: Sequence[Signal],
    utterances: Sequence[Utterance],
    rate: int,
    seed: int,
) -> tuple[list[Signal], list[Utterance]]:
    """The whole set under a condition."""
    whole = scene(signals, utterances, rate, seed)
    changed = [change(condition, whole, place) for place in range(len(signals))]
    return [signal for signal, _ in changed], [utterance for _, utterance in changed]


def change(condition: ConditionConfig, whole: Scene, place: int) -> tuple[Signal, Utterance]:
    """One recording of the set under a condition."""
    signal, utterance = whole.signals[place], whole.utterances[place]
    random = rng("condition", condition.kind, whole.seed, place)
    if isinstance(condition, ReferencesConfig):
        return signal, _mistaken(utterance, condition.share, whole.vocabulary, random)
    if not signal.any() or condition == QuietConfig():
        return signal, utterance
    if isinstance(condition, QuietConfig):
        changed = signal * 10 ** (-condition.decibels / 20)
    elif isinstance(condition, ReverbConfig):
        changed = heard_in(signal, room_response(condition.seconds, whole.rate, random))
    else:
        added = _added(condition, whole, place, len(signal), random)
        changed = signal + added * level_for(condition.decibels, signal, added, whole.rate)
    return within_range(changed).astype(np.float32), utterance


def _added(
    condition: Additive, whole: Scene, place: int, size: int, random: np.random.Generator
) -> Signal:
    if isinstance(condition, NoiseConfig):
        return white_noise(size, random)
    if isinstance(condition, PinkConfig):
        return pink_noise(size, random)
    count = TALKERS if isinstance(condition, BabbleConfig) else 1
    voices = list(islice(_others(whole, place, random), count))
    if not voices:
        raise UserError(
            f"condition {str(condition)!r}: found no other utterance with sound in it, wanted one",
            fix="it takes a set of at least two",
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
