"""The Transformer block: attention, then a feed-forward layer, each added to what came in.

    pre-norm    x + f(norm(x))      trains without care
    post-norm   norm(x + f(x))      the original add-and-norm

A block of a decoder has cross-attention to a memory between the two. What a block remembers of
earlier tokens and of the memory is an argument and a result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, KeyValues, MultiHeadConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig


@runtime_checkable
class BlockConfig(Protocol):
    """What the config of a model with Transformer blocks says about each block."""

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
    """One block; `dropout` falls on what each part adds, in training."""

    attention: MultiHeadConfig = MultiHeadConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: NormConfig = NormConfig()
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)

    def build(self, width: int, length: int, memory_width: int | None = None) -> "TransformerBlock":
        """With `memory_width`, a decoder's block that looks at a memory of that width."""
        return TransformerBlock(self, width, length, memory_width)


class Memory(NamedTuple):
    """What cross-attention looks at: keys and values of a layer, and who may see them."""

    seen: KeyValues
    context: AttentionContext


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention where there is a memory, feed-forward: B T J -> B T J."""

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
        seen: KeyValues

        def attend(tokens: Tensor) -> Tensor:
            nonlocal seen
            mixed: Tensor
            mixed, seen = self.attention(tokens, context, past)
            return mixed

        tokens = self._add(inputs, attend, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None, "a decoder's block is given its memory"
            cross, known = self.cross, memory
            tokens = self._add(
                tokens, lambda one: cross.attend(one, known.seen, known.context), self.cross_norm
            )
        return self._add(tokens, self.feedforward, self.feedforward_norm), seen

    def _add(self, tokens: Tensor, part: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        if self.pre_norm:
            added: Tensor = tokens + self.dropout(part(norm(tokens)))
            return added
        normed: Tensor = norm(tokens + self.dropout(part(tokens)))
        return normed
