"""Speech recognition by CTC, by attention, or by both.

    frames B S F  --frontend-->  B M J  --encoder-->  memory B M H
    memory  --CTC-->  B M V                       a symbol or the blank per position
    memory, symbols so far  --decoder-->  B T V

The blank is symbol 0, the vocabulary's padding.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.dropout import Dropout
from harken.layers.frontends import Conv2dSubsamplingConfig
from harken.models.ctc import CTC
from harken.models.decoders import AttentionRNNDecoderConfig, LocationConfig
from harken.models.encoders import AttentionEncoder, EncoderConfig, build_encoder, check_encoder
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_length, check_rows, check_shape
from harken.models.seq2seq import DecoderConfig, EncoderOutput, Seq2Seq, check_memory

BLANK = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecognizerConfig:
    """A speech recognizer."""

    kind: Literal["recognizer"] = "recognizer"
    width: int = bounded(144, at_least=1)  # width of the frontend's outputs
    frontend: Conv2dSubsamplingConfig = Conv2dSubsamplingConfig()  # from frames to tokens
    encoder: EncoderConfig = ConformerEncoderConfig()  # the encoder
    ctc: bool = True  # whether the model has a CTC head
    decoder: DecoderConfig | None = None  # the attention decoder, if any
    # Milliseconds of sound that an RNN decoder has_attention to, around its last attention.
    attention_window_ms: float | None = bounded(None, above=0.0, at_most=1e9)
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the frontend's outputs

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.width)
        if not self.ctc and self.decoder is None:
            raise ValueError("a recognizer needs ctc, a decoder or both; choose one")
        rnn = isinstance(self.decoder, AttentionRNNDecoderConfig)
        if self.attention_window_ms is not None and not rnn:
            raise ValueError("attention_window_ms needs an RNN decoder; set decoder.kind = 'rnn'")
        if self.decoder is not None:
            check_memory(self.decoder, getattr(self.encoder, "max_length", None))

    def build(self, vocabulary: int, features: int, hop_ms: float, seed: int) -> "SpeechRecognizer":
        """Build for frames of `features` numbers, one every `hop_ms`."""
        return SpeechRecognizer(self, vocabulary, features, hop_ms, seed)

    def windowed_decoder(self, hop_ms: float) -> DecoderConfig | None:
        """Return the decoder's config with the attention window in positions of the memory."""
        decoder, window_ms = self.decoder, self.attention_window_ms
        if window_ms is None or not isinstance(decoder, AttentionRNNDecoderConfig):
            return decoder
        window = max(1, round(window_ms / (2 * hop_ms * self.frontend.subsampling)))
        location = replace(decoder.location or LocationConfig(), window=window)
        return replace(decoder, location=location)


class RecognizerOutput(NamedTuple):
    """Logits of CTC and of the decoder; None for the part that the model does not have."""

    ctc_logits: Float[Tensor, "B M V"] | None
    present: Bool[Tensor, "B M"]  # positions of `ctc_logits` that are not padding
    decoder_logits: Float[Tensor, "B T V"] | Float[Tensor, "targets V"] | None


class SpeechRecognizer(Seq2Seq):
    """Frontend, encoder, and CTC, a decoder or both."""

    def __init__(
        self, config: RecognizerConfig, vocabulary: int, features: int, hop_ms: float, seed: int
    ) -> None:
        super().__init__()
        self.features = features
        self.frontend = config.frontend.build(features, config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = build_encoder(config.encoder, config.width)
        # Attention blocks start with a norm. Without one, other encoders would learn to emit only
        # blanks, because the frontend's initial outputs are small.
        has_attention = isinstance(self.encoder, AttentionEncoder)
        self.norm = nn.Identity() if has_attention else nn.LayerNorm(config.width)
        layers = self.encoder.layers
        self.ctc, self.decoder, self.max_target = None, None, None
        if config.ctc:
            self.ctc = CTC(self.encoder.width, vocabulary, blank=BLANK, seed=seed)
        decoder = config.windowed_decoder(hop_ms)
        if decoder is not None:
            self.decoder = self.build_decoder(decoder, vocabulary, self.encoder, seed)
            self.max_target, layers = decoder.max_length, max(layers, decoder.layers)
        limit = self.encoder.max_length
        self.max_frames = None if limit is None else limit * self.frontend.stride
        initialize(self, layers, seed)

    @property
    def modes(self) -> frozenset[str]:
        """The decoding modes that the model has."""
        parts = {"ctc": self.ctc, "attention": self.decoder}
        return frozenset(name for name, part in parts.items() if part is not None)

    def encode(self, frames: Float[Tensor, "B S F"], present: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Return the memory that CTC and the decoder read."""
        tokens = self.frontend(frames, present)
        states = self.encoder(self.dropout(self.norm(tokens.tokens)), tokens.present)
        return EncoderOutput(states, tokens.present)

    def ctc_log_probs(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]:
        """Return the log-probabilities of each position's symbol; symbol 0 is the blank."""
        assert self.ctc is not None, "the model was built without ctc"
        return cast(Tensor, self.ctc(memory))

    def forward(
        self,
        frames: Float[Tensor, "B S F"],
        present: Bool[Tensor, "B S"],
        target: TokenIds,
        *,
        at: Present | None = None,
    ) -> RecognizerOutput:
        """Return the logits of CTC, and of the token after each of `target` (or only `at`)."""
        check_shape("frames", frames, "batch", "time", self.features)
        check_length("frames", frames.shape[1], self.max_frames)
        check_shape("present", present, *frames.shape[:2])
        check_rows("target", target, self.max_target)
        encoded = self.encode(frames, present)
        ctc_logits = None if self.ctc is None else self.ctc.logits(encoded.memory)
        decoder_logits = None
        if self.decoder is not None:
            states = self.decoder(target, self.init_state(*encoded))
            decoder_logits = self.logits(states if at is None else states[at])
        return RecognizerOutput(ctc_logits, encoded.present, decoder_logits)
