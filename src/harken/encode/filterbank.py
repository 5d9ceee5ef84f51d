"""Log-mel filterbank features, equal to those of Kaldi (`kaldi-native-fbank` without dither).

frame       a window of samples s every hop: s_n - mean(s) (optional), then
            s_n - preemphasis * s_{n-1}, with s_{-1} = s_0
spectrum    P_f = |FFT(w * frame)_f|^2, with the window function w, padded to a power of two
band        log max(floor, sum_f M_{f,band} P_f), where the columns of M are triangles of equal
            width on the mel scale, mel(f) = 1127 ln(1 + f / 700)
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.config import bounded

CHUNK = 1 << 18  # samples per thread at a time, so that frames and spectra fit into the cache
BANDS_PER_BLOCK = 32  # few, so that a block skips most of the spectrum, where its weights are 0
MAX_SIGNALS = 16  # in memory at once
MIN_DEVIATION = 1e-3  # smallest standard deviation to divide by
# normalize = "level": 1 + max(log energy - level, -LEVEL_RANGE) / LEVEL_SCALE
LEVEL_RANGE = 9.0  # natural logarithm of the energy: 39 dB
LEVEL_SCALE = 3.0  # gives features a magnitude of about 1

Normalization = Literal["none", "level", "mean", "mean_and_variance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterbankConfig:
    """Frames and mel bands. Use about 40 bands for recordings of 8000 samples per second."""

    kind: Literal["kaldi"] = "kaldi"
    sample_rate: int = bounded(16000, at_least=1, at_most=768_000)  # samples per second
    mel_bins: int = bounded(80, at_least=1, at_most=1024)  # number of mel bands F
    window_ms: float = bounded(25.0, above=0.0, at_most=1000.0)  # length of a frame in milliseconds
    hop_ms: float = bounded(10.0, above=0.0, at_most=1000.0)  # time between frames in milliseconds
    window: Literal["povey", "hann", "hamming"] = "povey"  # shape of the window
    preemphasis: float = bounded(0.97, at_least=0.0, at_most=1.0)  # coefficient of pre-emphasis
    low_freq: float = bounded(20.0, at_least=0.0)  # lower edge of the first band in Hz
    # upper edge of the last band in Hz; by default half of sample_rate
    high_freq: float | None = bounded(None, above=0.0)
    remove_dc: bool = True  # subtract the mean of each frame
    floor: float = bounded(2.0**-23, above=0.0, at_most=1.0)  # minimum energy before the logarithm
    snip_edges: bool = True  # only frames inside the signal; if false, one per hop, edges mirrored
    # per utterance: "level" subtracts the log of the mean energy and limits lower values to 39 dB
    # below it, "mean" and "mean_and_variance" normalize each band
    normalize: Normalization = "none"

    def __post_init__(self) -> None:
        if self.window_samples < 2 or not 1 <= self.hop_samples <= self.window_samples:
            raise ValueError(
                f"window_ms and hop_ms: expected a window of at least 2 samples and a hop from "
                f"1 sample to the length of the window, got {self.window_ms:g} and {self.hop_ms:g} "
                f"({self.window_samples} and {self.hop_samples} samples)"
            )
        if not self.low_freq < self.max_freq <= self.sample_rate / 2:
            raise ValueError(
                f"high_freq: expected a frequency between low_freq ({self.low_freq:g} Hz) and half "
                f"of sample_rate ({self.sample_rate / 2:g} Hz), got {self.max_freq:g} Hz"
            )

    @property
    def window_samples(self) -> int:
        return int(self.sample_rate * self.window_ms / 1000)

    @property
    def hop_samples(self) -> int:
        return int(self.sample_rate * self.hop_ms / 1000)

    @property
    def max_freq(self) -> float:
        return self.sample_rate / 2 if self.high_freq is None else self.high_freq

    @property
    def first_sample(self) -> int:
        """Index of the first sample of the first frame, negative if edges are mirrored."""
        return 0 if self.snip_edges else self.hop_samples // 2 - self.window_samples // 2

    def seconds_of(self, frame: float) -> float:
        """Return the time of the middle of a frame, or of a position between two frames."""
        middle = self.first_sample + self.hop_samples * frame + self.window_samples / 2
        return middle / self.sample_rate

    def build(self) -> "Filterbank":
        return Filterbank(self)


class FeaturesConfig(Protocol):
    """What the configs of all features of sounds have."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def mel_bins(self) -> int: ...
    @property
    def hop_ms(self) -> float: ...

    def seconds_of(self, frame: float) -> float: ...

    def build(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return a function from padded signals and lengths to frames and their mask."""


class BandBlock(NamedTuple):
    """Some bands and the part of the power spectrum in which their weights are not 0."""

    bands: slice
    squares: slice  # columns re_0^2, im_0^2, re_1^2, …, whose pairs add up to the power spectrum
    weights: Float[Tensor, "squares bands"]


class Filterbank:
    """Compute the frames B T F of padded signals, and the mask that is false in padding."""

    def __init__(self, config: FilterbankConfig) -> None:
        self.config = config
        self._window_size, self._hop = config.window_samples, config.hop_samples
        self._fft_size = 1 << (self._window_size - 1).bit_length()
        self._window_function = window_function(config.window, self._window_size)
        self._bands = split_bands(mel_triangles(config, self._fft_size))

    def count_frames(self, lengths: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """Return the number of frames of signals with these numbers of samples."""
        if self.config.snip_edges:
            return ((lengths - self._window_size) // self._hop + 1).clamp(min=0)
        return (lengths + self._hop // 2) // self._hop

    @torch.no_grad()
    def __call__(
        self, signals: Float[Tensor, "B N"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        counts = self.count_frames(lengths)
        longest = int(counts.max()) if len(counts) else 0
        present = torch.arange(longest, device=signals.device) < counts[:, None]
        if not longest:
            return signals.new_zeros(*present.shape, self.config.mel_bins), present
        if not self.config.snip_edges:
            signals = self._mirror_edges(signals, lengths)
        frames = self._energies(signals, counts.tolist())
        return normalize_utterances(frames, present, self.config.normalize), present

    def _mirror_edges(
        self, signals: Float[Tensor, "B N"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B extended"]:
        """Extend each signal by its mirror image, as far as its first and last frames reach."""
        before, after = -self.config.first_sample, self._window_size - self._window_size // 2
        ends = lengths[:, None].clamp(min=1)
        # Negative offsets are from the start of a signal, others from its end.
        offsets = torch.arange(-before, after, device=signals.device)
        indices = torch.where(offsets < 0, offsets, ends + offsets)
        # Index -1 mirrors 0 and `end` mirrors end - 1, with a period of twice the signal.
        phase = indices % (2 * ends)
        mirrored = signals.gather(1, torch.minimum(phase, 2 * ends - 1 - phase))
        return F.pad(signals, (before, after)).scatter_(1, indices + before, mirrored)

    def _energies(self, signals: Float[Tensor, "B N"], counts: list[int]) -> Float[Tensor, "B T F"]:
        """Return the log energies of `counts` frames per signal, padded with zeros."""
        config, window, fft_size = self.config, self._window_size, self._fft_size
        taper = self._window_function.to(signals)
        bands = [block._replace(weights=block.weights.to(signals)) for block in self._bands]
        framed = signals.unfold(1, window, self._hop)
        energies = signals.new_empty(len(signals), max(counts), config.mel_bins)
        # All chunks use the same buffers. `previous` is a view: previous[n] is centered[n - 1].
        max_frames = max(1, CHUNK * torch.get_num_threads() // fft_size)
        samples = signals.new_empty(max_frames, window + 1)
        zeros = signals.new_zeros(max_frames, fft_size)
        sums = signals.new_empty(max_frames, config.mel_bins)

        @cache  # creating views takes as long as an operation, and most chunks have the same size
        def buffers(rows: int, times: int) -> tuple[Tensor, ...]:
            size = rows * times
            shifted, padded = samples[:size].view(rows, times, -1), zeros[:size]
            frame = padded.view(rows, times, -1)[..., :window]
            return shifted[..., 1:], shifted[..., :-1], frame, padded, sums[:size]

        for chunk in frame_chunks(counts, max_frames):
            raw, result = framed[chunk], energies[chunk]
            centered, previous, frame, padded, summed = buffers(*result.shape[:2])
            total = raw.sum(dim=2, keepdim=True) if config.remove_dc else 0.0
            torch.sub(raw, total, alpha=1 / window, out=centered)
            previous[..., 0] = centered[..., 0]
            torch.sub(centered, previous, alpha=config.preemphasis, out=frame)
            frame.mul_(taper)
            spectra = torch.view_as_real(torch.fft.rfft(padded))
            squares = spectra.flatten(start_dim=1).square_()
            for block in bands:
                torch.mm(squares[:, block.squares], block.weights, out=summed[:, block.bands])
            torch.log(summed.clamp_(min=config.floor).view(result.shape), out=result)
        for row, count in zip(energies, counts, strict=True):
            row[count:] = 0.0
        return energies


def frames_of(
    signals: Iterable[Float[np.ndarray, "samples"]], config: FeaturesConfig
) -> Iterator[Float[Tensor, "T F"]]:
    """Yield the frames of each signal; only a few signals are in memory at once."""
    filterbank, remaining = config.build(), iter(signals)
    while batch := list(islice(remaining, MAX_SIGNALS)):
        lengths = torch.tensor([len(signal) for signal in batch])
        padded = torch.zeros(len(batch), int(lengths.max()))
        for row, signal in zip(padded, batch, strict=True):
            row[: len(signal)] = torch.from_numpy(signal)
        for frames, present in zip(*filterbank(padded, lengths), strict=True):
            yield frames[present]


def frame_chunks(counts: list[int], max_frames: int) -> Iterator[tuple[slice, slice]]:
    """Yield (rows, frames) of at most `max_frames`: parts of a long row, or several short rows."""
    row = 0
    while row < len(counts):
        count, end = counts[row], row + 1
        while end < len(counts) and max(count, counts[end]) * (end + 1 - row) <= max_frames:
            count, end = max(count, counts[end]), end + 1
        parts = -(-count // max_frames)
        for part in range(parts):
            yield slice(row, end), slice(count * part // parts, count * (part + 1) // parts)
        row = end


def window_function(kind: str, samples: int) -> Float[Tensor, "samples"]:
    """Return a window with 0 at both ends (hamming: 0.08) and 1 in the middle."""
    phase = torch.arange(samples, dtype=torch.float64) * (2 * math.pi / (samples - 1))
    if kind == "hamming":
        return 0.54 - 0.46 * phase.cos()
    hann = 0.5 - 0.5 * phase.cos()
    return hann**0.85 if kind == "povey" else hann


def mel_triangles(config: FilterbankConfig, fft_size: int) -> Float[Tensor, "frequencies F"]:
    """Return the weight of each frequency in each band."""

    def mel(hertz: Tensor) -> Tensor:
        return 1127 * (hertz / 700).log1p()

    low, high = mel(torch.tensor([config.low_freq, config.max_freq], dtype=torch.float64)).tolist()
    corners = torch.linspace(low, high, config.mel_bins + 2, dtype=torch.float64)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    spacing = config.sample_rate / fft_size
    position = mel(torch.arange(fft_size // 2 + 1, dtype=torch.float64) * spacing)[:, None]
    rising, falling = (position - left) / (middle - left), (right - position) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0)


def split_bands(triangles: Float[Tensor, "frequencies F"]) -> list[BandBlock]:
    """Split the matrix into blocks of bands, without rows that are 0 in the whole block."""
    blocks = []
    for first in range(0, triangles.shape[1], BANDS_PER_BLOCK):
        block = triangles[:, first : first + BANDS_PER_BLOCK]
        used = block.any(dim=1).nonzero().flatten().tolist() or [0]  # a band may have no frequency
        weights = block[used[0] : used[-1] + 1].repeat_interleave(2, dim=0)
        squares = slice(2 * used[0], 2 * used[-1] + 2)
        blocks.append(BandBlock(slice(first, first + block.shape[1]), squares, weights))
    return blocks


def normalize_utterances(
    frames: Float[Tensor, "B T F"], present: Bool[Tensor, "B T"], mode: Normalization
) -> Float[Tensor, "B T F"]:
    """Normalize each utterance; padding stays 0.

    level: subtract the log of the mean energy of the utterance, and raise values more than 39 dB
        below it to this limit. This keeps the spectral envelope, which identifies short words.
    mean, mean_and_variance: each band has mean 0 (and variance 1). This removes the frequency
        response of the microphone, but in short utterances also the envelope of the vowels.
    """
    if mode == "none":
        return frames
    is_frame, counts = present[:, :, None], present.sum(dim=1).clamp(min=1)[:, None, None]
    if mode == "level":
        energy = frames.double().exp().masked_fill(~is_frame, 0.0).sum(dim=(1, 2), keepdim=True)
        level = (energy / (counts * frames.shape[2])).log().to(frames)
        return ((frames - level).clamp(min=-LEVEL_RANGE) / LEVEL_SCALE + 1).masked_fill(
            ~is_frame, 0.0
        )
    mean = frames.sum(dim=1, keepdim=True) / counts
    frames = (frames - mean).masked_fill(~is_frame, 0.0)
    if mode == "mean":
        return frames
    deviation = (frames.square().sum(dim=1, keepdim=True) / counts).sqrt()
    return frames / deviation.clamp(min=MIN_DEVIATION)
