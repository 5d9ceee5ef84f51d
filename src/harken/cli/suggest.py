"""Values of a new recipe that depend on the data, and checks that the files suit the task."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.formats.examples import Utterance

EVALUATIONS = 15  # during training
SAMPLED_SOUNDS = 200  # whose headers are read
LONG_SECONDS = 2.0  # median from which on SpecAugment helps
SMALL_HOURS = 1.0  # of sound, for which a smaller model is enough
MAX_RATE = 16_000  # samples per second; speech has little above 8 kHz
CLOSED_WORDS = 100  # distinct words that can each have an output of their own
LONGEST_SENTENCE = 500  # words; a longer one is a file without blank lines
BLEU_ORDER = 4
# Scripts without spaces, whose characters count as words, and all other words.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")


def evaluation_interval(steps: int) -> int:
    """Steps between evaluations for about 15 of them, rounded to one digit."""
    interval = max(1.0, steps / EVALUATIONS)
    digit: int = 10 ** math.floor(math.log10(interval))
    return round(interval / digit) * digit


def suggest_text(recipe: Any, splits: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Dropout for a language model that reads a small text many times."""
    characters = sum(map(len, splits["train"]))
    epochs = recipe.training.steps * recipe.training.batch_tokens / characters
    return {"model.dropout": 0.2} if epochs > 20 else {}


def suggest_pairs(recipe: Any, splits: Mapping[str, Sequence[Any]]) -> dict[str, object]:
    """A vocabulary whose subwords occur often enough to be learned."""
    size = max(500, len(splits["train"]) // 4 // 100 * 100)
    return {"encode.size": min(recipe.encode.size, size)}


def suggest_speech(recipe: Any, splits: Mapping[str, Sequence["Utterance"]]) -> dict[str, object]:
    """Sampling rate, bands, units, size and augmentation that suit the recordings."""
    from harken.formats.sound import sound_rate, sound_seconds

    utterances = splits["train"]
    sample = utterances[:: -(-len(utterances) // SAMPLED_SOUNDS)]
    rates = Counter(sound_rate(utterance.audio) for utterance in sample)
    rate = min(rates.most_common(1)[0][0], MAX_RATE)
    seconds = [
        (sound_seconds(utterance.audio) if utterance.end is None else utterance.end)
        - utterance.start
        for utterance in sample
    ]
    is_long = median(seconds) > LONG_SECONDS
    words = Counter(word for utterance in utterances for word in utterance.text.split())
    is_closed = len(words) <= CLOSED_WORDS and words.total() >= 10 * len(words)
    chosen: dict[str, object] = {
        "encode.filterbank.rate": rate,
        "encode.filterbank.bins": 80 if rate > 8000 else 40,
        # The mean of a short word is mostly its vowel.
        "encode.filterbank.normalise": "mean_and_variance" if is_long else "level",
        "encode.units.kind": "words" if is_closed else "characters",
    }
    if not is_long:
        chosen |= {
            "training.speech.masks.time_masks": 0,
            "training.speech.masks.frequency_masks": 0,
        }
    if sum(seconds) / len(seconds) * len(utterances) < SMALL_HOURS * 3600:
        chosen |= {"model.width": 64, "model.front.channels": 16, "model.encoder.layers": 3}
    return chosen


def check_sentences(files: Sequence[Path]) -> list[str]:
    """Refuse a file of tagged words without blank lines, which is read as one sentence."""
    from harken.formats.conllu import read_conllu

    for file in files:
        sentences = read_conllu(file)
        words = len(sentences[0].words)
        if len(sentences) == 1 and words > LONGEST_SENTENCE:
            raise UserError(
                f"{file}: no blank line separates sentences, so that the file is one sentence of "
                f"{words:,} words",
                fix="put a blank line after the last word of each sentence",
            )
    return []


def check_translations(files: Sequence[Path]) -> list[str]:
    """Refuse labels in place of translations; say what to expect of very short ones."""
    from harken.formats.tsv import read_pairs_tsv, read_parallel

    read = read_pairs_tsv(files[0]) if len(files) == 1 else read_parallel(files[0], files[1])
    targets = [pair.target.strip() for pair in read.pairs]
    distinct = Counter(targets)
    where = files[-1] if len(files) == 1 else files[1]
    if len(targets) >= 20 and len(distinct) <= len(targets) // 10:
        shown = ", ".join(repr(label[:20]) for label, _ in distinct.most_common(3))
        raise UserError(
            f"{where}: the translations have only {len(distinct)} different values in "
            f"{len(targets):,} lines ({shown}), so that they look like labels",
            fix="give a sentence and its translation in each line; BLEU of labels is always 0",
        )
    short = sum(len(WORD.findall(target)) < BLEU_ORDER for target in targets)
    if short > 0.9 * len(targets):
        return [
            f"note: {short / len(targets):.0%} of the translations in {where} have fewer than "
            f"{BLEU_ORDER} words, so that BLEU will be about 0; read chrF instead"
        ]
    return []
