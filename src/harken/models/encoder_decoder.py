"""A model that reads a text and writes another: an encoder's states are the memory of a decoder.

    source B M  --embed, body-->  memory B M H  --begin-->  state
    state, target so far B T  --decoder-->  B T J  --read out-->  B T V

Any body (RNN, CNN, Transformer) with either decoder (Transformer, or the RNN that looks back). With
`shared`, one table of word vectors serves the source, the target and the read-out: for subwords
that both languages share. The RNN decoder's h[0] comes from the state of a right-to-left RNN at the
first word; an encoder that has none gives the mean of its states.
"""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.relative import RotaryConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.models.attentive_decoder import AttentiveDecoder, AttentiveDecoderConfig
from harken.models.body import (
    BodyConfig,
    RecurrentBody,
    TransformerBodyConfig,
    build_body,
    check_body,
)
from harken.models.decoder import TransformerDecoder, TransformerDecoderConfig
from harken.models.initialise import initialise
from harken.models.state import select_rows

DecoderConfig = TransformerDecoderConfig | AttentiveDecoderConfig

NARROW = FeedForwardConfig(activation="relu", expansion=2.0)
"""With few weights and much dropout: the sizes that do best on some tens of thousands of pairs."""

OF_THE_PROMPT = ("memory", "memory_present")
"""Parts of a decoder's state that all hypotheses about one source have in common."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderDecoderConfig:
    """The width of word vectors is the decoder's `width`."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: BodyConfig = TransformerBodyConfig(
        length=256, position=RotaryConfig(), feedforward=NARROW, dropout=0.3
    )
    decoder: DecoderConfig = TransformerDecoderConfig(
        layers=4, width=128, position=RotaryConfig(), feedforward=NARROW, dropout=0.3
    )
    shared: bool = True  # one table of word vectors for both sides
    dropout: float = bounded(0.3, at_least=0.0, below=1.0)  # of the source's word vectors

    def __post_init__(self) -> None:
        check_body(self.encoder, self.decoder.width)

    def build(self, vocabulary: int, seed: int) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary, seed)


class EncoderDecoder(nn.Module):
    """Source and target share one vocabulary, whether or not they share its vectors."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        width = config.decoder.width
        self.encoder = build_body(config.encoder, width)
        memory = self.encoder.width
        self.decoder: TransformerDecoder | AttentiveDecoder
        if isinstance(config.decoder, TransformerDecoderConfig):
            self.decoder = config.decoder.build(vocabulary, memory, seed)
            layers, self.longest_output = config.decoder.layers, config.decoder.length
        else:
            turned = self._backward_width()
            self.decoder = config.decoder.build(vocabulary, memory, turned or memory, seed)
            layers, self.longest_output = config.decoder.cell.layers, config.decoder.length
        self.embedding: nn.Embedding | None = None
        if not config.shared:
            self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = Dropout(config.dropout)
        self.longest_source = self.encoder.length
        initialise(self, max(layers, self.encoder.layers), seed)

    def begin(self, source: Int[Tensor, "B M"], present: Bool[Tensor, "B M"]) -> Any:
        """Read the source; the state before any word is written."""
        table = self.decoder.embedding if self.embedding is None else self.embedding
        memory: Tensor = self.encoder(self.dropout(table(source)), present)
        if isinstance(self.decoder, TransformerDecoder):
            return self.decoder.begin(memory, present)
        return self.decoder.begin(memory, present, self._first_state(memory, present))

    def forward(
        self,
        source: Int[Tensor, "B M"],
        present: Bool[Tensor, "B M"],
        target: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T J"]:
        """States that decide the word after each of `target`, all known."""
        states: Tensor = self.decoder(target, self.begin(source, present))
        return states

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        return self.decoder.extend(tokens, present, state)

    def scores(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        return self.decoder.scores(states)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        """Rows of a state; what belongs to the prompt is not moved where prompts stay in place."""
        if not same_prompts:
            return select_rows(state, rows)
        parts = zip(state._fields, state, strict=True)
        return type(state)(
            *(part if name in OF_THE_PROMPT else select_rows(part, rows) for name, part in parts)
        )

    def _backward_width(self) -> int:
        """Of a right-to-left RNN's state; 0 where the encoder has none."""
        if not isinstance(self.encoder, RecurrentBody) or not self.encoder.recurrent.backwards:
            return 0
        return self.encoder.recurrent.hidden

    def _first_state(
        self, memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"]
    ) -> Float[Tensor, "B source"]:
        turned = self._backward_width()
        if turned:
            # What reads from the right has read all when it comes to the first word.
            return memory[:, 0, memory.shape[2] - turned :]
        counted = present[..., None].to(memory.dtype)
        return (memory * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1.0)
