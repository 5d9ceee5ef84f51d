"""A model that hears sound and writes what was said.

    frames B S F  --front-->  B M J  --body-->  memory B M H
    memory  --read out-->  B M V                   CTC: every place says a symbol or nothing
    memory, symbols so far  --decoder-->  B T V    attention: the decoder looks where it likes

Either way of writing may be left out, and both may be had. The body is any of `body.py`: an RNN, a
Transformer, a Conformer. CTC's nothing is symbol 0, which is the vocabulary's padding. With
`memory_ms`, an RNN that attends hears only so much sound around where it looked last.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.frontends import Conv2dSubsamplingConfig
from harken.models.attentive_decoder import AttentiveDecoderConfig, LocationConfig
from harken.models.body import BodyConfig, TransformerBody, build_body, check_body
from harken.models.conformer_body import ConformerBody, ConformerBodyConfig
from harken.models.ctc import CTC, CTCConfig
from harken.models.initialize import initialize
from harken.models.inputs import check_length, check_rows, check_shape
from harken.models.writing import (
    DecoderConfig,
    backward_width,
    begin_writing,
    build_decoder,
    check_memory,
    layers_of,
)

BLANK = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecogniserConfig:
    """Sizes of a recogniser; `width` is that of the tokens which the front makes of frames."""

    kind: Literal["recogniser"] = "recogniser"
    width: int = bounded(144, at_least=1)
    front: Conv2dSubsamplingConfig = Conv2dSubsamplingConfig()
    encoder: BodyConfig = ConformerBodyConfig()
    ctc: bool = True
    decoder: DecoderConfig | None = None
    # The attention window of an RNN decoder, both sides.
    memory_ms: float | None = bounded(None, above=0.0, at_most=1e9)
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the front's tokens

    def __post_init__(self) -> None:
        check_body(self.encoder, self.width)
        if not self.ctc and self.decoder is None:
            raise ValueError("a recogniser writes by ctc, by a decoder or by both; choose one")
        if self.memory_ms is not None and not isinstance(self.decoder, AttentiveDecoderConfig):
            raise ValueError("memory_ms is a window of the RNN decoder; set decoder.kind = 'rnn'")
        if self.decoder is not None:
            check_memory(self.decoder, getattr(self.encoder, "length", None))

    def build(self, vocabulary: int, features: int, hop_ms: float, seed: int) -> "Recogniser":
        """`features` a frame, and a frame every `hop_ms`."""
        return Recogniser(self, vocabulary, features, hop_ms, seed)

    def windowed(self, hop_ms: float) -> DecoderConfig | None:
        """The decoder's choices, with `memory_ms` as places of the memory."""
        if self.memory_ms is None or not isinstance(self.decoder, AttentiveDecoderConfig):
            return self.decoder
        places = max(1, round(self.memory_ms / (2 * hop_ms * self.front.factor)))
        location = replace(self.decoder.location or LocationConfig(), window=places)
        return replace(self.decoder, location=location)


class Heard(NamedTuple):
    """States of an utterance, a place every few frames."""

    memory: Float[Tensor, "B M H"]
    present: Bool[Tensor, "B M"]


class RecognizerOutput(NamedTuple):
    """Logits of CTC and of the decoder; None for the one that the model does not have."""

    ctc_logits: Float[Tensor, "B M V"] | None
    present: Bool[Tensor, "B M"]  # positions of `ctc_logits` that are not padding
    decoder_logits: Float[Tensor, "B T V"] | Float[Tensor, "targets V"] | None


class Recogniser(nn.Module):
    """Front, body, and one or two ways to write."""

    def __init__(
        self, config: RecogniserConfig, vocabulary: int, features: int, hop_ms: float, seed: int
    ) -> None:
        super().__init__()
        self.features = features
        self.front = config.front.build(features, config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = build_body(config.encoder, config.width)
        # Blocks of attention begin with a norm; states and windows would hear the front's first
        # weights as silence, and learn to say nothing.
        attends = isinstance(self.encoder, TransformerBody | ConformerBody)
        self.norm = nn.Identity() if attends else nn.LayerNorm(config.width)
        self._backward = backward_width(self.encoder)
        width, layers = self.encoder.width, self.encoder.layers
        self.ctc: CTC | None = None
        if config.ctc:
            self.ctc = CTCConfig().build(width, vocabulary, blank=BLANK, seed=seed)
        self.decoder, self.longest_output = None, None
        decoder = config.windowed(hop_ms)
        if decoder is not None:
            self.decoder = build_decoder(decoder, vocabulary, width, self._backward, seed)
            self.longest_output, layers = decoder.length, max(layers, layers_of(decoder))
        limit = self.encoder.length
        self.longest_frames = None if limit is None else limit * self.front.stride
        initialize(self, layers, seed)

    @property
    def ways(self) -> frozenset[str]:
        """In which ways it writes."""
        had = {"ctc": self.ctc, "attention": self.decoder}
        return frozenset(name for name, part in had.items() if part is not None)

    def hear(self, frames: Float[Tensor, "B S F"], present: Bool[Tensor, "B S"]) -> Heard:
        """The memory that both ways of writing read."""
        tokens = self.front(frames, present)
        states = self.encoder(self.dropout(self.norm(tokens.tokens)), tokens.present)
        return Heard(states, tokens.present)

    def symbols(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]:
        """Log-probabilities of each place's symbol; symbol 0 is the blank."""
        assert self.ctc is not None, "the model was built without ctc"
        logs: Tensor = self.ctc(memory)
        return logs

    def forward(
        self,
        frames: Float[Tensor, "B S F"],
        present: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> RecognizerOutput:
        """Return the logits of CTC, and of the token after each of `target` (or only `at`)."""
        check_shape("frames", frames, "batch", "time", self.features)
        check_length("frames", frames.shape[1], self.longest_frames)
        check_shape("present", present, *frames.shape[:2])
        check_rows("target", target, self.longest_output)
        heard = self.hear(frames, present)
        ctc_logits = None if self.ctc is None else self.ctc.logits(heard.memory)
        decoder_logits = None
        if self.decoder is not None:
            states = self.decoder(target, self.begin(*heard))
            decoder_logits = self.logits(states if at is None else states[at])
        return RecognizerOutput(ctc_logits, heard.present, decoder_logits)

    def begin(self, memory: Float[Tensor, "B M H"], present: Bool[Tensor, "B M"]) -> Any:
        """The decoder's state before any symbol."""
        assert self.decoder is not None, "the model was built without a decoder"
        return begin_writing(self.decoder, memory, present, self._backward)

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]:
        assert self.decoder is not None
        return self.decoder.extend(tokens, present, state)

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]:
        assert self.decoder is not None
        return self.decoder.logits(states)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return state.select(rows, same_prompts=same_prompts)
