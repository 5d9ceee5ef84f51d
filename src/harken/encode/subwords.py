"""How a vocabulary is fitted: characters, words, byte-pair or unigram subwords.

All four go through the same outer steps (a space before the text, special tokens, bytes as a last
resort) and end as one `tokenizer.json`.

    characters   every character seen; others in bytes
    words        the commonest words, each with the space before it; others spelt out
    bpe          byte-level byte-pair merges
    unigram      byte-level unigram pieces (the library's fit varies a little from call to call; the
                 others are repeatable. A run stores what it fitted, so resuming is exact with all)
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from harken.config import bounded
from harken.encode.tokenizer_file import CHARACTER, MAX_TOKEN_LENGTH, WORDS
from harken.encode.vocabulary import SPECIAL, UNKNOWN, Vocabulary

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
MOST_CHARACTERS = 20_000  # beyond this, rare characters go to bytes rather than into the model


def _finish(tokenizer: Tokenizer) -> Vocabulary:
    tokenizer.add_special_tokens(list(SPECIAL))
    return Vocabulary(tokenizer)


def _spell(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter(" ")
    for text in texts:
        counts.update(text)
    return counts


def _piecewise(pieces: Iterable[str], *, split: bool) -> Vocabulary:
    """Whole pieces where known, else characters, else bytes: byte-pair encoding with no merges."""
    listed = dict.fromkeys((*SPECIAL, *BYTES, *pieces))
    model = models.BPE(
        vocab={piece: number for number, piece in enumerate(listed)},
        merges=[],
        byte_fallback=True,
        ignore_merges=True,
        fuse_unk=False,
        unk_token=SPECIAL[UNKNOWN],
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    pattern = Regex(WORDS if split else CHARACTER)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return _finish(tokenizer)


@dataclass(frozen=True, kw_only=True, slots=True)
class CharactersConfig:
    """One token a character."""

    kind: Literal["characters"] = "characters"

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        common = [character for character, _ in _spell(texts).most_common(MOST_CHARACTERS)]
        return _piecewise(sorted(common), split=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """One token a word, for the `size` commonest; rarer ones are spelt out."""

    kind: Literal["words"] = "words"
    vocab_size: int = bounded(20_000, at_least=1)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        splitter = pre_tokenizers.Split(Regex(WORDS), "isolated")
        words: Counter[str] = Counter()
        for text in texts:
            words.update(piece for piece, _ in splitter.pre_tokenize_str(f" {text}"))
        letters = _spell(words)
        # Ties in count are broken by the word itself, so that a vocabulary is the same every time.
        short = (word for word in words if len(word) <= MAX_TOKEN_LENGTH)
        ranked = sorted(short, key=lambda word: (-words[word], word))[: self.vocab_size]
        common = sorted(letter for letter, _ in letters.most_common(MOST_CHARACTERS))
        return _piecewise((*common, *ranked), split=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class BytePairConfig:
    """Byte-level byte-pair encoding with `size` tokens, the 256 bytes and specials included."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: int = bounded(2000, at_least=260)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        return _fit_byte_level(Tokenizer(models.BPE()), trainer, texts)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnigramConfig:
    """Byte-level unigram pieces, at most `size` of them with the 256 bytes and specials."""

    kind: Literal["unigram"] = "unigram"
    vocab_size: int = bounded(
        2000, at_least=261
    )  # the library's trainer runs past 260 without a stop

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        trainer = trainers.UnigramTrainer(
            vocab_size=self.vocab_size,
            special_tokens=list(SPECIAL),
            unk_token=SPECIAL[UNKNOWN],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        return _fit_byte_level(Tokenizer(models.Unigram()), trainer, texts)


def _fit_byte_level(
    tokenizer: Tokenizer, trainer: trainers.Trainer, texts: Iterable[str]
) -> Vocabulary:
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(_chunks(texts), trainer)
    return Vocabulary(tokenizer)


def _chunks(texts: Iterable[str], size: int = 1000) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


TokenizerConfig = CharactersConfig | WordsConfig | BytePairConfig | UnigramConfig
