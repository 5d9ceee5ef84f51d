"""Encoder-decoder models. The memory of the decoder is the output of the encoder.

    source B M  --embed, encoder-->  memory B M H  --init_state-->  state
    state, target tokens B T  --decoder-->  B T J  --logits-->  B T V

An RNN decoder computes h[0] from a summary of the source: the state of a right-to-left RNN encoder
at the first token, or the mean of the memory. `Seq2Seq` is also the base of captioners and
recognizers.
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
from harken.models.causal import CausalState
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
from harken.models.start import StartConfig

MAX_SOURCE = 1024  # tokens, for encoders without a max_length
# For tens of thousands of sentence pairs, with strong dropout.
SMALL_FEEDFORWARD = FeedForwardConfig(activation="relu", expansion=2.0)

Source = Int[Tensor, "B M"]
SourcePresent = Bool[Tensor, "B M"]
DecoderConfig = TransformerDecoderConfig | AttentionRNNDecoderConfig
Decoder = TransformerDecoder | AttentionRNNDecoder


def check_memory(config: DecoderConfig, max_memory: int | None) -> None:
    """Raise an error if the score has weights per position, but too few for the memory."""
    if not config.attention.score.per_position:
        return
    if max_memory is None or max_memory > config.max_length:
        length = "any length" if max_memory is None else f"up to {max_memory} positions"
        fix = "" if max_memory is None else f"set decoder.max_length = {max_memory}, or "
        raise ValueError(
            f"decoder.max_length: score {config.attention.score.kind!r} has weights for "
            f"{config.max_length} positions, but the encoder output has {length}; {fix}choose "
            "another decoder.attention.score"
        )


class EncoderOutput(NamedTuple):
    """The states of an encoder, and a mask that is true at real positions."""

    memory: Float[Tensor, "B M H"]
    present: Bool[Tensor, "B M"]


class Seq2Seq(nn.Module):
    """Base class of encoder-decoder models; implements `decode.stepper.Seq2SeqModel`."""

    decoder: Decoder | None

    def build_decoder(
        self, config: DecoderConfig, vocabulary: int, encoder: Encoder | SpatialEncoder, seed: int
    ) -> Decoder:
        """Build a decoder that attends to the states of `encoder`."""
        width = encoder.width
        self._backward_width = 0  # width of the states of a right-to-left RNN, if there is one
        if isinstance(encoder, RNNEncoder) and encoder.recurrent.backwards:
            self._backward_width = encoder.recurrent.hidden
        if isinstance(config, TransformerDecoderConfig):
            return config.build(vocabulary, width, seed)
        return config.build(vocabulary, width, self._backward_width or width, seed)

    def init_state(self, memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"]) -> Any:
        """Return the decoder's state before the first token."""
        assert self.decoder is not None, "the model was built without a decoder"
        if isinstance(self.decoder, TransformerDecoder):
            return self.decoder.init_state(memory, present)
        if self._backward_width:
            summary = memory[:, 0, memory.shape[2] - self._backward_width :]
        else:
            mask = present[..., None].to(memory.dtype)
            summary = (memory * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        return self.decoder.init_state(memory, present, summary)

    def step(
        self, tokens: TokenIds, present: Present | None, state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        """Return the hidden states of new tokens, and the decoder's state after the last token."""
        assert self.decoder is not None
        return self.decoder.step(tokens, present, state)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        assert self.decoder is not None
        return self.decoder.logits(states)

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        """Select hypotheses (see `Stepper.reorder`); avoid copies of the memory."""
        if isinstance(state, CausalState):
            return state.reorder(rows, beam=beam, same_prompts=same_prompts)
        if not same_prompts or len(rows) != len(state.memory_present):
            return select_rows(state, rows)
        selected = select_rows(state._replace(memory=None, memory_present=None), rows)
        return selected._replace(memory=state.memory, memory_present=state.memory_present)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderDecoderConfig(StartConfig):
    """An encoder-decoder; the embeddings have the decoder's `width`."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    # encoder over the source tokens
    encoder: EncoderConfig = TransformerEncoderConfig(
        max_length=256, position=RotaryConfig(), feedforward=SMALL_FEEDFORWARD, dropout=0.3
    )
    # decoder over the target tokens
    decoder: DecoderConfig = TransformerDecoderConfig(
        layers=4, width=128, position=RotaryConfig(), feedforward=SMALL_FEEDFORWARD, dropout=0.3
    )
    # use one embedding table for source and target; see `tie_embeddings` for the output layer
    share_embeddings: bool = True
    dropout: float = bounded(0.3, at_least=0.0, below=1.0)  # of the source embeddings

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.decoder.width)
        check_memory(self.decoder, self.max_source)

    @property
    def max_source(self) -> int:
        return getattr(self.encoder, "max_length", None) or MAX_SOURCE

    def build(self, vocabulary: int, seed: int) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary, seed)


class EncoderDecoder(Seq2Seq):
    """An encoder-decoder with one vocabulary for source and target."""

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
        """Encode the source and return the decoder's state before the first token."""
        embedding = self.decoder.embedding if self.embedding is None else self.embedding
        memory: Tensor = self.encoder(self.dropout(embedding(source)), present)
        return super().init_state(memory, present)

    def forward(
        self, source: Source, present: SourcePresent, target: TokenIds, *, at: Present | None = None
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "targets V"]:
        """Return the logits of the token after each target token, or only where `at` is true."""
        states = self.states(source, present, target)
        return self.logits(states if at is None else states[at])

    def states(
        self, source: Source, present: SourcePresent, target: TokenIds
    ) -> Float[Tensor, "B T J"]:
        """Return the decoder's states for a given target (teacher forcing)."""
        check_rows("source", source, self.max_source)
        check_shape("present", present, *source.shape)
        check_rows("target", target, self.max_target)
        return cast(Tensor, self.decoder(target, self.init_state(source, present)))
