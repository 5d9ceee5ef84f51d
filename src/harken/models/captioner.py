"""Image captioning.

    image B K Y X, or feature map B X Y K  --frontend, encoder-->  memory B M H
    memory, target tokens B T  --decoder-->  B T V

The frontend projects each position of the image to a vector. Without encoder layers, the decoder
attends to these vectors with their positional encoding. A norm after the frontend prevents a single
position from taking all attention at initialization.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.frontends import (
    ConvStemConfig,
    FeatureProjection,
    ImageFrontendConfig,
    ImageSizes,
)
from harken.layers.spatial import SpatialConfig
from harken.models.decoders import AttentionRNNDecoderConfig
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows, check_shape
from harken.models.seq2seq import Decoder, DecoderConfig, EncoderOutput, Seq2Seq, check_memory
from harken.models.start import StartConfig

Images = Float[Tensor, "B second third fourth"]  # images B K Y X, or feature maps B X Y K


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionerConfig(StartConfig):
    """An image captioner: frontend, encoder and decoder."""

    kind: Literal["captioner"] = "captioner"
    width: int = bounded(128, at_least=1)  # width of the frontend's outputs
    frontend: ImageFrontendConfig = ConvStemConfig()  # from images to one vector per position
    encoder: SpatialConfig = SpatialConfig(layers=0)  # self-attention over image positions
    decoder: DecoderConfig = AttentionRNNDecoderConfig()  # decoder over the caption's tokens
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the frontend's outputs

    def check(self, sizes: ImageSizes) -> None:
        """Raise an error if the model cannot be built for images of these sizes."""
        with torch.device("meta"):
            frontend = self.frontend.build(sizes, self.width)
            encoder = self.encoder.build(self.width, frontend.columns, frontend.rows)
        check_memory(self.decoder, encoder.columns * encoder.rows)

    def build(self, vocabulary: int, sizes: ImageSizes, seed: int) -> "Captioner":
        self.check(sizes)
        return Captioner(self, vocabulary, sizes, seed)


class Captioner(Seq2Seq):
    """The model: images and target tokens -> logits of the next token."""

    decoder: Decoder

    def __init__(
        self, config: CaptionerConfig, vocabulary: int, sizes: ImageSizes, seed: int
    ) -> None:
        super().__init__()
        self.channels = sizes.channels
        self.frontend = config.frontend.build(sizes, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.encoder.build(config.width, self.frontend.columns, self.frontend.rows)
        self.decoder = self.build_decoder(config.decoder, vocabulary, self.encoder, seed)
        self.max_target = config.decoder.max_length
        initialize(self, max(config.encoder.layers, config.decoder.layers), seed)

    def encode(self, images: Images) -> EncoderOutput:
        """Return the encoder states, the memory of the decoder."""
        grid = self.frontend(images)
        states: Tensor = self.encoder(self.dropout(self.norm(grid.tokens)), grid.coordinates)
        return EncoderOutput(states, states.new_ones(states.shape[:2], dtype=torch.bool))

    def forward(
        self, images: Images, target: TokenIds, *, at: Present | None = None
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the token after each target token, or only where `at` is true."""
        states = self.states(images, target)
        return self.logits(states if at is None else states[at])

    def states(self, images: Images, target: TokenIds) -> Float[Tensor, "B T J"]:
        """Return the decoder's states for a given target (teacher forcing)."""
        if isinstance(self.frontend, FeatureProjection):
            check_shape("images", images, "batch", "columns", "rows", self.channels)
        else:
            check_shape("images", images, "batch", self.channels, "rows", "columns")
        check_rows("target", target, self.max_target)
        return cast(Tensor, self.decoder(target, self.init_state(*self.encode(images))))
