"""Classifiers: an input -> encoder states -> one vector -> a logit per label.

text    tokens B T      --embedding--------->  B M J
sound   frames B S F    --frontend, norm---->  B M J
image   pixels B K Y X  --frontend, norm---->  B M J

B M J  --backbone-->  B M H  --pooling-->  B width  --classifier-->  B labels
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.convolution import NGramConfig
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear, SegmentEmbedding, TokenEmbedding
from harken.layers.frontends import (
    Conv2dSubsamplingConfig,
    ConvStemConfig,
    ImageSizes,
    PatchEmbeddingConfig,
)
from harken.layers.pooling import (
    AttentionPoolingConfig,
    FirstPoolingConfig,
    MaxPoolingConfig,
    PoolingConfig,
)
from harken.layers.spatial import SpatialConfig, SpatialEncoder
from harken.models.encoders import (
    AttentionEncoder,
    Encoder,
    EncoderConfig,
    TransformerEncoderConfig,
    build_encoder,
    check_encoder,
)
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_length, check_rows, check_shape
from harken.models.seq2seq import EncoderOutput
from harken.models.start import StartConfig
from harken.models.tagger import (
    CharacterCNNConfig,
    CharacterFeaturesConfig,
    CharactersPresent,
    Spellings,
    build_character_features,
)

Frames = Float[Tensor, "B S F"]
Images = Float[Tensor, "B K Y X"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSizes:
    """Sizes of the inputs; each kind of model reads some of them."""

    vocabulary: int = 0  # number of different words or tokens
    characters: int = 0  # number of different characters of words
    features: int = 0  # numbers per frame of a sound
    image: ImageSizes = ImageSizes(channels=0, columns=0, rows=0)


def check_pooled_encoder(encoder: EncoderConfig, pooling: PoolingConfig, width: int) -> None:
    """Raise an error if encoder and pooling cannot be built for inputs of this width."""
    check_encoder(encoder, width)
    with torch.device("meta"):
        pooling.check(build_encoder(encoder, width).width)


class Classifier(nn.Module):
    """Base class: pooling and output layer. A subclass adds `encode` and `forward`."""

    max_length: int | None = None  # of the inputs
    # The center of state i in the input is `offset + stride * i`; for images, along both axes.
    offset: float = 0.0
    stride: int = 1
    columns, rows = 0, 0  # of the states of an image

    def add_output(
        self, config: "ClassifierConfig", backbone: Encoder | SpatialEncoder, labels: int
    ) -> None:
        """Add the layers after the encoder."""
        self.backbone = backbone
        self.dropout = Dropout(config.dropout)
        self.pooling = config.pooling.build(backbone.width)
        self.classifier = OutputLinear(self.pooling.width, labels)

    def classify(self, encoded: EncoderOutput) -> Float[Tensor, "B labels"]:
        """Return the logits of the labels."""
        pooled: Tensor = self.pooling(*encoded)
        return cast(Tensor, self.classifier(self.dropout(pooled)))


@dataclass(frozen=True, kw_only=True, slots=True)
class WordClassifierConfig(StartConfig):
    """A text classifier: word embeddings, character features, an encoder and pooling."""

    kind: Literal["words"] = "words"
    # width J per word: embedding and character features together
    width: int = bounded(320, at_least=1)
    characters: CharacterFeaturesConfig = CharacterCNNConfig()  # character features
    encoder: EncoderConfig = NGramConfig()  # encoder over the words
    pooling: PoolingConfig = MaxPoolingConfig()  # from the states to one vector
    dropout: float = bounded(0.5, at_least=0.0, below=1.0)  # of the words and the pooled vector

    def __post_init__(self) -> None:
        if self.characters.width >= self.width:
            raise ValueError(
                f"width: expected more than characters.width ({self.characters.width}), "
                f"got {self.width}"
            )
        check_pooled_encoder(self.encoder, self.pooling, self.width)

    @property
    def max_length(self) -> int | None:
        """The maximum number of words; None for no limit."""
        return getattr(self.encoder, "max_length", None)

    def check(self, sizes: InputSizes) -> None:
        """Any vocabulary is possible."""

    def build(self, sizes: InputSizes, labels: int, seed: int) -> "WordClassifier":
        return WordClassifier(self, sizes, labels, seed)


class WordClassifier(Classifier):
    """Words and their spellings -> logits of the labels."""

    def __init__(
        self, config: WordClassifierConfig, sizes: InputSizes, labels: int, seed: int
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, config.width - config.characters.width)
        self.characters = build_character_features(config.characters, sizes.characters)
        backbone = build_encoder(config.encoder, config.width)
        self.add_output(config, backbone, labels)
        self.max_length = config.max_length
        initialize(self, backbone.layers, seed)

    def encode(
        self,
        words: TokenIds,
        forms: TokenIds,
        spellings: Spellings,
        characters_present: CharactersPresent,
        present: Present,
    ) -> EncoderOutput:
        """Return the states of the words; word (b, t) is spelled `spellings[forms[b, t]]`."""
        check_rows("words", words, self.max_length)
        check_shape("forms", forms, *words.shape)
        check_shape("present", present, *words.shape)
        vectors: Tensor = self.words(words)
        if self.characters is not None:
            features: Tensor = self.characters(spellings, characters_present)
            vectors = torch.cat((vectors, features[forms]), dim=-1)
        return EncoderOutput(self.backbone(self.dropout(vectors), present), present)

    def forward(
        self,
        words: TokenIds,
        forms: TokenIds,
        spellings: Spellings,
        characters_present: CharactersPresent,
        present: Present,
    ) -> Float[Tensor, "B labels"]:
        return self.classify(self.encode(words, forms, spellings, characters_present, present))


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassifierConfig(StartConfig):
    """A text classifier: token embeddings, an encoder and pooling."""

    kind: Literal["tokens"] = "tokens"
    width: int = bounded(256, at_least=1)  # width J of the token embeddings
    # number of segment embeddings, as in BERT, of which the first is used; 0 for none
    segments: int = bounded(0, at_least=0)
    encoder: EncoderConfig = TransformerEncoderConfig(dropout=0.1)  # encoder over the tokens
    pooling: PoolingConfig = FirstPoolingConfig()  # from the states to one vector
    # of the token embeddings and of the pooled vector
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_pooled_encoder(self.encoder, self.pooling, self.width)

    @property
    def max_length(self) -> int | None:
        """The maximum number of tokens; None for no limit."""
        return getattr(self.encoder, "max_length", None)

    def check(self, sizes: InputSizes) -> None:
        """Any vocabulary is possible."""

    def build(self, sizes: InputSizes, labels: int, seed: int) -> "TokenClassifier":
        return TokenClassifier(self, sizes, labels, seed)


class TokenClassifier(Classifier):
    """Tokens -> logits of the labels; its embeddings and backbone are named as in `TextEncoder`."""

    def __init__(
        self, config: TokenClassifierConfig, sizes: InputSizes, labels: int, seed: int
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(sizes.vocabulary, config.width)
        self.segment: nn.Embedding | None = None
        if config.segments > 0:
            self.segment = SegmentEmbedding(config.segments, config.width)
        backbone = build_encoder(config.encoder, config.width)
        self.add_output(config, backbone, labels)
        self.max_length = config.max_length
        initialize(self, backbone.layers, seed)

    def encode(self, tokens: TokenIds, present: Present) -> EncoderOutput:
        """Return the states of the tokens."""
        check_rows("tokens", tokens, self.max_length)
        check_shape("present", present, *tokens.shape)
        embedded: Tensor = self.embedding(tokens)
        if self.segment is not None:
            embedded = embedded + self.segment.weight[0]
        embedded = self.dropout(embedded)
        return EncoderOutput(self.backbone(embedded, present), present)

    def forward(self, tokens: TokenIds, present: Present) -> Float[Tensor, "B labels"]:
        return self.classify(self.encode(tokens, present))


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundClassifierConfig(StartConfig):
    """A sound classifier: frontend, encoder, pooling and an output layer."""

    kind: Literal["sound"] = "sound"
    width: int = bounded(64, at_least=1)  # width J of the frontend's outputs
    # frames to encoder inputs
    frontend: Conv2dSubsamplingConfig = Conv2dSubsamplingConfig(channels=16)
    encoder: EncoderConfig = ConformerEncoderConfig(layers=3)  # over the frontend's outputs
    pooling: PoolingConfig = AttentionPoolingConfig()  # from the states to one vector
    # of the frontend's outputs and of the pooled vector
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_pooled_encoder(self.encoder, self.pooling, self.width)

    @property
    def max_length(self) -> int | None:
        """The maximum number of frames; None for no limit."""
        limit = getattr(self.encoder, "max_length", None)
        return None if limit is None else limit * self.frontend.subsampling

    def check(self, sizes: InputSizes) -> None:
        """Any number of features is possible."""

    def build(self, sizes: InputSizes, labels: int, seed: int) -> "SoundClassifier":
        return SoundClassifier(self, sizes.features, labels, seed)


class SoundClassifier(Classifier):
    """Frames of a sound -> logits of the labels."""

    def __init__(
        self, config: SoundClassifierConfig, features: int, labels: int, seed: int
    ) -> None:
        super().__init__()
        self.features = features
        self.frontend = config.frontend.build(features, config.width)
        backbone = build_encoder(config.encoder, config.width)
        # Attention blocks normalize the small outputs of the frontend themselves.
        has_norm = isinstance(backbone, AttentionEncoder)
        self.norm = nn.Identity() if has_norm else nn.LayerNorm(config.width)
        self.add_output(config, backbone, labels)
        self.max_length = config.max_length
        self.offset, self.stride = self.frontend.offset, self.frontend.stride
        initialize(self, backbone.layers, seed)

    def encode(self, frames: Frames, present: Present) -> EncoderOutput:
        """Return a state for every `frontend.stride` frames."""
        check_shape("frames", frames, "batch", "time", self.features)
        check_length("frames", frames.shape[1], self.max_length)
        check_shape("present", present, *frames.shape[:2])
        grid = self.frontend(frames, present)
        states = self.backbone(self.dropout(self.norm(grid.tokens)), grid.present)
        return EncoderOutput(states, grid.present)

    def forward(self, frames: Frames, present: Present) -> Float[Tensor, "B labels"]:
        return self.classify(self.encode(frames, present))


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageClassifierConfig(StartConfig):
    """An image classifier: frontend, encoder, pooling and an output layer."""

    kind: Literal["image"] = "image"
    width: int = bounded(128, at_least=1)  # width J of the frontend's outputs
    # from images to one vector per position
    frontend: PatchEmbeddingConfig | ConvStemConfig = ConvStemConfig()
    encoder: SpatialConfig = SpatialConfig(layers=1)  # self-attention over image positions
    pooling: PoolingConfig = AttentionPoolingConfig()  # from the states to one vector
    # of the frontend's outputs and of the pooled vector
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)

    max_length: ClassVar[int | None] = None  # all images have the same size

    def check(self, sizes: InputSizes) -> None:
        """Raise an error if the model cannot be built for images of these sizes."""
        with torch.device("meta"):
            frontend = self.frontend.build(sizes.image, self.width)
            encoder = self.encoder.build(self.width, frontend.columns, frontend.rows)
        self.pooling.check(encoder.width)

    def build(self, sizes: InputSizes, labels: int, seed: int) -> "ImageClassifier":
        self.check(sizes)
        return ImageClassifier(self, sizes.image, labels, seed)


class ImageClassifier(Classifier):
    """Images -> logits of the labels."""

    def __init__(
        self, config: ImageClassifierConfig, sizes: ImageSizes, labels: int, seed: int
    ) -> None:
        super().__init__()
        self.channels = sizes.channels
        self.frontend = config.frontend.build(sizes, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.columns, self.rows = self.frontend.columns, self.frontend.rows
        self.offset, self.stride = self.frontend.offset, self.frontend.stride
        backbone = config.encoder.build(config.width, self.columns, self.rows)
        self.add_output(config, backbone, labels)
        initialize(self, max(config.encoder.layers, 1), seed)

    def encode(self, images: Images) -> EncoderOutput:
        """Return a state for each position of the frontend's grid."""
        check_shape("images", images, "batch", self.channels, "rows", "columns")
        grid = self.frontend(images)
        states: Tensor = self.backbone(self.dropout(self.norm(grid.tokens)), grid.coordinates)
        return EncoderOutput(states, states.new_ones(states.shape[:2], dtype=torch.bool))

    def forward(self, images: Images) -> Float[Tensor, "B labels"]:
        return self.classify(self.encode(images))


ClassifierConfig = (
    WordClassifierConfig | TokenClassifierConfig | SoundClassifierConfig | ImageClassifierConfig
)
