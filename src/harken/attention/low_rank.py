"""Products of two tokens as two factors per head: (L x + l) . (R y + r), of rank U."""

from dataclasses import dataclass

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.kernels import repeat_kv


@dataclass(frozen=True, slots=True)
class LowRank:
    """(left x + left_offset) . (right y + right_offset), for each head."""

    left: Float[Tensor, "k U J"]
    right: Float[Tensor, "k U memory"]
    left_offset: Float[Tensor, "k U"]
    right_offset: Float[Tensor, "k U"]


def split_projection(
    projection: nn.Linear, kv_heads: int, heads: int
) -> tuple[Float[Tensor, "k U J"], Float[Tensor, "k U"]]:
    """Return weight and bias of a projection to `kv_heads` heads, repeated for all heads."""
    weight = rearrange(projection.weight, "(k U) J -> k U J", k=kv_heads)
    offset = weight.new_zeros(weight.shape[:2])
    if projection.bias is not None:
        offset = projection.bias.view(kv_heads, -1)
    return repeat_kv(heads, weight[None])[0], repeat_kv(heads, offset[None, :, None])[0, :, 0]
