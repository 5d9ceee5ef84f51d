"""The common interface of Transformer and Conformer blocks, for code that inspects models."""

from typing import ClassVar, Protocol, runtime_checkable

from torch import nn

from harken.attention.multihead import MultiHead


@runtime_checkable
class Block(Protocol):
    """A block with self-attention whose output is its input plus what its parts add."""

    attention: MultiHead
    attention_is_first: ClassVar[bool]  # whether attention reads the input of the block

    @property
    def is_decoder(self) -> bool:
        """Whether it has cross-attention."""
        ...

    def norms_before_attention(self) -> list[nn.Module]:
        """Return the norms between the input of the block and its self-attention."""
        ...

    def residual_norms(self) -> list[nn.Module]:
        """Return the norms on the residual path from input to output."""
        ...
