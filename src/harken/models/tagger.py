"""Words and their spellings -> scores of tags, one a word.

    x_t = [row of the word; view of its characters]    h = body(x)    o_t = softmax(W h_t)

With `body.kind = "tanh"` and no characters this is h_t = tanh(U x_t + V h_{t-1}). The view of the
characters is computed once for each distinct word of a batch, then given to every place where the
word stands:

    cnn     max over places of relu(convolution of the character vectors)
    lstm    the last states of both directions side by side
    none    words only

How words are split into windows and put together again is in `batch/words.py` and `tasks/tag.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import MAX_KERNEL, bounded
from harken.layers.dropout import Dropout
from harken.layers.output import OutputLinear
from harken.layers.recurrent import LSTMConfig
from harken.models.body import BodyConfig, build_body, check_body
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape
from harken.models.word_vectors import NeighboursConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCharactersConfig:
    """A word is its row and nothing else."""

    kind: Literal["none"] = "none"

    @property
    def width(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvolvedCharactersConfig:
    """What stands out in a word, wherever it stands: endings, capitals, digits."""

    kind: Literal["cnn"] = "cnn"
    width: int = bounded(128, at_least=1)  # of the view
    letter: int = bounded(32, at_least=1)  # width of a character's vector
    kernel: int = bounded(5, at_least=1, at_most=MAX_KERNEL)  # characters seen at once

    def build(self, characters: int) -> "ConvolvedCharacters":
        return ConvolvedCharacters(self, characters)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentCharactersConfig:
    """A word read from both of its ends."""

    kind: Literal["lstm"] = "lstm"
    width: int = bounded(128, at_least=2)  # of the view: half from each direction
    letter: int = bounded(32, at_least=1)  # width of a character's vector

    def __post_init__(self) -> None:
        if self.width % 2:
            raise ValueError(f"two directions cannot share a width of {self.width}; make it even")

    def build(self, characters: int) -> "RecurrentCharacters":
        return RecurrentCharacters(self, characters)


CharactersConfig = ConvolvedCharactersConfig | RecurrentCharactersConfig | NoCharactersConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggerConfig:
    """Width, what it is made of, and what is done with it."""

    kind: Literal["tagger"] = "tagger"
    width: int = bounded(320, at_least=1)  # J; the characters' view is part of it
    characters: CharactersConfig = ConvolvedCharactersConfig()
    body: BodyConfig = LSTMConfig(layers=2, hidden=256, direction="both", dropout=0.4)
    dropout: float = bounded(0.5, at_least=0.0, below=1.0)  # before and after the body

    def __post_init__(self) -> None:
        if self.characters.width >= self.width:
            raise ValueError(
                f"characters take {self.characters.width} of a width of {self.width} and leave "
                "none to the word; make width larger, or characters.width smaller"
            )
        check_body(self.body, self.width)

    @property
    def length(self) -> int | None:
        """The most words that are seen at once; None for any number."""
        return build_body(self.body, self.width).length

    def build(
        self,
        *,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        neighbours: NeighboursConfig | None = None,
    ) -> "Tagger":
        """`neighbours` for a model whose word rows are first to learn from the words around."""
        return Tagger(self, words, characters, tags, seed, neighbours)


class ConvolvedCharacters(nn.Module):
    """N letters -> N width."""

    def __init__(self, config: ConvolvedCharactersConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.letter)
        self.kernel = nn.Conv1d(config.letter, config.width, config.kernel)
        self.edges = (config.kernel - 1) // 2, config.kernel // 2

    def forward(
        self, spellings: Int[Tensor, "N letters"], spelt: Bool[Tensor, "N letters"]
    ) -> Float[Tensor, "N width"]:
        """Beyond the ends of a word there are zeros, which tell its edges."""
        letters = self.embedding(spellings).masked_fill(~spelt[..., None], 0.0)
        window = nn.functional.pad(letters.transpose(1, 2), self.edges)
        # No view is below zero, so that zeros at padding never win.
        seen = self.kernel(window).relu().masked_fill(~spelt[:, None], 0.0)
        loudest: Tensor = seen.amax(dim=-1)
        return loudest


class RecurrentCharacters(nn.Module):
    """N letters -> N width."""

    def __init__(self, config: RecurrentCharactersConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.letter)
        both = LSTMConfig(hidden=config.width // 2, direction="both")
        self.recurrent = both.build(config.letter)

    def forward(
        self, spellings: Int[Tensor, "N letters"], spelt: Bool[Tensor, "N letters"]
    ) -> Float[Tensor, "N width"]:
        _, state = self.recurrent(self.embedding(spellings), spelt)
        ends: Tensor = state.hidden.flatten(1)
        return ends


class Tagger(nn.Module):
    """See the top of this file."""

    def __init__(
        self,
        config: TaggerConfig,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        neighbours: NeighboursConfig | None,
    ) -> None:
        super().__init__()
        word_width = config.width - config.characters.width
        self.words = nn.Embedding(words, word_width)
        self.characters: ConvolvedCharacters | RecurrentCharacters | None = None
        if not isinstance(config.characters, NoCharactersConfig):
            self.characters = config.characters.build(characters)
        self.neighbours = neighbours.build(word_width, words) if neighbours else None
        self.body = build_body(config.body, config.width)
        self.dropout = Dropout(config.dropout)
        self.classifier = OutputLinear(self.body.width, tags)
        self.length = self.body.length
        initialize(self, self.body.layers, seed)

    def forward(
        self,
        rows: Int[Tensor, "B T"],
        forms: Int[Tensor, "B T"] | None = None,
        spellings: Int[Tensor, "N letters"] | None = None,
        spelt: Bool[Tensor, "N letters"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        *,
        words_at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T tags"] | Float[Tensor, "targets words"]:
        """Return the logits of each word's tag; `forms` says which spelling each word has.

        With `words_at`, which needs `rows` alone, return instead the logits of the words at these
        positions given the words around them (CBOW).
        """
        if words_at is not None:
            assert self.neighbours is not None, "the model was built without CBOW"
            predicted: Tensor = self.neighbours(self.words(rows), words_at)
            return predicted
        assert forms is not None and present is not None
        check_rows("words", rows, self.length)
        check_shape("forms", forms, *rows.shape)
        check_shape("present", present, *rows.shape)
        vectors: Tensor = self.words(rows)
        if self.characters is not None:
            views: Tensor = self.characters(spellings, spelt)
            vectors = torch.cat((vectors, views[forms]), dim=-1)
        states: Tensor = self.body(self.dropout(vectors), present)
        logits: Tensor = self.classifier(self.dropout(states))
        return logits
