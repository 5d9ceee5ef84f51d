"""Blocks one above the other, with one state for all of them."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, KeyValues
from harken.layers.transformer import BlockConfig, Memory, TransformerBlock

StackState = tuple[KeyValues, ...]


class Stack(nn.Module):
    """L blocks; a pre-norm stack ends with the norm that its last block left out."""

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
        left_out = config.norm.place == "pre" and layers > 0
        self.norm = config.norm.build(width) if left_out else nn.Identity()

    def project_kv(self, memory: Float[Tensor, "B S J"]) -> StackState:
        """What every block's cross-attention needs of a memory, made once for all steps."""
        remembered = []
        for block in self.blocks:
            assert isinstance(block, TransformerBlock) and block.cross is not None
            remembered.append(block.cross.project_kv(memory))
        return tuple(remembered)

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: StackState | None = None,
        memory: Sequence[Memory] | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        states = []
        for depth, block in enumerate(self.blocks):
            before = None if past is None else past[depth]
            known = None if memory is None else memory[depth]
            inputs, state = block(inputs, context, before, known)
            states.append(state)
        return self.norm(inputs), tuple(states)
