"""Every place reads a window of places around or before it, all at once: B T J -> B T J.

    stride2   L_{l+1}[t] = σ(sum over Δ of W[Δ] L_l[2t + Δ] - B),  half as long with each level;
              and the way back up to one output a token, adding what the same level was:
              M_l[t] = σ(L_l[t] + sum over t', Δ with 2t' + Δ = t of W'[Δ] M_{l+1}[t'] - B')
    causal    x_{l+1}[t] = x_l[t] + σ(sum over Δ of W[Δ] x_l[t + dΔ] + b),  Δ <= 0, dilation d
    gated     x_{l+1}[t] = sqrt(1/2) (x_l[t] + a * sigmoid(g)),  (a, g) a convolution of x_l

A kernel of k places has Δ from -⌊(k-1)/2⌋ to ⌊k/2⌋ if it is centered and from 1 - k to 0 if it is
causal. Beyond both ends of a sequence there are zeros, and so there must be at its padding:
before each convolution what is not present is made zero. Only causal kinds can go on from a state.

Convolutions between attentions (Conformer) and over images are not here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.dropout import Dropout

Activation = Literal["relu", "tanh", "gelu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": partial(F.gelu, approximate="tanh"),
}


MAX_LEVELS = 20  # of a pyramid
MAX_REACH = 2**16  # tokens of one layer, by which its input is padded


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvPyramidConfig:
    """The language CNN; after `layers` levels one place speaks for 2^layers tokens."""

    kind: Literal["stride2"] = "stride2"
    layers: int = bounded(3, at_least=1, at_most=MAX_LEVELS)
    # With a kernel of 1, upsampling would not reach every other token.
    kernel: int = bounded(3, at_least=2, at_most=MAX_KERNEL)
    activation: Activation = "relu"  # σ
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of what each level reads, in training

    def build(self, width: int) -> "ConvPyramid":
        return ConvPyramid(self, width)


@dataclass(frozen=True, kw_only=True, slots=True)
class CausalConvolutionConfig:
    """Each place sees itself and what came before."""

    kind: Literal["causal"] = "causal"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)
    activation: Activation = "relu"  # σ
    dilated: bool = True  # dilations 1, 2, 4, … and so a reach that doubles; else all 1
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of what each layer reads, in training

    def __post_init__(self) -> None:
        if self.dilated and (self.kernel - 1) << (self.layers - 1) > MAX_REACH:
            raise ValueError(
                f"{self.layers} layers that double their dilation with a kernel of {self.kernel} "
                f"reach back more than {MAX_REACH:,} tokens"
            )

    def build(self, width: int) -> "Convolutions":
        kernels = [
            nn.Conv1d(width, width, self.kernel, dilation=2**depth if self.dilated else 1)
            for depth in range(self.layers)
        ]
        combine = partial(residual_relu, ACTIVATIONS[self.activation])
        return Convolutions(kernels, combine, causal=True, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedConvolutionConfig:
    """Gated linear units, as in "Convolutional sequence to sequence learning"."""

    kind: Literal["gated"] = "gated"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)
    causal: bool = False  # else centered
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of what each layer reads, in training

    def build(self, width: int) -> "Convolutions":
        kernels = [nn.Conv1d(width, 2 * width, self.kernel) for _ in range(self.layers)]
        return Convolutions(kernels, residual_glu, causal=self.causal, dropout=self.dropout)


ConvolutionConfig = ConvPyramidConfig | CausalConvolutionConfig | GatedConvolutionConfig

Levels = tuple[Tensor, ...]
"""Of a pyramid, from the tokens B T J to the top B ⌈T / 2^L⌉ J."""

Tails = tuple[Tensor, ...]
"""What each layer of a causal stack must remember of its inputs: B (k - 1)d J."""


def mask_padding(
    inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B T J"]:
    """Zeros at padding, as beyond the end of a row that has none."""
    return inputs if present is None else inputs.masked_fill(~present[..., None], 0.0)


def mask_columns(
    rows: Float[Tensor, "B J T"], present: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B J T"]:
    """The same where channels come first, as they do between one convolution and the next."""
    return rows if present is None else rows.masked_fill(~present[:, None], 0.0)


class ConvPyramid(nn.Module):
    """Down the pyramid and back up: one output a token, which has seen a neighborhood."""

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.down, self.up = Downsample(config, width), Upsample(config, width)

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T J"]:
        raised: Tensor = self.up(self.down(inputs, present), present)
        return raised


class Downsample(nn.Module):
    """L_0 .. L_L: place t of level l is present where token 2^l t is."""

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.bend = ACTIVATIONS[config.activation]
        self.edges = (config.kernel - 1) // 2, config.kernel // 2
        self.kernels = nn.ModuleList(
            nn.Conv1d(width, width, config.kernel, stride=2, bias=False)
            for _ in range(config.layers)
        )
        self.thresholds = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Levels:
        rows = mask_padding(inputs, present).transpose(1, 2)
        levels = [rows]
        for kernel, threshold in zip(self.kernels, self.thresholds, strict=True):
            before, after = self.edges
            # An even kernel reaches one place farther to the right, which costs a copy.
            window = self.dropout(rows) if before == after else F.pad(self.dropout(rows), (0, 1))
            present = None if present is None else present[:, ::2]
            weight = cast(nn.Conv1d, kernel).weight
            read = F.conv1d(window, weight, -threshold, stride=2, padding=before)
            rows = mask_columns(self.bend(read), present)
            levels.append(rows)
        return tuple(level.transpose(1, 2) for level in levels)


class Upsample(nn.Module):
    """M_L = L_L, then level by level to M_0: one output a token."""

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.bend = ACTIVATIONS[config.activation]
        self.edge = (config.kernel - 1) // 2
        self.kernels = nn.ModuleList(
            nn.ConvTranspose1d(width, width, config.kernel, stride=2, bias=False)
            for _ in range(config.layers)
        )
        self.thresholds = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(
        self, levels: Levels, present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T J"]:
        merged = levels[-1].transpose(1, 2)
        for depth in reversed(range(len(self.kernels))):
            level = levels[depth].transpose(1, 2)
            kernel = cast(nn.ConvTranspose1d, self.kernels[depth])
            # The transposed convolution writes from place 0 + (lowest Δ) on, whence the padding,
            # and up to one place short of the level below, or one beyond it.
            natural = 2 * merged.shape[-1] - 2 - 2 * self.edge + kernel.kernel_size[0]
            raised = F.conv_transpose1d(
                self.dropout(merged),
                kernel.weight,
                -self.thresholds[depth],
                stride=2,
                padding=self.edge,
                output_padding=max(0, level.shape[-1] - natural),
            )
            bent = self.bend(level + raised[..., : level.shape[-1]])
            merged = mask_columns(bent, None if present is None else present[:, :: 2**depth])
        return merged.transpose(1, 2)


Combine = Callable[[Tensor, Tensor], Tensor]
"""(what came into a layer B J T, what its kernel read B read T) -> what it writes B J T"""


def residual_relu(bend: Callable[[Tensor], Tensor], inputs: Tensor, read: Tensor) -> Tensor:
    """x + σ(read)."""
    return inputs + bend(read)


def residual_glu(inputs: Tensor, read: Tensor) -> Tensor:
    """x + a * sigmoid(g), scaled so that a sum of two equals keeps its variance."""
    return (inputs + F.glu(read, dim=1)) * math.sqrt(0.5)


class Convolutions(nn.Module):
    """Layers one above the other that keep the length."""

    def __init__(
        self, kernels: list[nn.Conv1d], combine: Combine, *, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        self.kernels = nn.ModuleList(kernels)
        self.dropout = Dropout(dropout)
        self.combine, self.causal = combine, causal
        self.reaches = [(kernel.kernel_size[0] - 1) * kernel.dilation[0] for kernel in kernels]

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T J"]:
        rows = mask_padding(inputs, present).transpose(1, 2)
        for kernel, reach in zip(self.kernels, self.reaches, strict=True):
            edges = (reach, 0) if self.causal else (reach // 2, reach - reach // 2)
            window = F.pad(self.dropout(rows), edges)
            rows = mask_columns(self.combine(rows, kernel(window)), present)
        return rows.transpose(1, 2)

    def init_state(self, batch: int) -> Tails:
        """The state before any token: zeros, as beyond the beginning of a row."""
        weight = next(self.parameters())
        return tuple(weight.new_zeros(batch, reach, weight.shape[1]) for reach in self.reaches)

    def step(
        self,
        inputs: Float[Tensor, "B T J"],
        present: Bool[Tensor, "B T"] | None,
        state: Tails,
    ) -> tuple[Float[Tensor, "B T J"], Tails]:
        """Outputs of new tokens after `state`; padding, on the right, leaves no trace in it."""
        assert self.causal, "what a centered kernel wants to see is still to come"
        rows = mask_padding(inputs, present).transpose(1, 2)
        tails = []
        for kernel, tail in zip(self.kernels, state, strict=True):
            window = torch.cat((tail, self.dropout(rows).transpose(1, 2)), dim=1)
            tails.append(latest(window, tail.shape[1], present))
            rows = mask_columns(self.combine(rows, kernel(window.transpose(1, 2))), present)
        return rows.transpose(1, 2), tuple(tails)


def latest(
    window: Float[Tensor, "B places J"], count: int, present: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B tail J"]:
    """The last `count` places of each row, its padding on the right left out."""
    if present is None:
        return window[:, window.shape[1] - count :]
    assert (present[:, 1:] <= present[:, :-1]).all(), "padding stands on the right"
    rows = torch.arange(len(present), device=window.device)[:, None]
    first = present.sum(dim=1, keepdim=True)  # the tail gone by stands before what is present
    return window[rows, first + torch.arange(count, device=window.device)]
