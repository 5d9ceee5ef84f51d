"""GPT, a causal language model: tokens -> logits of the next token.

    B T  --embed-->  B T J  --L causal blocks-->  B T J  --lm_head-->  B T V

Logits of a large vocabulary are expensive, so losses compute them only where `at` is true.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.compatibility import check_compatibility
from harken.attention.context import build_position
from harken.attention.masks import CAUSAL, build_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig, model_width
from harken.config import MAX_LAYERS, bounded
from harken.design.install import InitHeadConfig, init_heads, stack_sites
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear, TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import Stack
from harken.models.causal import CausalState, CausalTransformer, first_positions
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows
from harken.models.start import StartConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig(StartConfig):
    """A stack of causal Transformer blocks."""

    kind: Literal["gpt"] = "gpt"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    width: int = bounded(256, at_least=1)  # width J of the embeddings
    max_length: int = bounded(128, at_least=8)  # maximum tokens of prompt and output together
    attention: MultiHeadConfig = MultiHeadConfig()  # self-attention
    position: PositionConfig = LearnedConfig()  # positional encoding
    mask: Literal["causal", "strictly_causal"] = "causal"  # query i attends to t <= i, or t < i
    window: int | None = bounded(None, at_least=1)  # largest visible distance, in tokens
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the input and of each sublayer
    tie_embeddings: bool = True  # use the embedding table as output projection
    init_heads: tuple[InitHeadConfig, ...] = ()  # heads with designed initial weights

    def __post_init__(self) -> None:
        check_compatibility(self.attention, self.position, self.width, self.max_length)
        if self.tie_embeddings and model_width(self.position, self.width) != self.width:
            raise ValueError(
                "position.combine 'concat' doubles the width of the states, so they do not fit the "
                "embeddings; set tie_embeddings = false, or position.combine = 'add'"
            )

    def build(self, vocabulary: int, seed: int) -> "GPT":
        return GPT(self, vocabulary, seed)


class LanguageModel(nn.Module):
    """Base class of language models. Subclasses add `states`, `init_state` and `step`."""

    lm_head: OutputLinear
    states: Callable[..., Float[Tensor, "B T J"]]

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

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        return cast(Tensor, self.lm_head(states))


class GPT(LanguageModel, CausalTransformer):
    """A decoder-only Transformer."""

    def __init__(self, config: GPTConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        length = config.max_length
        self.mask_kind, self.window = config.mask, config.window
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.position = build_position(config.position, config.attention, config.width, length)
        self.max_length = min(length, self.position.max_length or length)
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(config, config.layers, self.position.width, length)
        self.lm_head = OutputLinear(self.position.width, vocabulary, bias=False)
        initialize(self, config.layers, seed)
        sites = stack_sites(self.stack, self.position, self.max_length, config.mask)
        init_heads(sites, config.init_heads)
        if config.tie_embeddings:
            self.lm_head.weight = self.embedding.weight

    def states(
        self,
        tokens: TokenIds,
        *,
        positions: TokenIds | None = None,
        documents: TokenIds | None = None,
    ) -> Float[Tensor, "B T J"]:
        """Return the last layer's states; `documents` separates the texts of a packed row."""
        if (positions is None) != (documents is None):
            raise ValueError("positions, documents: a packed row needs both")
        check_rows("tokens", tokens, self.max_length if positions is None else None)
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        mask = CAUSAL
        if documents is not None or self.mask_kind != "causal" or self.window is not None:
            packed = {"query_documents": documents, "key_documents": documents}
            mask = build_mask(self.mask_kind, positions, positions, window=self.window, **packed)
        return self.run(tokens, positions, positions, mask)[0]

    def init_state(self, batch: int, device: torch.device) -> CausalState:
        """Return the state before the first token."""
        return CausalState((), *first_positions(device))
