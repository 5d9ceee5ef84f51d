"""Decoders that attend to a memory, such as the states of an encoder.

Transformer: L blocks of causal self-attention, cross-attention and feed-forward layers,

    B T  --embed-->  B T J  --L blocks-->  B T J

RNN with attention over the memory m[s]:

    a[t, s] = softmax over s of  h[t-1] . W_key m[s]             (a rectangular bilinear score)
    c[t]    = sum over s of  a[t, s] m[s]                        (no value projection)
    h[t]    = CELL(h[t-1], c[t], e[w_t])
    P(w_{t+1}) = softmax over w of  e[w] . W_out h[t]            (tied to the embeddings)

The first token is a start symbol. Any `MultiHead` can replace this attention. For speech,
`location` adds v . tanh(W_h h[t-1] + W_m m[s] + W_f f[s]) to the scores; f is a convolution of the
weights a[t-1] of the previous step.

`init_state` projects the memory to keys and values once and stores them in the state.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.compatibility import check_compatibility
from harken.attention.context import build_position
from harken.attention.kernels import attention_weights
from harken.attention.masks import CAUSAL, Mask, padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import PositionConfig, SinusoidConfig, model_width
from harken.attention.scores import MergedConfig
from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import OutputLinear, TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.recurrent import GRUConfig, RecurrentConfig, RecurrentState
from harken.layers.transformer import Stack
from harken.models.causal import CausalState, CausalTransformer, first_positions
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds

Memory = Float[Tensor, "B M memory_width"]
MemoryPresent = Bool[Tensor, "B M"]


def resolve_present(memory: Memory, present: MemoryPresent | None) -> MemoryPresent:
    """Return `present`, or an all-true mask if it is None."""
    return memory.new_ones(memory.shape[:2], dtype=torch.bool) if present is None else present


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerDecoderConfig:
    """Causal Transformer blocks with cross-attention."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(3, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    width: int = bounded(256, at_least=1)  # width J of embeddings and states
    # maximum number of output tokens; for score "synthesizer", also of encoder positions
    max_length: int = bounded(256, at_least=2)
    attention: MultiHeadConfig = MultiHeadConfig()  # self- and cross-attention
    position: PositionConfig = SinusoidConfig()  # positional encoding of the output
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the input and of each sublayer
    tie_embeddings: bool = True  # use the embedding table as output projection

    def __post_init__(self) -> None:
        if model_width(self.position, self.width) != self.width:
            raise ValueError("a decoder must add its positions; set position.combine = 'add'")
        check_compatibility(self.attention, self.position, self.width, self.max_length)

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

    def init_state(self, memory: Memory, present: MemoryPresent | None = None) -> CausalState:
        """Return the state before the first token."""
        projected = self.stack.project_kv(memory)
        positions = first_positions(memory.device)
        return CausalState((), *positions, memory=projected, memory_present=present)

    def forward(self, tokens: TokenIds, state: CausalState) -> Float[Tensor, "B T J"]:
        """Return the states of complete sequences, for training and scoring."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return self.run(tokens, positions, positions, CAUSAL, state)[0]

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        return cast(Tensor, self.lm_head(states))


# The attention of the formulas above.
BILINEAR = MultiHeadConfig(heads=1, score=MergedConfig(), v_proj=False, out_proj=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocationConfig:
    """Location-sensitive attention."""

    channels: int = bounded(8, at_least=1)  # channels of the convolution over the weights
    kernel: int = bounded(15, at_least=1, at_most=MAX_KERNEL)  # kernel size, in source positions
    hidden: int = bounded(64, at_least=1)  # width of the tanh layer
    # number of visible positions on each side of the center of the previous step's attention
    window: int | None = bounded(None, at_least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionRNNDecoderConfig:
    """An RNN decoder with attention."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(256, at_least=1)  # width of the embeddings
    hidden: int = bounded(256, at_least=1)  # width of the state h
    cell: RecurrentConfig = GRUConfig()  # the recurrent layers
    attention: MultiHeadConfig = BILINEAR  # cross-attention to the source
    location: LocationConfig | None = None  # location-sensitive attention, if any
    # maximum number of output tokens; for score "synthesizer", also of encoder positions
    max_length: int = bounded(1024, at_least=1)
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of the recurrent layers

    def __post_init__(self) -> None:
        self.attention.check_divisible(self.hidden)
        if self.attention.score.uses_distances:
            raise ValueError(
                f"attention.score: {self.attention.score.kind!r} needs distances, but an RNN "
                "decoder has only cross-attention; choose score 'scaled'"
            )
        if self.cell.direction != "forward":
            raise ValueError(
                f"cell.direction: expected 'forward', got {self.cell.direction!r}; leave it out"
            )

    @property
    def layers(self) -> int:
        return self.cell.layers

    def build(
        self, vocabulary: int, memory_width: int, summary_width: int, seed: int
    ) -> "AttentionRNNDecoder":
        """Build a decoder that computes h[0] from a vector of width `summary_width`."""
        return AttentionRNNDecoder(self, vocabulary, memory_width, summary_width, seed)


class LocationState(NamedTuple):
    """The attention weights of the previous step (mean over heads), and W_m m[s]."""

    weights: Float[Tensor, "B M"]
    memory: Float[Tensor, "B M hidden"]


class AttentionRNNState(NamedTuple):
    """h[t], the keys and values of the memory, and the state of location-sensitive attention."""

    cell: RecurrentState
    memory: KeyValues
    memory_present: Bool[Tensor, "B M"]
    location: LocationState | None


