"""Every body with each way of writing: steps equal whole rows, padding is nothing."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import TransformerXLConfig
from harken.inspection.record import record
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.frontends import Conv2dSubsamplingConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import EncoderConfig, TransformerEncoderConfig
from harken.models.recognizer import RecognizerConfig, SpeechRecognizer
from harken.models.seq2seq import DecoderConfig
from small_layers import check_steps, randomized

VOCABULARY, WIDTH, FEATURES, START, HOP_MS = 13, 12, 19, 2, 10.0
HEADS = MultiHeadConfig(heads=3)
RELATIVE = MultiHeadConfig(heads=3, score=TransformerXLConfig())
FRONT = Conv2dSubsamplingConfig(channels=5)
BODIES: dict[str, EncoderConfig] = {
    "conformer": ConformerEncoderConfig(
        layers=2, max_length=31, attention=RELATIVE, kernel=3, dropout=0.0
    ),
    "transformer": TransformerEncoderConfig(layers=2, max_length=31, attention=HEADS),
    "lstm": LSTMConfig(direction="both"),
}
DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(
        layers=2, width=WIDTH, max_length=29, attention=HEADS, dropout=0.0
    ),
    "rnn": AttentionRNNDecoderConfig(width=WIDTH, hidden=11),
}
LENGTHS = torch.tensor([47, 29])
PRESENT = torch.arange(47)[None] < LENGTHS[:, None]
TARGET = torch.tensor([[START, 5, 9, 12], [START, 4, 6, 8]])
each_body = pytest.mark.parametrize("body", BODIES)
each_decoder = pytest.mark.parametrize("decoder", DECODERS)


def frames() -> Tensor:
    made = torch.randn(2, 47, FEATURES, generator=torch.Generator().manual_seed(3))
    return made.double()


def built(body: str, decoder: str | None, window_ms: float | None = None) -> SpeechRecognizer:
    config = RecognizerConfig(
        width=WIDTH,
        frontend=FRONT,
        encoder=BODIES[body],
        decoder=None if decoder is None else DECODERS[decoder],
        attention_window_ms=window_ms,
        dropout=0.0,
    )
    torch.manual_seed(0)
    return randomized(config.build(VOCABULARY, FEATURES, HOP_MS, seed=7), std=0.4)


@each_body
@each_decoder
@torch.no_grad()
def test_one_symbol_at_a_time_equals_all_at_once(body: str, decoder: str) -> None:
    model = built(body, decoder)
    whole = model(frames(), PRESENT, TARGET).decoder_logits
    check_steps(model, *model.encode(frames(), PRESENT), TARGET, whole)


@each_body
@each_decoder
@torch.no_grad()
def test_padding_and_neighbors_change_nothing(body: str, decoder: str) -> None:
    model = built(body, decoder)
    together = model(frames(), PRESENT, TARGET)
    alone = model(frames()[1:, :29], PRESENT[1:, :29], TARGET[1:])
    places = int(together.present[1].sum())
    assert places == alone.present.shape[1] == 8  # a place for every four frames, rounded up
    assert_close(together.decoder_logits[1:], alone.decoder_logits, rtol=0, atol=1e-10)
    assert_close(together.ctc_logits[1:, :places], alone.ctc_logits, rtol=0, atol=1e-6)


@each_body
@torch.no_grad()
def test_symbols_are_probabilities_and_each_place_hears_the_whole(body: str) -> None:
    model = built(body, None)
    symbols = model(frames(), PRESENT, TARGET).ctc_logits
    logs = model.ctc_log_probs(model.encode(frames(), PRESENT).memory)
    assert_close(logs.exp().sum(dim=-1), torch.ones(2, 12, dtype=torch.float64))
    assert_close(symbols.log_softmax(dim=-1), logs)
    other = frames()
    other[:, 20] += 1.0
    assert (model(other, PRESENT, TARGET).ctc_logits[0] != symbols[0]).any(dim=-1).all()


@torch.no_grad()
def test_the_memory_in_milliseconds_is_a_window_of_places() -> None:
    """160 ms at 40 ms a place: two places either side of where it looked last."""
    wide, narrow = built("lstm", "rnn"), built("lstm", "rnn", window_ms=160.0)
    assert wide.decoder.location is None and narrow.decoder.location.window == 2
    with record(narrow) as seen:
        narrow(frames()[:1], PRESENT[:1], TARGET[:1])
    (weights,) = [call.weights for call in seen if call.name == "decoder.attention"][:1]
    assert (weights[0, 0, 0] > 0).sum() <= 3  # it begins at the first place and sees two more


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ValueError, match="set ctc = true"):
        RecognizerConfig(ctc=False)
    with pytest.raises(ValueError, match=r"decoder\.kind"):
        RecognizerConfig(attention_window_ms=200.0)
    with pytest.raises(ValueError, match="heads"):
        RecognizerConfig(width=13, encoder=ConformerEncoderConfig(attention=HEADS))
