"""An RNN that writes while it looks at a memory M, over time or over the places of an image.

    a[t]   = softmax over the memory of  h[t-1] . W_key M        (a rectangular bilinear score)
    V[t]   = sum of a[t] M                                       (no value matrix)
    h[t]   = CELL(h[t-1], V[t], e[w_t])
    P(w_{t+1}) = softmax over w of  e[w] . W_auto h[t]           (tied to the embeddings)

h[0] comes from a right-to-left RNN over the source. What is looked at while w_t is consumed enters
h[t] and so decides w_{t+1}: attention of step t is credited to the word after it, and a start
symbol is consumed first so that every word has one.

Any attention of `MultiHead` may stand in for the score above. For speech, `location` adds what was
looked at before: score + v . tanh(q + k + U f), with f a convolution of the last step's weights.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.kernels import attention_weights
from harken.attention.masks import Mask, padding_mask
from harken.attention.multihead import AttentionContext, KeyValues, MultiHeadConfig
from harken.attention.scores import MergedConfig
from harken.config import MAX_KERNEL, bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import TokenEmbedding
from harken.layers.recurrent import GRUConfig, RecurrentConfig, RecurrentState
from harken.models.initialize import initialize
from harken.models.state import select_rows

BILINEAR = MultiHeadConfig(heads=1, score=MergedConfig(), value_matrix=False, output_matrix=False)
"""The sources' own attention: one head, W_key alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocationConfig:
    """How the last step's attention is felt, and how far from its centre one may look."""

    channels: int = bounded(8, at_least=1)
    kernel: int = bounded(15, at_least=1, at_most=MAX_KERNEL)
    hidden: int = bounded(64, at_least=1)
    window: int | None = bounded(None, at_least=1)  # places either side of the last centre


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentiveDecoderConfig:
    """Sizes of the writing RNN; `width` is that of the word vectors."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(256, at_least=1)
    hidden: int = bounded(256, at_least=1)
    cell: RecurrentConfig = GRUConfig()
    attention: MultiHeadConfig = BILINEAR
    location: LocationConfig | None = None
    length: int = bounded(1024, at_least=1)  # of the memory, where a score needs it
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        self.attention.check_even(self.hidden)
        if self.attention.score.distances:
            raise ValueError(
                f"score {self.attention.score.kind!r} compares positions of one sequence, and an "
                "RNN decoder attends to the memory only; choose score 'scaled'"
            )
        if self.cell.direction != "forward":
            raise ValueError(
                f"a decoder writes from left to right, not {self.cell.direction!r}; remove "
                "cell.direction"
            )

    def build(
        self, vocabulary: int, memory_width: int, source_width: int, seed: int
    ) -> "AttentiveDecoder":
        """`source_width` is that of the state which h[0] is made from."""
        return AttentiveDecoder(self, vocabulary, memory_width, source_width, seed)


class AttentiveState(NamedTuple):
    """h[t], the memory, and what `location` keeps of both."""

    cell: RecurrentState
    memory: KeyValues
    memory_present: Bool[Tensor, "B M"]
    location: "Located | None"

    def select(self, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> "AttentiveState":
        """Return these rows; the memory stays if they belong to the same prompts as before."""
        cell, location = select_rows((self.cell, self.location), rows)
        memory, present = self.memory, self.memory_present
        if not same_prompts:
            memory, present = select_rows((memory, present), rows)
        return AttentiveState(cell, memory, present, location)


class Located(NamedTuple):
    """Where the last step looked, and the memory as the location's score sees it."""

    looked: Float[Tensor, "B M"]
    memory: Float[Tensor, "B M hidden"]


class Location(nn.Module):
    """v . tanh(q + k + U f): what the last weights say of where to look next."""

    def __init__(self, config: LocationConfig, hidden: int, memory_width: int) -> None:
        super().__init__()
        self.window = config.window
        self.feel = nn.Conv1d(1, config.channels, config.kernel, padding="same", bias=False)
        self.from_felt = nn.Linear(config.channels, config.hidden, bias=False)
        self.from_query = nn.Linear(hidden, config.hidden)
        self.from_memory = nn.Linear(memory_width, config.hidden, bias=False)
        self.direction = nn.Linear(config.hidden, 1, bias=False)

    def begin(self, memory: Float[Tensor, "B M memory"]) -> Located:
        """All attention at the first place."""
        looked = memory.new_zeros(memory.shape[:2])
        looked[:, 0] = 1.0
        return Located(looked, self.from_memory(memory))

    def bias(self, query: Float[Tensor, "B J"], last: Located) -> Float[Tensor, "B 1 1 M"]:
        felt = self.from_felt(self.feel(last.looked[:, None]).transpose(1, 2))
        joined = torch.tanh(self.from_query(query)[:, None] + last.memory + felt)
        scores: Tensor = self.direction(joined)
        return scores[:, None, None, :, 0]

    def mask(self, last: Located, present: Bool[Tensor, "B M"]) -> Mask:
        """Places near the centre of the last attention; that place itself is always seen."""
        if self.window is None:
            return padding_mask(present)
        places = torch.arange(present.shape[1], device=present.device)
        centre = (last.looked * places).sum(dim=1, keepdim=True).round()
        centre = torch.minimum(centre, present.sum(dim=1, keepdim=True) - 1)
        return Mask(visible=(present & ((places - centre).abs() <= self.window))[:, None, None])


