"""Decoders that attend to a memory, such as the states of an encoder.

Transformer:

    B T  --embed-->  B T J  --L blocks: t <= i, then cross-attention, then feed-forward-->  B T J

RNN with attention:

    a[t]   = softmax over the memory of  h[t-1] . W_key M        (a rectangular bilinear score)
    V[t]   = sum of a[t] M                                       (no value projection)
    h[t]   = CELL(h[t-1], V[t], e[w_t])
    P(w_{t+1}) = softmax over w of  e[w] . W_auto h[t]           (tied to the embeddings)

A start symbol precedes the first word. Any `MultiHead` can replace the score above. For speech,
`location` adds v . tanh(q + k + U f), with f a convolution of the weights of the last step.

`init_state` projects the memory once; the state holds its keys and values.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.compatibility import check_choices
from harken.attention.context import build_position
from harken.attention.kernels import attention_weights
from harken.attention.masks import CAUSAL, Mask, padding_mask
from harken.attention.multihead import AttentionContext, KeyValues, MultiHeadConfig
from harken.attention.positions import PositionConfig, SinusoidConfig, model_width
from harken.attention.scores import MergedConfig
from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear, TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.recurrent import GRUConfig, RecurrentConfig, RecurrentState
from harken.layers.transformer import Stack
from harken.models.gpt import CausalState, CausalTransformer
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds

Encoded = Float[Tensor, "B M memory"]
MemoryMask = Bool[Tensor, "B M"]


def all_present(memory: Encoded, present: MemoryMask | None) -> MemoryMask:
    """Return `present`, or a mask without padding if it is None."""
    return memory.new_ones(memory.shape[:2], dtype=torch.bool) if present is None else present


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerDecoderConfig:
    """Causal Transformer blocks with cross-attention."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(3, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    width: int = bounded(256, at_least=1)  # width J of embeddings and states
    max_length: int = bounded(256, at_least=2)  # longest output (and source, if the score needs it)
    attention: MultiHeadConfig = MultiHeadConfig()  # self- and cross-attention
    position: PositionConfig = SinusoidConfig()  # positional encoding of the output
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the input and of each sublayer
    tie_embeddings: bool = True  # use the embedding table as output projection

    def __post_init__(self) -> None:
        if model_width(self.position, self.width) != self.width:
            raise ValueError("a decoder's positions are added; set position.place = 'add'")
        check_choices(self.attention, self.position, self.width, self.max_length)

    def build(self, vocabulary: int, memory_width: int, seed: int) -> "TransformerDecoder":
        return TransformerDecoder(self, vocabulary, memory_width, seed)


class TransformerDecoder(CausalTransformer):
    """The decoder of the encoder-decoder Transformer."""

    def __init__(
        self, config: TransformerDecoderConfig, vocabulary: int, memory_width: int, seed: int
    ) -> None:
        super().__init__()
        width, length = config.width, config.max_length
        self.embedding = TokenEmbedding(vocabulary, width)
        self.position = build_position(config.position, config.attention, width, length)
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(config, config.layers, width, length, memory_width)
        self.lm_head = OutputLinear(width, vocabulary, bias=False)
        initialize(self, config.layers, seed)
        if config.tie_embeddings:
            self.lm_head.weight = self.embedding.weight

    def init_state(self, memory: Encoded, present: MemoryMask | None = None) -> CausalState:
        """Return the state before any token."""
        empty = torch.zeros(memory.shape[0], 0, dtype=torch.long, device=memory.device)
        projected = self.stack.project_kv(memory)
        return CausalState((), empty, empty.bool(), projected, all_present(memory, present))

    def forward(self, tokens: TokenIds, state: CausalState) -> Float[Tensor, "B T J"]:
        """Return the states of whole rows, for training and scoring."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return self.run(tokens, positions, positions, CAUSAL, state)[0]

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Return the logits of the next token."""
        return cast(Tensor, self.lm_head(states))


