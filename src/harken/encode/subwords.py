"""Fit a vocabulary of characters, words, or byte-pair or unigram subwords.

All add a space before a text, start with the special tokens and fall back to bytes.

    characters   every character of the training texts; others in bytes
    words        the most frequent words, each with the space before it; others in characters
    bpe          byte-level byte-pair encoding
    unigram      byte-level unigram model; the fit of the library varies slightly between calls

A run stores its fitted vocabulary, so resuming is exact with all of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from harken.config import bounded
from harken.encode.tokenizer_file import CHARACTER, MAX_TOKEN_LENGTH, WORDS
from harken.encode.vocabulary import SPECIAL, UNKNOWN, Vocabulary

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
MAX_CHARACTERS = 20_000  # rarer characters are encoded in bytes
FIT_BATCH = 1000  # texts passed to the library at once


def _frequent_characters(texts: Iterable[str]) -> list[str]:
    counts: Counter[str] = Counter(" ")
    for text in texts:
        counts.update(text)
    return sorted(character for character, _ in counts.most_common(MAX_CHARACTERS))


def _without_merges(tokens: Iterable[str], pattern: str) -> Vocabulary:
    """Encode matches of a pattern as tokens, else in characters, else in bytes: BPE, no merges."""
    listed = dict.fromkeys((*SPECIAL, *BYTES, *tokens))
    model = models.BPE(
        vocab={token: number for number, token in enumerate(listed)},
        merges=[],
        byte_fallback=True,
        ignore_merges=True,
        fuse_unk=False,
        unk_token=SPECIAL[UNKNOWN],
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(list(SPECIAL))
    return Vocabulary(tokenizer)


@dataclass(frozen=True, kw_only=True, slots=True)
class CharactersConfig:
    """A token per character."""

    kind: Literal["characters"] = "characters"

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        return _without_merges(_frequent_characters(texts), CHARACTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """A token per frequent word; rarer words are encoded in characters."""

    kind: Literal["words"] = "words"
    vocab_size: int = bounded(20_000, at_least=1)  # number of words with a token of their own

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        splitter = pre_tokenizers.Split(Regex(WORDS), "isolated")
        words: Counter[str] = Counter()
        for text in texts:
            words.update(word for word, _ in splitter.pre_tokenize_str(f" {text}"))
        # Ties in count are broken by the word, so that a fit is deterministic.
        short = (word for word in words if len(word) <= MAX_TOKEN_LENGTH)
        ranked = sorted(short, key=lambda word: (-words[word], word))[: self.vocab_size]
        return _without_merges((*_frequent_characters(words), *ranked), WORDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class BytePairConfig:
    """Byte-level byte-pair encoding."""

    kind: Literal["bpe"] = "bpe"
    # number of tokens, including the 256 bytes and the special tokens
    vocab_size: int = bounded(2000, at_least=260)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        return _fit_byte_level(models.BPE(), trainers.BpeTrainer, texts, vocab_size=self.vocab_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnigramConfig:
    """Byte-level unigram language model."""

    kind: Literal["unigram"] = "unigram"
    # maximum number of tokens, including the 256 bytes and the special tokens
    vocab_size: int = bounded(2000, at_least=261)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        options = {"vocab_size": self.vocab_size, "unk_token": SPECIAL[UNKNOWN]}
        return _fit_byte_level(models.Unigram(), trainers.UnigramTrainer, texts, **options)


def _fit_byte_level(
    model: models.Model, trainer: type[trainers.Trainer], texts: Iterable[str], **options: object
) -> Vocabulary:
    def batches(remaining: Iterator[str]) -> Iterator[list[str]]:
        while batch := list(islice(remaining, FIT_BATCH)):
            yield batch

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fixed = {"special_tokens": list(SPECIAL), "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(batches(iter(texts)), trainer(**fixed, **options))
    return Vocabulary(tokenizer)


TokenizerConfig = CharactersConfig | WordsConfig | BytePairConfig | UnigramConfig
