"""Pooling: the states of a sequence or image -> one vector, B T J -> B width.

max         c = maximum over t of h_t, for each feature
mean        c = mean over t of h_t
first       c = h_0
attention   c = sum over t of a_t h_t for each head,  a = softmax over t of score(q, h_t)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.masks import padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig

States = Float[Tensor, "B T J"]
Present = Bool[Tensor, "B T"]

# The heads average the states themselves and are concatenated.
WEIGHTED_MEANS = MultiHeadConfig(heads=2, v_proj=False, out_proj=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaxPoolingConfig:
    """The maximum of each feature."""

    kind: Literal["max"] = "max"

    def check(self, width: int) -> None:
        """Any width is possible."""

    def build(self, width: int) -> "MaxPooling":
        return MaxPooling(width)


class MaxPooling(nn.Module):
    """The maximum of each feature over the states that are present."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, states: States, present: Present) -> Float[Tensor, "B J"]:
        return states.masked_fill(~present[..., None], -torch.inf).amax(dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanPoolingConfig:
    """The mean of the states."""

    kind: Literal["mean"] = "mean"

    def check(self, width: int) -> None:
        """Any width is possible."""

    def build(self, width: int) -> "MeanPooling":
        return MeanPooling(width)


class MeanPooling(nn.Module):
    """The mean of the states that are present."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, states: States, present: Present) -> Float[Tensor, "B J"]:
        weights = present[..., None].to(states.dtype)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstPoolingConfig:
    """The first state, as in BERT."""

    kind: Literal["first"] = "first"

    def check(self, width: int) -> None:
        """Any width is possible."""

    def build(self, width: int) -> "FirstPooling":
        return FirstPooling(width)


class FirstPooling(nn.Module):
    """The first state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, states: States, present: Present) -> Float[Tensor, "B J"]:
        return states[:, 0]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPoolingConfig:
    """Attention with a learned query."""

    kind: Literal["attention"] = "attention"
    # attention to the states; `v_proj = false` averages the states themselves
    attention: MultiHeadConfig = WEIGHTED_MEANS

    def __post_init__(self) -> None:
        if self.attention.score.per_position:
            raise ValueError(
                f"attention.score: {self.attention.score.kind!r} has weights per position, but "
                "pooling reads inputs of any length; choose 'scaled', 'dot', 'additive' or 'merged'"
            )

    def check(self, width: int) -> None:
        """Raise a ValueError unless states of this width divide into the heads."""
        self.attention.check_divisible(width)

    def build(self, width: int) -> "AttentionPooling":
        return AttentionPooling(self, width)


class AttentionPooling(nn.Module):
    """Attention of a learned query to the states."""

    def __init__(self, config: AttentionPoolingConfig, width: int) -> None:
        super().__init__()
        attention, (head_width, _) = config.attention, config.attention.head_widths(width)
        self.width = width if attention.out_proj else attention.heads * head_width
        self.query = nn.Embedding(1, width)
        self.cross = attention.build(width, max_length=1, memory_width=width)

    def forward(self, states: States, present: Present) -> Float[Tensor, "B width"]:
        positions = torch.arange(states.shape[1], device=states.device)[None]
        context = AttentionContext(
            mask=padding_mask(present), query_positions=positions[:, :1], key_positions=positions
        )
        query = self.query.weight.expand(states.shape[0], 1, -1)
        pooled = self.cross.attend(query, self.cross.project_kv(states), context)
        return pooled[:, 0]


PoolingConfig = MaxPoolingConfig | MeanPoolingConfig | FirstPoolingConfig | AttentionPoolingConfig
