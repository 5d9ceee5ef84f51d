"""Front ends: frames of speech or pixels of pictures -> tokens B T J.

    speech        two 3x3 convolutions over time and frequency, with strides: 4 or 2 times fewer
                  frames, then a matrix from channels and frequencies to J
    patch         square patches, each a token: W (pixels of the patch) + b
    convolution   convolutions of stride 2 from a picture to a feature map M[x,y,K], then as `map`
    map           a given feature map M[x,y,K], each place a token: W M[x,y] + b

Convolutions are centered, with zeros beyond the edges and at padding, so each stride of 2 turns
a length n into ⌈n / 2⌉. The center of a token in the input is `offset + stride * place`, in frames
or in pixels along both axes. Coordinates of a picture's token are (x, y), the column and row of its
place; tokens are in row-major order.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import MAX_KERNEL, bounded
from harken.errors import UserError
from harken.layers.convolution import mask_padding


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenGrid:
    """Tokens, their coordinates, and which are not padding (None: all)."""

    tokens: Float[Tensor, "B T J"]
    coordinates: Int[Tensor, "#B T axes"]
    present: Bool[Tensor, "B T"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conv2dSubsamplingConfig:
    """Two strided convolutions."""

    channels: int = bounded(64, at_least=1)
    subsampling: Literal[2, 4] = 4  # frames per token

    def build(self, features: int, width: int) -> "Conv2dSubsampling":
        return Conv2dSubsampling(self, features, width)


class Conv2dSubsampling(nn.Module):
    """Frames of a filterbank -> tokens; padding is on the right and changes nothing."""

    def __init__(self, config: Conv2dSubsamplingConfig, features: int, width: int) -> None:
        super().__init__()
        self.strides = 2, config.subsampling // 2  # along time; along frequency always 2
        self.stride, self.offset = config.subsampling, 0
        channels, left = config.channels, halved(halved(features))
        self.first = nn.Conv2d(1, channels, 3, stride=(self.strides[0], 2), padding=1)
        self.second = nn.Conv2d(channels, channels, 3, stride=(self.strides[1], 2), padding=1)
        self.proj = nn.Linear(channels * left, width)

    def forward(
        self, frames: Float[Tensor, "B T F"], present: Bool[Tensor, "B T"] | None = None
    ) -> TokenGrid:
        planes = mask_padding(frames, present)[:, None]
        for convolution, stride in zip((self.first, self.second), self.strides, strict=True):
            planes = F.relu(convolution(planes))
            if present is not None:
                present = present[:, ::stride]
                planes = planes.masked_fill(~present[:, None, :, None], 0.0)
        tokens: Tensor = self.proj(rearrange(planes, "B channels T F -> B T (channels F)"))
        places = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
        return TokenGrid(tokens=mask_padding(tokens, present), coordinates=places, present=present)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSizes:
    """The largest picture or feature map."""

    channels: int  # K
    columns: int  # X
    rows: int  # Y


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchEmbeddingConfig:
    """Patches of `patch` x `patch` pixels, as in the Vision Transformer."""

    kind: Literal["patch"] = "patch"
    patch: int = bounded(8, at_least=1)

    def build(self, sizes: ImageSizes, width: int) -> "PatchEmbedding":
        return PatchEmbedding(self, sizes, width)


class PatchEmbedding(nn.Module):
    """Pictures B K Y X -> a token for each patch."""

    def __init__(self, config: PatchEmbeddingConfig, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.patch = self.stride = config.patch
        self.offset = (self.patch - 1) / 2
        whole_squares(sizes.columns, sizes.rows, self.patch)
        self.columns, self.rows = sizes.columns // self.patch, sizes.rows // self.patch
        self.proj = nn.Linear(sizes.channels * self.patch**2, width)

    def forward(self, images: Float[Tensor, "B K Y X"]) -> TokenGrid:
        whole_squares(images.shape[3], images.shape[2], self.patch)
        squares = rearrange(
            images,
            "B K (rows high) (columns wide) -> B rows columns (K high wide)",
            high=self.patch,
            wide=self.patch,
        )
        tokens: Tensor = self.proj(squares.flatten(1, 2))
        rows, columns = squares.shape[1:3]
        return TokenGrid(tokens=tokens, coordinates=grid(columns, rows, tokens.device))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvStemConfig:
    """A small CNN; each of its layers halves the picture."""

    kind: Literal["convolution"] = "convolution"
    channels: tuple[int, ...] = bounded((32, 64, 128), at_least=1)  # of each layer; the last is K
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)  # pixels either way, an odd number

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("channels is empty; name the channels of one layer at least")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; make it odd")

    def build(self, sizes: ImageSizes, width: int) -> "ConvStem":
        return ConvStem(self, sizes, width)


class ConvStem(nn.Module):
    """Pictures B K Y X -> a map M[x,y,K] -> a token for each of its places."""

    def __init__(self, config: ConvStemConfig, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        read, columns, rows = sizes.channels, sizes.columns, sizes.rows
        for written in config.channels:
            self.convolutions.append(
                nn.Conv2d(read, written, config.kernel, stride=2, padding=config.kernel // 2)
            )
            read, columns, rows = written, halved(columns), halved(rows)
        self.columns, self.rows = columns, rows
        self.stride, self.offset = 1 << len(config.channels), 0
        sizes = ImageSizes(channels=read, columns=columns, rows=rows)
        self.places = FeatureProjection(sizes, width)

    def features(
        self, images: Float[Tensor, "B channels rows columns"]
    ) -> Float[Tensor, "B X Y K"]:
        """Return the feature map, before the projection."""
        for convolution in self.convolutions:
            images = F.relu(convolution(images))
        return rearrange(images, "B K Y X -> B X Y K")

    def forward(self, images: Float[Tensor, "B K Y X"]) -> TokenGrid:
        tokens: TokenGrid = self.places(self.features(images))
        return tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureProjectionConfig:
    """Feature maps of another network."""

    kind: Literal["features"] = "features"

    def build(self, sizes: ImageSizes, width: int) -> "FeatureProjection":
        return FeatureProjection(sizes, width)


class FeatureProjection(nn.Module):
    """Feature maps B X Y K -> a token for each place."""

    stride, offset = 1, 0

    def __init__(self, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.columns, self.rows = sizes.columns, sizes.rows
        self.proj = nn.Linear(sizes.channels, width)

    def forward(self, maps: Float[Tensor, "B X Y K"]) -> TokenGrid:
        tokens: Tensor = self.proj(as_tokens(maps))
        places = grid(maps.shape[1], maps.shape[2], tokens.device)
        return TokenGrid(tokens=tokens, coordinates=places)


ImageFrontConfig = PatchEmbeddingConfig | ConvStemConfig | FeatureProjectionConfig


def halved(length: int) -> int:
    """Return the length after a centered kernel of stride 2."""
    return (length + 1) // 2


def grid(columns: int, rows: int, device: torch.device) -> Int[Tensor, "1 T 2"]:
    """Return (x, y) of every place: place t is at (t mod columns, t div columns)."""
    places = torch.arange(columns * rows, device=device)
    return torch.stack((places % columns, places // columns), dim=-1)[None]


def as_tokens(maps: Float[Tensor, "B X Y K"]) -> Float[Tensor, "B T K"]:
    """Flatten the places in row-major order, as `grid` does."""
    return rearrange(maps, "B X Y K -> B (Y X) K")


def as_map(tokens: Float[Tensor, "B T K"], columns: int) -> Float[Tensor, "B X Y K"]:
    """Undo `as_tokens`."""
    return rearrange(tokens, "B (Y X) K -> B X Y K", X=columns)


def whole_squares(columns: int, rows: int, patch: int) -> None:
    """Raise unless the patches cover the picture."""
    if columns % patch or rows % patch:
        raise UserError(
            f"a picture of {columns} x {rows} pixels does not divide into squares of {patch}",
            fix="choose a patch that divides both, or resize the pictures",
        )
