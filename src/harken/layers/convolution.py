"""Stacks of convolutions: B T J -> B T J.

    stride2   L_{l+1}[t] = σ(sum over Δ of W[Δ] L_l[2t + Δ] - B),  half as long per level;
              then upsampling with skip connections to one output per token:
              M_l[t] = σ(L_l[t] + sum over t', Δ with 2t' + Δ = t of W'[Δ] M_{l+1}[t'] - B')
    causal    x_{l+1}[t] = x_l[t] + σ(sum over Δ of W[Δ] x_l[t + dΔ] + b),  Δ <= 0, dilation d
    gated     x_{l+1}[t] = sqrt(1/2) (x_l[t] + a * sigmoid(g)),  (a, g) a convolution of x_l

A centered kernel of size k has Δ from -⌊(k-1)/2⌋ to ⌊k/2⌋, a causal one from 1 - k to 0. Padding is
set to zero before each convolution. Only causal kinds have a state.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.dropout import Dropout

Frames = Float[Tensor, "B T J"]
Columns = Float[Tensor, "B J T"]
Present = Bool[Tensor, "B T"]
Activation = Literal["relu", "tanh", "gelu"]
Function = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[Activation, Function] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": partial(F.gelu, approximate="tanh"),
}
MAX_LEVELS = 20  # of a pyramid
MAX_REACH = 2**16  # tokens before the first that the kernel of a layer covers


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvPyramidConfig:
    """A convolutional pyramid: strided convolutions down, transposed ones up."""

    kind: Literal["stride2"] = "stride2"
    layers: int = bounded(3, at_least=1, at_most=MAX_LEVELS)  # levels, each half as long
    kernel: int = bounded(3, at_least=2, at_most=MAX_KERNEL)  # kernel size
    activation: Activation = "relu"  # activation function
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of each level

    def build(self, width: int) -> "ConvPyramid":
        return ConvPyramid(self, width)


@dataclass(frozen=True, kw_only=True, slots=True)
class CausalConvolutionConfig:
    """Causal convolutions with residual connections."""

    kind: Literal["causal"] = "causal"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of layers
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)  # kernel size, in tokens
    activation: Activation = "relu"  # activation function
    dilated: bool = True  # dilations 1, 2, 4, …; otherwise all 1
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of each layer

    def __post_init__(self) -> None:
        if self.dilated and (self.kernel - 1) << (self.layers - 1) > MAX_REACH:
            raise ValueError(
                f"the last of {self.layers} dilated layers with a kernel of {self.kernel} covers "
                f"more than {MAX_REACH:,} tokens; use fewer layers or a smaller kernel"
            )

    def build(self, width: int) -> "Convolutions":
        kernels = [
            nn.Conv1d(width, width, self.kernel, dilation=2**depth if self.dilated else 1)
            for depth in range(self.layers)
        ]
        activate = ACTIVATIONS[self.activation]
        return Convolutions(kernels, activate, causal=True, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedConvolutionConfig:
    """Gated linear units, as in "Convolutional sequence to sequence learning"."""

    kind: Literal["gated"] = "gated"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of layers
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)  # kernel size, in tokens
    causal: bool = False  # read earlier tokens only; otherwise the kernel is centered
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of each layer

    def build(self, width: int) -> "Convolutions":
        kernels = [nn.Conv1d(width, 2 * width, self.kernel) for _ in range(self.layers)]
        return Convolutions(kernels, None, causal=self.causal, dropout=self.dropout)


Levels = tuple[Tensor, ...]
"""Levels of a pyramid, from the tokens B T J to the top B ⌈T / 2^L⌉ J."""

Tails = tuple[Tensor, ...]
"""The last inputs of each causal layer, which its next outputs depend on: B (k - 1)d J."""


def mask_padding(inputs: Frames, present: Present | None) -> Frames:
    """Set padding to zero."""
    return inputs if present is None else inputs.masked_fill(~present[..., None], 0.0)


def mask_columns(rows: Columns, present: Present | None) -> Columns:
    """Set padding to zero, with channels first."""
    return rows if present is None else rows.masked_fill(~present[:, None], 0.0)


class ConvPyramid(nn.Module):
    """Downsampling, then upsampling to one output per token."""

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.down, self.up = Downsample(config, width), Upsample(config, width)

    def forward(self, inputs: Frames, present: Present | None = None) -> Frames:
        return cast(Tensor, self.up(self.down(inputs, present), present))


class PyramidLayers(nn.Module):
    """The strided convolutions of one direction; a bias is subtracted, as a threshold."""

    convolution: ClassVar[type[nn.Conv1d | nn.ConvTranspose1d]]

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[config.activation]
        self.kernel, self.edge = config.kernel, (config.kernel - 1) // 2
        self.kernels = nn.ModuleList(
            self.convolution(width, width, config.kernel, stride=2, bias=False)
            for _ in range(config.layers)
        )
        self.thresholds = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)


class Downsample(PyramidLayers):
    """Return L_0 .. L_L; element t of level l is present if token 2^l t is."""

    convolution = nn.Conv1d

    def forward(self, inputs: Frames, present: Present | None = None) -> Levels:
        rows = mask_padding(inputs, present).transpose(1, 2)
        levels = [rows]
        for kernel, threshold in zip(self.kernels, self.thresholds, strict=True):
            window = self.dropout(rows)
            if self.kernel % 2 == 0:  # an even kernel extends one token farther to the right
                window = F.pad(window, (0, 1))
            present = None if present is None else present[:, ::2]
            weight = cast(nn.Conv1d, kernel).weight
            outputs = F.conv1d(window, weight, -threshold, stride=2, padding=self.edge)
            rows = mask_columns(self.activate(outputs), present)
            levels.append(rows)
        return tuple(level.transpose(1, 2) for level in levels)


class Upsample(PyramidLayers):
    """Return M_0, computed level by level from M_L = L_L."""

    convolution = nn.ConvTranspose1d

    def forward(self, levels: Levels, present: Present | None = None) -> Frames:
        merged = levels[-1].transpose(1, 2)
        for depth in reversed(range(len(self.kernels))):
            level = levels[depth].transpose(1, 2)
            # The output is up to one element shorter or longer than the level below.
            default_length = 2 * merged.shape[-1] - 2 - 2 * self.edge + self.kernel
            upsampled = F.conv_transpose1d(
                self.dropout(merged),
                cast(nn.ConvTranspose1d, self.kernels[depth]).weight,
                -self.thresholds[depth],
                stride=2,
                padding=self.edge,
                output_padding=max(0, level.shape[-1] - default_length),
            )
            outputs = self.activate(level + upsampled[..., : level.shape[-1]])
            merged = mask_columns(outputs, None if present is None else present[:, :: 2**depth])
        return merged.transpose(1, 2)


class Convolutions(nn.Module):
    """Residual convolutions that preserve the length; gated if `activate` is None."""

    def __init__(
        self, kernels: list[nn.Conv1d], activate: Function | None, *, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        self.kernels = nn.ModuleList(kernels)
        self.dropout = Dropout(dropout)
        self.activate, self.causal = activate, causal
        self.width, self.depth = kernels[0].in_channels, len(kernels)
        self.reaches = [(kernel.kernel_size[0] - 1) * kernel.dilation[0] for kernel in kernels]

    def forward(self, inputs: Frames, present: Present | None = None) -> Frames:
        rows = mask_padding(inputs, present).transpose(1, 2)
        for kernel, reach in zip(self.kernels, self.reaches, strict=True):
            edges = (reach, 0) if self.causal else (reach // 2, reach - reach // 2)
            window = F.pad(self.dropout(rows), edges)
            rows = mask_columns(self._add(rows, kernel(window)), present)
        return rows.transpose(1, 2)

    def _add(self, inputs: Columns, outputs: Float[Tensor, "B channels T"]) -> Columns:
        if self.activate is not None:
            return inputs + self.activate(outputs)
        return (inputs + F.glu(outputs, dim=1)) * math.sqrt(0.5)  # preserves the variance

    def init_state(self, batch: int) -> Tails:
        """Return the state before any token: zeros."""
        weight = next(self.parameters())
        return tuple(weight.new_zeros(batch, reach, weight.shape[1]) for reach in self.reaches)

    def step(self, inputs: Frames, present: Present | None, state: Tails) -> tuple[Frames, Tails]:
        """Return the outputs of new tokens and the next state; padding is on the right."""
        assert self.causal, "a centered kernel needs later tokens"
        rows = mask_padding(inputs, present).transpose(1, 2)
        tails = []
        for kernel, tail in zip(self.kernels, state, strict=True):
            window = torch.cat((tail, self.dropout(rows).transpose(1, 2)), dim=1)
            tails.append(last_elements(window, tail.shape[1], present))
            rows = mask_columns(self._add(rows, kernel(window.transpose(1, 2))), present)
        return rows.transpose(1, 2), tuple(tails)


def last_elements(
    window: Float[Tensor, "B time J"], count: int, present: Present | None
) -> Float[Tensor, "B tail J"]:
    """Return the last `count` elements of each row, without the padding on its right."""
    if present is None:
        return window[:, window.shape[1] - count :]
    assert (present[:, 1:] <= present[:, :-1]).all(), "padding must be on the right"
    rows = torch.arange(len(present), device=window.device)[:, None]
    first = present.sum(dim=1, keepdim=True)  # the window starts with the previous tail
    return window[rows, first + torch.arange(count, device=window.device)]
