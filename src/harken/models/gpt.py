"""GPT, a causal language model: tokens -> logits of the next token.

    B T  --embed-->  B T J  --L blocks, t <= i-->  B T J  --lm_head-->  B T V

The product with the vocabulary is expensive, so a loss computes logits only `at` the positions that
count, and a search only at the last position.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.compatibility import check_choices
from harken.attention.context import attention_context, build_position
from harken.attention.masks import CAUSAL, Mask, build_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig, model_width
from harken.config import MAX_LAYERS, bounded
from harken.design.install import InitHeadConfig, init_heads, stack_sites
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear, TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import Stack, StackState
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """A stack of causal Transformer blocks."""

    kind: Literal["gpt"] = "gpt"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    width: int = bounded(256, at_least=1)  # width J of the embeddings
    max_length: int = bounded(128, at_least=8)  # longest input, in tokens
    attention: MultiHeadConfig = MultiHeadConfig()  # self-attention
    position: PositionConfig = LearnedConfig()  # position kind
    mask: Literal["causal", "strictly_causal"] = "causal"  # attend to keys t <= i, or t < i
    window: int | None = bounded(None, at_least=1)  # largest visible distance, in tokens
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the input and of each sublayer
    tie_embeddings: bool = True  # use the embedding table as output projection
    init_heads: tuple[InitHeadConfig, ...] = ()  # heads with designed initial weights

    def __post_init__(self) -> None:
        check_choices(self.attention, self.position, self.width, self.max_length)
        if self.tie_embeddings and model_width(self.position, self.width) != self.width:
            raise ValueError(
                "position.place 'concat' doubles the width of the states, so they do not fit the "
                "embeddings; set tie_embeddings = false, or position.place = 'add'"
            )

    def build(self, vocabulary: int, seed: int) -> "GPT":
        return GPT(self, vocabulary, seed)


class GPTState(NamedTuple):
    """Cached keys and values; rows may have different lengths."""

    layers: StackState
    positions: Int[Tensor, "B S"]
    present: Bool[Tensor, "B S"]


class GPT(nn.Module):
    """A decoder-only Transformer."""

    def __init__(self, config: GPTConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        length = config.max_length
        self.mask_kind, self.window = config.mask, config.window
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.position = build_position(config.position, config.attention, config.width, length)
        self.length = min(length, self.position.length or length)
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(config, config.layers, self.position.width, length)
        self.lm_head = OutputLinear(self.position.width, vocabulary, bias=False)
        initialize(self, config.layers, seed)
        sites = stack_sites(self.stack, self.position, self.length, config.mask)
        init_heads(sites, config.init_heads)
        if config.tie_embeddings:
            self.lm_head.weight = self.embedding.weight

    def forward(
        self,
        tokens: TokenIds,
        *,
        positions: TokenIds | None = None,
        documents: TokenIds | None = None,
        at: Present | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the next token at every position, or only where `at` is true."""
        states = self.states(tokens, positions=positions, documents=documents)
        return self.logits(states if at is None else states[at])

    def states(
        self,
        tokens: TokenIds,
        *,
        positions: TokenIds | None = None,
        documents: TokenIds | None = None,
    ) -> Float[Tensor, "B T J"]:
        """Return the last layer's states; in a packed row `documents` separates the texts."""
        if (positions is None) != (documents is None):
            raise ValueError("a packed row needs both positions and documents")
        check_rows("tokens", tokens, self.length if positions is None else None)
        at = positions
        if at is None:
            at = torch.arange(tokens.shape[1], device=tokens.device)[None]
        mask = CAUSAL
        if positions is not None or self.mask_kind != "causal" or self.window is not None:
            packed = {"query_documents": documents, "key_documents": documents}
            mask = build_mask(self.mask_kind, at, at, window=self.window, **packed)
        return self._run(tokens, at, at, mask, None)[0]

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Return the logits of the next token after each state."""
        return cast(Tensor, self.lm_head(states))

    def init_state(self, batch: int, device: torch.device) -> GPTState:
        """Return the state before any token."""
        empty = torch.zeros(batch, 0, dtype=torch.long, device=device)
        return GPTState((), empty, empty.bool())

    def step(
        self, tokens: TokenIds, present: Present, state: GPTState
    ) -> tuple[Float[Tensor, "B T J"], GPTState]:
        """Return the states of new tokens; those that are not `present` are padding."""
        start = state.present.sum(dim=1, keepdim=True)
        at = (start + present.cumsum(dim=1) - 1).clamp(min=0)
        keys_at = torch.cat((state.positions, at), dim=1)
        keys_present = torch.cat((state.present, present), dim=1)
        mask = build_mask(self.mask_kind, at, keys_at, window=self.window, present=keys_present)
        states, layers = self._run(tokens, at, keys_at, mask, state.layers or None)
        return states, GPTState(layers, keys_at, keys_present)

    def _run(
        self,
        tokens: TokenIds,
        positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
        mask: Mask,
        past: StackState | None,
    ) -> tuple[Float[Tensor, "B T J"], StackState]:
        context = attention_context(self.position, mask, positions, key_positions)
        embedded = self.dropout(self.position.embed(self.embedding(tokens), positions[..., None]))
        states, layers = self.stack(embedded, context, past)
        return states, layers
