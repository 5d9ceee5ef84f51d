"""Speech recognizers with a CTC head, an attention decoder, or both.

    frames B S F  --frontend-->  B M J  --encoder-->  memory B M H
    memory  --CTC-->  B M V
    memory, target tokens B T  --decoder-->  B T V

The blank is token 0, the padding token of the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.dropout import Dropout
from harken.layers.frontends import Conv2dSubsamplingConfig, SpeechFrontendConfig
from harken.models.ctc import CTC, ctc_log_probability
from harken.models.decoders import (
    AttentionRNNDecoderConfig,
    LocationConfig,
    TransformerDecoderConfig,
)
from harken.models.encoders import (
    AttentionEncoder,
    EncoderConfig,
    TransformerEncoderConfig,
    build_encoder,
    check_encoder,
)
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_length, check_rows, check_shape
from harken.models.seq2seq import DecoderConfig, EncoderOutput, Seq2Seq, check_memory
from harken.models.start import StartConfig

BLANK = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecognizerConfig(StartConfig):
    """A speech recognizer: frontend and encoder, with a CTC head, an attention decoder or both."""

    kind: Literal["recognizer"] = "recognizer"
    width: int = bounded(144, at_least=1)  # width of the frontend's outputs
    frontend: SpeechFrontendConfig = Conv2dSubsamplingConfig()  # frames to encoder inputs
    encoder: EncoderConfig = ConformerEncoderConfig()  # encoder over the frontend's outputs
    ctc: bool = True  # whether the model has a CTC head
    decoder: DecoderConfig | None = None  # the attention decoder, if any
    # turns on location-sensitive attention of the RNN decoder, limited to a window of this width in
    # ms around the mean position of the previous step's attention
    attention_window_ms: float | None = bounded(None, above=0.0, at_most=1e9)
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the frontend's outputs

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.width)
        if not self.ctc and self.decoder is None:
            raise ValueError("a recognizer needs CTC or a decoder; set ctc = true or add a decoder")
        has_rnn_decoder = isinstance(self.decoder, AttentionRNNDecoderConfig)
        if self.attention_window_ms is not None and not has_rnn_decoder:
            raise ValueError("attention_window_ms needs an RNN decoder; set decoder.kind = 'rnn'")
        if self.decoder is not None:
            check_memory(self.decoder, getattr(self.encoder, "max_length", None))
        limit = getattr(self.encoder, "max_length", None)
        frontend = self.frontend
        if limit is not None and frontend.min_frames > limit * frontend.subsampling:
            raise ValueError(
                f"frontend.min_frames: expected at most {limit * frontend.subsampling}, the number "
                f"of frames that the encoder can read, got {frontend.min_frames}"
            )

    def build(self, vocabulary: int, features: int, hop_ms: float, seed: int) -> "SpeechRecognizer":
        """Build the model for frames with `features` numbers, one frame every `hop_ms`."""
        return SpeechRecognizer(self, vocabulary, features, hop_ms, seed)

    def windowed_decoder(self, hop_ms: float) -> DecoderConfig | None:
        """Return the decoder's config, with the attention window converted to memory positions."""
        decoder, window_ms = self.decoder, self.attention_window_ms
        if window_ms is None or not isinstance(decoder, AttentionRNNDecoderConfig):
            return decoder
        window = max(1, round(window_ms / (2 * hop_ms * self.frontend.subsampling)))
        location = replace(decoder.location or LocationConfig(), window=window)
        return replace(decoder, location=location)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainedRecognizerConfig:
    """A recognizer and its number of features, as a Hugging Face folder describes them."""

    recognizer: RecognizerConfig
    features: int
    hop_ms: float = 10.0

    @property
    def stacks(self) -> tuple[TransformerEncoderConfig, TransformerDecoderConfig]:
        """The configs of encoder and decoder."""
        encoder, decoder = self.recognizer.encoder, self.recognizer.decoder
        assert isinstance(encoder, TransformerEncoderConfig)
        assert isinstance(decoder, TransformerDecoderConfig)
        return encoder, decoder

    def build(self, vocabulary: int, seed: int) -> "SpeechRecognizer":
        return self.recognizer.build(vocabulary, self.features, self.hop_ms, seed)


class RecognizerOutput(NamedTuple):
    """Logits of the CTC head and of the decoder, each None if the model was built without it."""

    ctc_logits: Float[Tensor, "B M V"] | None
    present: Bool[Tensor, "B M"]  # positions of `ctc_logits` that are not padding
    decoder_logits: Float[Tensor, "B T V"] | Float[Tensor, "targets V"] | None


class SpeechRecognizer(Seq2Seq):
    """The model: frames and target tokens -> logits of the CTC head and of the decoder."""

    def __init__(
        self, config: RecognizerConfig, vocabulary: int, features: int, hop_ms: float, seed: int
    ) -> None:
        super().__init__()
        self.features = features
        self.frontend = config.frontend.build(features, config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = build_encoder(config.encoder, config.width)
        # The initial outputs of the frontend are small. Without a norm, which attention blocks
        # have, the encoder would learn to emit only blanks.
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
        """The modes of decoding that the model supports, of 'ctc' and 'attention'."""
        modules = {"ctc": self.ctc, "attention": self.decoder}
        return frozenset(mode for mode, module in modules.items() if module is not None)

    def encode(self, frames: Float[Tensor, "B S F"], present: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Return the encoder states, the input of the CTC head and memory of the decoder."""
        grid = self.frontend(frames, present)
        states = self.encoder(self.dropout(self.norm(grid.tokens)), grid.present)
        return EncoderOutput(states, grid.present)

    def ctc_log_probs(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]:
        """Return the CTC log-probabilities of each memory position; token 0 is the blank."""
        assert self.ctc is not None, "the model was built without a CTC head"
        return cast(Tensor, self.ctc(memory))

    def output_log_probs(
        self, encoded: EncoderOutput, tokens: Sequence[int], *, prompt: Sequence[int], end: int
    ) -> Float[Tensor, "T V"]:
        """Return the log-probabilities of the decoder at each output token of one sound.

        `prompt` are the first inputs of the decoder, before the output. Without a decoder, return
        the log-probability of the whole output by CTC, 1 x 1.
        """
        if self.decoder is None:
            text = [token for token in tokens if token != end]
            log_probs = self.ctc_log_probs(encoded.memory)[0]
            return ctc_log_probability(log_probs, text, blank=BLANK)
        inputs = torch.tensor([[*prompt, *tokens[:-1]]], device=encoded.memory.device)
        present = torch.ones_like(inputs, dtype=torch.bool)
        states, _ = self.step(inputs, present, self.init_state(*encoded))
        return self.logits(states[0, len(prompt) - 1 :]).float().log_softmax(dim=-1)

    def forward(
        self,
        frames: Float[Tensor, "B S F"],
        present: Bool[Tensor, "B S"],
        target: TokenIds,
        *,
        at: Present | None = None,
    ) -> RecognizerOutput:
        """Return the CTC logits, and the decoder logits of all targets or where `at` is true."""
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
