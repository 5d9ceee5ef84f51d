"""Image captioning.

    picture B K Y X, or feature map M[x,y,K]  --front, encoder-->  memory B M H, a state per place
    memory, words so far  --decoder-->  B T V

    RNN of the course      front `convolution` or `map`, no encoder layers: the decoder attends to x
                           and y of the map itself. (The front's W M + b adds nothing: W is absorbed
                           by W_key, and softmax ignores b. The norm after it keeps one bright place
                           from taking all attention before training.)
    Transformer            layers of spatial self-attention, decoder `transformer`

Places are in row-major order, as in `layers/frontends.py`.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.frontends import ConvStemConfig, FeatureProjection, ImageFrontConfig, ImageSizes
from harken.layers.spatial import SpatialConfig
from harken.models.decoders import AttentionRNNDecoderConfig
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape
from harken.models.seq2seq import (
    Decoder,
    DecoderConfig,
    EncoderOutput,
    Seq2Seq,
    check_memory,
    decoder_layers,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionerConfig:
    """A captioner; `width` is that of the front's outputs."""

    kind: Literal["captioner"] = "captioner"
    width: int = bounded(128, at_least=1)
    frontend: ImageFrontConfig = ConvStemConfig()
    encoder: SpatialConfig = SpatialConfig(layers=0)
    decoder: DecoderConfig = AttentionRNNDecoderConfig()
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the front's outputs

    def check(self, sizes: ImageSizes) -> None:
        """Raise if the choices do not fit images of this size."""
        with torch.device("meta"):
            front = self.frontend.build(sizes, self.width)
            encoder = self.encoder.build(self.width, front.columns, front.rows)
        check_memory(self.decoder, encoder.columns * encoder.rows)

    def build(self, vocabulary: int, sizes: ImageSizes, seed: int) -> "Captioner":
        self.check(sizes)
        return Captioner(self, vocabulary, sizes, seed)


class Captioner(Seq2Seq):
    """Front, encoder, decoder."""

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
        self.decoder = self.build_decoder(
            config.decoder, vocabulary, self.encoder, self.encoder.width, seed
        )
        self.max_target = config.decoder.max_length
        initialize(self, max(config.encoder.layers, decoder_layers(config.decoder)), seed)

    def encode(self, pictures: Float[Tensor, "B channels second third"]) -> EncoderOutput:
        """Return the memory of pictures B K Y X, or of feature maps B X Y K."""
        tokens = self.frontend(pictures)
        places = self.dropout(self.norm(tokens.tokens))
        states: Tensor = self.encoder(places, tokens.coordinates)
        return EncoderOutput(states, states.new_ones(states.shape[:2], dtype=torch.bool))

    def forward(
        self,
        pictures: Float[Tensor, "B channels second third"],
        target: Int[Tensor, "B T"],
        *,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the token after each of `target`, or only where `at` is true."""
        states = self.states(pictures, target)
        return self.logits(states if at is None else states[at])

    def states(
        self, pictures: Float[Tensor, "B channels second third"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T J"]:
        """Return the decoder's states for a known target."""
        axes: tuple[int | str, ...] = ("batch", self.channels, "rows", "columns")
        if isinstance(self.frontend, FeatureProjection):
            axes = ("batch", "columns", "rows", self.channels)
        check_shape("pictures", pictures, *axes)
        check_rows("target", target, self.max_target)
        return cast(Tensor, self.decoder(target, self.init_state(*self.encode(pictures))))
