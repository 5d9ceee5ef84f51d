"""A model that reads a text and writes another: an encoder's states are the memory of a decoder.

    source B M  --embed, body-->  memory B M H  --begin-->  state
    state, target so far B T  --decoder-->  B T J  --read out-->  B T V

Any body (RNN, CNN, Transformer) with either decoder (Transformer, or the RNN that looks back). With
`shared`, one table of word vectors serves the source, the target and the read-out: for subwords
that both languages share.
"""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.relative import RotaryConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.models.body import BodyConfig, TransformerBodyConfig, build_body, check_body
from harken.models.decoder import TransformerDecoderConfig
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape
from harken.models.writing import (
    DecoderConfig,
    backward_width,
    begin_writing,
    build_decoder,
    check_memory,
    layers_of,
)

LONGEST_SOURCE = 1024  # tokens, for an encoder that has no limit of its own
NARROW = FeedForwardConfig(activation="relu", expansion=2.0)
"""With few weights and much dropout: the sizes that do best on some tens of thousands of pairs."""


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
        check_memory(self.decoder, self.longest_source)

    @property
    def longest_source(self) -> int:
        """Tokens of a source that are read at once."""
        return getattr(self.encoder, "length", None) or LONGEST_SOURCE

    def build(self, vocabulary: int, seed: int) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary, seed)


class EncoderDecoder(nn.Module):
    """Source and target share one vocabulary, whether or not they share its vectors."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        width = config.decoder.width
        self.encoder = build_body(config.encoder, width)
        self._backward = backward_width(self.encoder)
        self.decoder = build_decoder(
            config.decoder, vocabulary, self.encoder.width, self._backward, seed
        )
        self.embedding: nn.Embedding | None = None
        if not config.shared:
            self.embedding = TokenEmbedding(vocabulary, width)
        self.dropout = Dropout(config.dropout)
        self.longest_source, self.longest_output = self.encoder.length, config.decoder.length
        initialize(self, max(layers_of(config.decoder), self.encoder.layers), seed)

    def begin(self, source: Int[Tensor, "B M"], present: Bool[Tensor, "B M"]) -> Any:
        """Read the source; the state before any word is written."""
        table = self.decoder.embedding if self.embedding is None else self.embedding
        memory: Tensor = self.encoder(self.dropout(table(source)), present)
        return begin_writing(self.decoder, memory, present, self._backward)

    def forward(
        self,
        source: Int[Tensor, "B M"],
        present: Bool[Tensor, "B M"],
        target: Int[Tensor, "B T"],
        *,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the token after each of `target`, or only where `at` is true."""
        states = self.states(source, present, target)
        return self.logits(states if at is None else states[at])

    def states(
        self,
        source: Int[Tensor, "B M"],
        present: Bool[Tensor, "B M"],
        target: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T J"]:
        """Return the decoder's states for a known target."""
        check_rows("source", source, self.longest_source)
        check_shape("present", present, *source.shape)
        check_rows("target", target, self.longest_output)
        states: Tensor = self.decoder(target, self.begin(source, present))
        return states

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        return self.decoder.extend(tokens, present, state)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        return self.decoder.logits(states)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return state.select(rows, same_prompts=same_prompts)
