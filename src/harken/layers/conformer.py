"""The Conformer block: attention for what is far, a convolution for what is near.

    x = x + 1/2 feedforward(x)          x = x + convolution(x)
    x = x + attention(x)                x = norm(x + 1/2 feedforward(x))

Each part begins with a norm of its own. The convolution part is

    W_2 silu(norm(depthwise(a * sigmoid(g)))),   (a, g) = W_1 x

with a kernel of its own for every number of a frame, centered. Its norm is over the batch or over
each frame. Beyond both ends of a row there are zeros, and so there are at its padding; a norm over
the batch does not count padding either.

Which keys are padding is said by the context, as for any attention. Streaming is not here: a
centered kernel wants to see what is still to come.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.transformer_xl import TransformerXLConfig
from harken.config import MAX_KERNEL, bounded
from harken.layers.convolution import mask_padding
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformerConfig:
    """One block; `dropout` falls on what each part adds, in training."""

    attention: MultiHeadConfig = MultiHeadConfig(score=TransformerXLConfig())
    feedforward: FeedForwardConfig = FeedForwardConfig(activation="silu")
    kernel: int = bounded(31, at_least=1, at_most=MAX_KERNEL)  # depthwise, in frames
    convolution_norm: Literal["batch", "layer"] = "batch"
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; make it odd")

    def build(self, width: int, length: int) -> "ConformerBlock":
        return ConformerBlock(self, width, length)


class ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, convolution, the other half: B T J -> B T J."""

    attention_is_first: ClassVar[bool] = False

    def __init__(self, config: ConformerConfig, width: int, length: int) -> None:
        super().__init__()
        self.before_norm, self.before = nn.LayerNorm(width), config.feedforward.build(width)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = config.attention.build(width, length)
        self.convolution_norm = nn.LayerNorm(width)
        self.convolution = ConvolutionModule(config.kernel, config.convolution_norm, width)
        self.after_norm, self.after = nn.LayerNorm(width), config.feedforward.build(width)
        self.final_norm = nn.LayerNorm(width)
        self.dropout = Dropout(config.dropout)

    @property
    def is_decoder(self) -> bool:
        return False

    def norms_before_attention(self) -> list[nn.Module]:
        return [self.attention_norm]

    def residual_norms(self) -> list[nn.Module]:
        return [self.final_norm]

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        present: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T J"]:
        """What stands where nothing is present has no meaning, and no influence."""
        frames = inputs + 0.5 * self.dropout(self.before(self.before_norm(inputs)))
        mixed, _ = self.attention(self.attention_norm(frames), context)
        frames = frames + self.dropout(mixed)
        near = self.convolution(self.convolution_norm(frames), present)
        frames = frames + self.dropout(near)
        frames = frames + 0.5 * self.dropout(self.after(self.after_norm(frames)))
        normed: Tensor = self.final_norm(frames)
        return normed


class ConvolutionModule(nn.Module):
    """Every frame reads its neighbors, each number on its own: B T J -> B T J."""

    def __init__(self, kernel: int, norm: Literal["batch", "layer"], width: int) -> None:
        super().__init__()
        # Offsets would be undone by the norm after, or are those of the norm before.
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        # As a picture one column wide: B T J is then in the order that the fast kernels like, and
        # training is three times as fast as with Conv1d on a CPU.
        self.depthwise = nn.Conv2d(
            width, width, (kernel, 1), padding=(kernel // 2, 0), groups=width, bias=False
        )
        self.norm = MaskedBatchNorm(width) if norm == "batch" else FrameNorm(width)
        self.down_proj = nn.Linear(width, width, bias=False)

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T J"]:
        gated = mask_padding(F.glu(self.up_proj(inputs), dim=-1), present)
        near = self.depthwise(gated.transpose(1, 2)[..., None])[..., 0].transpose(1, 2)
        written: Tensor = self.down_proj(F.silu(self.norm(near, present)))
        return written


class FrameNorm(nn.Module):
    """Mean and variance of each frame, so that padding cannot matter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.each = nn.LayerNorm(width)

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T J"]:
        normed: Tensor = self.each(inputs)
        return normed


class MaskedBatchNorm(nn.Module):
    """Mean and variance of each number over all frames that are present.

    In training those of the batch, which also move the running ones; else the running ones.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.every = nn.BatchNorm1d(width)

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T J"]:
        if present is None or not self.training:
            return self._norm(inputs.flatten(end_dim=1)).view_as(inputs)
        normed = inputs.new_zeros(inputs.shape)
        normed[present] = self._norm(inputs[present]).to(normed.dtype)
        return normed

    def _norm(self, frames: Float[Tensor, "N J"]) -> Float[Tensor, "N J"]:
        if self.training and len(frames) < 2:
            # One frame has no variance: it is judged by those before it.
            every = self.every
            return F.batch_norm(
                frames, every.running_mean, every.running_var, every.weight, every.bias
            )
        normed: Tensor = self.every(frames)
        return normed
