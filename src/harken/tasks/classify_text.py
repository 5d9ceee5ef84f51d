"""Texts of the task `classify`, as words with their characters or as tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from harken.batch import tagging
from harken.batch.padding import pad
from harken.batch.ragged import IntArray, ragged
from harken.batch.tagging import (
    SentenceWindows,
    WordCorpus,
    sentence_windows,
    tagged_batch,
    word_corpus,
)
from harken.encode.pretrained import PretrainedTokenizerConfig
from harken.encode.subwords import BytePairConfig, TokenizerConfig, split_words
from harken.encode.vocabulary import PAD, UNKNOWN, Vocabulary, VocabularySizes
from harken.encode.words import WordVocabulary, WordVocabularyConfig
from harken.formats.examples import Sentence
from harken.formats.labels import InputKind
from harken.models.classifier import Classifier, InputSizes
from harken.tasks.classify_inputs import (
    Arguments,
    ClassifyStage,
    InputVocabulary,
    ReadInputs,
    StateLabels,
    TrainingInputs,
)
from harken.tasks.dummy_batches import DUMMY_LENGTH, random_tokens
from harken.tasks.prediction import truncation_of

MAX_LENGTH = 1024  # words or tokens of a text, for a model without a limit
BLANK = "\N{REPLACEMENT CHARACTER}"
DUMMY_CHARACTERS = 12  # per word of a dummy batch


@dataclass(frozen=True, kw_only=True, slots=True)
class WordEncoding:
    """Texts as words with their characters."""

    kind: Literal["words"] = "words"
    input: ClassVar[InputKind] = "text"
    vocabulary: WordVocabularyConfig = WordVocabularyConfig()  # words with an embedding

    def fit(self, texts: Sequence[str]) -> InputVocabulary:
        """Return the words of the texts."""
        words = map(words_of, texts)
        sentences = [Sentence(tuple(row), ("",) * len(row)) for row in words]
        return InputVocabulary(words=self.vocabulary.fit(sentences))

    def sizes(self, vocabulary: VocabularySizes) -> InputSizes:
        """Return the sizes of the model's inputs."""
        return InputSizes(vocabulary=vocabulary.entries, characters=vocabulary.characters)

    def dummy_sizes(self, length: int | None) -> dict[str, int]:
        """Return the sizes of a random text, as in `DummySizes`."""
        return {"T": length or DUMMY_LENGTH, "W": DUMMY_CHARACTERS}

    def dummy_arguments(
        self, vocabulary: VocabularySizes, sizes: Mapping[str, int], generator: torch.Generator
    ) -> Arguments:
        """Return random words, each with a spelling of its own."""
        shape = (sizes["B"], sizes["T"])
        forms = torch.arange(sizes["B"] * sizes["T"]).view(shape)
        spellings = random_tokens(generator, vocabulary.characters, forms.numel(), sizes["W"])
        words = random_tokens(generator, vocabulary.entries, *shape)
        spellings_present = torch.ones(spellings.shape, dtype=torch.bool)
        present = torch.ones(shape, dtype=torch.bool)
        return words, forms, spellings, spellings_present, present

    def reader(self, vocabulary: InputVocabulary, max_length: int | None) -> "WordReader":
        assert vocabulary.words is not None
        return WordReader(vocabulary.words, max_length or MAX_LENGTH)


@dataclass(frozen=True, slots=True)
class WordReader:
    """Texts -> the arguments of `WordClassifier`."""

    vocabulary: WordVocabulary
    max_length: int

    def read(self, inputs: Sequence[str]) -> ReadInputs:
        texts = list(map(words_of, inputs))
        truncations = [
            truncation_of(min(len(words), self.max_length), len(words), "first", "words")
            for words in texts
        ]
        corpus, windows = self._corpus(texts)
        batch = tagged_batch(corpus, windows, np.arange(len(texts)), PAD)
        return ReadInputs(batch[:-1], truncations)

    def store(self, inputs: Sequence[str], stage: ClassifyStage, cache: Path) -> TrainingInputs:
        corpus, windows = self._corpus(list(map(words_of, inputs)))
        counts = self.vocabulary.row_counts

        def batch(chosen: IntArray, generator: np.random.Generator) -> Arguments:
            rows = tagged_batch(corpus, windows, chosen, PAD)
            return tagging.unk_dropout(rows, counts, stage.unk_dropout, UNKNOWN, generator)[:-1]

        return batch

    def state_labels(self, text: str, model: Classifier) -> StateLabels:
        return StateLabels("words", words_of(text)[: self.max_length])

    def _corpus(self, texts: Sequence[Sequence[str]]) -> tuple[WordCorpus, SentenceWindows]:
        """Return the first words of each text, in one window per text."""
        corpus = word_corpus(*self.vocabulary.encode([words[: self.max_length] for words in texts]))
        return corpus, sentence_windows(corpus.lengths, self.max_length)


