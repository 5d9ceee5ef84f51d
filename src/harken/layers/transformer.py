"""Transformer blocks: self-attention, cross-attention in decoders, and a feed-forward layer.

    pre-norm    x + f(norm(x))
    post-norm   norm(x + f(x))

Keys and values of earlier tokens and of the memory are arguments and results.
"""

from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, KeyValues, MultiHead, MultiHeadConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig


@runtime_checkable
class Block(Protocol):
    """A block with self-attention that adds the outputs of its parts to its input."""

    attention: MultiHead
    attention_is_first: bool  # whether attention reads the input of the block
    is_decoder: bool  # whether the block has cross-attention

    def norms_before_attention(self) -> list[nn.Module]:
        """Return the norms between the input of the block and its self-attention."""

    def residual_norms(self) -> list[nn.Module]:
        """Return the norms on the residual path from input to output."""


@runtime_checkable
class BlockConfig(Protocol):
    """The fields by which the config of a model configures its Transformer blocks."""

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
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the output of each part

    def build(self, width: int, length: int, memory_width: int | None = None) -> "TransformerBlock":
        """Return a block; with `memory_width`, it has cross-attention to such a memory."""
        return TransformerBlock(self, width, length, memory_width)


class TransformerBlock(nn.Module):
    """B T J -> B T J; has cross-attention if `memory_width` is given."""

    attention_is_first = True

    def __init__(
        self, config: BlockConfig, width: int, length: int, memory_width: int | None
    ) -> None:
        super().__init__()
        self.attention = config.attention.build(width, length)
        self.attention_norm = config.norm.build(width)
        self.cross = self.cross_norm = None
        self.is_decoder = memory_width is not None
        if memory_width is not None:
            self.cross = config.attention.build(width, length, memory_width)
            self.cross_norm = config.norm.build(width)
        self.feedforward = config.feedforward.build(width)
        self.feedforward_norm = config.norm.build(width)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm.place == "pre"

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
        """Return the tokens, and the keys and values of self-attention."""
        tokens = self.attention_norm(inputs) if self.pre_norm else inputs
        mixed, keys_values = self.attention(tokens, context, past)
        tokens = self._add(inputs, mixed, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None and cross_context is not None, (
                "cross-attention needs a memory"
            )
            queries = self.cross_norm(tokens) if self.pre_norm else tokens
            mixed = self.cross.attend(queries, memory, cross_context)
            tokens = self._add(tokens, mixed, self.cross_norm)
        normed = self.feedforward_norm(tokens) if self.pre_norm else tokens
        return self._add(tokens, self.feedforward(normed), self.feedforward_norm), keys_values

    def _add(self, tokens: Tensor, output: Tensor, norm: nn.Module) -> Tensor:
        total: Tensor = tokens + self.dropout(output)
        return total if self.pre_norm else cast(Tensor, norm(total))


StackState = tuple[KeyValues, ...]


class Stack(nn.Module):
    """L blocks; a pre-norm stack ends with a norm."""

    def __init__(
        self,
        config: BlockConfig,
        layers: int,
        width: int,
        length: int,
        memory_width: int | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            TransformerBlock(config, width, length, memory_width) for _ in range(layers)
        )
        final = config.norm.place == "pre" and layers > 0
        self.norm = config.norm.build(width) if final else nn.Identity()

    def project_kv(self, memory: Float[Tensor, "B S J"]) -> StackState:
        """Return the keys and values of a memory for every block's cross-attention."""
        crosses = (cast(MultiHead, block.cross) for block in self.blocks)
        return tuple(cross.project_kv(memory) for cross in crosses)

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: StackState = (),
        memory: StackState = (),
        cross_context: AttentionContext | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        """Return the tokens, and the keys and values of every block."""
        states = []
        for depth, block in enumerate(self.blocks):
            block_past, block_memory = (
                (past[depth] if past else None),
                (memory[depth] if memory else None),
            )
            inputs, state = block(inputs, context, block_past, block_memory, cross_context)
            states.append(state)
        return self.norm(inputs), tuple(states)
