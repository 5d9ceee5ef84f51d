"""How much a query has to do with a key.

    dot          q_i . k_t
    scaled       q_i . k_t / sqrt(U)
    synthesizer  dense: row i is W_2 relu(W_1 x_i), from the token alone;
                 random: row i is learned and the same for every input

A new score is one class with the four answers of the `Score` protocol, its config with `build`, and
one member of `ScoreConfig`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.config import bounded


class Score(Protocol):
    """Queries and keys, or None and a bias over (query, key) in place of their product."""

    scale: float

    def queries(self, inputs: Float[Tensor, "B T J"]) -> Float[Tensor, "B k T U"] | None: ...

    def keys(self, inputs: Float[Tensor, "B S J"]) -> Float[Tensor, "B k S U"] | None: ...

    def bias(
        self,
        inputs: Float[Tensor, "B T J"],
        query_positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
    ) -> Float[Tensor, "#B k T S"] | None: ...


def split_heads(flat: Float[Tensor, "B T joined"], heads: int) -> Float[Tensor, "B k T U"]:
    """Lay the heads side by side on an axis of their own, without moving memory."""
    batch, time, _ = flat.shape
    return flat.view(batch, time, heads, -1).transpose(1, 2)


class Product(nn.Module):
    """Dot product of a query and a key, each a linear image of its token."""

    def __init__(self, width: int, heads: int, key_width: int, scale: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.to_queries = nn.Linear(width, heads * key_width, bias=False)
        self.to_keys = nn.Linear(width, heads * key_width, bias=False)

    def queries(self, inputs: Float[Tensor, "B T J"]) -> Float[Tensor, "B k T U"]:
        return split_heads(self.to_queries(inputs), self.heads)

    def keys(self, inputs: Float[Tensor, "B S J"]) -> Float[Tensor, "B k S U"]:
        return split_heads(self.to_keys(inputs), self.heads)

    def bias(
        self,
        inputs: Float[Tensor, "B T J"],
        query_positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
    ) -> None:
        return None


class Synthesized(nn.Module):
    """What both synthesizers share: no queries, no keys, a row of scores over key positions."""

    def __init__(self, width: int, heads: int, length: int, hidden: int | None) -> None:
        super().__init__()
        self.heads, self.length, self.scale = heads, length, 1.0
        self.from_token: nn.Module | None = None
        self.table: nn.Parameter | None = None
        if hidden is None:
            self.table = nn.Parameter(torch.zeros(heads, length, length))
        else:
            self.from_token = nn.Sequential(
                nn.Linear(width, heads * hidden),
                nn.ReLU(),
                nn.Unflatten(-1, (heads, hidden)),
            )
            self.to_scores = nn.Parameter(torch.zeros(heads, hidden, length))
            self.score_offsets = nn.Parameter(torch.zeros(heads, 1, length))

    def queries(self, inputs: Float[Tensor, "B T J"]) -> None:
        return None

    def keys(self, inputs: Float[Tensor, "B S J"]) -> None:
        return None

    def bias(
        self,
        inputs: Float[Tensor, "B T J"],
        query_positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
    ) -> Float[Tensor, "#B k T S"]:
        if self.from_token is None:
            assert self.table is not None
            # Rows first, keys after: indexing both at once would move the heads last.
            rows = self.table[:, query_positions].transpose(0, 1)
        else:
            hidden = self.from_token(inputs).transpose(1, 2)
            rows = hidden @ self.to_scores + self.score_offsets
        return at_positions(rows, key_positions)


def at_positions(
    rows: Float[Tensor, "#B k T places"], key_positions: Int[Tensor, "#B S"]
) -> Float[Tensor, "#B k T S"]:
    """Pick each key's score by the position it stands at, which in a packed row is not its slot."""
    if key_positions.shape[0] == 1:
        return rows[..., key_positions[0]]
    batch, heads, queries = key_positions.shape[0], rows.shape[1], rows.shape[2]
    index = key_positions[:, None, None, :].expand(batch, heads, queries, -1)
    return rows.expand(batch, -1, -1, -1).gather(-1, index)


@dataclass(frozen=True, kw_only=True, slots=True)
class DotConfig:
    """q . k, unscaled."""

    kind: Literal["dot"] = "dot"

    def build(self, width: int, heads: int, key_width: int, length: int) -> Product:
        return Product(width, heads, key_width, scale=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledConfig:
    """q . k / sqrt(U)."""

    kind: Literal["scaled"] = "scaled"

    def build(self, width: int, heads: int, key_width: int, length: int) -> Product:
        return Product(width, heads, key_width, scale=key_width**-0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class SynthesizerConfig:
    """Scores without a query-key product; `hidden` (dense) is a head's width between the layers."""

    kind: Literal["synthesizer"] = "synthesizer"
    form: Literal["dense", "random"] = "dense"
    hidden: int | None = bounded(None, at_least=1)  # of a head; the key width where not given

    def build(self, width: int, heads: int, key_width: int, length: int) -> Synthesized:
        hidden = (self.hidden or key_width) if self.form == "dense" else None
        return Synthesized(width, heads, length, hidden)


ScoreConfig = DotConfig | ScaledConfig | SynthesizerConfig