class AttentiveDecoder(nn.Module):
    """One token a step: B T -> B T H."""

    def __init__(
        self,
        config: AttentiveDecoderConfig,
        vocabulary: int,
        memory_width: int,
        source_width: int,
        seed: int,
    ) -> None:
        super().__init__()
        attention, hidden = config.attention, config.hidden
        attended = hidden
        if not attention.output_matrix:
            own, _ = attention.head_widths(hidden)
            attended = attention.heads * (own if attention.value_matrix else memory_width)
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.attention = attention.build(hidden, config.length, memory_width)
        self.cell = config.cell.build_cell(attended + config.width, hidden)
        self.first: nn.Linear | None = None
        if source_width != hidden:
            self.first = nn.Linear(source_width, hidden, bias=False)
        self.to_words = nn.Linear(hidden, config.width, bias=False)  # W_auto
        self.location: Location | None = None
        if config.location is not None:
            self.location = Location(config.location, hidden, memory_width)
        self.dropout = Dropout(config.dropout)
        initialize(self, 1, seed)

    def begin(
        self,
        memory: Float[Tensor, "B M memory"],
        present: Bool[Tensor, "B M"] | None,
        source: Float[Tensor, "B source"],
    ) -> AttentiveState:
        """h[0] from the state of a right-to-left RNN at the source's first token."""
        if present is None:
            present = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        start = self.cell.begin(memory.shape[0])
        hidden = source if self.first is None else self.first(source)
        cell = RecurrentState(hidden[:, None].expand_as(start.hidden), start.cell)
        located = None if self.location is None else self.location.begin(memory)
        return AttentiveState(cell, self.attention.project_kv(memory), present, located)

    def step(
        self, words: Float[Tensor, "B width"], state: AttentiveState
    ) -> tuple[Float[Tensor, "B H"], AttentiveState]:
        """Consume a word's vector: look with h[t-1], then h[t]."""
        query = state.cell.hidden[:, -1]
        places = torch.arange(state.memory_present.shape[1], device=words.device)[None]
        bias, mask = None, padding_mask(state.memory_present)
        if self.location is not None and state.location is not None:
            bias = self.location.bias(query, state.location)
            mask = self.location.mask(state.location, state.memory_present)
        context = AttentionContext(
            mask=mask, query_positions=places[:, :1], key_positions=places, bias=bias
        )
        attended = self.attention.attend(query[:, None], state.memory, context)[:, 0]
        read = self.dropout(torch.cat((attended, words), dim=-1))
        output, cell = self.cell(read, state.cell)
        located = state.location
        if located is not None:
            terms = self.attention.terms(query[:, None], state.memory, context)
            looked = attention_weights(terms, mask).mean(dim=1)[:, 0]
            located = located._replace(looked=looked)
        return output, state._replace(cell=cell, location=located)

    def forward(self, tokens: Int[Tensor, "B T"], begun: AttentiveState) -> Float[Tensor, "B T H"]:
        """All tokens known; still one after the other, for each waits for the state before it."""
        states, _ = self.extend(tokens, torch.ones_like(tokens, dtype=torch.bool), begun)
        return states

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: AttentiveState
    ) -> tuple[Float[Tensor, "B T H"], AttentiveState]:
        """States of the new tokens after `state`; there is no padding among them."""
        assert present.all(), "a step without a token would change h"
        outputs = []
        # Looked up at once: each look-up has a gradient as large as the table.
        for words in self.embedding(tokens).unbind(dim=1):
            output, state = self.step(words, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def logits(self, states: Float[Tensor, "*B H"]) -> Float[Tensor, "*B V"]:
        """Return e[w] . W_auto h for every word."""
        return F.linear(self.to_words(states), self.embedding.weight)
