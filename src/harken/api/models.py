"""`harken.GPT` (`build_gpt`) and `harken.MultiHead` (`SelfAttention`), from plain arguments."""

from typing import Any

import torch
from torch import Tensor, nn

from harken.api.arguments import build_config, check_integers
from harken.attention.masks import CAUSAL, NO_MASK, Mask, build_mask, padding_mask
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.errors import UserError
from harken.models.gpt import GPT, GPTConfig
from harken.models.initialize import initialize


def build_gpt(
    *,
    vocabulary: int,
    layers: int = 4,
    width: int = 256,
    heads: int = 4,
    max_length: int = 128,
    score: str = "scaled",
    position: str = "learned",
    dropout: float = 0.0,
    seed: int = 0,
) -> GPT:
    """Build a causal Transformer language model (GPT).

    Arguments:
        vocabulary: number of tokens.
        layers, width, heads: sizes; `width` is a multiple of `heads`.
        max_length: maximum number of tokens in a sequence.
        score: kind of attention score, such as "scaled", "additive" or "synthesizer".
        position: kind of positional encoding, such as "learned", "rotary", "alibi" or "none".
        dropout: dropout rate in training.
        seed: seed of the initial weights.

    Returns a module that maps tokens (batch, time) to logits (batch, time, vocabulary).

        model = harken.GPT(vocabulary=256, layers=2, width=64, heads=4, max_length=32)
        logits = model(torch.randint(256, (2, 16)))
    """
    # (value, minimum)
    check_integers("harken.GPT", vocabulary=(vocabulary, 1), seed=(seed, 0))
    attention = {"heads": heads, "score": {"kind": score}, "dropout": dropout}
    sizes = {"layers": layers, "width": width, "max_length": max_length, "dropout": dropout}
    table = {**sizes, "attention": attention, "position": {"kind": position}}
    return build_config(GPTConfig, table, "harken.GPT").build(vocabulary, seed)


class SelfAttention(nn.Module):
    """Multi-head self-attention: (batch, time, width) -> (batch, time, width).

    Arguments:
        width, heads: sizes; `width` is a multiple of `heads`.
        causal: whether a position attends only to itself and earlier positions.
        kv_heads: number of heads of keys and values, if fewer than `heads`.
        score: kind of attention score, such as "scaled", "additive" or "merged".
        max_length: maximum number of positions, for scores with parameters per position.
        bias: whether the projections have a bias.
        dropout: dropout rate of attention weights in training.
        seed: seed of the initial weights.

    Call it with inputs (batch, time, width) and optionally `present` (batch, time), a boolean mask
    that is false at padding.

        layer = harken.MultiHead(width=64, heads=4, causal=True)
        layer(torch.randn(2, 7, 64)).shape      # 2 7 64
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        causal: bool = False,
        kv_heads: int | None = None,
        score: str = "scaled",
        max_length: int = 1024,
        bias: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        where = "harken.MultiHead"
        check_integers(where, width=(width, 1), max_length=(max_length, 1), seed=(seed, 0))
        table: dict[str, Any] = {"heads": heads, "bias": bias, "dropout": dropout}
        table |= {} if kv_heads is None else {"kv_heads": kv_heads}
        config = build_config(MultiHeadConfig, {**table, "score": {"kind": score}}, where)
        try:
            config.check(width)
        except ValueError as error:
            raise UserError(f"{where}: {error}", fix="change width or heads") from error
        self.width, self.causal = width, causal
        self.attention: MultiHead = config.build(width, max_length)
        initialize(self, layers=1, seed=seed)

    def forward(self, inputs: Tensor, present: Tensor | None = None) -> Tensor:
        """Return the outputs; keys where `present` (batch, time) is false are masked."""
        if inputs.dim() != 3 or inputs.shape[2] != self.width:
            expected, shape = f"(batch, time, {self.width})", tuple(inputs.shape)
            problem = f"harken.MultiHead: expected inputs of shape {expected}, got {shape}"
            raise UserError(problem, fix="change the inputs or the width")
        positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        mask: Mask = CAUSAL if self.causal else NO_MASK
        if present is not None and self.causal:
            mask = build_mask("causal", positions, positions, present=present)
        elif present is not None:
            mask = padding_mask(present)
        context = AttentionContext(mask=mask, query_positions=positions, key_positions=positions)
        output: Tensor = self.attention(inputs, context)[0]
        return output