class LocationBias(nn.Module):
    """Bias and window of location-sensitive attention."""

    def __init__(self, config: LocationConfig, hidden: int, memory_width: int) -> None:
        super().__init__()
        self.window = config.window
        self.conv = nn.Conv1d(1, config.channels, config.kernel, padding="same", bias=False)
        self.conv_proj = nn.Linear(config.channels, config.hidden, bias=False)
        self.query_proj = nn.Linear(hidden, config.hidden)
        self.memory_proj = nn.Linear(memory_width, config.hidden, bias=False)
        self.score_proj = nn.Linear(config.hidden, 1, bias=False)

    def init_state(self, memory: Memory) -> LocationState:
        """Return the state with all attention at the first position."""
        weights = memory.new_zeros(memory.shape[:2])
        weights[:, 0] = 1.0
        return LocationState(weights, self.memory_proj(memory))

    def bias(self, query: Float[Tensor, "B J"], state: LocationState) -> Float[Tensor, "B 1 1 M"]:
        features = self.conv_proj(self.conv(state.weights[:, None]).transpose(1, 2))
        hidden = torch.tanh(self.query_proj(query)[:, None] + state.memory + features)
        scores: Tensor = self.score_proj(hidden)
        return scores[:, None, None, :, 0]

    def mask(self, state: LocationState, present: Bool[Tensor, "B M"]) -> Mask:
        """Return the mask of the window around the center of the previous step's attention."""
        if self.window is None:
            return padding_mask(present)
        indices = torch.arange(present.shape[1], device=present.device)
        center = (state.weights * indices).sum(dim=1, keepdim=True).round()
        # Keep the center at a real position, so that at least one key is visible.
        center = torch.minimum(center, present.sum(dim=1, keepdim=True) - 1)
        return Mask(visible=(present & ((indices - center).abs() <= self.window))[:, None, None])


class AttentionRNNDecoder(nn.Module):
    """RNN decoder with attention: tokens B T -> states B T H, one step per token."""

    def __init__(
        self,
        config: AttentionRNNDecoderConfig,
        vocabulary: int,
        memory_width: int,
        summary_width: int,
        seed: int,
    ) -> None:
        super().__init__()
        attention, hidden = config.attention, config.hidden
        attended_width = hidden
        if not attention.out_proj:
            head_width, _ = attention.head_widths(hidden)
            attended_width = attention.heads * (head_width if attention.v_proj else memory_width)
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.attention = attention.build(hidden, config.max_length, memory_width)
        self.cell = replace(config.cell, hidden=hidden).build(attended_width + config.width)
        is_projected = summary_width != hidden
        # From the summary of the source to h[0]
        self.first = nn.Linear(summary_width, hidden, bias=False) if is_projected else nn.Identity()
        self.to_words = nn.Linear(hidden, config.width, bias=False)  # W_out
        self.location: LocationBias | None = None
        if config.location is not None:
            self.location = LocationBias(config.location, hidden, memory_width)
        self.dropout = Dropout(config.dropout)
        initialize(self, layers=1, seed=seed)

    def init_state(
        self, memory: Memory, present: MemoryPresent | None, summary: Float[Tensor, "B summary"]
    ) -> AttentionRNNState:
        """Return the state before the first token, with h[0] computed from `summary`."""
        zeros = self.cell.init_state(memory.shape[0])
        hidden = self.first(summary)
        cell = RecurrentState(hidden[:, None].expand_as(zeros.hidden), zeros.cell)
        location = None if self.location is None else self.location.init_state(memory)
        projected = self.attention.project_kv(memory)
        return AttentionRNNState(cell, projected, resolve_present(memory, present), location)

    def forward(self, tokens: TokenIds, state: AttentionRNNState) -> Float[Tensor, "B T H"]:
        """Return the states of complete sequences, for training and scoring."""
        return self.step(tokens, None, state)[0]

    def step(
        self, tokens: TokenIds, present: Present | None, state: AttentionRNNState
    ) -> tuple[Float[Tensor, "B T H"], AttentionRNNState]:
        """Return the states of new tokens, none of which is padding."""
        assert present is None or present.all(), "an RNN decoder cannot skip padding"
        outputs = []
        # Embed all tokens at once: the gradient of every lookup is as large as the table.
        for embedded in self.embedding(tokens).unbind(dim=1):
            output, state = self._step_token(embedded, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def logits(self, states: Float[Tensor, "*B H"]) -> Float[Tensor, "*B V"]:
        """Return e[w] . W_out h for every token w."""
        return F.linear(self.to_words(states), self.embedding.weight)

    def _step_token(
        self, embedded: Float[Tensor, "B width"], state: AttentionRNNState
    ) -> tuple[Float[Tensor, "B H"], AttentionRNNState]:
        """Attend with h[t-1], then compute h[t]."""
        query = state.cell.hidden[:, -1]
        indices = torch.arange(state.memory_present.shape[1], device=embedded.device)[None]
        bias, mask = None, padding_mask(state.memory_present)
        if self.location is not None and state.location is not None:
            bias = self.location.bias(query, state.location)
            mask = self.location.mask(state.location, state.memory_present)
        # The state has no step number, so every query has position 0.
        context = AttentionContext(
            mask=mask, query_positions=indices[:, :1], key_positions=indices, bias=bias
        )
        attended = self.attention.attend(query[:, None], state.memory, context)[:, 0]
        output, cell = self.cell.step(
            self.dropout(torch.cat((attended, embedded), dim=-1)), state.cell
        )
        location = state.location
        if location is not None:  # kernels return no weights, so compute them again
            terms = self.attention.terms(query[:, None], state.memory, context)
            weights = attention_weights(terms, mask).mean(dim=1)[:, 0]
            location = location._replace(weights=weights)
        return output, state._replace(cell=cell, location=location)
