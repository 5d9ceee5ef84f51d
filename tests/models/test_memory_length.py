"""A score with one weight for each memory position must have enough of them."""

from collections.abc import Callable

import pytest
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.attention.scores import SynthesizerConfig
from harken.layers.frontends import ImageSizes, PatchEmbeddingConfig
from harken.layers.recurrent import GRUConfig
from harken.models.captioner import CaptionerConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.recognizer import RecognizerConfig
from harken.models.seq2seq import DecoderConfig, EncoderDecoderConfig

LONGEST = 9
IMAGE = ImageSizes(channels=3, columns=6, rows=6)


def synthesizer(kind: str, length: int) -> DecoderConfig:
    attention = MultiHeadConfig(heads=2, score=SynthesizerConfig())
    if kind == "rnn":
        return AttentionRNNDecoderConfig(width=8, hidden=8, max_length=length, attention=attention)
    return TransformerDecoderConfig(
        layers=1, width=8, max_length=length, attention=attention, position=NoPositionConfig()
    )


def body(length: int | None) -> TransformerEncoderConfig | GRUConfig:
    if length is None:
        return GRUConfig()
    return TransformerEncoderConfig(layers=1, max_length=length, attention=MultiHeadConfig(heads=2))


def translator(decoder: DecoderConfig, longest: int | None) -> object:
    model = EncoderDecoderConfig(encoder=body(longest), decoder=decoder).build(17, seed=0)
    source = torch.ones(2, longest or 1024).long()
    return model(source, source.bool(), torch.ones(2, 3).long())


def recognizer(decoder: DecoderConfig, longest: int | None) -> object:
    config = RecognizerConfig(width=8, encoder=body(longest), decoder=decoder)
    model = config.build(17, features=11, hop_ms=10.0, seed=0)
    frames = torch.zeros(2, model.max_frames or 4096, 11)
    return model(frames, torch.ones(frames.shape[:2]).bool(), torch.ones(2, 3).long())


def captioner(decoder: DecoderConfig, longest: int | None) -> object:
    front = PatchEmbeddingConfig(patch=2)  # 3 x 3 positions
    model = CaptionerConfig(width=8, frontend=front, decoder=decoder).build(17, IMAGE, seed=0)
    return model(torch.zeros(2, 3, 6, 6), torch.ones(2, 3).long())


@pytest.mark.parametrize("decoder", ["transformer", "rnn"])
@pytest.mark.parametrize("build", [translator, recognizer, captioner])
def test_a_synthesizer_needs_a_position_for_all_of_the_memory(
    decoder: str, build: Callable[[DecoderConfig, int | None], object]
) -> None:
    build(synthesizer(decoder, LONGEST), LONGEST)
    with pytest.raises(ValueError, match=r"8 positions, .* up to 9 positions; set .* = 9, or"):
        build(synthesizer(decoder, LONGEST - 1), LONGEST)


def test_an_encoder_without_limit() -> None:
    """A translator cuts its sources at 1024 tokens; a recognizer hears sounds of any length."""
    translator(synthesizer("rnn", 1024), None)
    with pytest.raises(ValueError, match="up to 1024"):
        translator(synthesizer("rnn", 1023), None)
    with pytest.raises(ValueError, match="any length; choose another"):
        recognizer(synthesizer("rnn", 4096), None)
