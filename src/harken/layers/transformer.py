"""Transformer blocks: self-attention, cross-attention in decoders, and a feed-forward layer.

    pre-norm    x + f(norm(x))
    post-norm   norm(x + f(x))
    parallel    x + f(norm(x)) + g(norm(x)) for attention f and feed-forward layer g

The modules have no state: cached keys and values are passed as arguments and returned.
"""

from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig


@runtime_checkable
class Block(Protocol):
    """A block with self-attention and residual connections."""

    attention: MultiHead
    attention_is_first: bool  # whether no other sublayer precedes the self-attention
    is_decoder: bool  # whether the block has cross-attention

    def norms_before_attention(self) -> list[nn.Module]:
        """Return the norms between the input of the block and its self-attention."""

    def residual_norms(self) -> list[nn.Module]:
        """Return the norms on the residual path from input to output."""


@runtime_checkable
class BlockConfig(Protocol):
    """The fields of a model's config that its Transformer blocks use."""

    @property
    def attention(self) -> MultiHeadConfig: ...

    @property
    def feedforward(self) -> FeedForwardConfig: ...

    @property
    def norm(self) -> NormConfig: ...

    @property
    def dropout(self) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """A Transformer block."""

    attention: MultiHeadConfig = MultiHeadConfig()  # self- and cross-attention
    feedforward: FeedForwardConfig = FeedForwardConfig()  # the feed-forward layer
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the output of each sublayer

    def build(
        self, width: int, max_length: int, memory_width: int | None = None
    ) -> "TransformerBlock":
        """Return a block, with cross-attention if `memory_width` is given."""
        return TransformerBlock(self, width, max_length, memory_width)


class TransformerBlock(nn.Module):
    """B T J -> B T J; has cross-attention if `memory_width` is given."""

    attention_is_first = True

    def __init__(
        self, config: BlockConfig, width: int, max_length: int, memory_width: int | None
    ) -> None:
        super().__init__()
        self.attention = config.attention.build(width, max_length)
        self.attention_norm = config.norm.build(width)
        self.cross = self.cross_norm = None
        self.is_decoder = memory_width is not None
        if memory_width is not None:
            self.cross = config.attention.build(width, max_length, memory_width)
            self.cross_norm = config.norm.build(width)
        self.feedforward = config.feedforward.build(width)
        self.feedforward_norm = config.norm.build(width)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm.place != "post"
        self.parallel = config.norm.place == "parallel"

    def norms_before_attention(self) -> list[nn.Module]:
        return [self.attention_norm] if self.pre_norm else []

    def residual_norms(self) -> list[nn.Module]:
        norms = (self.attention_norm, self.cross_norm, self.feedforward_norm)
        return [] if self.pre_norm else [norm for norm in norms if norm is not None]

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: KeyValues | None = None,
        memory: KeyValues | None = None,
        cross_context: AttentionContext | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        """Return the outputs, and the keys and values of self-attention."""
        states = self.attention_norm(inputs) if self.pre_norm else inputs
        attended, keys_values = self.attention(states, context, past)
        states = self._add_residual(inputs, attended, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None and cross_context is not None, (
                "cross-attention needs a memory"
            )
            queries = self.cross_norm(states) if self.pre_norm else states
            attended = self.cross.attend(queries, memory, cross_context)
            states = self._add_residual(states, attended, self.cross_norm)
        normed = inputs if self.parallel else states
        normed = self.feedforward_norm(normed) if self.pre_norm else normed
        return self._add_residual(
            states, self.feedforward(normed), self.feedforward_norm
        ), keys_values

    def _add_residual(self, states: Tensor, output: Tensor, norm: nn.Module) -> Tensor:
        total: Tensor = states + self.dropout(output)
        return total if self.pre_norm else cast(Tensor, norm(total))


StackState = tuple[KeyValues, ...]


class Stack(nn.Module):
    """Transformer blocks; a pre-norm stack ends with a norm."""

    def __init__(
        self,
        config: BlockConfig,
        layers: int,
        width: int,
        max_length: int,
        memory_width: int | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            TransformerBlock(config, width, max_length, memory_width) for _ in range(layers)
        )
        has_final_norm = config.norm.place != "post" and layers > 0
        self.norm = config.norm.build(width) if has_final_norm else nn.Identity()

    def project_kv(self, memory: Float[Tensor, "B S J"]) -> StackState:
        """Return the keys and values of a memory for every block's cross-attention."""
        layers = (cast(MultiHead, block.cross) for block in self.blocks)
        return tuple(layer.project_kv(memory) for layer in layers)

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: StackState = (),
        memory: StackState = (),
        cross_context: AttentionContext | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        """Return the outputs, and the keys and values of every block."""
        states, caches = inputs, []
        for depth, block in enumerate(self.blocks):
            block_past = past[depth] if past else None
            block_memory = memory[depth] if memory else None
            states, cache = block(states, context, block_past, block_memory, cross_context)
            caches.append(cache)
        return self.norm(states), tuple(caches)
