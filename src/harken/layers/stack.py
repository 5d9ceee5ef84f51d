"""A stack of Transformer blocks."""

from collections.abc import Sequence
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, KeyValues, MultiHead
from harken.layers.transformer import BlockConfig, Memory, TransformerBlock

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
        past: StackState | None = None,
        memory: Sequence[Memory] | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        states = []
        for depth, block in enumerate(self.blocks):
            block_past = None if past is None else past[depth]
            block_memory = None if memory is None else memory[depth]
            inputs, state = block(inputs, context, block_past, block_memory)
            states.append(state)
        return self.norm(inputs), tuple(states)
