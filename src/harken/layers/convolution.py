"""Stacks of convolutions: B T J -> B T J, or B T features for `ngrams`.

    stride2   L_{l+1}[t] = σ(sum over Δ of W[Δ] L_l[2t + Δ] - b),  half as long per level;
              then upsampling with skip connections to one output per token:
              M_l[t] = σ(L_l[t] + sum over t', Δ with 2t' + Δ = t of W'[Δ] M_{l+1}[t'] - b')
    causal    x_{l+1}[t] = x_l[t] + σ(sum over Δ of W[Δ] x_l[t + dΔ] + b),  Δ <= 0, dilation d
    gated     x_{l+1}[t] = sqrt(1/2) (x_l[t] + a * sigmoid(g)),  (a, g) a convolution of x_l
    ngrams    relu(sum over Δ of W_n[Δ] x[t + Δ] + b_n), concatenated for all kernel sizes n

where σ is the activation function. A centered kernel of size n has Δ from -⌊(n-1)/2⌋ to ⌊n/2⌋, a
causal one from 1 - n to 0. Padding is set to zero before each convolution. Only causal convolutions
can run token by token.
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

Tokens = Float[Tensor, "B T J"]
ChannelsFirst = Float[Tensor, "B J T"]
Present = Bool[Tensor, "B T"]
Activation = Literal["relu", "tanh", "gelu"]
ActivationFunction = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[Activation, ActivationFunction] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": partial(F.gelu, approximate="tanh"),
}
MAX_LEVELS = 20  # of a pyramid
MAX_CONTEXT = 2**16  # earlier tokens that the kernel of a layer covers


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvPyramidConfig:
    """A convolutional pyramid: strided convolutions down, transposed ones up."""

    kind: Literal["stride2"] = "stride2"
    layers: int = bounded(3, at_least=1, at_most=MAX_LEVELS)  # levels; each halves the length
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
        if self.dilated and (self.kernel - 1) * 2 ** (self.layers - 1) > MAX_CONTEXT:
            raise ValueError(
                f"the last of {self.layers} dilated layers with a kernel of {self.kernel} covers "
                f"more than {MAX_CONTEXT:,} tokens; use fewer layers or a smaller kernel"
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
    """Convolutions with gated linear units (Gehring et al., 2017)."""

    kind: Literal["gated"] = "gated"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of layers
    kernel: int = bounded(3, at_least=1, at_most=MAX_KERNEL)  # kernel size, in tokens
    causal: bool = False  # read earlier tokens only; otherwise the kernel is centered
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the inputs of each layer

    def build(self, width: int) -> "Convolutions":
        kernels = [nn.Conv1d(width, 2 * width, self.kernel) for _ in range(self.layers)]
        return Convolutions(kernels, None, causal=self.causal, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class NGramConfig:
    """Features of n-grams: one layer of convolutions of several sizes (Kim, 2014)."""

    kind: Literal["ngrams"] = "ngrams"
    kernels: tuple[int, ...] = bounded((3, 4, 5), at_least=1, at_most=MAX_KERNEL)  # sizes n
    channels: int = bounded(128, at_least=1)  # number of features for each size

    def __post_init__(self) -> None:
        if not self.kernels:
            raise ValueError("kernels: expected at least one size, got none")

    def build(self, width: int) -> "NGrams":
        return NGrams(self, width)


class NGrams(nn.Module):
    """Features of the n-grams around each token: B T J -> B T features."""

    max_length: int | None = None
    layers = 1

    def __init__(self, config: NGramConfig, width: int) -> None:
        super().__init__()
        self.kernels = nn.ModuleList(nn.Conv1d(width, config.channels, n) for n in config.kernels)
        self.width = config.channels * len(config.kernels)

    def forward(
        self, inputs: Tokens, present: Present | None = None
    ) -> Float[Tensor, "B T features"]:
        states = mask_padding(inputs, present).transpose(1, 2)
        features = []
        for kernel in self.kernels:
            context = cast(nn.Conv1d, kernel).kernel_size[0] - 1
            padded = F.pad(states, (context // 2, context - context // 2))
            features.append(F.relu(kernel(padded)))
        return mask_padding(torch.cat(features, dim=1).transpose(1, 2), present)


Levels = tuple[Tensor, ...]
"""Levels of a pyramid: L_0 are the tokens, B T J, and L_l is B ⌈T / 2^l⌉ J."""

ConvState = tuple[Tensor, ...]
"""The last (n - 1) d inputs of each causal layer, B (n - 1)d J, which the next outputs need."""


def mask_padding(inputs: Tokens, present: Present | None) -> Tokens:
    """Set padding to zero."""
    return inputs if present is None else inputs.masked_fill(~present[..., None], 0.0)


def mask_channels_first(inputs: ChannelsFirst, present: Present | None) -> ChannelsFirst:
    """Set padding to zero, with channels first."""
    return inputs if present is None else inputs.masked_fill(~present[:, None], 0.0)


def check_right_padding(present: Present) -> None:
    """Raise an error if padding precedes a token; without effect while a graph is traced."""
    if not torch.compiler.is_compiling():
        assert (present[:, 1:] <= present[:, :-1]).all(), "padding must be on the right"


class ConvPyramid(nn.Module):
    """Downsampling, then upsampling to one output per token."""

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.down, self.up = Downsample(config, width), Upsample(config, width)

    def forward(self, inputs: Tokens, present: Present | None = None) -> Tokens:
        return cast(Tensor, self.up(self.down(inputs, present), present))


class PyramidLayers(nn.Module):
    """The strided convolutions of one direction. Biases are subtracted, as thresholds."""

    convolution: ClassVar[type[nn.Conv1d | nn.ConvTranspose1d]]

    def __init__(self, config: ConvPyramidConfig, width: int) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[config.activation]
        self.kernel, self.padding = config.kernel, (config.kernel - 1) // 2
        self.kernels = nn.ModuleList(
            self.convolution(width, width, config.kernel, stride=2, bias=False)
            for _ in range(config.layers)
        )
        self.thresholds = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)


class Downsample(PyramidLayers):
    """Return all levels. Element t of level l is padding if token 2^l t is."""

    convolution = nn.Conv1d

    def forward(self, inputs: Tokens, present: Present | None = None) -> Levels:
        states = mask_padding(inputs, present).transpose(1, 2)
        levels = [states]
        for kernel, threshold in zip(self.kernels, self.thresholds, strict=True):
            padded = self.dropout(states)
            if self.kernel % 2 == 0:  # an even kernel has one more token on the right
                padded = F.pad(padded, (0, 1))
            present = None if present is None else present[:, ::2]
            weight = cast(nn.Conv1d, kernel).weight
            outputs = F.conv1d(padded, weight, -threshold, stride=2, padding=self.padding)
            states = mask_channels_first(self.activate(outputs), present)
            levels.append(states)
        return tuple(level.transpose(1, 2) for level in levels)


class Upsample(PyramidLayers):
    """Return M_0. At the top level, M = L."""

    convolution = nn.ConvTranspose1d

    def forward(self, levels: Levels, present: Present | None = None) -> Tokens:
        merged = levels[-1].transpose(1, 2)
        for depth in reversed(range(len(self.kernels))):
            level = levels[depth].transpose(1, 2)
            upsampled = F.conv_transpose1d(
                self.dropout(merged),
                cast(nn.ConvTranspose1d, self.kernels[depth]).weight,
                -self.thresholds[depth],
                stride=2,
            )
            aligned = upsampled[..., self.padding : self.padding + level.shape[-1]]
            outputs = self.activate(level + aligned)
            merged = mask_channels_first(
                outputs, None if present is None else present[:, :: 2**depth]
            )
        return merged.transpose(1, 2)


class Convolutions(nn.Module):
    """Residual convolutions that preserve the length; gated if `activate` is None."""

    def __init__(
        self,
        kernels: list[nn.Conv1d],
        activate: ActivationFunction | None,
        *,
        causal: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.kernels = nn.ModuleList(kernels)
        self.dropout = Dropout(dropout)
        self.activate, self.causal = activate, causal
        self.width, self.layers = kernels[0].in_channels, len(kernels)
        # Number of tokens that a kernel covers in addition to the current one
        self.contexts = [(kernel.kernel_size[0] - 1) * kernel.dilation[0] for kernel in kernels]

    def forward(self, inputs: Tokens, present: Present | None = None) -> Tokens:
        states = mask_padding(inputs, present).transpose(1, 2)
        for kernel, context in zip(self.kernels, self.contexts, strict=True):
            left = context if self.causal else context // 2
            padded = F.pad(self.dropout(states), (left, context - left))
            states = mask_channels_first(self._add_residual(states, kernel(padded)), present)
        return states.transpose(1, 2)

    def _add_residual(
        self, inputs: ChannelsFirst, outputs: Float[Tensor, "B channels T"]
    ) -> ChannelsFirst:
        if self.activate is not None:
            return inputs + self.activate(outputs)
        return (inputs + F.glu(outputs, dim=1)) * math.sqrt(0.5)  # preserves the variance

    def init_state(self, batch: int) -> ConvState:
        """Return the state before any token: zeros."""
        weight = next(self.parameters())
        return tuple(weight.new_zeros(batch, context, self.width) for context in self.contexts)

    def step(
        self, inputs: Tokens, present: Present | None, state: ConvState
    ) -> tuple[Tokens, ConvState]:
        """Return the outputs of new tokens, whose padding is on the right, and the next state."""
        assert self.causal, "a centered kernel needs later tokens"
        states = mask_padding(inputs, present).transpose(1, 2)
        next_state = []
        for kernel, past in zip(self.kernels, state, strict=True):
            window = torch.cat((past, self.dropout(states).transpose(1, 2)), dim=1)
            next_state.append(last_elements(window, past.shape[1], present))
            states = mask_channels_first(
                self._add_residual(states, kernel(window.transpose(1, 2))), present
            )
        return states.transpose(1, 2), tuple(next_state)


def last_elements(
    window: Float[Tensor, "B time J"], count: int, present: Present | None
) -> Float[Tensor, "B count J"]:
    """Return the last `count` elements of each row that are not padding.

    `window` consists of `count` earlier inputs and of new tokens, whose mask is `present`.
    """
    if present is None:
        return window[:, window.shape[1] - count :]
    check_right_padding(present)
    rows = torch.arange(present.shape[0], device=window.device)[:, None]
    first = present.sum(dim=1, keepdim=True)
    return window[rows, first + torch.arange(count, device=window.device)]
