"""SpecAugment: stretches of time and bands of pitch are hidden, so that a model leans on none.

    warp        a point in time moves by up to `warp` frames; what is before and behind it is
                stretched or squeezed, and the utterance is as long as before
    frequency   some neighboring bands become their mean over the utterance
    time        in some neighboring frames, every band does

A mean is 0 where utterances are normalized. At least one frame and one band are left as they were,
and padding is never touched. Speed is changed before frames are made: see `augment/speed.py`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecAugmentConfig:
    """How many masks, and how wide each may be: any width from 0 on is as likely; 0 masks: none."""

    time_masks: int = bounded(2, at_least=0, at_most=1000)
    time_width: int = bounded(40, at_least=0)  # frames
    time_ratio: float = bounded(0.2, at_least=0.0, at_most=1.0)  # of the utterance, at most
    frequency_masks: int = bounded(2, at_least=0, at_most=1000)
    frequency_width: int = bounded(20, at_least=0)  # bands
    time_warp: int = bounded(0, at_least=0)  # frames


def augment(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: SpecAugmentConfig,
    random: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Other masks for every utterance; the same generator draws the same ones."""
    lengths = present.sum(dim=1).cpu().numpy()
    if config.time_warp:
        frames = warped(frames, lengths, config.time_warp, random)
    if not config.time_masks and not config.frequency_masks:
        return frames
    bands = np.full(len(frames), frames.shape[2])
    band_widths = np.minimum(bands, config.frequency_width)
    frame_widths = np.minimum(config.time_width, config.time_ratio * lengths).astype(np.int64)
    hidden_bands = spans(bands, band_widths, config.frequency_masks, frames.shape[2], random)
    hidden_frames = spans(lengths, frame_widths, config.time_masks, frames.shape[1], random)
    hidden = torch.from_numpy(hidden_frames[:, :, None] | hidden_bands[:, None, :])
    there = present[:, :, None]
    counts = present.sum(dim=1).clamp(min=1)[:, None, None]
    mean = frames.masked_fill(~there, 0.0).sum(dim=1, keepdim=True) / counts
    return torch.where(hidden.to(frames.device) & there, mean, frames)


def spans(
    sizes: Integer[np.ndarray, "B"],
    widths: Integer[np.ndarray, "B"],
    count: int,
    places: int,
    random: np.random.Generator,
) -> Bool[np.ndarray, "B places"]:
    """`count` spans in each row, in its first `size` places and up to `width` long; never all."""
    drawn = random.integers(0, widths[:, None] + 1, size=(len(sizes), count))
    # The last place that would be hidden is not: spans behind it are cut short.
    room = np.maximum(sizes - 1, 0)[:, None]
    drawn = np.diff(np.minimum(np.cumsum(drawn, axis=1), room), axis=1, prepend=0)
    starts = random.integers(0, sizes[:, None] - drawn + 1)[:, :, None]
    place = np.arange(places)
    hidden: np.ndarray = ((starts <= place) & (place < starts + drawn[:, :, None])).any(axis=1)
    return hidden


def warped(
    frames: Float[Tensor, "B T F"],
    lengths: Integer[np.ndarray, "B"],
    most: int,
    random: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """A frame of each utterance moves by up to `most` places and draws those around it along."""
    last = np.maximum(lengths - 1, 0)
    # Neither end is reached, and an utterance too short for that stays as it is.
    reach = np.clip(last // 2 - 1, 0, most)
    moved = random.integers(reach + 1, np.maximum(last - reach, reach + 2))
    place = moved + random.integers(-reach, reach + 1)
    at = np.arange(frames.shape[1])
    source = np.array(
        [
            np.interp(at, (0, min(to, end), end), (0, min(of, end), end))
            for of, to, end in zip(moved, place, last, strict=True)
        ]
    )
    return resampled(frames, np.where(at <= last[:, None], source, at))


def resampled(
    frames: Float[Tensor, "B T F"], source: Float[np.ndarray, "B T"]
) -> Float[Tensor, "B T F"]:
    """Frames at places between frames, on the line between the two."""
    left = torch.from_numpy(source.astype(np.int64)).to(frames.device)
    share = torch.from_numpy(source % 1).to(frames)

    def picked(places: Tensor) -> Tensor:
        return frames.gather(1, places[:, :, None].expand_as(frames))

    right = (left + 1).clamp(max=frames.shape[1] - 1)
    return torch.lerp(picked(left), picked(right), share[:, :, None])
