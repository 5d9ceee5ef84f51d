"""Tokenization and log-mel features."""

import random
from collections.abc import Callable

from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import Vocabulary

WORDS_PER_LINE = 20


def random_lines(count: int) -> list[str]:
    """Return lines of random words; a word of rank r is drawn with probability ~ 1 / r."""
    generator = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(generator.choices(letters, k=generator.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    drawn = generator.choices(words, weights, k=count * WORDS_PER_LINE)
    starts = range(0, len(drawn), WORDS_PER_LINE)
    return [" ".join(drawn[start : start + WORDS_PER_LINE]) for start in starts]


def fit(lines: list[str]) -> Vocabulary:
    return BytePairConfig(vocab_size=4000).fit(lines[:2000])


def harken_tokens(*, lines: int) -> Callable[[], float]:
    """Encode lines with Harken; the units are lines."""
    texts = random_lines(lines)
    vocabulary = fit(texts)

    def run() -> float:
        vocabulary.encode(texts)
        return float(lines)

    return run


def tokenizers_tokens(*, lines: int) -> Callable[[], float]:
    """Encode the same lines with the same vocabulary with `tokenizers`, in one call."""
    from tokenizers import Tokenizer

    texts = random_lines(lines)
    tokenizer = Tokenizer.from_str(fit(texts).to_json())

    def run() -> float:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        assert len([encoding.ids for encoding in encodings]) == lines
        return float(lines)

    return run


def features(*, library: str, utterances: int) -> Callable[[], float]:
    """Extract log-mel features as `filterbank.py` does; the unit is a second of audio."""
    import filterbank
    import numpy as np

    rate, bins = filterbank.CONFIGS["16 kHz, 80 bands"]
    audio = filterbank.synthetic_audio(rate, utterances, np.random.default_rng(0))
    waveforms, seconds = sorted(audio, key=len), sum(map(len, audio)) / rate
    extract = {"harken": filterbank.extract_harken, "kaldi": filterbank.extract_kaldi}[library]

    def run() -> float:
        extract(waveforms, rate, bins)
        return seconds

    return run
