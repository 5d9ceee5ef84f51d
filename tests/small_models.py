"""Small language models of every kind, with large weights."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from harken.attention.compatibility import conflict
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    AlibiConfig,
    FourierConfig,
    LearnedConfig,
    NoPositionConfig,
    PositionConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidConfig,
)
from harken.attention.scores import (
    AdditiveConfig,
    DotConfig,
    MergedConfig,
    ScaledConfig,
    ScoreConfig,
    SynthesizerConfig,
    TransformerXLConfig,
)
from harken.layers.frontends import as_map, as_tokens, grid_coordinates
from harken.layers.norm import NormConfig
from harken.layers.spatial import SpatialEncoder
from harken.models.gpt import GPT, GPTConfig

VOCABULARY, WIDTH, LENGTH, LAYERS = 19, 13, 11, 2
HEADS, HEAD_WIDTH, KEY_WIDTH = 3, 5, 4
WINDOW = 3

SCORES: dict[str, ScoreConfig] = {
    "dot": DotConfig(),
    "scaled": ScaledConfig(),
    "merged": MergedConfig(),
    "additive": AdditiveConfig(),
    "dense": SynthesizerConfig(form="dense"),
    "random": SynthesizerConfig(form="random"),
    "relative product": TransformerXLConfig(),
}
POSITIONS: dict[str, PositionConfig] = {
    "none": NoPositionConfig(),
    "learned": LearnedConfig(),
    "sinusoid": SinusoidConfig(),
    "fourier": FourierConfig(),
    "rotary": RotaryConfig(),
    "alibi": AlibiConfig(),
    "relative": RelativeConfig(buckets=8, max_distance=9),
    "relative causal": RelativeConfig(buckets=5, max_distance=7, causal=True),
}
LEGAL = [
    (score, position)
    for score in SCORES
    for position in POSITIONS
    if conflict(SCORES[score], POSITIONS[position]) is None
]
Norm = Literal["pre", "post"]
MaskCase = Literal["causal", "strictly_causal", "window"]
BLOCKS: list[tuple[Norm, MaskCase]] = [
    ("pre", "causal"),
    ("post", "strictly_causal"),
    ("pre", "window"),
    ("post", "causal"),
    ("pre", "strictly_causal"),
    ("post", "window"),
]
ModelCase = tuple[str, str, Norm, MaskCase]
# Each legal pair once; norms and masks alternate so that each score and position has each of them.
CASES: list[ModelCase] = [
    (
        score,
        position,
        *BLOCKS[(list(SCORES).index(score) + list(POSITIONS).index(position)) % len(BLOCKS)],
    )
    for score, position in LEGAL
]


def small_config(
    score: str = "scaled", position: str = "learned", norm: Norm = "pre", seen: MaskCase = "causal"
) -> GPTConfig:
    merged = score == "merged"
    return GPTConfig(
        layers=LAYERS,
        # Keys of MergedScore have the model width, which rotary needs to be even.
        width=WIDTH + 1 if merged and position == "rotary" else WIDTH,
        max_length=LENGTH,
        attention=MultiHeadConfig(
            heads=HEADS,
            head_width=HEAD_WIDTH,
            key_width=None if merged else KEY_WIDTH,
            score=SCORES[score],
        ),
        position=POSITIONS[position],
        mask="strictly_causal" if seen == "strictly_causal" else "causal",
        window=WINDOW if seen == "window" else None,
        norm=NormConfig(place=norm),
    )


@torch.no_grad()
def add_noise(model: nn.Module, *, seed: int = 0, strength: float = 1.5) -> None:
    """Set random weights, since initial attention is almost uniform."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.empty_like(parameter).normal_(generator=generator)
        if parameter.dim() == 1:  # norms and offsets
            parameter.add_(0.2 * noise)
        else:
            parameter.copy_(strength * parameter.shape[-1] ** -0.5 * noise)


def stirred(config: Any, *, seed: int = 0, strength: float = 1.5) -> Any:
    """Build in float64 with random weights."""
    model = config.build(VOCABULARY, seed).double().eval()
    add_noise(model, seed=seed, strength=strength)
    return model


def small_model(
    score: str = "scaled",
    position: str = "learned",
    norm: Norm = "pre",
    seen: MaskCase = "causal",
    *,
    seed: int = 0,
    strength: float = 1.5,
) -> GPT:
    """Return a small model with random weights."""
    return stirred(small_config(score, position, norm, seen), seed=seed, strength=strength)


def over_map(encoder: SpatialEncoder, maps: Tensor, present: Tensor | None = None) -> Tensor:
    """Run a spatial encoder on feature maps B X Y J."""
    seen = None if present is None else present.transpose(1, 2).flatten(1)
    states = encoder(as_tokens(maps), grid_coordinates(*maps.shape[1:3], maps.device), seen)
    return as_map(states, maps.shape[1])
