"""A Transformer that writes while it looks at a memory: tokens so far, memory -> next token.

    B T  --embed-->  B T J  --L blocks: t <= i, then cross-attention, then feed-forward-->  B T J

The memory (states of an encoder, frames of sound, places of an image) enters once, by `begin`; each
layer's keys and values of it are part of the state, as are those of the tokens written.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.compatibility import check_choices
from harken.attention.context import attention_context, build_position
from harken.attention.masks import CAUSAL, Mask, build_mask, padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import PositionConfig, SinusoidConfig, model_width
from harken.config import MAX_LAYERS, bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.output import OutputLinear
from harken.layers.stack import Stack, StackState
from harken.layers.transformer import Memory, TransformerConfig
from harken.models.initialize import initialize
from harken.models.state import select_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerDecoderConfig:
    """Causal blocks with cross-attention."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(3, at_least=1, at_most=MAX_LAYERS)
    width: int = bounded(256, at_least=1)  # J
    length: int = bounded(256, at_least=2)  # the longest output, and memory where a score needs it
    attention: MultiHeadConfig = MultiHeadConfig()
    position: PositionConfig = SinusoidConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: NormConfig = NormConfig()
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)
    tied: bool = True

    def __post_init__(self) -> None:
        if model_width(self.position, self.width) != self.width:
            raise ValueError("a decoder's positions are added; set position.place = 'add'")
        check_choices(self.attention, self.position, self.width, self.length)

    def build(self, vocabulary: int, memory_width: int, seed: int) -> "TransformerDecoder":
        return TransformerDecoder(self, vocabulary, memory_width, seed)


class DecoderState(NamedTuple):
    """Tokens written so far and the memory, as every layer sees them."""

    layers: StackState
    positions: Int[Tensor, "B S"]
    present: Bool[Tensor, "B S"]
    memory: StackState
    memory_present: Bool[Tensor, "B M"]

    def select(self, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> "DecoderState":
        """Return these rows; the memory stays if they belong to the same prompts as before."""
        layers, positions, present = select_rows((self.layers, self.positions, self.present), rows)
        memory, memory_present = self.memory, self.memory_present
        if not same_prompts:
            memory, memory_present = select_rows((memory, memory_present), rows)
        return DecoderState(layers, positions, present, memory, memory_present)


class TransformerDecoder(nn.Module):
    """The writing half of the encoder-decoder Transformer."""

    def __init__(
        self, config: TransformerDecoderConfig, vocabulary: int, memory_width: int, seed: int
    ) -> None:
        super().__init__()
        block = TransformerConfig(
            attention=config.attention,
            feedforward=config.feedforward,
            norm=config.norm,
            dropout=config.dropout,
        )
        self.length = config.length
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.position = build_position(
            config.position, config.attention, config.width, config.length
        )
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(block, config.layers, config.width, config.length, memory_width)
        self.lm_head = OutputLinear(config.width, vocabulary, bias=False)
        initialize(self, config.layers, seed)
        if config.tied:
            self.lm_head.weight = self.embedding.weight

    def begin(
        self, memory: Float[Tensor, "B M memory"], present: Bool[Tensor, "B M"] | None = None
    ) -> DecoderState:
        """The state before any token, with the memory taken in."""
        batch, places, _ = memory.shape
        device = memory.device
        empty = torch.zeros(batch, 0, dtype=torch.long, device=device)
        if present is None:
            present = torch.ones(batch, places, dtype=torch.bool, device=device)
        return DecoderState((), empty, empty.bool(), self.stack.project_kv(memory), present)

    def forward(self, tokens: Int[Tensor, "B T"], begun: DecoderState) -> Float[Tensor, "B T J"]:
        """States of whole rows, all tokens known: for training and scoring."""
        at = torch.arange(tokens.shape[1], device=tokens.device)[None]
        states, _ = self._run(tokens, at, at, CAUSAL, begun)
        return states

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: DecoderState
    ) -> tuple[Float[Tensor, "B T J"], DecoderState]:
        """States of the new tokens after `state`; tokens that are not `present` are padding."""
        gone = state.present.sum(dim=1, keepdim=True)
        at = (gone + present.cumsum(dim=1) - 1).clamp(min=0)
        keys_at = torch.cat((state.positions, at), dim=1)
        keys_present = torch.cat((state.present, present), dim=1)
        mask = build_mask("causal", at, keys_at, present=keys_present)
        states, layers = self._run(tokens, at, keys_at, mask, state)
        return states, state._replace(layers=layers, positions=keys_at, present=keys_present)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Return the logits of the next token after each state."""
        logits: Tensor = self.lm_head(states)
        return logits

    def _run(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
        mask: Mask,
        state: DecoderState,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        own = attention_context(self.position, mask, positions, key_positions)
        # Positions of the output say nothing of those of the memory: no rotation, no bias.
        places = torch.arange(state.memory_present.shape[1], device=tokens.device)[None]
        across = AttentionContext(
            mask=padding_mask(state.memory_present),
            query_positions=positions,
            key_positions=places,
        )
        memory = [Memory(seen, across) for seen in state.memory]
        entered = self.dropout(self.position.embed(self.embedding(tokens), positions[..., None]))
        states, layers = self.stack(entered, own, state.layers or None, memory)
        return states, layers
