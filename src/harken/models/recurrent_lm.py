"""RNN and CNN language models, whose state has a constant size: tokens -> logits of the next token.

    rnn   B T  --embed-->  B T J  --tanh, gru or lstm-->  B T H  --lm_head-->  B T V
    cnn   B T  --embed-->  B T J  --causal convolutions-->  B T J  --lm_head-->  B T V

Inputs may have any length. The interface is that of `GPT`, but without packed rows.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.scores import INITIAL_STD
from harken.config import bounded
from harken.layers.convolution import CausalConvolutionConfig, Convolutions, GatedConvolutionConfig
from harken.layers.embedding import OutputLinear, TokenEmbedding
from harken.layers.recurrent import LSTMConfig, Recurrent, RecurrentConfig
from harken.models.gpt import GPTConfig, LanguageModel
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows
from harken.models.start import StartConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentLMConfig(StartConfig):
    """A recurrent language model."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(256, at_least=1)  # width J of the embeddings
    cell: RecurrentConfig = LSTMConfig(layers=2)  # the recurrent layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of embeddings and of states
    tie_embeddings: bool = False  # use the embedding table as output projection

    def __post_init__(self) -> None:
        if self.cell.direction != "forward":
            raise ValueError(
                f"cell.direction: {self.cell.direction!r} sees later tokens; set it to 'forward'"
            )
        hidden = self.cell.hidden_width(self.width)
        if self.tie_embeddings and hidden != self.width:
            raise ValueError(
                f"tie_embeddings: states of width {hidden} do not fit embeddings of width "
                f"{self.width}; set tie_embeddings = false, or leave out cell.hidden"
            )

    def build(self, vocabulary: int, seed: int) -> "FixedStateLM":
        return FixedStateLM(self, self.cell.build(self.width), vocabulary, seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvLMConfig(StartConfig):
    """A convolutional language model."""

    kind: Literal["cnn"] = "cnn"
    width: int = bounded(256, at_least=1)  # width J of embeddings and states
    # causal convolutions, gated or not
    convolutions: CausalConvolutionConfig | GatedConvolutionConfig = CausalConvolutionConfig(
        layers=6
    )
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of embeddings and of states
    tie_embeddings: bool = False  # use the embedding table as output projection

    def __post_init__(self) -> None:
        if isinstance(self.convolutions, GatedConvolutionConfig) and not self.convolutions.causal:
            raise ValueError("a centered kernel sees later tokens; set convolutions.causal = true")

    def build(self, vocabulary: int, seed: int) -> "FixedStateLM":
        return FixedStateLM(self, self.convolutions.build(self.width), vocabulary, seed)


FixedStateLMConfig = RecurrentLMConfig | ConvLMConfig
LanguageModelConfig = GPTConfig | FixedStateLMConfig
Backbone = Recurrent | Convolutions


class FixedStateLM(LanguageModel):
    """Embeddings, recurrent layers or causal convolutions, and an output projection."""

    max_length: int | None = None

    def __init__(
        self, config: FixedStateLMConfig, backbone: Backbone, vocabulary: int, seed: int
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.backbone = backbone
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = OutputLinear(backbone.width, vocabulary, bias=False)
        initialize(self, backbone.layers, seed)
        # No norm follows the embeddings, so their std is 1 instead of INITIAL_STD. A tied table has
        # 1/√width, so that the size of the logits does not grow with the width.
        with torch.no_grad():
            std = config.width**-0.5 if config.tie_embeddings else 1.0
            self.embedding.weight.mul_(std / INITIAL_STD)
        if config.tie_embeddings:
            self.lm_head.weight = self.embedding.weight

    def states(self, tokens: TokenIds, **packing: TokenIds | None) -> Float[Tensor, "B T J"]:
        """Return the states of complete sequences; packed rows are not supported."""
        if any(indices is not None for indices in packing.values()):
            raise ValueError("an RNN or CNN cannot separate the documents of a packed row")
        check_rows("tokens", tokens)
        outputs = self.backbone(self.dropout(self.embedding(tokens)))
        return cast(Tensor, self.dropout(outputs[0] if isinstance(outputs, tuple) else outputs))

    def init_state(self, batch: int, device: torch.device) -> Any:
        """Return the state before the first token, on the device of the weights."""
        return self.backbone.init_state(batch)

    def step(
        self, tokens: TokenIds, present: Present | None, state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        """Return the states of new tokens, which may be padded, and the state after them."""
        embedded = self.dropout(self.embedding(tokens))
        mask = None if present is None or bool(present.all()) else present  # a mask costs time
        # `Recurrent.forward` accepts a state; its `step` takes a single token.
        step = self.backbone.step if isinstance(self.backbone, Convolutions) else self.backbone
        states, state = step(embedded, mask, state)
        return self.dropout(states), state
