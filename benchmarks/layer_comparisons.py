"""Layers of Harken and the reference implementations that `parts.py` compares them with.

The references are modules of PyTorch, layers of Hugging Face `transformers` (if it is installed)
and convolutions in plain PyTorch. A layer and its reference have the same shapes and sizes.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.attention.relative import PositionSizes, RotaryConfig
from harken.attention.scores import TransformerXLConfig
from harken.layers.conformer import ConformerBlock, ConformerEncoderConfig
from harken.layers.convolution import (
    CausalConvolutionConfig,
    ConvPyramidConfig,
    GatedConvolutionConfig,
)
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.frontends import Conv2dSubsamplingConfig, grid_coordinates
from harken.layers.norm import NormConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.layers.spatial import SpatialConfig
from harken.layers.transformer import TransformerConfig

Run = Callable[[Tensor], Tensor]


class Sizes(NamedTuple):
    batch: int
    length: int
    width: int
    heads: int


class Comparison(NamedTuple):
    """A layer of Harken and its reference, each with a function that runs it."""

    title: str
    reference_title: str
    layer: nn.Module
    run: Run
    reference: nn.Module
    run_reference: Run


def positions_context(length: int, mask: Mask, keys: int | None = None) -> AttentionContext:
    """Return the context of attention over tokens 0, 1, 2, …"""
    positions, key_positions = torch.arange(length)[None], torch.arange(keys or length)[None]
    return AttentionContext(mask=mask, query_positions=positions, key_positions=key_positions)


def rotary_context(length: int, config: MultiHeadConfig, width: int) -> AttentionContext:
    """Return the context of causal attention with rotary positions."""
    positions = torch.arange(length)[None]
    _, key_width = config.head_widths(width)
    sizes = PositionSizes(width=width, key_width=key_width, heads=config.heads, max_length=length)
    return AttentionContext(
        mask=CAUSAL,
        query_positions=positions,
        key_positions=positions,
        rotation=RotaryConfig().build(sizes).rotation(positions[..., None]),
    )


def attention_comparisons(sizes: Sizes, *, causal: bool) -> Iterator[Comparison]:
    """Yield attention and a Transformer block, against PyTorch's modules."""
    _, length, width, heads = sizes
    suffix = ", causal" if causal else ""
    context = positions_context(length, CAUSAL if causal else NO_MASK)
    mask = nn.Transformer.generate_square_subsequent_mask(length) if causal else None
    attention_config = MultiHeadConfig(heads=heads, bias=True)
    attention = attention_config.build(width, length)
    reference = nn.MultiheadAttention(width, heads, batch_first=True)
    yield Comparison(
        f"multi-head attention{suffix}",
        "nn.MultiheadAttention",
        attention,
        lambda x: attention(x, context)[0],
        reference,
        lambda x: reference(x, x, x, need_weights=False, attn_mask=mask, is_causal=causal)[0],
    )
    feedforward = FeedForwardConfig(activation="relu")
    block = TransformerConfig(attention=attention_config, feedforward=feedforward)
    layer = block.build(width, length)
    reference_layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
    )
    yield Comparison(
        f"Transformer block{suffix}",
        "nn.TransformerEncoderLayer",
        layer,
        lambda x: layer(x, context)[0],
        reference_layer,
        lambda x: reference_layer(x, src_mask=mask, is_causal=causal),
    )