# The bilinear score above.
BILINEAR = MultiHeadConfig(heads=1, score=MergedConfig(), v_proj=False, out_proj=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocationConfig:
    """Location-sensitive attention."""

    channels: int = bounded(8, at_least=1)  # channels of the convolution over the last weights
    kernel: int = bounded(15, at_least=1, at_most=MAX_KERNEL)  # kernel size, in source positions
    hidden: int = bounded(64, at_least=1)  # width of the tanh layer
    # Positions attended on each side of the last center.
    window: int | None = bounded(None, at_least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionRNNDecoderConfig:
    """An RNN decoder with attention."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(256, at_least=1)  # width of the word vectors
    hidden: int = bounded(256, at_least=1)  # width of the state h
    cell: RecurrentConfig = GRUConfig()  # the recurrent layers
    attention: MultiHeadConfig = BILINEAR  # cross-attention to the source
    location: LocationConfig | None = None  # location-sensitive attention, if any
    max_length: int = bounded(1024, at_least=1)  # longest source, if the score needs it
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of the recurrent layers

    def __post_init__(self) -> None:
        self.attention.check_even(self.hidden)
        if self.attention.score.distances:
            raise ValueError(
                f"score {self.attention.score.kind!r} compares positions of one sequence, but an "
                "RNN decoder attends only to the memory; choose score 'scaled'"
            )
        if self.cell.direction != "forward":
            raise ValueError(
                f"cell.direction: a decoder runs forward (got {self.cell.direction!r}); remove it"
            )

    @property
    def layers(self) -> int:
        return self.cell.layers

    def build(
        self, vocabulary: int, memory_width: int, source_width: int, seed: int
    ) -> "AttentionRNNDecoder":
        """`source_width` is the width of the vector from which h[0] is computed."""
        return AttentionRNNDecoder(self, vocabulary, memory_width, source_width, seed)


class LocationState(NamedTuple):
    """The weights of the last step, and the projected memory."""

    weights: Float[Tensor, "B M"]
    memory: Float[Tensor, "B M hidden"]


class AttentionRNNState(NamedTuple):
    """h[t], the memory, and the state of `location`."""

    cell: RecurrentState
    memory: KeyValues
    memory_present: Bool[Tensor, "B M"]
    location: LocationState | None


class Location(nn.Module):
    """v . tanh(q + k + U f), a bias from the weights of the last step."""

    def __init__(self, config: LocationConfig, hidden: int, memory_width: int) -> None:
        super().__init__()
        self.window = config.window
        self.conv = nn.Conv1d(1, config.channels, config.kernel, padding="same", bias=False)
        self.conv_proj = nn.Linear(config.channels, config.hidden, bias=False)
        self.query_proj = nn.Linear(hidden, config.hidden)
        self.memory_proj = nn.Linear(memory_width, config.hidden, bias=False)
        self.score_proj = nn.Linear(config.hidden, 1, bias=False)

    def init_state(self, memory: Encoded) -> LocationState:
        """Return the state with all attention at the first position."""
        weights = memory.new_zeros(memory.shape[:2])
        weights[:, 0] = 1.0
        return LocationState(weights, self.memory_proj(memory))

    def bias(self, query: Float[Tensor, "B J"], last: LocationState) -> Float[Tensor, "B 1 1 M"]:
        features = self.conv_proj(self.conv(last.weights[:, None]).transpose(1, 2))
        joined = torch.tanh(self.query_proj(query)[:, None] + last.memory + features)
        scores: Tensor = self.score_proj(joined)
        return scores[:, None, None, :, 0]

    def mask(self, last: LocationState, present: Bool[Tensor, "B M"]) -> Mask:
        """Return the mask of the positions near the center of the last attention."""
        if self.window is None:
            return padding_mask(present)
        indices = torch.arange(present.shape[1], device=present.device)
        center = (last.weights * indices).sum(dim=1, keepdim=True).round()
        center = torch.minimum(center, present.sum(dim=1, keepdim=True) - 1)
        return Mask(visible=(present & ((indices - center).abs() <= self.window))[:, None, None])


class AttentionRNNDecoder(nn.Module):
    """One token per step: B T -> B T H."""

    def __init__(
        self,
        config: AttentionRNNDecoderConfig,
        vocabulary: int,
        memory_width: int,
        source_width: int,
        seed: int,
    ) -> None:
        super().__init__()
        attention, hidden = config.attention, config.hidden
        attended = hidden
        if not attention.out_proj:
            head_width, _ = attention.head_widths(hidden)
            attended = attention.heads * (head_width if attention.v_proj else memory_width)
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.attention = attention.build(hidden, config.max_length, memory_width)
        self.cell = replace(config.cell, hidden=hidden).build(attended + config.width)
        resized = source_width != hidden
        self.first = nn.Linear(source_width, hidden, bias=False) if resized else nn.Identity()
        self.to_words = nn.Linear(hidden, config.width, bias=False)  # W_auto
        self.location: Location | None = None
        if config.location is not None:
            self.location = Location(config.location, hidden, memory_width)
        self.dropout = Dropout(config.dropout)
        initialize(self, 1, seed)

    def init_state(
        self, memory: Encoded, present: MemoryMask | None, source: Float[Tensor, "B source"]
    ) -> AttentionRNNState:
        """Return h[0], computed from the state of a right-to-left RNN at the first token."""
        zeros = self.cell.init_state(memory.shape[0])
        hidden = self.first(source)
        cell = RecurrentState(hidden[:, None].expand_as(zeros.hidden), zeros.cell)
        location = None if self.location is None else self.location.init_state(memory)
        projected = self.attention.project_kv(memory)
        return AttentionRNNState(cell, projected, all_present(memory, present), location)

    def forward(self, tokens: TokenIds, state: AttentionRNNState) -> Float[Tensor, "B T H"]:
        """Return the states of whole rows, computed step by step."""
        return self.step(tokens, torch.ones_like(tokens, dtype=torch.bool), state)[0]

    def step(
        self, tokens: TokenIds, present: Present, state: AttentionRNNState
    ) -> tuple[Float[Tensor, "B T H"], AttentionRNNState]:
        """Return the states of new tokens, none of which is padding."""
        assert present.all(), "padding would change h"
        outputs = []
        # One lookup for all steps, since the gradient of each is as large as the table.
        for words in self.embedding(tokens).unbind(dim=1):
            output, state = self._step_word(words, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def logits(self, states: Float[Tensor, "*B H"]) -> Float[Tensor, "*B V"]:
        """Return e[w] . W_auto h for every word."""
        return F.linear(self.to_words(states), self.embedding.weight)

    def _step_word(
        self, words: Float[Tensor, "B width"], state: AttentionRNNState
    ) -> tuple[Float[Tensor, "B H"], AttentionRNNState]:
        """Attend with h[t-1], then compute h[t]."""
        query = state.cell.hidden[:, -1]
        indices = torch.arange(state.memory_present.shape[1], device=words.device)[None]
        bias, mask = None, padding_mask(state.memory_present)
        if self.location is not None and state.location is not None:
            bias = self.location.bias(query, state.location)
            mask = self.location.mask(state.location, state.memory_present)
        context = AttentionContext(
            mask=mask, query_positions=indices[:, :1], key_positions=indices, bias=bias
        )
        attended = self.attention.attend(query[:, None], state.memory, context)[:, 0]
        output, cell = self.cell.step(
            self.dropout(torch.cat((attended, words), dim=-1)), state.cell
        )
        location = state.location
        if location is not None:
            terms = self.attention.terms(query[:, None], state.memory, context)
            weights = attention_weights(terms, mask).mean(dim=1)[:, 0]
            location = location._replace(weights=weights)
        return output, state._replace(cell=cell, location=location)
