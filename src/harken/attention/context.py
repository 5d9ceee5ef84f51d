"""Build the positional encoding of a model, and the context of a forward pass."""

from jaxtyping import Int
from torch import Tensor

from harken.attention.masks import Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import Position, PositionConfig, model_width
from harken.attention.relative import PositionSizes


def build_position(
    position: PositionConfig, attention: MultiHeadConfig, width: int, max_length: int, axes: int = 1
) -> Position:
    """Return the positional encoding of a model with this token width and attention."""
    _, key_width = attention.head_widths(model_width(position, width))
    sizes = PositionSizes(
        width=width, key_width=key_width, heads=attention.heads, max_length=max_length, axes=axes
    )
    return position.build(sizes)


def attention_context(
    position: Position,
    mask: Mask,
    positions: Int[Tensor, "#B T"],
    key_positions: Int[Tensor, "#B S"],
) -> AttentionContext:
    """Return the context of self-attention over a sequence (one axis, time)."""
    coordinates = positions[..., None]
    return AttentionContext(
        mask=mask,
        query_positions=positions,
        key_positions=key_positions,
        rotation=position.rotation(coordinates),
        bias=position.bias(coordinates, key_positions[..., None]),
    )