def decoder_comparison(sizes: Sizes) -> Iterator[Comparison]:
    """Yield a decoder block that attends to a memory of half the length."""
    batch, length, width, heads = sizes
    layer = TransformerConfig(
        attention=MultiHeadConfig(heads=heads, bias=True),
        feedforward=FeedForwardConfig(activation="relu"),
    ).build(width, length, width)
    reference = nn.TransformerDecoderLayer(
        width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
    )
    memory = torch.randn(batch, length // 2, width)
    context = positions_context(length, CAUSAL)
    cross_context = positions_context(length, NO_MASK, length // 2)
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    yield Comparison(
        "Transformer decoder block",
        "nn.TransformerDecoderLayer",
        layer,
        lambda x: layer(x, context, None, layer.cross.project_kv(memory), cross_context)[0],
        reference,
        lambda x: reference(x, memory, tgt_mask=mask, tgt_is_causal=True),
    )


def pytorch_comparisons(sizes: Sizes) -> Iterator[Comparison]:
    """Yield the layers that PyTorch has too."""
    yield from attention_comparisons(sizes, causal=False)
    yield from attention_comparisons(sizes, causal=True)
    yield from decoder_comparison(sizes)
    width = sizes.width
    for title, config, reference in (
        ("tanh RNN", TanhConfig(), nn.RNN(width, width, bias=False, batch_first=True)),
        ("GRU", GRUConfig(), nn.GRU(width, width, batch_first=True)),
        ("LSTM", LSTMConfig(), nn.LSTM(width, width, batch_first=True)),
    ):
        yield Comparison(
            title,
            f"nn.{type(reference).__name__}",
            (layer := config.build(width)),
            lambda x, module=layer: module(x)[0],
            reference,
            lambda x, module=reference: module(x)[0],
        )


def transformers_comparisons(sizes: Sizes) -> Iterator[Comparison]:
    """Yield blocks of GPT-2, Llama and the Conformer, against Hugging Face's layers."""
    try:
        import transformers
        from transformers.models.gpt2.modeling_gpt2 import GPT2Block
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
        from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer
    except ImportError:
        message = (
            "skipping the comparisons with Hugging Face; to add them: pip install transformers"
        )
        print(message, file=sys.stderr)
        return
    _, length, width, heads = sizes

    def first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
        return output[0] if isinstance(output, tuple) else output

    no_dropout = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    gpt2 = transformers.GPT2Config(n_embd=width, n_head=heads, n_positions=length, **no_dropout)
    gpt2._attn_implementation = "sdpa"
    gpt2_reference = GPT2Block(gpt2, layer_idx=0)
    attention = MultiHeadConfig(heads=heads, bias=True)
    gpt2_block = TransformerConfig(attention=attention).build(width, length)
    context = positions_context(length, CAUSAL)
    yield Comparison(
        "Transformer block of GPT-2",
        "GPT2Block",
        gpt2_block,
        lambda x: gpt2_block(x, context)[0],
        gpt2_reference,
        lambda x: first(gpt2_reference(x)),
    )
    llama = transformers.LlamaConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        intermediate_size=2 * width,
    )
    llama._attn_implementation = "sdpa"
    llama_reference = LlamaDecoderLayer(llama, layer_idx=0)
    positions = torch.arange(length)[None]
    cos_sin = LlamaRotaryEmbedding(llama)(torch.zeros(1, 1, width), positions)
    attention = MultiHeadConfig(heads=heads, kv_heads=heads // 2)
    rotary = rotary_context(length, attention, width)
    llama_block = TransformerConfig(
        attention=attention,
        feedforward=FeedForwardConfig(activation="swiglu", inner=2 * width, bias=False),
        norm=NormConfig(kind="rms"),
    ).build(width, length)
    yield Comparison(
        "Transformer block of Llama",
        "LlamaDecoderLayer",
        llama_block,
        lambda x: llama_block(x, rotary)[0],
        llama_reference,
        lambda x: first(llama_reference(x, position_embeddings=cos_sin, position_ids=positions)),
    )
    config = conformer.Wav2Vec2ConformerConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_act="swish",
        position_embeddings_type="relative",
        conformer_conv_dropout=0.0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    config._attn_implementation = "eager"  # sdpa does not support relative positions
    conformer_reference = conformer.Wav2Vec2ConformerEncoderLayer(config)
    embed = conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)
    sinusoids = embed(torch.zeros(1, length, width))
    conformer_config = ConformerEncoderConfig(
        attention=MultiHeadConfig(heads=heads, bias=True, score=TransformerXLConfig()),
        max_length=length,
        kernel=31,
        dropout=0.0,
    )
    conformer_block = ConformerBlock(conformer_config, width)
    unmasked = positions_context(length, NO_MASK)
    yield Comparison(
        "Conformer block",
        "Wav2Vec2ConformerEncoderLayer",
        conformer_block,
        lambda x: conformer_block(x, unmasked),
        conformer_reference,
        lambda x: first(conformer_reference(x, relative_position_embeddings=sinusoids)),
    )


class PlainConvolutions(nn.Module):
    """Residual convolutions in plain PyTorch: gated, or causal with growing dilation."""

    def __init__(self, layers: int, kernel: int, width: int, *, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        channels = 2 * width if gated else width
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, channels, kernel, dilation=1 if gated else 2**depth)
            for depth in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        states = inputs.transpose(1, 2)
        for convolution in self.convolutions:
            padding = convolution.dilation[0] * (convolution.kernel_size[0] - 1)
            if self.gated:
                sides = (padding // 2, padding - padding // 2)
                outputs = convolution(nn.functional.pad(states, sides))
                states = (states + nn.functional.glu(outputs, dim=1)) * 0.5**0.5
            else:
                states = states + torch.relu(convolution(nn.functional.pad(states, (padding, 0))))
        return states.transpose(1, 2)


class PlainPyramid(nn.Module):
    """Convolutions of stride 2 down, transposed convolutions up, in plain PyTorch."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(width, width, 3, 2, 1) for _ in range(layers))
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width, width, 3, 2, 1, output_padding=1) for _ in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        levels = [inputs.transpose(1, 2)]
        for convolution in self.down:
            levels.append(torch.relu(convolution(levels[-1])))
        states = levels.pop()
        for convolution, level in zip(self.up, reversed(levels), strict=True):
            states = torch.relu(level + convolution(states))
        return states.transpose(1, 2)


def convolution_comparisons(sizes: Sizes) -> Iterator[Comparison]:
    """Yield convolutional layers and the subsampling of speech, against plain PyTorch."""
    _, length, width, _ = sizes
    for title, config, reference in (
        (
            "causal convolutions",
            CausalConvolutionConfig(layers=3, kernel=3, activation="relu"),
            PlainConvolutions(3, 3, width, gated=False),
        ),
        (
            "gated convolutions",
            GatedConvolutionConfig(layers=3, kernel=3),
            PlainConvolutions(3, 3, width, gated=True),
        ),
        (
            "stride-2 pyramid",
            ConvPyramidConfig(layers=3, kernel=3, activation="relu"),
            PlainPyramid(3, width),
        ),
    ):
        layer = config.build(width)
        yield Comparison(title, "nn.Conv1d", layer, layer, reference, reference)
    subsampling = Conv2dSubsamplingConfig(channels=32).build(width, width)
    plain = nn.Sequential(
        nn.Unflatten(1, (1, length)),
        nn.Conv2d(1, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Linear(32 * width // 4, width),
    )
    yield Comparison(
        "speech subsampling",
        "nn.Conv2d",
        subsampling,
        lambda x: subsampling(x).tokens,
        plain,
        lambda x: plain[-1](plain[:-1](x).transpose(1, 2).flatten(2)),
    )


def spatial_comparison(sizes: Sizes) -> Iterator[Comparison]:
    """Yield attention over a square image, against a Transformer layer on the flat sequence."""
    _, length, width, heads = sizes
    side = round(length**0.5)
    spatial = SpatialConfig(
        layers=1,
        attention=MultiHeadConfig(heads=heads, bias=True),
        position=NoPositionConfig(),
        feedforward=FeedForwardConfig(activation="relu"),
        norm=NormConfig(place="post"),
    ).build(width, side, side)
    reference = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
    coordinates = grid_coordinates(side, side, torch.device("cpu"))
    yield Comparison(
        "spatial self-attention",
        "nn.TransformerEncoderLayer",
        spatial,
        lambda x: spatial(x, coordinates),
        reference,
        reference,
    )


def layer_comparisons(sizes: Sizes) -> Iterator[Comparison]:
    """Yield all comparisons."""
    yield from pytorch_comparisons(sizes)
    yield from transformers_comparisons(sizes)
    yield from convolution_comparisons(sizes)
    yield from spatial_comparison(sizes)
