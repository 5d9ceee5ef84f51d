"""Causal language models whose state does not grow: tokens so far -> scores of the next one.

    rnn   B T  --embed-->  B T J  --tanh, gru or lstm, left to right-->  B T H  --read out-->  B T V
    cnn   B T  --embed-->  B T J  --convolutions that see t <= i------>  B T J  --read out-->  B T V

What the next token needs of those gone by is of one size however many there were, so no input is
too long. The calls are those of `language_model.py`, whose state grows with every token.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.scores import INITIAL_STD
from harken.config import bounded
from harken.layers.convolution import (
    CausalConvolutionConfig,
    Convolutions,
    GatedConvolutionConfig,
    Tails,
)
from harken.layers.embedding import TokenEmbedding
from harken.layers.output import OutputLinear
from harken.layers.recurrent import LSTMConfig, Recurrent, RecurrentConfig, RecurrentState
from harken.models.initialize import initialize
from harken.models.inputs import check_rows
from harken.models.language_model import GPTConfig

FixedState = RecurrentState | Tails


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentModelConfig:
    """`dropout` falls on what enters the recurrence and on what leaves it, in training."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(256, at_least=1)  # J of the embeddings
    recurrence: RecurrentConfig = LSTMConfig(layers=2)
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)
    tied: bool = False  # the read-out is the table of embeddings

    def __post_init__(self) -> None:
        if self.recurrence.direction != "forward":
            raise ValueError(
                f"direction {self.recurrence.direction!r} sees what is still to come; "
                "set recurrence.direction = 'forward'"
            )
        hidden = self.recurrence.hidden_width(self.width)
        if self.tied and hidden != self.width:
            raise ValueError(
                f"states of width {hidden} cannot be read out by embeddings of width {self.width}; "
                "set tied = false, or leave out recurrence.hidden"
            )

    def build(self, vocabulary: int, seed: int) -> "FixedStateModel":
        recurrent = self.recurrence.build(self.width)
        model = FixedStateModel(vocabulary, self.width, recurrent, recurrent.width, self.dropout)
        return _ready(model, self.recurrence.layers, seed, tied=self.tied)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvolutionalModelConfig:
    """`dropout` falls on what enters the convolutions and on what leaves them, in training."""

    kind: Literal["cnn"] = "cnn"
    width: int = bounded(256, at_least=1)  # J
    convolutions: CausalConvolutionConfig | GatedConvolutionConfig = CausalConvolutionConfig(
        layers=6
    )
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)
    tied: bool = False  # the read-out is the table of embeddings

    def __post_init__(self) -> None:
        if isinstance(self.convolutions, GatedConvolutionConfig) and not self.convolutions.causal:
            raise ValueError(
                "a centred kernel sees what is still to come; set convolutions.causal = true"
            )

    def build(self, vocabulary: int, seed: int) -> "FixedStateModel":
        convolutions = self.convolutions.build(self.width)
        model = FixedStateModel(vocabulary, self.width, convolutions, self.width, self.dropout)
        return _ready(model, self.convolutions.layers, seed, tied=self.tied)


LanguageModelConfig = GPTConfig | RecurrentModelConfig | ConvolutionalModelConfig


class FixedStateModel(nn.Module):
    """Embeddings, a body that goes on from a state, a read-out."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        body: Recurrent | Convolutions,
        state_width: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, width)
        self.body = body
        self.dropout = nn.Dropout(dropout)
        self.lm_head = OutputLinear(state_width, vocabulary, bias=False)
        self.length: int | None = None  # of an input: any

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the next token at every position, or only where `at` is true."""
        if positions is not None or documents is not None:
            raise ValueError("a model with a state cannot separate the documents of a packed row")
        states = self.states(tokens)
        return self.logits(states if at is None else states[at])

    def states(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T J"]:
        """Return the states of whole rows, each from an empty past."""
        check_rows("tokens", tokens)
        entered = self.dropout(self.embedding(tokens))
        if isinstance(self.body, Recurrent):
            states: Tensor = self.body(entered)[0]
        else:
            states = self.body(entered)
        left: Tensor = self.dropout(states)
        return left

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Return the logits of the next token after each state."""
        logits: Tensor = self.lm_head(states)
        return logits

    def begin(self, batch: int, device: torch.device) -> FixedState:
        """The state before any token; it stands where the weights are."""
        return self.body.begin(batch)

    def extend(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        state: FixedState,
    ) -> tuple[Float[Tensor, "B T J"], FixedState]:
        """States of the new tokens after `state`; tokens that are not `present` are padding."""
        entered = self.dropout(self.embedding(tokens))
        # Without padding the recurrence takes a shorter way, and that is every step of a search.
        padded = None if bool(present.all()) else present
        states: Tensor
        after: FixedState
        if isinstance(self.body, Recurrent):
            states, after = self.body(entered, padded, state)
        else:
            states, after = self.body.extend(entered, padded, cast(Tails, state))
        left: Tensor = self.dropout(states)
        return left, after


def _ready(model: FixedStateModel, layers: int, seed: int, *, tied: bool) -> FixedStateModel:
    """First weights; no norm stands behind the embeddings, so they must be large enough to be felt.

    A table that is read out too stays smaller, for scores whose size does not grow with the width.
    """
    initialize(model, layers, seed)
    with torch.no_grad():
        size = model.embedding.embedding_dim**-0.5 if tied else 1.0
        model.embedding.weight.mul_(size / INITIAL_STD)
    if tied:
        model.lm_head.weight = model.embedding.weight
    return model
