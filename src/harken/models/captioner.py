"""A model that looks at a picture and writes about it.

    picture B K Y X, or map M[x,y,K]  --front, encoder-->  memory B M H, one state a place
    memory, words so far  --decoder-->  B T V

    the sources' RNN     front `convolution` or `map`, no layer of the encoder: the decoder's
                         attention runs over x and y of the map itself. (The front's W M + b
                         before it is nothing new: W goes into W_key, and a softmax over places
                         does not feel b. The norm behind it keeps one bright place from
                         taking all of the attention before anything is learnt.)
    Transformer          some layers of spatial self-attention, decoder `transformer`

Places stand row by row, as `layers/frontends.py` counts them.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.frontends import ConvStemConfig, FeatureProjection, ImageFrontConfig, ImageSizes
from harken.layers.spatial import SpatialConfig
from harken.models.attentive_decoder import AttentiveDecoderConfig
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape
from harken.models.writing import (
    DecoderConfig,
    begin_writing,
    build_decoder,
    check_memory,
    layers_of,
)

NO_RNN = 0  # width of a right-to-left RNN's state in the memory: places have no such order


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionerConfig:
    """Sizes of a captioner; `width` is that of the tokens which the front makes of places."""

    kind: Literal["captioner"] = "captioner"
    width: int = bounded(128, at_least=1)
    front: ImageFrontConfig = ConvStemConfig()
    encoder: SpatialConfig = SpatialConfig(layers=0)
    decoder: DecoderConfig = AttentiveDecoderConfig()
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the front's tokens

    def check(self, sizes: ImageSizes) -> None:
        """Refuse choices that do not fit images of this size."""
        with torch.device("meta"):
            front = self.front.build(sizes, self.width)
            encoder = self.encoder.build(self.width, front.columns, front.rows)
        check_memory(self.decoder, encoder.columns * encoder.rows)

    def build(self, vocabulary: int, sizes: ImageSizes, seed: int) -> "Captioner":
        self.check(sizes)
        return Captioner(self, vocabulary, sizes, seed)


class Seen(NamedTuple):
    """States of the places of a picture; none is padding, for pictures of a set are of one size."""

    memory: Float[Tensor, "B M H"]
    present: Bool[Tensor, "B M"]


class Captioner(nn.Module):
    """Front, encoder, decoder."""

    def __init__(
        self, config: CaptionerConfig, vocabulary: int, sizes: ImageSizes, seed: int
    ) -> None:
        super().__init__()
        self.channels = sizes.channels
        self.front = config.front.build(sizes, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.encoder.build(config.width, self.front.columns, self.front.rows)
        self.decoder = build_decoder(config.decoder, vocabulary, self.encoder.width, NO_RNN, seed)
        self.longest_output = config.decoder.length
        initialize(self, max(config.encoder.layers, layers_of(config.decoder)), seed)

    def look(self, pictures: Float[Tensor, "B channels second third"]) -> Seen:
        """The memory: of pictures B K Y X, or of maps B X Y K where the front takes these."""
        tokens = self.front(pictures)
        places = self.dropout(self.norm(tokens.tokens))
        states: Tensor = self.encoder(places, tokens.coordinates)
        return Seen(states, states.new_ones(states.shape[:2], dtype=torch.bool))

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
        if isinstance(self.front, FeatureProjection):
            axes = ("batch", "columns", "rows", self.channels)
        check_shape("pictures", pictures, *axes)
        check_rows("target", target, self.longest_output)
        states: Tensor = self.decoder(target, self.begin(*self.look(pictures)))
        return states

    def begin(self, memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"]) -> Any:
        """The decoder's state before any word."""
        return begin_writing(self.decoder, memory, present, NO_RNN)

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        return self.decoder.extend(tokens, present, state)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        return self.decoder.logits(states)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return state.select(rows, same_prompts=same_prompts)
