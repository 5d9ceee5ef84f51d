"""Where a token stands.

Attention alone cannot tell order. A position kind tells it in one of two places: at the entrance of
the model, as a vector added to the token's (`learned`, `sinusoid`), or inside every head, as a
rotation of queries and keys (`rotary`). `none` says nothing.

    sinusoid   e_t[2i] = sin(t / base^(2i/J)),  e_t[2i+1] = cos(t / base^(2i/J))
    rotary     the pair (x[i], x[i + U/2]) of a query or key turned by the angle t / base^(2i/U)
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.config import bounded


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of every position's angles, made once a forward and used by every layer."""

    cosine: Float[Tensor, "#B 1 T U"]
    sine: Float[Tensor, "#B 1 T U"]


def rotate(heads: Float[Tensor, "B k T U"], rotation: Rotation) -> Float[Tensor, "B k T U"]:
    """Turn each pair of a head's numbers; a dot product of two then depends on their distance."""
    first, second = heads.chunk(2, dim=-1)
    turned = heads * rotation.cosine + torch.cat((-second, first), dim=-1) * rotation.sine
    return turned.to(heads.dtype)  # angles are float32, and kernels want one precision


class Position(Protocol):
    """What a model asks of a position kind; `length` is the longest input, or None for any."""

    length: int | None

    def enter(
        self, inputs: Float[Tensor, "B T J"], positions: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B T J"]: ...

    def rotation(self, positions: Int[Tensor, "#B T"]) -> Rotation | None: ...


class Nowhere(nn.Module):
    """No position: attention is then blind to order but for its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.length: int | None = None

    def enter(
        self, inputs: Float[Tensor, "B T J"], positions: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B T J"]:
        return inputs

    def rotation(self, positions: Int[Tensor, "#B T"]) -> Rotation | None:
        return None


class Learned(nn.Module):
    """One free vector a position; none beyond `length`."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.length: int | None = length
        self.table = nn.Embedding(length, width)

    def enter(
        self, inputs: Float[Tensor, "B T J"], positions: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B T J"]:
        placed: Tensor = inputs + self.table(positions)
        return placed

    def rotation(self, positions: Int[Tensor, "#B T"]) -> Rotation | None:
        return None


def angles(positions: Int[Tensor, "#B T"], width: int, base: float) -> Float[Tensor, "#B T pairs"]:
    """t / base^(2i / width); in float32 whatever the model's precision, or late positions blur."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    turned: Tensor = positions[..., None].float() * base**-exponents
    return turned


class Sinusoid(nn.Module):
    """The sines and cosines of "Attention is all you need", sine first, added."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.length: int | None = None
        self.width, self.base = width, base

    def enter(
        self, inputs: Float[Tensor, "B T J"], positions: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B T J"]:
        turned = angles(positions, self.width, self.base)
        waves = torch.stack((turned.sin(), turned.cos()), dim=-1).flatten(start_dim=-2)
        return inputs + waves[..., : self.width].to(inputs.dtype)

    def rotation(self, positions: Int[Tensor, "#B T"]) -> Rotation | None:
        return None


class Rotary(nn.Module):
    """Queries and keys turned by their positions, so that scores know only distances."""

    def __init__(self, key_width: int, base: float) -> None:
        super().__init__()
        self.length: int | None = None
        self.key_width, self.base = key_width, base

    def enter(
        self, inputs: Float[Tensor, "B T J"], positions: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B T J"]:
        return inputs

    def rotation(self, positions: Int[Tensor, "#B T"]) -> Rotation | None:
        turned = angles(positions, self.key_width, self.base).repeat(1, 1, 2)[:, None]
        return Rotation(turned.cos(), turned.sin())


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPositionConfig:
    """No position at all."""

    kind: Literal["none"] = "none"

    def build(self, width: int, key_width: int, length: int) -> Nowhere:
        return Nowhere()


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig:
    """A free vector for each of the model's positions."""

    kind: Literal["learned"] = "learned"

    def build(self, width: int, key_width: int, length: int) -> Learned:
        return Learned(width, length)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinusoidConfig:
    """Fixed sines and cosines of falling frequency."""

    kind: Literal["sinusoid"] = "sinusoid"
    base: float = bounded(10000.0, above=1.0)

    def build(self, width: int, key_width: int, length: int) -> Sinusoid:
        return Sinusoid(width, self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class RotaryConfig:
    """Rotation inside every head; needs queries and keys, so not with `synthesizer`."""

    kind: Literal["rotary"] = "rotary"
    base: float = bounded(10000.0, above=1.0)

    def build(self, width: int, key_width: int, length: int) -> Rotary:
        return Rotary(key_width, self.base)


PositionConfig = NoPositionConfig | LearnedConfig | SinusoidConfig | RotaryConfig
