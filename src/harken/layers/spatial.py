"""Self-attention over the positions of an image, which are tokens with two coordinates.

c[x,y] = sum over x', y' of a[x,y,x',y'] v[x',y'],
a[x,y,x',y'] = softmax over both x' and y' of the score of (x,y) with (x',y')
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.compatibility import check_compatibility
from harken.attention.context import build_position
from harken.attention.masks import padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig, model_width
from harken.config import MAX_LAYERS, bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialConfig:
    """Transformer blocks over the positions of an image; `layers = 0` only adds positions."""

    kind: Literal["spatial"] = "spatial"
    layers: int = bounded(2, at_least=0, at_most=MAX_LAYERS)  # number of blocks
    attention: MultiHeadConfig = MultiHeadConfig()  # self-attention
    position: PositionConfig = LearnedConfig()  # positional encoding of x and y
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the input and of each sublayer

    def __post_init__(self) -> None:
        if self.attention.score.uses_distances:
            raise ValueError(
                f"score {self.attention.score.kind!r} uses distances along one axis, but images "
                "have two axes; choose score 'scaled' with position 'relative', 'alibi' or 'rotary'"
            )

    def build(self, width: int, columns: int, rows: int) -> "SpatialEncoder":
        # Each axis has its own positional encoding, up to the length of the longer side.
        check_compatibility(self.attention, self.position, width, max(columns, rows))
        return SpatialEncoder(self, width, columns, rows)


class SpatialEncoder(nn.Module):
    """B T J -> B T width; `width` is 2 J if positions are concatenated."""

    def __init__(self, config: SpatialConfig, width: int, columns: int, rows: int) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.width = model_width(config.position, width)
        self.position = build_position(
            config.position, config.attention, width, max(columns, rows), axes=2
        )
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(config, config.layers, self.width, max_length=columns * rows)

    def forward(
        self,
        tokens: Float[Tensor, "B T J"],
        coordinates: Int[Tensor, "#B T 2"],
        present: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """Return the states of tokens with these coordinates, in any order."""
        indices = coordinates[..., 1] * self.columns + coordinates[..., 0]
        context = AttentionContext(
            mask=padding_mask(present),
            query_positions=indices,
            key_positions=indices,
            rotation=self.position.rotation(coordinates),
            bias=self.position.bias(coordinates, coordinates),
        )
        embedded = self.dropout(self.position.embed(tokens, coordinates))
        states: Tensor = self.stack(embedded, context)[0]
        return states