def words_of(text: str) -> list[str]:
    """Return the words and punctuation marks of a text; a blank text has one unknown word."""
    return [word.text for word in split_words(text)] or [BLANK]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEncoding:
    """Texts as tokens of a tokenizer."""

    kind: Literal["tokens"] = "tokens"
    input: ClassVar[InputKind] = "text"
    # tokenizer of the texts, or that of `model.start_from`
    tokenizer: TokenizerConfig | PretrainedTokenizerConfig = field(default_factory=BytePairConfig)

    def fit(self, texts: Sequence[str]) -> InputVocabulary:
        """Return a tokenizer that is fitted to the texts."""
        return InputVocabulary(tokens=self.tokenizer.fit(texts))

    def sizes(self, vocabulary: VocabularySizes) -> InputSizes:
        """Return the sizes of the model's inputs."""
        return InputSizes(vocabulary=vocabulary.entries)

    def dummy_sizes(self, length: int | None) -> dict[str, int]:
        """Return the sizes of a random text, as in `DummySizes`."""
        return {"T": length or DUMMY_LENGTH}

    def dummy_arguments(
        self, vocabulary: VocabularySizes, sizes: Mapping[str, int], generator: torch.Generator
    ) -> Arguments:
        """Return random tokens."""
        shape = (sizes["B"], sizes["T"])
        tokens = random_tokens(generator, vocabulary.entries, *shape)
        return tokens, torch.ones(shape, dtype=torch.bool)

    def reader(self, vocabulary: InputVocabulary, max_length: int | None) -> "TokenReader":
        assert vocabulary.tokens is not None
        return TokenReader(vocabulary.tokens, max_length or MAX_LENGTH)


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Texts -> tokens and their mask, with <end>, or [CLS] and [SEP], before and after the text."""

    vocabulary: Vocabulary
    max_length: int

    def read(self, inputs: Sequence[str]) -> ReadInputs:
        tokens = self.vocabulary.encode(inputs)
        kept = list(map(self._cut, tokens))
        pairs = zip(kept, tokens, strict=True)
        truncations = [truncation_of(len(cut) - 2, len(full), "first") for cut, full in pairs]
        return ReadInputs(pad(ragged(kept), self.vocabulary.special.pad), truncations)

    def store(self, inputs: Sequence[str], stage: ClassifyStage, cache: Path) -> TrainingInputs:
        texts = ragged(list(map(self._cut, self.vocabulary.encode(inputs))))
        counts = np.bincount(texts.values, minlength=len(self.vocabulary))
        special = self.vocabulary.special

        def batch(chosen: IntArray, generator: np.random.Generator) -> Arguments:
            tokens, present = pad(texts.take(chosen), special.pad)
            drawn = generator.random(tokens.shape) * (stage.unk_dropout + counts[tokens.numpy()])
            inner = present & (tokens != special.end) & (tokens != self._start)
            dropped = torch.from_numpy(drawn < stage.unk_dropout) & inner
            return tokens.masked_fill(dropped, special.unknown), present

        return batch

    def state_labels(self, text: str, model: Classifier) -> StateLabels:
        (tokens,) = self.vocabulary.encode([text])
        return StateLabels("tokens", self.vocabulary.token_texts(self._cut(tokens).tolist()))

    def _cut(self, tokens: IntArray) -> IntArray:
        end = self.vocabulary.special.end
        return np.concatenate(([self._start], tokens[: self.max_length - 2], [end]))

    @property
    def _start(self) -> int:
        start = self.vocabulary.start
        return self.vocabulary.special.end if start is None else start
