"""Multi-head attention: k heads in parallel and an output projection.

The module has no state: `forward` takes the keys and values of earlier tokens and returns the
extended cache. For self-attention, call `forward`; for cross-attention, call `project_kv` once for
the memory, then `attend` for the queries. To record the weights, `inspection/record.py`
replaces the attribute `kernel`. To compute faster, `layers/` sets the attribute `qkv_proj`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.kernels import AttentionKernel, ScoreTerms, fused_attention
from harken.attention.masks import Mask
from harken.attention.query_key import (
    Queries,
    QueryKeyScore,
    ScoreInputs,
    ScoreSizes,
    split_heads,
)
from harken.attention.relative import Rotation, rotate
from harken.attention.scores import ScaledConfig, ScoreConfig
from harken.config import bounded

JointProjection = Callable[[Tensor], Sequence[Tensor]]
"""Maps inputs (B T J) to queries, keys and values (B T joined)."""


class ResidualLinear(nn.Linear):
    """A projection to the residual stream; `models/initialize.py` scales its weights by depth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionContext:
    """Mask and positions of queries and keys, computed once per forward pass for all layers."""

    mask: Mask
    query_positions: Int[Tensor, "#B T"]
    key_positions: Int[Tensor, "#B S"]
    rotation: Rotation | None = None  # of new queries and keys; cached keys are already rotated
    bias: Float[Tensor, "#B k T S"] | None = None  # of the positional encoding, added to the scores


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiHeadConfig:
    """Multi-head attention."""

    heads: int = bounded(4, at_least=1)  # number of heads k
    kv_heads: int | None = bounded(None, at_least=1)  # heads of keys and values; default: `heads`
    head_width: int | None = bounded(None, at_least=1)  # width I of a head's values; default: J / k
    key_width: int | None = bounded(
        None, at_least=1
    )  # width U of its queries and keys; default: J / k
    score: ScoreConfig = ScaledConfig()  # score of a query and a key
    bias: bool = False  # whether the projections have a bias
    # whether the key projection also has it; Whisper has none, since it adds the same number to all
    # scores of a query
    key_bias: bool = True
    v_proj: bool = True  # project the values; otherwise every head averages the tokens themselves
    out_proj: bool = True  # project the concatenated heads; otherwise they are the output
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of attention weights, in training

    def __post_init__(self) -> None:
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            raise ValueError(
                f"heads: expected a multiple of kv_heads ({kv_heads}), got {self.heads}"
            )
        if self.score.keys_are_tokens and self.key_width is not None:
            raise ValueError(
                f"score {self.score.kind!r} compares unprojected tokens; leave out key_width"
            )
        if not self.v_proj and self.head_width is not None:
            raise ValueError(
                "without v_proj, heads have the width of the tokens; leave out head_width"
            )

    def check_divisible(self, width: int) -> None:
        """Raise a ValueError if the width must be a multiple of the number of heads and is not."""
        is_divided = (self.v_proj and self.head_width is None) or (
            not self.score.keys_are_tokens and self.key_width is None
        )
        if is_divided and width % self.heads:
            raise ValueError(
                f"width {width} does not divide into {self.heads} heads; "
                "make it a multiple, or give attention.head_width and attention.key_width"
            )

    def check(self, width: int) -> None:
        """Raise a ValueError if a model of this width cannot have self-attention of these sizes."""
        self.check_divisible(width)
        head_width, _ = self.head_widths(width)
        if not self.out_proj and self.heads * head_width != width:
            raise ValueError(
                f"without out_proj, {self.heads} heads of width {head_width} give "
                f"{self.heads * head_width}, but the model has width {width}; make them equal"
            )

    def head_widths(self, width: int) -> tuple[int, int]:
        """Return the value width I and the key width U per head in a model of this width."""
        head_width = (self.head_width or width // self.heads) if self.v_proj else width
        key_width = self.key_width or width // self.heads
        return head_width, width if self.score.keys_are_tokens else key_width

    def build(self, width: int, max_length: int, memory_width: int | None = None) -> "MultiHead":
        """Return self-attention, or cross-attention to a memory if `memory_width` is given."""
        return MultiHead(self, width, max_length, memory_width)


class MultiHead(nn.Module):
    """Self-attention (B T J -> B T J) or cross-attention to a memory."""

    def __init__(
        self, config: MultiHeadConfig, width: int, max_length: int, memory_width: int | None
    ) -> None:
        super().__init__()
        cross = memory_width is not None
        memory_width = width if memory_width is None else memory_width
        head_width, key_width = config.head_widths(width)
        kv_heads = config.kv_heads or config.heads
        self.kind: Literal["self", "cross"] = "cross" if cross else "self"
        self.heads, self.kv_heads, self.dropout = config.heads, kv_heads, config.dropout
        self.score_kind: str = config.score.kind
        self.score = config.score.build(
            ScoreSizes(
                width=width,
                memory_width=memory_width,
                heads=config.heads,
                kv_heads=kv_heads,
                key_width=key_width,
                max_length=max_length,
                bias=config.bias,
                key_bias=config.key_bias,
                cross=cross,
            )
        )
        self.v_proj: nn.Linear | None = None
        if config.v_proj:
            self.v_proj = nn.Linear(memory_width, kv_heads * head_width, bias=config.bias)
        else:
            head_width = memory_width
        self.out_proj: nn.Linear | None = None
        if config.out_proj:
            self.out_proj = ResidualLinear(config.heads * head_width, width, bias=config.bias)
        self.kernel: AttentionKernel = fused_attention
        # Computes the three projections of self-attention as one product; see `can_join`.
        self.qkv_proj: JointProjection | None = None

    def can_join(self) -> bool:
        """Whether queries, keys and values are plain projections, so that `qkv_proj` may be set."""
        score = type(self.score)
        return (
            issubclass(score, QueryKeyScore)
            and score.queries is QueryKeyScore.queries
            and score.keys is QueryKeyScore.keys
            and self.v_proj is not None
        )

    def projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """Return `q_proj`, `k_proj` and `v_proj`, if `can_join()`."""
        assert isinstance(self.score, QueryKeyScore) and self.v_proj is not None
        return self.score.q_proj, self.score.k_proj, self.v_proj

    def project_qkv(
        self, inputs: Float[Tensor, "B T J"], rotation: Rotation | None = None
    ) -> tuple[Queries | None, KeyValues]:
        """Return the queries, keys and values of self-attention."""
        if self.qkv_proj is None:
            return self.project_queries(inputs, rotation), self.project_kv(inputs, rotation)
        parts = zip(self.qkv_proj(inputs), (self.heads, self.kv_heads, self.kv_heads), strict=True)
        queries, keys, values = (split_heads(part, heads) for part, heads in parts)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return queries, KeyValues(keys, values)

    def project_kv(
        self, memory: Float[Tensor, "B S J"], rotation: Rotation | None = None
    ) -> KeyValues:
        """Return the keys and values of the memory."""
        keys = self.score.keys(memory)
        if rotation is not None and keys is not None:
            keys = rotate(keys, rotation)
        if self.v_proj is None:
            return KeyValues(keys, memory[:, None])  # one head of values, shared by all heads
        return KeyValues(keys, split_heads(self.v_proj(memory), self.kv_heads))

    def project_queries(
        self, inputs: Float[Tensor, "B T J"], rotation: Rotation | None
    ) -> Queries | None:
        """Return the queries of the inputs, or None if the score has none."""
        queries = self.score.queries(inputs)
        if queries is None or rotation is None:
            return queries
        return rotate(queries, rotation)

    def terms(
        self, inputs: Float[Tensor, "B T J"], cache: KeyValues, context: AttentionContext
    ) -> ScoreTerms:
        """Return the terms of the scores between inputs and cached keys."""
        queries = self.project_queries(inputs, context.rotation)
        return self._terms(inputs, queries, cache, context)

    def _terms(
        self,
        inputs: Float[Tensor, "B T J"],
        queries: Queries | None,
        cache: KeyValues,
        context: AttentionContext,
    ) -> ScoreTerms:
        positions = context.query_positions, context.key_positions
        terms = self.score.terms(ScoreInputs(inputs, queries, cache.keys, *positions))
        if context.bias is None:
            return terms
        bias = context.bias if terms.bias is None else terms.bias + context.bias
        return replace(terms, bias=bias)

    def run_kernel(
        self,
        inputs: Float[Tensor, "B T J"],
        queries: Queries | None,
        cache: KeyValues,
        context: AttentionContext,
    ) -> Float[Tensor, "B T joined"]:
        """Attend to cached keys and values with given queries; concatenate the heads."""
        dropout = self.dropout if self.training else 0.0
        terms = self._terms(inputs, queries, cache, context)
        output = self.kernel(terms, cache.values, context.mask, dropout)
        return output.transpose(1, 2).flatten(start_dim=2)

    def attend(
        self, inputs: Float[Tensor, "B T J"], cache: KeyValues, context: AttentionContext
    ) -> Float[Tensor, "B T outputs"]:
        """Attend to cached keys and values; without `out_proj` return the concatenated heads."""
        queries = self.project_queries(inputs, context.rotation)
        heads = self.run_kernel(inputs, queries, cache, context)
        return heads if self.out_proj is None else self.out_proj(heads)

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: KeyValues | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        """Attend to `past` and to the inputs; return the outputs and the extended cache."""
        heads, cache = self.run(inputs, context, past)
        return heads if self.out_proj is None else self.out_proj(heads), cache

    def run(
        self, inputs: Float[Tensor, "B T J"], context: AttentionContext, past: KeyValues | None
    ) -> tuple[Float[Tensor, "B T joined"], KeyValues]:
        """Return the concatenated heads of self-attention, and the extended cache."""
        queries, cache = self.project_qkv(inputs, context.rotation)
        if past is not None:
            cache = past.append(cache)
        return self.run_kernel(inputs, queries, cache, context), cache
