"""Tagger: words and their spellings -> logits of a tag per word.

    x_t = [word embedding; character features]    h = encoder(x)    P(tag_t) = softmax(W h_t)

The character features, computed once for each distinct word of a batch, come from a CNN (the
maximum over positions) or from an LSTM (the last states of both directions).

Word embeddings v can be pretrained with CBOW:

    c_t = mean of v_s over 0 < |s - t| <= window        P(word_t) = softmax(U c_t)

with trained matrices W and U.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import MAX_KERNEL, bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear
from harken.layers.recurrent import LSTMConfig
from harken.models.encoders import EncoderConfig, build_encoder, check_encoder
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows, check_shape
from harken.models.start import StartConfig

Spellings = Int[Tensor, "N characters"]
CharactersPresent = Bool[Tensor, "N characters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CBOWConfig:
    """Pretraining of word embeddings with CBOW (continuous bag of words)."""

    window: int = bounded(2, at_least=1)  # largest distance of a context word, in words


def context_means(
    vectors: Float[Tensor, "B T J"], present: Present, window: int
) -> Float[Tensor, "B T J"]:
    """Return the mean of the context vectors of each position; zeros without context."""
    time = vectors.shape[1]
    # The last column counts the context words.
    with_counts = torch.cat((vectors, torch.ones_like(vectors[..., :1])), dim=-1)
    with_counts = with_counts.masked_fill(~present[..., None], 0.0)
    sums = torch.zeros_like(with_counts)
    for distance in range(1, min(window, time - 1) + 1):
        sums[:, distance:] += with_counts[:, : time - distance]
        sums[:, : time - distance] += with_counts[:, distance:]
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class CBOW(nn.Module):
    """Predict each word from the mean of the vectors around it."""

    def __init__(self, config: CBOWConfig, width: int, words: int) -> None:
        super().__init__()
        self.window = config.window
        self.lm_head = OutputLinear(width, words, bias=False)

    def forward(self, vectors: Float[Tensor, "B T J"], present: Present) -> Float[Tensor, "N V"]:
        """Return the logits of the word at each present position, row by row."""
        means = context_means(vectors, present, self.window)
        return cast(Tensor, self.lm_head(means[present]))


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCharactersConfig:
    """No character features."""

    kind: Literal["none"] = "none"
    width: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CharacterCNNConfig:
    """Features of a convolution over the characters, with the maximum over the word."""

    kind: Literal["cnn"] = "cnn"
    width: int = bounded(128, at_least=1)  # number of features
    embedding_width: int = bounded(32, at_least=1)  # width of the character embeddings
    kernel: int = bounded(5, at_least=1, at_most=MAX_KERNEL)  # kernel size, in characters


@dataclass(frozen=True, kw_only=True, slots=True)
class CharacterLSTMConfig:
    """Features from the last states of a bidirectional LSTM over the characters."""

    kind: Literal["lstm"] = "lstm"
    width: int = bounded(128, at_least=2)  # number of features, half from each direction
    embedding_width: int = bounded(32, at_least=1)  # width of the character embeddings

    def __post_init__(self) -> None:
        if self.width % 2:
            raise ValueError(f"width: expected an even number (two directions), got {self.width}")


CharacterFeaturesConfig = CharacterCNNConfig | CharacterLSTMConfig | NoCharactersConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggerConfig(StartConfig):
    """A tagger: word embeddings, character features, an encoder and a classifier."""

    kind: Literal["tagger"] = "tagger"
    max_pieces: ClassVar[int | None] = None  # for models that read word pieces
    # width J per word: embedding and character features together
    width: int = bounded(320, at_least=1)
    characters: CharacterFeaturesConfig = CharacterCNNConfig()  # character features
    # encoder over the words
    encoder: EncoderConfig = LSTMConfig(layers=2, hidden=256, direction="both", dropout=0.4)
    dropout: float = bounded(0.5, at_least=0.0, below=1.0)  # of the encoder's inputs and outputs

    def __post_init__(self) -> None:
        if self.characters.width >= self.width:
            raise ValueError(
                f"width: expected more than characters.width ({self.characters.width}), "
                f"got {self.width}"
            )
        check_encoder(self.encoder, self.width)

    @property
    def max_length(self) -> int | None:
        """The maximum number of words in a sequence; None for no limit."""
        return build_encoder(self.encoder, self.width).max_length

    def build(
        self,
        *,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        cbow: CBOWConfig | None = None,
        cls: int = 0,
        sep: int = 0,
    ) -> "Tagger":
        """Build the model; with `cbow`, its word embeddings can be pretrained.

        `cls` and `sep` are for models that read word pieces.
        """
        return Tagger(self, words, characters, tags, seed, cbow)


class CharacterCNN(nn.Module):
    """Features of N words: (N, characters) -> (N, width)."""

    def __init__(self, config: CharacterCNNConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.embedding_width)
        self.kernel = nn.Conv1d(config.embedding_width, config.width, config.kernel)
        self.padding = (config.kernel - 1) // 2, config.kernel // 2

    def forward(
        self, spellings: Spellings, characters_present: CharactersPresent
    ) -> Float[Tensor, "N width"]:
        """Return the features; zero padding lets the convolution detect the ends of a word."""
        embedded = self.embedding(spellings).masked_fill(~characters_present[..., None], 0.0)
        padded = F.pad(embedded.transpose(1, 2), self.padding)
        # No feature is negative, so zeros at padding do not change the maximum.
        features = self.kernel(padded).relu().masked_fill(~characters_present[:, None], 0.0)
        return cast(Tensor, features.amax(dim=-1))


class CharacterLSTM(nn.Module):
    """Features of N words: (N, characters) -> (N, width)."""

    def __init__(self, config: CharacterLSTMConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.embedding_width)
        lstm = LSTMConfig(hidden=config.width // 2, direction="both")
        self.recurrent = lstm.build(config.embedding_width)

    def forward(
        self, spellings: Spellings, characters_present: CharactersPresent
    ) -> Float[Tensor, "N width"]:
        _, state = self.recurrent(self.embedding(spellings), characters_present)
        return cast(Tensor, state.hidden.flatten(1))


def build_character_features(
    config: CharacterFeaturesConfig, characters: int
) -> CharacterCNN | CharacterLSTM | None:
    """Return the layer that computes the features; None if there are none."""
    if isinstance(config, CharacterCNNConfig):
        return CharacterCNN(config, characters)
    return CharacterLSTM(config, characters) if isinstance(config, CharacterLSTMConfig) else None


class Tagger(nn.Module):
    """The model: words and their spellings -> logits of a tag per word."""

    def __init__(
        self,
        config: TaggerConfig,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        cbow: CBOWConfig | None,
    ) -> None:
        super().__init__()
        word_width = config.width - config.characters.width
        self.words = nn.Embedding(words, word_width)
        self.characters = build_character_features(config.characters, characters)
        self.neighbors = CBOW(cbow, word_width, words) if cbow else None
        self.backbone = build_encoder(config.encoder, config.width)
        self.dropout = Dropout(config.dropout)
        self.classifier = OutputLinear(self.backbone.width, tags)
        self.max_length = self.backbone.max_length
        initialize(self, self.backbone.layers, seed)

    def forward(
        self,
        words: TokenIds,
        forms: TokenIds | None = None,
        spellings: Spellings | None = None,
        characters_present: CharactersPresent | None = None,
        present: Present | None = None,
        *,
        words_at: Present | None = None,
    ) -> Float[Tensor, "B T tags"] | Float[Tensor, "targets words"]:
        """Return the logits of each word's tag; word (b, t) is spelled `spellings[forms[b, t]]`.

        With `words_at`, return the CBOW logits of the words where it is true. Other words are
        neither predicted nor part of the context.
        """
        if words_at is not None:
            assert self.neighbors is not None, "the model was built without CBOW"
            return cast(Tensor, self.neighbors(self.words(words), words_at))
        assert forms is not None and present is not None
        check_rows("words", words, self.max_length)
        check_shape("forms", forms, *words.shape)
        check_shape("present", present, *words.shape)
        vectors: Tensor = self.words(words)
        if self.characters is not None:
            features: Tensor = self.characters(spellings, characters_present)
            vectors = torch.cat((vectors, features[forms]), dim=-1)
        states: Tensor = self.backbone(self.dropout(vectors), present)
        return cast(Tensor, self.classifier(self.dropout(states)))
