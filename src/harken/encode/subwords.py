"""Fit a vocabulary of characters, words, or byte-pair or unigram subwords.

    characters   the 20,000 most frequent characters; others in bytes
    words        the most frequent words, each with the space before it; others in characters
    bpe          byte-level byte-pair encoding
    unigram      byte-level unigram model; the library's result differs slightly between two fits
    whole_words  the most frequent words; others are <unknown>

All vocabularies start with the special tokens. All except whole words add a space before a text and
fall back to bytes. A run stores its fitted vocabulary, so resuming is exact for every kind.

Whole words have no space before them, so that a masked word is the same after a space and after a
bracket: "Ada (1815) was" -> Ada  (  1815  )  was. Decoding them does not restore the text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from harken.config import bounded
from harken.encode.tokenizer_file import CHARACTER, MAX_TOKEN_LENGTH, PUNCTUATION, WORDS
from harken.encode.vocabulary import SPECIAL, UNKNOWN, Vocabulary

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
MAX_CHARACTERS = 20_000  # rarer characters are encoded in bytes
# With a vocab_size of 260 (bytes and special tokens only), the trainer may return more tokens.
MIN_UNIGRAM_SIZE = 261
FIT_BATCH = 1000  # texts passed to the library at once


def _frequent_characters(texts: Iterable[str]) -> list[str]:
    counts: Counter[str] = Counter(" ")  # a space is added before every text
    for text in texts:
        counts.update(text)
    return sorted(character for character, _ in counts.most_common(MAX_CHARACTERS))


def _most_frequent_words(counts: Counter[str], size: int, min_count: int = 1) -> list[str]:
    """Rank words by count; ties are broken by the word, so that a fit is deterministic."""
    words = (word for word in counts if len(word) <= MAX_TOKEN_LENGTH and counts[word] >= min_count)
    return sorted(words, key=lambda word: (-counts[word], word))[:size]


def _vocabulary_without_merges(tokens: Iterable[str], pattern: str) -> Vocabulary:
    """Return a BPE vocabulary without merges.

    A match of `pattern` is one token if it is in `tokens`. Otherwise it is split into characters,
    and characters that are not in `tokens` into bytes.
    """
    distinct = dict.fromkeys((*SPECIAL, *BYTES, *tokens))
    model = models.BPE(
        vocab={token: index for index, token in enumerate(distinct)},
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
        return _vocabulary_without_merges(_frequent_characters(texts), CHARACTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """A token per frequent word; rarer words are encoded in characters."""

    kind: Literal["words"] = "words"
    # maximum number of words with a token of their own, in addition to characters and bytes
    vocab_size: int = bounded(20_000, at_least=1)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        splitter = pre_tokenizers.Split(Regex(WORDS), "isolated")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in splitter.pre_tokenize_str(f" {text}"))
        words = _most_frequent_words(counts, self.vocab_size)
        return _vocabulary_without_merges((*_frequent_characters(counts), *words), WORDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class BytePairConfig:
    """Byte-level byte-pair encoding."""

    kind: Literal["bpe"] = "bpe"
    # maximum number of tokens, including the 256 bytes and the special tokens
    vocab_size: int = bounded(2000, at_least=260)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        return _fit_byte_level(models.BPE(), trainers.BpeTrainer, texts, vocab_size=self.vocab_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnigramConfig:
    """Byte-level unigram language model."""

    kind: Literal["unigram"] = "unigram"
    # maximum number of tokens, including the 256 bytes and the special tokens
    vocab_size: int = bounded(2000, at_least=MIN_UNIGRAM_SIZE)

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


# --- whole words


class Word(NamedTuple):
    """A word of a text, and its position: `word.text` is `text[word.start : word.stop]`."""

    text: str
    start: int
    stop: int


def _whole_word_splitter() -> pre_tokenizers.PreTokenizer:
    """Return a pre-tokenizer that drops white space and makes each punctuation mark a word."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PUNCTUATION), "isolated")]
    )


def split_words(text: str) -> list[Word]:
    """Return the words of a text, one per token of a vocabulary of whole words."""
    return [Word(word, *span) for word, span in _whole_word_splitter().pre_tokenize_str(text)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeWordsConfig:
    """The most frequent words."""

    kind: Literal["whole_words"] = "whole_words"
    min_count: int = bounded(2, at_least=1)  # minimum count of a word in the training texts
    vocab_size: int = bounded(20_000, at_least=1, at_most=1_000_000)  # maximum number of words

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        counts: Counter[str] = Counter()
        splitter = _whole_word_splitter()
        for text in texts:
            counts.update(word for word, _ in splitter.pre_tokenize_str(text))
        words = _most_frequent_words(counts, self.vocab_size, self.min_count)
        ids = {word: index for index, word in enumerate((*SPECIAL, *words))}
        tokenizer = Tokenizer(models.WordLevel(vocab=ids, unk_token=SPECIAL[UNKNOWN]))
        tokenizer.pre_tokenizer = splitter
        tokenizer.add_special_tokens(list(SPECIAL))
        return Vocabulary(tokenizer)

    def has_frequent_word(self, texts: Iterable[str]) -> bool:
        """Return whether any word occurs `min_count` times; reads texts only until one does."""
        counts: Counter[str] = Counter()
        for word in chain.from_iterable(map(split_words, texts)):
            counts[word.text] += 1
            if counts[word.text] >= self.min_count:
                return True
        return False
