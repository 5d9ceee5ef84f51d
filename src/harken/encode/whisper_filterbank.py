"""Log-mel features of Whisper, equal to those of `transformers.WhisperFeatureExtractor`.

frame       400 samples around sample 160 t; the start of a sound is mirrored, zeros follow its end
spectrum    P_f = |FFT(w * frame)_f|^2 with the periodic Hann window w
band        v = log10 max(1e-10, sum_f M_{f,band} P_f), with triangles M of equal area on Slaney's
            mel scale: linear up to 1000 Hz, then logarithmic
feature     max(v, v_max - 8) / 4 + 1, where v_max is the maximum over the sound

Whisper extends a sound to 30 s with zeros, so that most frames are equal. Here a sound ends with
one of these frames, whose values are the smallest of the sound; the model repeats it
(`extend_with_silence`). Only the last frame of a sound of about 30 s differs, since transformers
mirrors the end at 30 s.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.config import bounded

WINDOW, HOP = 400, 160  # samples
CHUNK_FRAMES = 4096  # transformed at once, which limits memory
MAX_FRAMES = 3000  # a sound of up to 30 s has at most as many frames as the model reads
FLOOR = 1e-10
RANGE = 8.0  # base-10 logarithm of the energy: 80 dB


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperFilterbankConfig:
    """Features of Whisper: 16,000 samples per second, one frame every 10 ms."""

    kind: Literal["whisper"] = "whisper"
    mel_bins: int = bounded(80, at_least=1, at_most=1024)  # number of mel bands F
    sample_rate: ClassVar[int] = 16_000
    hop_ms: ClassVar[float] = 10.0

    def seconds_of(self, frame: float) -> float:
        """Return the time of the middle of a frame, or of a position between two frames."""
        return frame * HOP / self.sample_rate

    def build(self) -> "WhisperFilterbank":
        return WhisperFilterbank(self)


class WhisperFilterbank:
    """Compute the frames B T F of padded signals, and the mask that is false in padding."""

    def __init__(self, config: WhisperFilterbankConfig) -> None:
        self._triangles = slaney_triangles(config.mel_bins, config.sample_rate).float()
        self._window = torch.hann_window(WINDOW)

    def count_frames(self, lengths: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """Return the number of frames: those that overlap the sound, and one of silence."""
        overlapping = (lengths + WINDOW // 2 + HOP - 1) // HOP
        return torch.minimum(overlapping + 1, (lengths // HOP).clamp(min=MAX_FRAMES))

    @torch.no_grad()
    def __call__(
        self, signals: Float[Tensor, "B N"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        counts = self.count_frames(lengths).tolist()
        rows = zip(signals, lengths.tolist(), counts, strict=True)
        sounds = [self._features(signal[:length], count) for signal, length, count in rows]
        frames = pad_sequence(sounds, batch_first=True)
        return frames, torch.arange(frames.shape[1]) < torch.tensor(counts)[:, None]

    def _features(self, signal: Float[Tensor, "N"], count: int) -> Float[Tensor, "T F"]:
        half = WINDOW // 2
        extended = F.pad(signal, (0, count * HOP + half - HOP - len(signal)))
        mirrored = torch.cat((extended[1 : half + 1].flip(0), extended))
        framed = mirrored.unfold(0, WINDOW, HOP)
        energies = [
            torch.fft.rfft(framed[start : start + CHUNK_FRAMES] * self._window).abs().square()
            @ self._triangles
            for start in range(0, count, CHUNK_FRAMES)
        ]
        logs = torch.cat(energies).clamp(min=FLOOR).log10()
        return torch.maximum(logs, logs.max() - RANGE) / 4 + 1


def slaney_triangles(bands: int, sample_rate: int) -> Float[Tensor, "frequencies F"]:
    """Return the weight of each frequency in each band."""

    def mel_to_hertz(mel: Tensor) -> Tensor:
        return torch.where(mel < 15, mel * (200 / 3), 1000 * 6.4 ** ((mel - 15) / 27))

    highest = sample_rate / 2
    top = 15 + 27 * math.log(highest / 1000, 6.4)
    corners = mel_to_hertz(torch.linspace(0, top, bands + 2, dtype=torch.float64))
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    frequency = torch.linspace(0, highest, WINDOW // 2 + 1, dtype=torch.float64)[:, None]
    rising, falling = (frequency - left) / (middle - left), (right - frequency) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0) * 2 / (right - left)
