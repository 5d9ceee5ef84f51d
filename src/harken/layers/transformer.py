"""The Transformer block: self-attention, cross-attention in decoders, and a feed-forward layer.

    pre-norm    x + f(norm(x))
    post-norm   norm(x + f(x))

Keys and values of earlier tokens and of the memory are arguments and results.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, KeyValues, MultiHeadConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig


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
    norm: NormConfig = NormConfig()  # kind and place of the norms
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the output of each part

    def build(self, width: int, length: int, memory_width: int | None = None) -> "TransformerBlock":
        """Return a block; with `memory_width`, it has cross-attention to such a memory."""
        return TransformerBlock(self, width, length, memory_width)


class Memory(NamedTuple):
    """Keys and values of a layer's memory, and the context of cross-attention to it."""

    seen: KeyValues
    context: AttentionContext


class TransformerBlock(nn.Module):
    """B T J -> B T J; has cross-attention if `memory_width` is given."""

    attention_is_first: ClassVar[bool] = True

    def __init__(
        self, config: BlockConfig, width: int, length: int, memory_width: int | None
    ) -> None:
        super().__init__()
        self.attention = config.attention.build(width, length)
        self.attention_norm = config.norm.build(width)
        self.cross = self.cross_norm = None
        if memory_width is not None:
            self.cross = config.attention.build(width, length, memory_width)
            self.cross_norm = config.norm.build(width)
        self.feedforward = config.feedforward.build(width)
        self.feedforward_norm = config.norm.build(width)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm.place == "pre"

    @property
    def is_decoder(self) -> bool:
        return self.cross is not None

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
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        tokens = self.attention_norm(inputs) if self.pre_norm else inputs
        mixed, seen = self.attention(tokens, context, past)
        tokens = self._add(inputs, mixed, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            queries = self.cross_norm(tokens) if self.pre_norm else tokens
            mixed = self.cross.attend(queries, memory.seen, memory.context)
            tokens = self._add(tokens, mixed, self.cross_norm)
        normed = self.feedforward_norm(tokens) if self.pre_norm else tokens
        return self._add(tokens, self.feedforward(normed), self.feedforward_norm), seen

    def _add(self, tokens: Tensor, output: Tensor, norm: nn.Module) -> Tensor:
        total: Tensor = tokens + self.dropout(output)
        return total if self.pre_norm else cast(Tensor, norm(total))
