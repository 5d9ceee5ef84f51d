"""Blocks one above the other, with one state for all of them."""

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import Arrangement, KeyValues
from harken.layers.transformer import TransformerConfig

StackState = tuple[KeyValues, ...]


class Stack(nn.Module):
    """L blocks; a pre-norm stack ends with the norm that its last block left out."""

    def __init__(self, block: TransformerConfig, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block.build(width, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width) if block.norm == "pre" else nn.Identity()

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        arrangement: Arrangement,
        past: StackState | None = None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        states = []
        for depth, block in enumerate(self.blocks):
            inputs, state = block(inputs, arrangement, None if past is None else past[depth])
            states.append(state)
        return self.norm(inputs), tuple(states)
