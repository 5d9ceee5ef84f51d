"""The Conformer block (Gulati et al., 2020): global self-attention and local convolution.

    x = x + 1/2 feedforward(x)
    x = x + attention(x)
    x = x + convolution(x)
    x = norm(x + 1/2 feedforward(x))

Each sublayer starts with a norm. The convolution sublayer is

    W_2 silu(norm(depthwise(a * sigmoid(g)))),   (a, g) = W_1 x

with a centered kernel. The convolution reads zeros at padding; the batch norm ignores padding.
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import NoPositionConfig, PositionConfig
from harken.attention.scores import TransformerXLConfig
from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.convolution import Present, Tokens, mask_padding
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformerEncoderConfig:
    """A stack of Conformer blocks."""

    kind: Literal["conformer"] = "conformer"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    max_length: int = bounded(1024, at_least=1)  # maximum number of input positions
    attention: MultiHeadConfig = MultiHeadConfig(score=TransformerXLConfig())  # self-attention
    position: PositionConfig = NoPositionConfig()  # positional encoding, apart from the score's
    feedforward: FeedForwardConfig = FeedForwardConfig(
        activation="silu"
    )  # both feed-forward layers
    kernel: int = bounded(15, at_least=1, at_most=MAX_KERNEL)  # depthwise kernel size
    convolution_norm: Literal["batch", "layer"] = "batch"  # norm inside the convolution sublayer
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)  # of the input and of each sublayer

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel: expected an odd number, got {self.kernel}")


class ConformerBlock(nn.Module):
    """B T J -> B T J."""

    attention_is_first = is_decoder = False

    def __init__(self, config: ConformerEncoderConfig, width: int) -> None:
        super().__init__()
        self.macaron_norm, self.macaron = nn.LayerNorm(width), config.feedforward.build(width)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = config.attention.build(width, config.max_length)
        self.convolution_norm = nn.LayerNorm(width)
        self.convolution = ConvolutionModule(config.kernel, config.convolution_norm, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = config.feedforward.build(width)
        self.final_norm = nn.LayerNorm(width)
        self.dropout = Dropout(config.dropout)

    def norms_before_attention(self) -> list[nn.Module]:
        return [self.attention_norm]

    def residual_norms(self) -> list[nn.Module]:
        return [self.final_norm]

    def forward(
        self, inputs: Tokens, context: AttentionContext, present: Present | None = None
    ) -> Tokens:
        """Return the outputs. Outputs at padding are undefined and do not affect other tokens."""
        states = inputs + 0.5 * self.dropout(self.macaron(self.macaron_norm(inputs)))
        states = states + self.dropout(self.attention(self.attention_norm(states), context)[0])
        convolved = self.convolution(self.convolution_norm(states), present)
        states = states + self.dropout(convolved)
        states = states + 0.5 * self.dropout(self.feedforward(self.feedforward_norm(states)))
        normed: Tensor = self.final_norm(states)
        return normed


class ConvolutionModule(nn.Module):
    """A gated depthwise convolution: B T J -> B T J."""

    def __init__(self, kernel: int, norm: Literal["batch", "layer"], width: int) -> None:
        super().__init__()
        # No biases: the norms before `up_proj` and after `depthwise` have biases.
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        # On a CPU, Conv2d over one column trains three times as fast as Conv1d, because B T J
        # already has the channels-last layout of its kernels.
        self.depthwise = nn.Conv2d(
            width, width, (kernel, 1), padding=(kernel // 2, 0), groups=width, bias=False
        )
        self.norm = MaskedBatchNorm(width) if norm == "batch" else nn.LayerNorm(width)
        self.down_proj = nn.Linear(width, width, bias=False)

    def forward(self, inputs: Tokens, present: Present | None = None) -> Tokens:
        gated = mask_padding(F.glu(self.up_proj(inputs), dim=-1), present)
        convolved = self.depthwise(gated.transpose(1, 2)[..., None])[..., 0].transpose(1, 2)
        is_batch_norm = isinstance(self.norm, MaskedBatchNorm)
        normed = self.norm(convolved, present) if is_batch_norm else self.norm(convolved)
        output: Tensor = self.down_proj(F.silu(normed))
        return output


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch normalization of tokens B T J that ignores padding."""

    def forward(self, inputs: Tokens, present: Present | None = None) -> Tokens:
        if present is None or not self.training:
            return self._norm(inputs.flatten(end_dim=1)).view_as(inputs)
        normed = inputs.new_zeros(inputs.shape)
        normed[present] = self._norm(inputs[present]).to(normed.dtype)
        return normed

    def _norm(self, tokens: Float[Tensor, "N J"]) -> Float[Tensor, "N J"]:
        if self.training and len(tokens) < 2:  # a single token has no variance
            return F.batch_norm(tokens, self.running_mean, self.running_var, self.weight, self.bias)
        return super().forward(tokens)
