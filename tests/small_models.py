"""Language models of a few numbers in every legal kind, with weights large enough to matter."""

from typing import Literal

import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    LearnedConfig,
    NoPositionConfig,
    PositionConfig,
    RotaryConfig,
    SinusoidConfig,
)
from harken.attention.scores import DotConfig, ScaledConfig, ScoreConfig, SynthesizerConfig
from harken.layers.norm import NormConfig
from harken.models.language_model import GPTConfig, LanguageModel

VOCABULARY, WIDTH, LENGTH, LAYERS = 19, 13, 11, 2
HEADS, HEAD_WIDTH, KEY_WIDTH = 3, 5, 4

SCORES: dict[str, ScoreConfig] = {
    "dot": DotConfig(),
    "scaled": ScaledConfig(),
    "dense": SynthesizerConfig(form="dense"),
    "random": SynthesizerConfig(form="random"),
}
POSITIONS: dict[str, PositionConfig] = {
    "none": NoPositionConfig(),
    "learned": LearnedConfig(),
    "sinusoid": SinusoidConfig(),
    "rotary": RotaryConfig(),
}
ILLEGAL = [("dense", "rotary"), ("random", "rotary")]
LEGAL = [(score, place) for score in SCORES for place in POSITIONS if (score, place) not in ILLEGAL]


def small_config(
    score: str = "scaled", position: str = "learned", norm: Literal["pre", "post"] = "pre"
) -> GPTConfig:
    return GPTConfig(
        layers=LAYERS,
        width=WIDTH,
        length=LENGTH,
        attention=MultiHeadConfig(
            heads=HEADS, head_width=HEAD_WIDTH, key_width=KEY_WIDTH, score=SCORES[score]
        ),
        position=POSITIONS[position],
        norm=NormConfig(place=norm),
    )


def small_model(
    score: str = "scaled",
    position: str = "learned",
    norm: Literal["pre", "post"] = "pre",
    *,
    seed: int = 0,
    strength: float = 1.5,
) -> LanguageModel:
    """In float64 and stirred: at first weights attention is so even that a wrong one passes."""
    model = small_config(score, position, norm).build(VOCABULARY, seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty_like(parameter).normal_(generator=generator)
            if parameter.dim() == 1:  # norms and offsets
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(strength * parameter.shape[-1] ** -0.5 * noise)
    return model
