"""Augment log-mel features: SpecAugment (Park et al., 2019), and a random equalizer.

    time warp        a frame moves by up to `time_warp` frames; the number of frames is unchanged
    frequency mask   consecutive bands are set to their means over the utterance
    time mask        in consecutive frames, every band is set to its mean over the utterance
    equalizer        frames[t, f] + strength * sum_{n = 0..cosines} z_n cos(pi n (f + 1/2) / F)

At least one frame and one band are not masked, and padding is never changed. The equalizer draws
z_n ~ N(0, 1) per utterance and simulates the frequency response of another microphone or voice:
n = 0 changes the level, n = 1 the spectral tilt. The equalizer is not needed if each band is
normalized to mean 0, which removes the frequency response.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecAugmentConfig:
    """Masks and time warping; the width of a mask is uniform between 0 and its maximum.

    A time mask is at most as wide as the smaller of `time_width` and `time_ratio` times the length.
    """

    time_masks: int = bounded(2, at_least=0, at_most=1000)  # number of time masks per utterance
    time_width: int = bounded(40, at_least=0)  # maximum width of a time mask in frames
    # also a maximum width of a time mask, as a fraction of the utterance; the smaller one applies
    time_ratio: float = bounded(0.2, at_least=0.0, at_most=1.0)
    # number of frequency masks per utterance
    frequency_masks: int = bounded(2, at_least=0, at_most=1000)
    frequency_width: int = bounded(20, at_least=0)  # maximum width of a frequency mask in bands
    time_warp: int = bounded(0, at_least=0)  # maximum shift of the warped point in frames


def spec_augment(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: SpecAugmentConfig,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Warp and mask each utterance."""
    lengths = present.sum(dim=1).cpu().numpy()
    if config.time_warp:
        frames = time_warp(frames, lengths, config.time_warp, rng)
    if not config.time_masks and not config.frequency_masks:
        return frames
    bands = np.full(len(frames), frames.shape[2])
    band_widths = np.minimum(bands, config.frequency_width)
    frame_widths = np.minimum(config.time_width, config.time_ratio * lengths).astype(np.int64)
    band_mask = draw_span_mask(bands, band_widths, config.frequency_masks, frames.shape[2], rng)
    frame_mask = draw_span_mask(lengths, frame_widths, config.time_masks, frames.shape[1], rng)
    masked = torch.from_numpy(frame_mask[:, :, None] | band_mask[:, None, :]).to(frames.device)
    is_frame = present[:, :, None]
    counts = present.sum(dim=1).clamp(min=1)[:, None, None]
    mean = frames.masked_fill(~is_frame, 0.0).sum(dim=1, keepdim=True) / counts
    return torch.where(masked & is_frame, mean, frames)


def draw_span_mask(
    sizes: Integer[np.ndarray, "B"],
    max_widths: Integer[np.ndarray, "B"],
    count: int,
    positions: int,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "B positions"]:
    """Return a mask with `count` random spans among the first `sizes[b]` positions of row b."""
    widths = rng.integers(0, max_widths[:, None] + 1, size=(len(sizes), count))
    # Shorten later spans, so that at least one position is not masked.
    limit = np.maximum(sizes - 1, 0)[:, None]
    widths = np.diff(np.minimum(np.cumsum(widths, axis=1), limit), axis=1, prepend=0)
    starts = rng.integers(0, sizes[:, None] - widths + 1)[:, :, None]
    position = np.arange(positions)
    inside = (starts <= position) & (position < starts + widths[:, :, None])
    masked: np.ndarray = inside.any(axis=1)
    return masked


def time_warp(
    frames: Float[Tensor, "B T F"],
    lengths: Integer[np.ndarray, "B"],
    max_shift: int,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Move one frame of each utterance by up to `max_shift` frames and interpolate the others."""
    last = np.maximum(lengths - 1, 0)
    # The first and last frame do not move. Utterances of fewer than 5 frames are not changed.
    limit = np.clip(last // 2 - 1, 0, max_shift)
    origins = rng.integers(limit + 1, np.maximum(last - limit, limit + 2))
    targets = origins + rng.integers(-limit, limit + 1)
    index = np.arange(frames.shape[1])
    source = np.array(
        [
            np.interp(index, (0, min(target, end), end), (0, min(origin, end), end))
            for origin, target, end in zip(origins, targets, last, strict=True)
        ]
    )
    source = np.where(index <= last[:, None], source, index)
    left = torch.from_numpy(source.astype(np.int64)).to(frames.device)
    right = (left + 1).clamp(max=frames.shape[1] - 1)
    fraction = torch.from_numpy(source % 1).to(frames)[:, :, None]
    before, after = (
        frames.gather(1, indices[:, :, None].expand_as(frames)) for indices in (left, right)
    )
    return torch.lerp(before, after, fraction)


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomEqualizerConfig:
    """Random smooth changes of the spectrum."""

    # standard deviation of the amplitudes, in the unit of the features; 0 disables the equalizer
    strength: float = bounded(0.0, at_least=0.0, at_most=1000.0)
    # number of cosines over the bands, added with random amplitudes to a random constant
    cosines: int = bounded(4, at_least=0, at_most=1000)


def equalize(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: RandomEqualizerConfig,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Add a random smooth curve over the bands to each utterance."""
    if not config.strength:
        return frames
    positions = (np.arange(frames.shape[2]) + 0.5) / frames.shape[2]
    cosines = np.cos(np.pi * np.arange(config.cosines + 1)[:, None] * positions)
    amplitudes = rng.normal(scale=config.strength, size=(len(frames), len(cosines)))
    curves = torch.from_numpy(amplitudes @ cosines).to(frames)
    return torch.where(present[:, :, None], frames + curves[:, None, :], frames)
