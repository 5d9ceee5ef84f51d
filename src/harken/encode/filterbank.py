"""Sound -> numbers: how loud each band of pitch is, a hundred times a second; Kaldi's values.

    frame       samples of a window, a hop behind the last one's: s_n - mean(s), then
                s_n - emphasis * s_{n-1}, where the first sample stands for the one before it
    spectrum    P_f = |FFT(w * frame)_f|^2,  the frame filled up with zeros to a power of two
    band        log max(floor, sum_f M_{f,band} P_f),  M triangles of equal width on the scale
                mel(f) = 1127 ln(1 + f / 700)

The values are those of `kaldi-native-fbank` without dither: the same sound gives the same numbers.
Files are read and resampled in `formats/sound/`; masks over frames are in `augment/`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.config import bounded

CHUNK = 1 << 18  # samples of each core's frames at a time: they and their spectra stay in its cache
TOGETHER = 32  # bands of one product: few enough to leave out most of the spectrum, which is zeros
SOUNDS = 16  # sounds of a corpus in memory at once
STILL = 1e-3  # a band that moves by less is not made louder
DEEPEST = 9.0  # below the level, in logarithms of energy: 39 dB; what is softer is silence
STEP = 3.0  # of energy's logarithm, that `level` makes one: frames are then about as large as one

Normalization = Literal["none", "level", "mean", "mean_and_variance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterbankConfig:
    """Which frames and which bands; short recordings of 8000 samples a second want 40."""

    sample_rate: int = bounded(16000, at_least=1, at_most=768_000)  # samples a second
    mel_bins: int = bounded(80, at_least=1, at_most=1024)  # F, the bands
    window_ms: float = bounded(25.0, above=0.0, at_most=1000.0)
    hop_ms: float = bounded(10.0, above=0.0, at_most=1000.0)
    window: Literal["povey", "hann", "hamming"] = "povey"
    preemphasis: float = bounded(0.97, at_least=0.0, at_most=1.0)
    low_freq: float = bounded(20.0, at_least=0.0)  # Hz, where the first triangle begins
    high_freq: float | None = bounded(
        None, above=0.0
    )  # Hz, where the last one ends; None: rate / 2
    remove_dc: bool = True  # the mean of each frame
    floor: float = bounded(2.0**-23, above=0.0, at_most=1.0)  # of energy: the log of silence
    snip_edges: bool = True  # only frames that fit; else one a hop, with the sound mirrored
    normalize: Normalization = "none"  # of each utterance

    def __post_init__(self) -> None:
        if self.window_samples < 2 or not 1 <= self.hop_samples <= self.window_samples:
            raise ValueError(
                f"window_ms {self.window_ms:g} and hop_ms {self.hop_ms:g} make a window of "
                f"{self.window_samples} samples every {self.hop_samples}; a window has 2 or more, "
                "and none may lie between two windows"
            )
        if not self.low_freq < self.highest <= self.sample_rate / 2:
            raise ValueError(
                f"high_freq: expected a frequency between low_freq ({self.low_freq:g} Hz) and half "
                f"of sample_rate ({self.sample_rate / 2:g} Hz), got {self.highest:g} Hz"
            )

    @property
    def window_samples(self) -> int:
        return int(self.sample_rate * self.window_ms / 1000)

    @property
    def hop_samples(self) -> int:
        return int(self.sample_rate * self.hop_ms / 1000)

    @property
    def highest(self) -> float:
        return self.sample_rate / 2 if self.high_freq is None else self.high_freq

    @property
    def begin(self) -> int:
        """The sample at which the first frame begins.

        That is where the sound begins, or so that the sound begins half a hop before the middle.
        """
        return 0 if self.snip_edges else self.hop_samples // 2 - self.window_samples // 2

    def seconds_of(self, frame: float) -> float:
        """When the middle of a frame is heard; a place between two frames has its time too."""
        return (self.begin + self.hop_samples * frame + self.window_samples / 2) / self.sample_rate

    def build(self) -> "Filterbank":
        return Filterbank(self)


class Bands(NamedTuple):
    """Neighboring bands, the squares that they sum, and their weights."""

    bands: slice
    squares: slice  # a frequency has two, of its real and of its imaginary part
    weights: Float[Tensor, "squares bands"]

    def to(self, like: Tensor) -> "Bands":
        return self._replace(weights=self.weights.to(like))


class Filterbank:
    """Signals of unlike length -> frames B T F and which of them are no padding."""

    def __init__(self, config: FilterbankConfig) -> None:
        self.config = config
        self._window, self._hop = config.window_samples, config.hop_samples
        self._points = 1 << (self._window - 1).bit_length()
        self._shape = window_shape(config.window, self._window)
        self._bands = banded(mel_triangles(config, self._points))

    def frames_in(self, lengths: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """How many frames signals of so many samples have."""
        if self.config.snip_edges:
            return ((lengths - self._window) // self._hop + 1).clamp(min=0)
        return (lengths + self._hop // 2) // self._hop

    @torch.no_grad()
    def __call__(
        self, signals: Float[Tensor, "B N"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        """(frames, where a frame is); what is behind the last frame of a row is 0."""
        counts = self.frames_in(lengths)
        longest = int(counts.max()) if len(counts) else 0
        present = torch.arange(longest, device=signals.device) < counts[:, None]
        if not longest:
            return signals.new_zeros(*present.shape, self.config.mel_bins), present
        heard = signals if self.config.snip_edges else self._with_edges(signals, lengths)
        frames = self._energies(heard, counts.tolist())
        return normalized(frames, present, self.config.normalize), present

    def _with_edges(
        self, signals: Float[Tensor, "B N"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B reached"]:
        """Each signal with what its first and last frames reach beyond it: its mirror image."""
        before, behind = -self.config.begin, self._window - self._window // 2
        ends = lengths[:, None].clamp(min=1)
        steps = torch.arange(-before, behind, device=signals.device)
        places = torch.where(steps < 0, steps, ends + steps)
        # Place -1 shows 0 and place `end` shows end - 1: there and back is twice the signal.
        turn = places % (2 * ends)
        seen = signals.gather(1, torch.minimum(turn, 2 * ends - 1 - turn))
        return F.pad(signals, (before, behind)).scatter_(1, places + before, seen)

    def _energies(self, signals: Float[Tensor, "B N"], counts: list[int]) -> Float[Tensor, "B T F"]:
        """Logarithms of the bands of the first `counts` frames of each signal, then zeros."""
        config, window, points = self.config, self._window, self._points
        shape, bands = self._shape.to(signals), [some.to(signals) for some in self._bands]
        framed = signals.unfold(1, window, self._hop)
        energies = signals.new_empty(len(signals), max(counts), config.mel_bins)
        # Memory that all pieces use in turn.
        most = max(1, CHUNK * torch.get_num_threads() // points)
        samples, zeros = signals.new_empty(most, window + 1), signals.new_zeros(most, points)
        sums = signals.new_empty(most, config.mel_bins)

        @cache  # finding these views takes as long as a step, and most pieces are of one size
        def room(rows: int, times: int) -> tuple[Tensor, ...]:
            size = rows * times
            whole, padded = samples[:size].view(rows, times, -1), zeros[:size]
            frame = padded.view(rows, times, -1)[..., :window]
            return whole[..., 1:], whole[..., :-1], frame, padded, sums[:size]

        for piece in pieces(counts, most):
            heard, written = framed[piece], energies[piece]
            centered, before, frame, padded, summed = room(*written.shape[:2])
            total = heard.sum(dim=2, keepdim=True) if config.remove_dc else 0.0
            torch.sub(heard, total, alpha=1 / window, out=centered)
            before[..., 0] = centered[..., 0]
            torch.sub(centered, before, alpha=config.preemphasis, out=frame)
            frame.mul_(shape)
            spectra = torch.view_as_real(torch.fft.rfft(padded))
            squares = spectra.flatten(start_dim=1).square_()
            for some in bands:
                torch.mm(squares[:, some.squares], some.weights, out=summed[:, some.bands])
            torch.log(summed.clamp_(min=config.floor).view(written.shape), out=written)
        for row, count in zip(energies, counts, strict=True):
            row[count:] = 0.0
        return energies


def frames_of(
    signals: Iterable[Float[np.ndarray, "samples"]], config: FilterbankConfig
) -> Iterator[Float[Tensor, "T F"]]:
    """The frames of each sound, made of a few sounds at a time: a corpus need not fit in memory."""
    filterbank, waiting = config.build(), iter(signals)
    while some := list(islice(waiting, SOUNDS)):
        lengths = torch.tensor([len(signal) for signal in some])
        padded = torch.zeros(len(some), int(lengths.max()))
        for row, signal in zip(padded, some, strict=True):
            row[: len(signal)] = torch.from_numpy(signal)
        for frames, present in zip(*filterbank(padded, lengths), strict=True):
            yield frames[present]


def pieces(counts: list[int], most: int) -> Iterator[tuple[slice, slice]]:
    """(rows, frames of them), `most` frames or fewer: parts of a long row, or some short rows."""
    row = 0
    while row < len(counts):
        count, end = counts[row], row + 1
        while end < len(counts) and max(count, counts[end]) * (end + 1 - row) <= most:
            count, end = max(count, counts[end]), end + 1
        parts = -(-count // most)
        for part in range(parts):
            yield slice(row, end), slice(count * part // parts, count * (part + 1) // parts)
        row = end


def window_shape(kind: str, samples: int) -> Float[Tensor, "samples"]:
    """0 at both ends (hamming: 0.08) and 1 in the middle; Povey's is a broader Hann."""
    turn = torch.arange(samples, dtype=torch.float64) * (2 * math.pi / (samples - 1))
    if kind == "hamming":
        return 0.54 - 0.46 * turn.cos()
    hann = 0.5 - 0.5 * turn.cos()
    return hann**0.85 if kind == "povey" else hann


