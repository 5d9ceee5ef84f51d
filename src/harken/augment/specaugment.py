"""Augment log-mel features: SpecAugment (Park et al., 2019), and a random equalizer.

    warp        a point in time moves by up to `time_warp` frames; the length stays
    frequency   neighboring bands are replaced by their means over the utterance
    time        all bands of neighboring frames are replaced by their means
    equalizer   frames[t, f] + strength * sum_{n = 0..waves} z_n cos(pi n (f + 1/2) / F)

At least one frame and one band are not masked, and padding is never changed. The equalizer draws
z_n ~ N(0, 1) per utterance: a smooth frequency response, as of another microphone or voice, where
n = 0 changes the loudness and n = 1 the tilt. Normalization by `mean` removes it again.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecAugmentConfig:
    """Numbers and widths of masks; the width of a mask is uniform between 0 and its maximum."""

    time_masks: int = bounded(2, at_least=0, at_most=1000)  # number of time masks per utterance
    time_width: int = bounded(40, at_least=0)  # maximum width of a time mask in frames
    # maximum width of a time mask as a fraction of the utterance
    time_ratio: float = bounded(0.2, at_least=0.0, at_most=1.0)
    # number of frequency masks per utterance
    frequency_masks: int = bounded(2, at_least=0, at_most=1000)
    frequency_width: int = bounded(20, at_least=0)  # maximum width of a frequency mask in bands
    time_warp: int = bounded(0, at_least=0)  # maximum shift of the warped point in frames


def augment(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: SpecAugmentConfig,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Warp and mask each utterance."""
    lengths = present.sum(dim=1).cpu().numpy()
    if config.time_warp:
        frames = warp_time(frames, lengths, config.time_warp, rng)
    if not config.time_masks and not config.frequency_masks:
        return frames
    bands = np.full(len(frames), frames.shape[2])
    band_widths = np.minimum(bands, config.frequency_width)
    frame_widths = np.minimum(config.time_width, config.time_ratio * lengths).astype(np.int64)
    band_mask = random_spans(bands, band_widths, config.frequency_masks, frames.shape[2], rng)
    frame_mask = random_spans(lengths, frame_widths, config.time_masks, frames.shape[1], rng)
    masked = torch.from_numpy(frame_mask[:, :, None] | band_mask[:, None, :]).to(frames.device)
    is_frame = present[:, :, None]
    counts = present.sum(dim=1).clamp(min=1)[:, None, None]
    mean = frames.masked_fill(~is_frame, 0.0).sum(dim=1, keepdim=True) / counts
    return torch.where(masked & is_frame, mean, frames)


def random_spans(
    sizes: Integer[np.ndarray, "B"],
    widths: Integer[np.ndarray, "B"],
    count: int,
    positions: int,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "B positions"]:
    """Mask random spans of the first `size` positions of each row, but never all of them."""
    drawn = rng.integers(0, widths[:, None] + 1, size=(len(sizes), count))
    # At most size - 1 positions in total: later spans are shortened.
    limit = np.maximum(sizes - 1, 0)[:, None]
    drawn = np.diff(np.minimum(np.cumsum(drawn, axis=1), limit), axis=1, prepend=0)
    starts = rng.integers(0, sizes[:, None] - drawn + 1)[:, :, None]
    position = np.arange(positions)
    inside = (starts <= position) & (position < starts + drawn[:, :, None])
    masked: np.ndarray = inside.any(axis=1)
    return masked


def warp_time(
    frames: Float[Tensor, "B T F"],
    lengths: Integer[np.ndarray, "B"],
    max_shift: int,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Move a frame of each utterance by up to `max_shift` frames, and interpolate around it."""
    last = np.maximum(lengths - 1, 0)
    # The ends stay, and an utterance that is too short is not changed.
    max_shifts = np.clip(last // 2 - 1, 0, max_shift)
    origins = rng.integers(max_shifts + 1, np.maximum(last - max_shifts, max_shifts + 2))
    targets = origins + rng.integers(-max_shifts, max_shifts + 1)
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
    before, after = (frames.gather(1, at[:, :, None].expand_as(frames)) for at in (left, right))
    return torch.lerp(before, after, fraction)


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomEqualizerConfig:
    """Random smooth changes of the spectrum."""

    # standard deviation of each cosine, in the unit of the features; 0 disables the equalizer
    strength: float = bounded(0.0, at_least=0.0, at_most=1000.0)
    waves: int = bounded(4, at_least=0, at_most=1000)  # number of cosines after the constant


def equalize(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: RandomEqualizerConfig,
    rng: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Add a random curve over the bands to each utterance; padding stays as it is."""
    if not config.strength:
        return frames
    positions = (np.arange(frames.shape[2]) + 0.5) / frames.shape[2]
    waves = np.cos(np.pi * np.arange(config.waves + 1)[:, None] * positions)
    drawn = rng.normal(scale=config.strength, size=(len(frames), len(waves)))
    curves = torch.from_numpy(drawn @ waves).to(frames)
    return torch.where(present[:, :, None], frames + curves[:, None, :], frames)
