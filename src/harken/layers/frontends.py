"""Frontends: frames of speech or pixels of images -> tokens B T J.

    conv2d        two 3x3 convolutions over time and frequency of speech, then a projection to J
    conv1d        two convolutions of width 3 over time of speech, as in Whisper
    patch         a projection of each square patch
    convolution   convolutions of stride 2 from an image to a feature map M[x,y,K], then `features`
    features      a projection W M[x,y] + b of each position of a feature map M[x,y,K]

A stride of 2 reduces a length n to ⌈n / 2⌉. The center of a token in the input is
`offset + stride * index`, in frames or pixels. Tokens of an image are in row-major order; their
coordinates are (x, y), the column and row.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import MAX_KERNEL, bounded
from harken.errors import UserError
from harken.layers.convolution import Present, Tokens, mask_padding


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenGrid:
    """Tokens and their coordinates; `present` is None if there are no padding tokens."""

    tokens: Tokens
    coordinates: Int[Tensor, "#B T axes"]
    present: Present | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conv2dSubsamplingConfig:
    """Two strided convolutions over time and frequency."""

    kind: Literal["conv2d"] = "conv2d"
    min_frames: ClassVar[int] = 0  # a short sound is not extended
    channels: int = bounded(64, at_least=1)  # output channels of each convolution
    subsampling: Literal[2, 4] = 4  # frames per encoder position

    def build(self, features: int, width: int) -> "Conv2dSubsampling":
        return Conv2dSubsampling(self, features, width)


class Conv2dSubsampling(nn.Module):
    """Frames of speech -> tokens. Padding is on the right and does not affect the other tokens."""

    def __init__(self, config: Conv2dSubsamplingConfig, features: int, width: int) -> None:
        super().__init__()
        self.strides = 2, config.subsampling // 2  # along time; along frequency, both are 2
        self.stride, self.offset = config.subsampling, 0
        channels, bands = config.channels, halve(halve(features))
        self.first = nn.Conv2d(1, channels, 3, stride=(self.strides[0], 2), padding=1)
        self.second = nn.Conv2d(channels, channels, 3, stride=(self.strides[1], 2), padding=1)
        self.proj = nn.Linear(channels * bands, width)

    def forward(self, frames: Float[Tensor, "B T F"], present: Present | None = None) -> TokenGrid:
        planes = mask_padding(frames, present)[:, None]
        for convolution, stride in zip((self.first, self.second), self.strides, strict=True):
            planes = F.relu(convolution(planes))
            if present is not None:
                present = present[:, ::stride]
                planes = planes.masked_fill(~present[:, None, :, None], 0.0)
        tokens: Tensor = self.proj(rearrange(planes, "B channels T F -> B T (channels F)"))
        indices = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
        return TokenGrid(tokens=mask_padding(tokens, present), coordinates=indices, present=present)


@dataclass(frozen=True, kw_only=True, slots=True)
class Conv1dSubsamplingConfig:
    """Two convolutions over time, as in Whisper."""

    kind: Literal["conv1d"] = "conv1d"
    subsampling: Literal[2, 4] = 2  # frames per encoder position
    # a shorter sound is extended with silence to this number of frames; Whisper: 3000, or 30 s
    min_frames: int = bounded(0, at_least=0)

    def build(self, features: int, width: int) -> "Conv1dSubsampling":
        return Conv1dSubsampling(self, features, width)


class Conv1dSubsampling(nn.Module):
    """Frames of speech -> tokens. Padding is on the right and does not affect the other tokens."""

    def __init__(self, config: Conv1dSubsamplingConfig, features: int, width: int) -> None:
        super().__init__()
        self.min_frames = config.min_frames
        self.strides = config.subsampling // 2, 2
        self.stride, self.offset = config.subsampling, 0
        self.first = nn.Conv1d(features, width, 3, stride=self.strides[0], padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=self.strides[1], padding=1)

    def forward(self, frames: Float[Tensor, "B T F"], present: Present | None = None) -> TokenGrid:
        if present is None:
            present = frames.new_ones(frames.shape[:2], dtype=torch.bool)
        frames, present = extend_with_silence(frames, present, self.min_frames)
        states = frames.transpose(1, 2)
        for convolution, stride in zip((self.first, self.second), self.strides, strict=True):
            present = present[:, ::stride]
            states = F.gelu(convolution(states)).masked_fill(~present[:, None], 0.0)
        indices = torch.arange(states.shape[2], device=states.device)[None, :, None]
        return TokenGrid(tokens=states.transpose(1, 2), coordinates=indices, present=present)


def extend_with_silence(
    frames: Float[Tensor, "B T F"], present: Present, min_frames: int
) -> tuple[Float[Tensor, "B extended F"], Bool[Tensor, "B extended"]]:
    """Extend each sound to `min_frames` with its smallest value; other padding is set to 0."""
    added = max(0, min_frames - frames.shape[1])
    silence = frames.masked_fill(~present[..., None], torch.inf).amin(dim=(1, 2))[:, None]
    is_frame = F.pad(present, (0, added))
    indices = torch.arange(is_frame.shape[1], device=frames.device)
    extended = is_frame | (indices < min_frames)
    padding = torch.where(extended, silence, 0.0)[..., None]
    return torch.where(is_frame[..., None], F.pad(frames, (0, 0, 0, added)), padding), extended


SpeechFrontendConfig = Conv2dSubsamplingConfig | Conv1dSubsamplingConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSizes:
    """The size of the largest image or feature map."""

    channels: int  # K
    columns: int  # X
    rows: int  # Y


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchEmbeddingConfig:
    """Square patches, as in the Vision Transformer."""

    kind: Literal["patch"] = "patch"
    patch: int = bounded(8, at_least=1)  # side of a patch, in pixels

    def build(self, sizes: ImageSizes, width: int) -> "PatchEmbedding":
        return PatchEmbedding(self, sizes, width)


class PatchEmbedding(nn.Module):
    """Images B K Y X -> a token per patch."""

    def __init__(self, config: PatchEmbeddingConfig, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.patch = self.stride = config.patch
        self.offset = (self.patch - 1) / 2
        check_patches(sizes.columns, sizes.rows, self.patch)
        self.columns, self.rows = sizes.columns // self.patch, sizes.rows // self.patch
        self.proj = nn.Linear(sizes.channels * self.patch**2, width)

    def forward(self, images: Float[Tensor, "B K Y X"]) -> TokenGrid:
        check_patches(images.shape[3], images.shape[2], self.patch)
        axes = "B K (rows height) (columns width) -> B rows columns (K height width)"
        patches = rearrange(images, axes, height=self.patch, width=self.patch)
        tokens: Tensor = self.proj(patches.flatten(1, 2))
        rows, columns = patches.shape[1:3]
        return TokenGrid(tokens=tokens, coordinates=grid_coordinates(columns, rows, tokens.device))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvStemConfig:
    """A small CNN; each layer halves the image."""

    kind: Literal["convolution"] = "convolution"
    channels: tuple[int, ...] = bounded((32, 64, 128), at_least=1)  # channels of each layer
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)  # side of the kernel in pixels, odd

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("channels: expected at least one layer, got none")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel: expected an odd number, got {self.kernel}")

    def build(self, sizes: ImageSizes, width: int) -> "ConvStem":
        return ConvStem(self, sizes, width)


class ConvStem(nn.Module):
    """Images B K Y X -> a feature map M[x,y,K] -> a token per position."""

    def __init__(self, config: ConvStemConfig, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        kernel, padding = config.kernel, config.kernel // 2
        for channels in config.channels:
            self.convolutions.append(
                nn.Conv2d(sizes.channels, channels, kernel, stride=2, padding=padding)
            )
            columns, rows = halve(sizes.columns), halve(sizes.rows)
            sizes = ImageSizes(channels=channels, columns=columns, rows=rows)
        self.columns, self.rows = sizes.columns, sizes.rows
        self.stride, self.offset = 1 << len(config.channels), 0
        self.places = FeatureProjection(sizes, width)

    def forward(self, images: Float[Tensor, "B K Y X"]) -> TokenGrid:
        planes: Tensor = images
        for convolution in self.convolutions:
            planes = F.relu(convolution(planes))
        tokens: TokenGrid = self.places(rearrange(planes, "B K Y X -> B X Y K"))
        return tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureProjectionConfig:
    """Precomputed feature maps of another network."""

    kind: Literal["features"] = "features"

    def build(self, sizes: ImageSizes, width: int) -> "FeatureProjection":
        return FeatureProjection(sizes, width)


class FeatureProjection(nn.Module):
    """Feature maps B X Y K -> a token per position."""

    stride, offset = 1, 0

    def __init__(self, sizes: ImageSizes, width: int) -> None:
        super().__init__()
        self.columns, self.rows = sizes.columns, sizes.rows
        self.proj = nn.Linear(sizes.channels, width)

    def forward(self, maps: Float[Tensor, "B X Y K"]) -> TokenGrid:
        tokens: Tensor = self.proj(as_tokens(maps))
        coordinates = grid_coordinates(maps.shape[1], maps.shape[2], tokens.device)
        return TokenGrid(tokens=tokens, coordinates=coordinates)


ImageFrontendConfig = PatchEmbeddingConfig | ConvStemConfig | FeatureProjectionConfig


def halve(length: int) -> int:
    """Return the length after a convolution of stride 2 with a centered kernel."""
    return (length + 1) // 2


def grid_coordinates(columns: int, rows: int, device: torch.device) -> Int[Tensor, "1 T 2"]:
    """Return (x, y) of every token in row-major order."""
    indices = torch.arange(columns * rows, device=device)
    return torch.stack((indices % columns, indices // columns), dim=-1)[None]


def as_tokens(maps: Float[Tensor, "B X Y K"]) -> Float[Tensor, "B T K"]:
    """Flatten a feature map in row-major order, as in `grid_coordinates`."""
    return rearrange(maps, "B X Y K -> B (Y X) K")


def as_map(tokens: Float[Tensor, "B T K"], columns: int) -> Float[Tensor, "B X Y K"]:
    """Undo `as_tokens`."""
    return rearrange(tokens, "B (Y X) K -> B X Y K", X=columns)


def check_patches(columns: int, rows: int, patch: int) -> None:
    """Raise a UserError unless the sides of an image are multiples of the patch."""
    if columns % patch or rows % patch:
        raise UserError(
            f"patch: expected a divisor of {columns} and {rows} (size of an image), got {patch}",
            fix="change the patch, or resize the images",
        )
