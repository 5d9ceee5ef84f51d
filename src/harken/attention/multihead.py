"""k heads side by side: each compares and mixes, an output matrix joins them.

Nothing is kept on the module between calls: what earlier tokens left behind is the argument `past`
and comes back extended. The kernel is an attribute so that a recorder can swap it; no other code
here knows of recording.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.attend import Compared, Kernel, attend_fast
from harken.attention.masks import Mask
from harken.attention.positions import Rotation, rotate
from harken.attention.scores import ScaledConfig, Score, ScoreConfig, split_heads
from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """Where queries and keys stand and who may look at whom; made once a forward for all layers."""

    mask: Mask
    query_positions: Int[Tensor, "#B T"]
    key_positions: Int[Tensor, "#B S"]
    rotation: Rotation | None = None


class KeyValues(NamedTuple):
    """What a layer remembers of tokens gone by; keys are None for scores that have none."""

    keys: Float[Tensor, "B k S U"] | None
    values: Float[Tensor, "B k S I"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiHeadConfig:
    """Sizes of one layer; widths of a head are J / k where not given."""

    heads: int = bounded(4, at_least=1)  # k
    head_width: int | None = bounded(None, at_least=1)  # I, carried by each head
    key_width: int | None = bounded(None, at_least=1)  # U, compared by each head
    score: ScoreConfig = ScaledConfig()
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of attention weights, in training

    def head_widths(self, width: int) -> tuple[int, int]:
        """(I, U) for a model of this width."""
        return self.head_width or width // self.heads, self.key_width or width // self.heads

    def build(self, width: int, length: int) -> "MultiHead":
        return MultiHead(self, width, length)


class MultiHead(nn.Module):
    """Self-attention: B T J -> B T J."""

    def __init__(self, config: MultiHeadConfig, width: int, length: int) -> None:
        super().__init__()
        head_width, key_width = config.head_widths(width)
        self.heads, self.dropout = config.heads, config.dropout
        self.score = config.score.build(width, config.heads, key_width, length)
        self.to_values = nn.Linear(width, config.heads * head_width, bias=False)
        self.join = nn.Linear(config.heads * head_width, width, bias=False)
        self.kernel: Kernel = attend_fast

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        arrangement: Arrangement,
        past: KeyValues | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        score = cast(Score, self.score)
        queries, keys = score.queries(inputs), score.keys(inputs)
        values = split_heads(self.to_values(inputs), self.heads)
        if arrangement.rotation is not None and queries is not None and keys is not None:
            queries = rotate(queries, arrangement.rotation)
            keys = rotate(keys, arrangement.rotation)
        if past is not None:
            values = torch.cat((past.values, values), dim=2)
            if keys is not None and past.keys is not None:
                keys = torch.cat((past.keys, keys), dim=2)
        compared = Compared(
            queries=queries,
            keys=keys,
            scale=score.scale,
            bias=score.bias(inputs, arrangement.query_positions, arrangement.key_positions),
        )
        dropout = self.dropout if self.training else 0.0
        mixed = self.kernel(compared, values, arrangement.mask, dropout)
        return self.join(rearrange(mixed, "B k T I -> B T (k I)")), KeyValues(keys, values)
