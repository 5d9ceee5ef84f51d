"""Tagger: words and their spellings -> logits of tags, one per word.

    x_t = [word vector; features of its characters]    h = encoder(x)    o_t = softmax(W h_t)

The features of the characters, computed once for each distinct word of a batch, come from a CNN
(the maximum over positions) or from an LSTM (the last states of both directions).

Word vectors can be pretrained with CBOW:

    c_t = mean of x_s over 0 < |s - t| <= window        p(w at t) = softmax(R c_t)
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

Letters = Int[Tensor, "N letters"]
LettersPresent = Bool[Tensor, "N letters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CBOWConfig:
    """Pretraining of word vectors with CBOW."""

    window: int = bounded(2, at_least=1)  # largest distance of a context word


def context_means(
    vectors: Float[Tensor, "B T J"], present: Present, window: int
) -> Float[Tensor, "B T J"]:
    """Return the mean of the vectors around each position, without itself; zeros if none."""
    time = vectors.shape[1]
    with_counts = torch.cat((vectors, torch.ones_like(vectors[..., :1])), dim=-1)
    with_counts = with_counts.masked_fill(~present[..., None], 0.0)
    sums = torch.zeros_like(with_counts)
    for distance in range(1, min(window, time - 1) + 1):
        sums[:, distance:] += with_counts[:, : time - distance]
        sums[:, : time - distance] += with_counts[:, distance:]
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class CBOW(nn.Module):
    """The output projection R over the words."""

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
    """Word vectors only."""

    kind: Literal["none"] = "none"
    width: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CharacterCNNConfig:
    """The maximum over the word of a convolution over its characters."""

    kind: Literal["cnn"] = "cnn"
    width: int = bounded(128, at_least=1)  # number of features
    embedding_width: int = bounded(32, at_least=1)  # width of a character's vector
    kernel: int = bounded(5, at_least=1, at_most=MAX_KERNEL)  # kernel size, in characters


@dataclass(frozen=True, kw_only=True, slots=True)
class CharacterLSTMConfig:
    """The last states of a bidirectional LSTM."""

    kind: Literal["lstm"] = "lstm"
    width: int = bounded(128, at_least=2)  # number of features, half from each direction
    embedding_width: int = bounded(32, at_least=1)  # width of a character's vector

    def __post_init__(self) -> None:
        if self.width % 2:
            raise ValueError(f"both directions need an even width, got {self.width}")


CharactersConfig = CharacterCNNConfig | CharacterLSTMConfig | NoCharactersConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggerConfig:
    """A tagger."""

    kind: Literal["tagger"] = "tagger"
    width: int = bounded(320, at_least=1)  # width J of word vector and character features together
    characters: CharactersConfig = CharacterCNNConfig()  # features of the characters
    # The encoder over the words.
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
        """The longest row, in words; None for any length."""
        return build_encoder(self.encoder, self.width).max_length

    def build(
        self,
        *,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        neighbors: CBOWConfig | None = None,
    ) -> "Tagger":
        """Build the model; with `neighbors`, its word vectors can be pretrained with CBOW."""
        return Tagger(self, words, characters, tags, seed, neighbors)


class CharacterCNN(nn.Module):
    """N letters -> N width."""

    def __init__(self, config: CharacterCNNConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.embedding_width)
        self.kernel = nn.Conv1d(config.embedding_width, config.width, config.kernel)
        self.edges = (config.kernel - 1) // 2, config.kernel // 2

    def forward(
        self, spellings: Letters, letters_present: LettersPresent
    ) -> Float[Tensor, "N width"]:
        """Return the features; zeros beyond the ends of a word mark its edges."""
        letters = self.embedding(spellings).masked_fill(~letters_present[..., None], 0.0)
        window = F.pad(letters.transpose(1, 2), self.edges)
        # No feature is negative, so zeros at padding do not change the maximum.
        features = self.kernel(window).relu().masked_fill(~letters_present[:, None], 0.0)
        return cast(Tensor, features.amax(dim=-1))


class CharacterLSTM(nn.Module):
    """N letters -> N width."""

    def __init__(self, config: CharacterLSTMConfig, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, config.embedding_width)
        both = LSTMConfig(hidden=config.width // 2, direction="both")
        self.recurrent = both.build(config.embedding_width)

    def forward(
        self, spellings: Letters, letters_present: LettersPresent
    ) -> Float[Tensor, "N width"]:
        _, state = self.recurrent(self.embedding(spellings), letters_present)
        return cast(Tensor, state.hidden.flatten(1))


class Tagger(nn.Module):
    """Word vectors, character features, an encoder and a classifier."""

    def __init__(
        self,
        config: TaggerConfig,
        words: int,
        characters: int,
        tags: int,
        seed: int,
        neighbors: CBOWConfig | None,
    ) -> None:
        super().__init__()
        word_width = config.width - config.characters.width
        self.words = nn.Embedding(words, word_width)
        self.characters: CharacterCNN | CharacterLSTM | None = None
        if isinstance(config.characters, CharacterCNNConfig):
            self.characters = CharacterCNN(config.characters, characters)
        elif isinstance(config.characters, CharacterLSTMConfig):
            self.characters = CharacterLSTM(config.characters, characters)
        self.neighbors = CBOW(neighbors, word_width, words) if neighbors else None
        self.backbone = build_encoder(config.encoder, config.width)
        self.dropout = Dropout(config.dropout)
        self.classifier = OutputLinear(self.backbone.width, tags)
        self.max_length = self.backbone.max_length
        initialize(self, self.backbone.layers, seed)

    def forward(
        self,
        rows: TokenIds,
        forms: TokenIds | None = None,
        spellings: Letters | None = None,
        letters_present: LettersPresent | None = None,
        present: Present | None = None,
        *,
        words_at: Present | None = None,
    ) -> Float[Tensor, "B T tags"] | Float[Tensor, "targets words"]:
        """Return the logits of each word's tag; `forms` are the indices of the words' spellings.

        With `words_at`, return the logits of the words there, given those around them (CBOW).
        """
        if words_at is not None:
            assert self.neighbors is not None, "the model was built without CBOW"
            return cast(Tensor, self.neighbors(self.words(rows), words_at))
        assert forms is not None and present is not None
        check_rows("words", rows, self.max_length)
        check_shape("forms", forms, *rows.shape)
        check_shape("present", present, *rows.shape)
        vectors: Tensor = self.words(rows)
        if self.characters is not None:
            features: Tensor = self.characters(spellings, letters_present)
            vectors = torch.cat((vectors, features[forms]), dim=-1)
        states: Tensor = self.backbone(self.dropout(vectors), present)
        return cast(Tensor, self.classifier(self.dropout(states)))
