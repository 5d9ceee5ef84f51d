"""A vocabulary of whole words, with <unknown> for rare and new words.

    "Ada (1815) was born"  ->  Ada  (  1815  )  was  born

Texts are split as by `tokenizer_file.WORDS`, but without the space before a word, so that a masked
word is the same after a space and after a bracket. Decoding does not restore the text.
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
    """A word and its position: text[start:stop]."""

    text: str
    start: int
    stop: int


def _splitter() -> pre_tokenizers.PreTokenizer:
    """Split at white space, which is dropped, and around punctuation marks, which are words."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PUNCTUATION), "isolated")]
    )


def split_words(text: str) -> list[Word]:
    """Return the words of a text, one per token of `Vocabulary.encode`."""
    words = _splitter().pre_tokenize_str(text)
    return [Word(word, start, stop) for word, (start, stop) in words]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeWordsConfig:
    """The most frequent words."""

    kind: Literal["whole_words"] = "whole_words"
    min_count: int = bounded(2, at_least=1)  # minimum count of a word in the training texts
    vocab_size: int = bounded(20_000, at_least=1, at_most=1_000_000)  # maximum number of words

    def fit(self, texts: Iterable[str]) -> Vocabulary:
        """Fit the vocabulary; ties in count are broken by the word, so that it is deterministic."""
        counts: Counter[str] = Counter()
        splitter = _splitter()
        for text in texts:
            counts.update(word for word, _ in splitter.pre_tokenize_str(text))
        frequent = (
            word
            for word, count in counts.items()
            if count >= self.min_count and len(word) <= MAX_TOKEN_LENGTH
        )
        ranked = sorted(frequent, key=lambda word: (-counts[word], word))[: self.vocab_size]
        numbers = {word: number for number, word in enumerate((*SPECIAL, *ranked))}
        tokenizer = Tokenizer(models.WordLevel(vocab=numbers, unk_token=SPECIAL[UNKNOWN]))
        tokenizer.pre_tokenizer = splitter
        tokenizer.add_special_tokens(list(SPECIAL))
        return Vocabulary(tokenizer)

    def knows_any(self, texts: Iterable[str]) -> bool:
        """Return whether `fit` would keep any word; stops at the first one."""
        counts: Counter[str] = Counter()
        splitter = _splitter()
        for text in texts:
            for word, _ in splitter.pre_tokenize_str(text):
                counts[word] += 1
                if counts[word] >= self.min_count:
                    return True
        return False
