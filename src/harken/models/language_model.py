"""A causal language model: tokens so far -> scores of the next one.

    B T  --embed-->  B T J  --L blocks, t <= i-->  B T J  --read out-->  B T V

`forward` stops before the read-out: a loss reads out only the places that count, a decoder only the
last one, and the product with the vocabulary is often the dearest of all.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.masks import CAUSAL, mask_between
from harken.attention.multihead import Arrangement, MultiHeadConfig
from harken.attention.positions import LearnedConfig, Position, PositionConfig, RotaryConfig
from harken.attention.scores import SynthesizerConfig
from harken.config import bounded
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.stack import Stack, StackState
from harken.layers.transformer import TransformerConfig
from harken.models.initialise import initialise


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """A stack of causal Transformer blocks over `length` tokens at the most."""

    kind: Literal["gpt"] = "gpt"
    layers: int = bounded(4, at_least=1)
    width: int = bounded(256, at_least=1)  # J
    length: int = bounded(128, at_least=8)  # the longest input, in tokens
    attention: MultiHeadConfig = MultiHeadConfig()
    position: PositionConfig = LearnedConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: Literal["pre", "post"] = "pre"
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)
    tied: bool = True  # the read-out is the table of embeddings

    def __post_init__(self) -> None:
        heads, (_, key_width) = self.attention.heads, self.attention.head_widths(self.width)
        shared = None in (self.attention.head_width, self.attention.key_width)
        if shared and self.width % heads:
            raise ValueError(
                f"width {self.width} does not divide into {heads} heads; "
                "make it a multiple, or give attention.head_width and attention.key_width"
            )
        if isinstance(self.position, RotaryConfig):
            if isinstance(self.attention.score, SynthesizerConfig):
                raise ValueError(
                    "position 'rotary' turns queries and keys, and score 'synthesizer' has none; "
                    "choose position 'learned' or 'sinusoid'"
                )
            if key_width % 2:
                raise ValueError(
                    f"position 'rotary' turns pairs, and a key has {key_width} numbers; "
                    "make attention.key_width even"
                )

    def build(self, vocabulary: int, seed: int) -> "LanguageModel":
        return LanguageModel(self, vocabulary, seed)


class LanguageModelState(NamedTuple):
    """All that the next token needs of those gone by; rows may have had different lengths."""

    layers: StackState
    positions: Int[Tensor, "B S"]
    present: Bool[Tensor, "B S"]


class LanguageModel(nn.Module):
    """GPT."""

    def __init__(self, config: GPTConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        _, key_width = config.attention.head_widths(config.width)
        block = TransformerConfig(
            attention=config.attention,
            feedforward=config.feedforward,
            norm=config.norm,
            dropout=config.dropout,
        )
        self.length = config.length
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.position = config.position.build(config.width, key_width, config.length)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = Stack(block, config.layers, config.width, config.length)
        self.reader = nn.Linear(config.width, vocabulary, bias=False)
        initialise(self, config.layers, seed)
        if config.tied:
            self.reader.weight = self.embedding.weight

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T J"]:
        """States of whole rows; in a packed row `documents` keeps its texts apart."""
        if positions is None or documents is None:
            assert positions is None and documents is None, "a packed row gives both"
            slots = torch.arange(tokens.shape[1], device=tokens.device)[None]
            arrangement = Arrangement(mask=CAUSAL, query_positions=slots, key_positions=slots)
        else:
            mask = mask_between(
                "causal",
                positions,
                positions,
                query_documents=documents,
                key_documents=documents,
            )
            arrangement = Arrangement(mask=mask, query_positions=positions, key_positions=positions)
        states, _ = self._run(tokens, arrangement, None)
        return states

    def scores(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Read states out as scores of the next token (log-probabilities up to a constant)."""
        read: Tensor = self.reader(states)
        return read

    def begin(self, batch: int, device: torch.device) -> LanguageModelState:
        """The state before any token."""
        empty = torch.zeros(batch, 0, dtype=torch.long, device=device)
        return LanguageModelState((), empty, empty.bool())

    def extend(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        state: LanguageModelState,
    ) -> tuple[Float[Tensor, "B T J"], LanguageModelState]:
        """States of the new tokens after `state`; tokens that are not `present` are padding."""
        gone = state.present.sum(dim=1, keepdim=True)
        positions = (gone + present.cumsum(dim=1) - 1).clamp(min=0)
        key_positions = torch.cat((state.positions, positions), dim=1)
        key_present = torch.cat((state.present, present), dim=1)
        arrangement = Arrangement(
            mask=mask_between("causal", positions, key_positions, present=key_present),
            query_positions=positions,
            key_positions=key_positions,
        )
        states, layers = self._run(tokens, arrangement, state.layers or None)
        return states, LanguageModelState(layers, key_positions, key_present)

    def _run(
        self, tokens: Int[Tensor, "B T"], arrangement: Arrangement, past: StackState | None
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        position = cast(Position, self.position)
        entered = position.enter(self.embedding(tokens), arrangement.query_positions)
        arrangement = Arrangement(
            mask=arrangement.mask,
            query_positions=arrangement.query_positions,
            key_positions=arrangement.key_positions,
            rotation=position.rotation(arrangement.query_positions),
        )
        states, layers = self.stack(self.dropout(entered), arrangement, past)
        return states, layers
