"""Encoder-decoder models: the states of an encoder are the memory of a decoder.

    source B M  --embed, encoder-->  memory B M H  --init_state-->  state
    state, target so far B T  --decoder-->  B T J  --logits-->  B T V

The RNN decoder's h[0] is computed from the first state of a right-to-left RNN encoder, or from the
mean of the memory for other encoders. `Seq2Seq` is also the base of captioners and recognizers.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.relative import RotaryConfig
from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.embedding import TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.spatial import SpatialEncoder
from harken.models.decoders import (
    AttentionRNNDecoder,
    AttentionRNNDecoderConfig,
    TransformerDecoder,
    TransformerDecoderConfig,
)
from harken.models.encoders import (
    Encoder,
    EncoderConfig,
    RNNEncoder,
    TransformerEncoderConfig,
    build_encoder,
    check_encoder,
)
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows, check_shape, select_rows

MAX_SOURCE = 1024  # tokens, for an encoder without a limit
NARROW = FeedForwardConfig(activation="relu", expansion=2.0)
"""With strong dropout, the best size for tens of thousands of sentence pairs."""

Source = Int[Tensor, "B M"]
SourcePresent = Bool[Tensor, "B M"]
DecoderConfig = TransformerDecoderConfig | AttentionRNNDecoderConfig
Decoder = TransformerDecoder | AttentionRNNDecoder


def check_memory(config: DecoderConfig, max_memory: int | None) -> None:
    """Raise an error if a score has fewer positions than the longest memory (None: no limit)."""
    if not config.attention.score.per_position:
        return
    if max_memory is None or max_memory > config.max_length:
        limit = "no limit" if max_memory is None else f"up to {max_memory}"
        fix = "" if max_memory is None else f"set decoder.max_length = {max_memory}, or "
        raise ValueError(
            f"score {config.attention.score.kind!r} of the decoder has {config.max_length} "
            f"positions (decoder.max_length), and the encoder output has {limit}; {fix}choose "
            "another decoder.attention.score"
        )


class EncoderOutput(NamedTuple):
    """The states of an encoder, and which of them are not padding."""

    memory: Float[Tensor, "B M H"]
    present: Bool[Tensor, "B M"]


class Seq2Seq(nn.Module):
    """Base of models with an encoder and a decoder: the interface that search uses."""

    decoder: Decoder | None

    def build_decoder(
        self, config: DecoderConfig, vocabulary: int, encoder: Encoder | SpatialEncoder, seed: int
    ) -> Decoder:
        """Return the decoder over the states of an encoder."""
        width = encoder.width
        self._backward_width = 0  # of a right-to-left RNN's state in the memory
        if isinstance(encoder, RNNEncoder) and encoder.recurrent.backwards:
            self._backward_width = encoder.recurrent.hidden
        if isinstance(config, TransformerDecoderConfig):
            return config.build(vocabulary, width, seed)
        return config.build(vocabulary, width, self._backward_width or width, seed)

    def init_state(self, memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"]) -> Any:
        """Return the decoder's state before any token."""
        assert self.decoder is not None, "the model was built without a decoder"
        if isinstance(self.decoder, TransformerDecoder):
            return self.decoder.init_state(memory, present)
        if self._backward_width:
            source = memory[:, 0, memory.shape[2] - self._backward_width :]
        else:
            is_token = present[..., None].to(memory.dtype)
            source = (memory * is_token).sum(dim=1) / is_token.sum(dim=1).clamp(min=1.0)
        return self.decoder.init_state(memory, present, source)

    def step(
        self, tokens: TokenIds, present: Present, state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        """Return the decoder's states for new tokens, and the state after them."""
        assert self.decoder is not None
        return self.decoder.step(tokens, present, state)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        """Return the logits of the next token."""
        assert self.decoder is not None
        return self.decoder.logits(states)

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        """Return these rows; the memory stays if they belong to the same prompts as before."""
        if not same_prompts:
            return select_rows(state, rows)
        selected = select_rows(state._replace(memory=None, memory_present=None), rows)
        return selected._replace(memory=state.memory, memory_present=state.memory_present)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderDecoderConfig:
    """An encoder-decoder; the width of word vectors is the decoder's `width`."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    # The encoder.
    encoder: EncoderConfig = TransformerEncoderConfig(
        max_length=256, position=RotaryConfig(), feedforward=NARROW, dropout=0.3
    )
    # The decoder.
    decoder: DecoderConfig = TransformerDecoderConfig(
        layers=4, width=128, position=RotaryConfig(), feedforward=NARROW, dropout=0.3
    )
    share_embeddings: bool = True  # use one embedding table for source and target
    dropout: float = bounded(0.3, at_least=0.0, below=1.0)  # of the source's word vectors

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.decoder.width)
        check_memory(self.decoder, self.max_source)

    @property
    def max_source(self) -> int:
        """The longest source, in tokens."""
        return getattr(self.encoder, "max_length", None) or MAX_SOURCE

    def build(self, vocabulary: int, seed: int) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary, seed)


class EncoderDecoder(Seq2Seq):
    """Source and target have one vocabulary, with shared or separate embeddings."""

    decoder: Decoder

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        width = config.decoder.width
        self.encoder = build_encoder(config.encoder, width)
        self.decoder = self.build_decoder(config.decoder, vocabulary, self.encoder, seed)
        self.embedding: nn.Embedding | None = None
        if not config.share_embeddings:
            self.embedding = TokenEmbedding(vocabulary, width)
        self.dropout = Dropout(config.dropout)
        self.max_source, self.max_target = self.encoder.max_length, config.decoder.max_length
        initialize(self, max(config.decoder.layers, self.encoder.layers), seed)

    def init_state(self, source: Source, present: SourcePresent) -> Any:
        """Encode the source, and return the decoder's state before any token."""
        table = self.decoder.embedding if self.embedding is None else self.embedding
        memory: Tensor = self.encoder(self.dropout(table(source)), present)
        return super().init_state(memory, present)

    def forward(
        self, source: Source, present: SourcePresent, target: TokenIds, *, at: Present | None = None
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the token after each of `target`, or only where `at` is true."""
        states = self.states(source, present, target)
        return self.logits(states if at is None else states[at])

    def states(
        self, source: Source, present: SourcePresent, target: TokenIds
    ) -> Float[Tensor, "B T J"]:
        """Return the decoder's states for a known target."""
        check_rows("source", source, self.max_source)
        check_shape("present", present, *source.shape)
        check_rows("target", target, self.max_target)
        return cast(Tensor, self.decoder(target, self.init_state(source, present)))