def mel_triangles(config: FilterbankConfig, points: int) -> Float[Tensor, "frequencies F"]:
    """How much of each frequency of the spectrum goes into each band."""

    def mel(hertz: Tensor) -> Tensor:
        return 1127 * (hertz / 700).log1p()

    low, high = mel(torch.tensor([config.low_freq, config.highest], dtype=torch.float64)).tolist()
    corners = torch.linspace(low, high, config.mel_bins + 2, dtype=torch.float64)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    frequencies = torch.arange(points // 2 + 1, dtype=torch.float64) * (config.sample_rate / points)
    place = mel(frequencies)[:, None]
    rising, falling = (place - left) / (middle - left), (right - place) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0)


def banded(triangles: Float[Tensor, "frequencies F"]) -> list[Bands]:
    """The same matrix in blocks, without the frequencies that a block leaves out."""
    blocks = []
    for first in range(0, triangles.shape[1], TOGETHER):
        block = triangles[:, first : first + TOGETHER]
        used = block.any(dim=1).nonzero().flatten().tolist() or [0]  # a band may have no frequency
        weights = block[used[0] : used[-1] + 1].repeat_interleave(2, dim=0)
        squares = slice(2 * used[0], 2 * used[-1] + 2)
        blocks.append(Bands(slice(first, first + block.shape[1]), squares, weights))
    return blocks


def normalized(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    by: Normalization,
) -> Float[Tensor, "B T F"]:
    """Utterances that differ less by what does not matter; padding stays 0.

    level: how loud the whole is, and how deep its silence, are taken away. The shape of the
        spectrum stays, by which a short word is known.
    mean, mean_and_variance: each band is about 0, and has variance 1. Long utterances lose the
        microphone with it, short ones the vowel too.
    """
    if by == "none":
        return frames
    there, counts = present[:, :, None], present.sum(dim=1).clamp(min=1)[:, None, None]
    if by == "level":
        energy = frames.double().exp().masked_fill(~there, 0.0).sum(dim=(1, 2), keepdim=True)
        level = (energy / (counts * frames.shape[2])).log().to(frames)
        return ((frames - level).clamp(min=-DEEPEST) / STEP + 1).masked_fill(~there, 0.0)
    mean = frames.sum(dim=1, keepdim=True) / counts
    frames = (frames - mean).masked_fill(~there, 0.0)
    if by == "mean":
        return frames
    deviation = (frames.square().sum(dim=1, keepdim=True) / counts).sqrt()
    return frames / deviation.clamp(min=STILL)
