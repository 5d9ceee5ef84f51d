"""Tensors of a wrong shape or length give a ValueError that says what was expected."""

from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.frontends import ImageSizes
from harken.models.captioner import CaptionerConfig
from harken.models.cloze import BiRNNClozeConfig, MaskedLMConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import (
    TextEncoderConfig,
    TransformerEncoderConfig,
)
from harken.models.gpt import GPTConfig
from harken.models.recognizer import RecognizerConfig
from harken.models.recurrent_lm import ConvLMConfig, RecurrentLMConfig
from harken.models.seq2seq import EncoderDecoderConfig
from harken.models.tagger import NoCharactersConfig, TaggerConfig

VOCABULARY, WIDTH, LENGTH, FEATURES = 11, 16, 8, 13
BODY = TransformerEncoderConfig(layers=1, max_length=LENGTH)
DECODER = TransformerDecoderConfig(layers=1, width=WIDTH, max_length=LENGTH)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.long)


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.bool)


def gpt() -> nn.Module:
    return GPTConfig(layers=1, width=WIDTH, max_length=LENGTH).build(VOCABULARY, seed=0)


def tagger() -> nn.Module:
    config = TaggerConfig(width=WIDTH, characters=NoCharactersConfig(), encoder=BODY)
    return config.build(words=VOCABULARY, characters=2, tags=3, seed=0)


def cloze(config: BiRNNClozeConfig | MaskedLMConfig) -> nn.Module:
    return config.build(VOCABULARY, mask=2, end=3, seed=0)


def translator() -> nn.Module:
    return EncoderDecoderConfig(encoder=BODY, decoder=DECODER).build(VOCABULARY, seed=0)


def recognizer() -> nn.Module:
    encoder = ConformerEncoderConfig(layers=1, max_length=LENGTH)
    config = RecognizerConfig(width=WIDTH, encoder=encoder, decoder=DECODER)
    return config.build(VOCABULARY, FEATURES, hop_ms=10.0, seed=0)


def captioner() -> nn.Module:
    decoder = AttentionRNNDecoderConfig(width=WIDTH, hidden=WIDTH)
    sizes = ImageSizes(channels=3, columns=16, rows=8)
    return CaptionerConfig(width=WIDTH, decoder=decoder).build(VOCABULARY, sizes, seed=0)


def tag_inputs(words: Tensor, present: Tensor) -> tuple[Tensor, ...]:
    return words, zeros(*words.shape), zeros(1, 1), ones(1, 1), present


RNN = BiRNNClozeConfig(width=WIDTH)
MASKED = MaskedLMConfig(width=WIDTH, encoder=BODY)  # two of its tokens are the ends of the row
FRAMES = torch.zeros(2, 9, FEATURES)
Case = tuple[Callable[[], nn.Module], tuple[Tensor, ...], str]
CASES: dict[str, Case] = {
    "gpt, one row": (gpt, (zeros(5),), r"tokens: expected shape \(batch, time\), got \(5,\)"),
    "gpt, three axes": (gpt, (zeros(2, 3, 4),), r"tokens: expected shape \(batch, time\), got"),
    "gpt, too long": (gpt, (zeros(2, 9),), "tokens: expected at most 8 per row, got 9"),
    "rnn": (
        lambda: RecurrentLMConfig(width=WIDTH).build(VOCABULARY, 0),
        (zeros(5),),
        "tokens: ",
    ),
    "cnn": (
        lambda: ConvLMConfig(width=WIDTH).build(VOCABULARY, 0),
        (zeros(5),),
        "tokens",
    ),
    "encoder": (
        lambda: TextEncoderConfig(layers=1, width=WIDTH, max_length=LENGTH).build(VOCABULARY, 0),
        (zeros(2, 9),),
        "tokens: expected at most 8",
    ),
    "tagger, too long": (tagger, tag_inputs(zeros(2, 9), ones(2, 9)), "words: expected at most 8"),
    "tagger, mask": (
        tagger,
        tag_inputs(zeros(2, 7), ones(2, 6)),
        r"present: expected shape \(2, 7\), got \(2, 6\)",
    ),
    "cloze rnn": (lambda: cloze(RNN), (zeros(5), ones(5), ones(5)), "tokens: expected shape"),
    "cloze masked": (
        lambda: cloze(MASKED),
        (zeros(2, 7), ones(2, 7), ones(2, 7)),
        "tokens: expected at most 6 per row, got 7",
    ),
    "source": (translator, (zeros(2, 9), ones(2, 9), zeros(2, 3)), "source: expected at most 8"),
    "target": (translator, (zeros(2, 3), ones(2, 3), zeros(2, 9)), "target: expected at most 8"),
    "target, one row": (translator, (zeros(2, 3), ones(2, 3), zeros(3)), "target: expected shape"),
    "frames": (recognizer, (FRAMES[0], ones(9), zeros(2, 3)), "frames: expected shape"),
    "features": (
        recognizer,
        (FRAMES[..., 1:], ones(2, 9), zeros(2, 3)),
        r"frames: expected shape \(batch, time, 13\), got \(2, 9, 12\)",
    ),
    "sound, too long": (
        recognizer,
        (torch.zeros(1, 33, FEATURES), ones(1, 33), zeros(1, 3)),
        "frames: expected at most 32 per row, got 33",
    ),
    "picture": (captioner, (torch.zeros(3, 8, 16), zeros(1, 3)), "images: expected shape"),
    "channels": (captioner, (torch.zeros(1, 1, 8, 16), zeros(1, 3)), r"\(batch, 3, rows, columns"),
    "caption": (captioner, (torch.zeros(1, 3, 8, 16), zeros(3)), "target: expected shape"),
}


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the shape checks of the test suite, which a user does not have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_shape_or_length_is_a_value_error(name: str) -> None:
    build, inputs, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        build()(*inputs)
