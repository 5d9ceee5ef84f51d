"""Whole words as units: one token a word, <unknown> for every word that is rare or new.

    "Ada (1815) was born"  ->  Ada  (  1815  )  was  born

Texts are cut where `tokenizer_file.WORDS` cuts them, but the space before a word is no part of it:
a word to be guessed is the same word after a space and after a bracket. So a text does not come
back whole from its tokens; subwords and spelling are in `subwords.py`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from harken.config import bounded
from harken.encode.tokenizer_file import MAX_TOKEN_LENGTH, PUNCTUATION
from harken.encode.vocabulary import SPECIAL, UNKNOWN, Vocabulary


class Word(NamedTuple):
    """A word and where it stands: text[start:stop]."""

    text: str
    start: int
    stop: int


def splitter() -> pre_tokenizers.PreTokenizer:
    """At white space, which is dropped, and around every mark, which is a word of its own."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PUNCTUATION), "isolated")]
    )


def split_words(text: str) -> list[Word]:
    """The words that `Vocabulary.encode` gives a number to, one for one."""
    pieces = splitter().pre_tokenize_str(text)
    return [Word(piece, start, stop) for piece, (start, stop) in pieces]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeWordsConfig:
    """Words seen at least `least` times, of them the `size` commonest."""

    kind: Literal["whole_words"] = "whole_words"
    min_count: int = bounded(2, at_least=1)
    vocab_size: int = bounded(20_000, at_least=1, at_most=1_000_000)

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        """Ties in count are broken by the word itself, so that a fit is the same every time."""
        counts: Counter[str] = Counter()
        cut = splitter()
        for text in texts:
            counts.update(piece for piece, _ in cut.pre_tokenize_str(text))
        common = [
            word
            for word, count in counts.items()
            if count >= self.min_count and len(word) <= MAX_TOKEN_LENGTH
        ]
        ranked = sorted(common, key=lambda word: (-counts[word], word))[: self.vocab_size]
        numbers = {word: number for number, word in enumerate((*SPECIAL, *ranked))}
        tokenizer = Tokenizer(models.WordLevel(vocab=numbers, unk_token=SPECIAL[UNKNOWN]))
        tokenizer.pre_tokenizer = cut
        tokenizer.add_special_tokens(list(SPECIAL))
        return Vocabulary(tokenizer)

    def knows_any(self, texts: Iterable[str]) -> bool:
        """Whether a fit would keep any word; common text tells so within a few lines."""
        counts: Counter[str] = Counter()
        cut = splitter()
        for text in texts:
            for piece, _ in cut.pre_tokenize_str(text):
                counts[piece] += 1
                if counts[piece] >= self.min_count:
                    return True
        return False
