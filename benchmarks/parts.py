"""Forward and backward of each part against the module that people would use instead.

    python benchmarks/parts.py            ratios of time, ours / theirs, below 1 is faster
    python benchmarks/parts.py --memory   peak memory of attention against length

Both sides of a row have the same shapes and run in turns in one process, so that a busy machine
slows both alike; the figure is the median of the ratios of neighboring turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.attention.relative import PositionSizes, RotaryConfig
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig, TransformerXLConfig
from harken.layers.conformer import ConformerConfig
from harken.layers.convolution import (
    CausalConvolutionConfig,
    ConvPyramidConfig,
    GatedConvolutionConfig,
)
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.frontends import Conv2dSubsamplingConfig, grid
from harken.layers.norm import NormConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.layers.spatial import SpatialConfig
from harken.layers.transformer import Memory, TransformerConfig
from harken.training.runtime import prepare

SIZES = {"small": (16, 64, 128, 4), "large": (8, 256, 256, 8)}  # B, T, J, k
Run = Callable[[Tensor], Tensor]
Row = tuple[str, str, nn.Module, Run, nn.Module, Run]


def in_order(time_steps: int, mask: Mask, keys: int | None = None) -> AttentionContext:
    at, keys_at = torch.arange(time_steps)[None], torch.arange(keys or time_steps)[None]
    return AttentionContext(mask=mask, query_positions=at, key_positions=keys_at)


def pytorch_rows(batch: int, steps: int, width: int, heads: int) -> Iterator[Row]:
    """Against PyTorch's own modules."""
    hidden = nn.Transformer.generate_square_subsequent_mask(steps)
    for name, mask, theirs_mask in (("", NO_MASK, None), (", causal", CAUSAL, hidden)):
        context = in_order(steps, mask)
        ours = MultiHeadConfig(heads=heads, bias=True).build(width, steps)
        theirs = nn.MultiheadAttention(width, heads, batch_first=True)
        yield (
            f"multi-head attention{name}",
            "nn.MultiheadAttention",
            ours,
            lambda x, m=ours, a=context: m(x, a)[0],
            theirs,
            lambda x, m=theirs, h=theirs_mask: m(
                x, x, x, need_weights=False, attn_mask=h, is_causal=h is not None
            )[0],
        )
        block = TransformerConfig(
            attention=MultiHeadConfig(heads=heads, bias=True),
            feedforward=FeedForwardConfig(activation="relu"),
        ).build(width, steps)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
        )
        yield (
            f"Transformer block{name}",
            "nn.TransformerEncoderLayer",
            block,
            lambda x, m=block, a=context: m(x, a)[0],
            layer,
            lambda x, m=layer, h=theirs_mask: m(x, src_mask=h, is_causal=h is not None),
        )
    decoder = TransformerConfig(
        attention=MultiHeadConfig(heads=heads, bias=True),
        feedforward=FeedForwardConfig(activation="relu"),
    ).build(width, steps, width)
    known = torch.randn(batch, steps // 2, width)
    own, across = in_order(steps, CAUSAL), in_order(steps, NO_MASK, steps // 2)
    layer = nn.TransformerDecoderLayer(
        width, heads, 4 * width, 0.0, batch_first=True, norm_first=True
    )
    yield (
        "Transformer decoder block",
        "nn.TransformerDecoderLayer",
        decoder,
        lambda x: decoder(x, own, None, Memory(decoder.cross.project_kv(known), across))[0],
        layer,
        lambda x: layer(x, known, tgt_mask=hidden, tgt_is_causal=True),
    )
    for config, reference in (
        (TanhConfig(), nn.RNN(width, width, bias=False, batch_first=True)),
        (GRUConfig(), nn.GRU(width, width, batch_first=True)),
        (LSTMConfig(), nn.LSTM(width, width, batch_first=True)),
    ):
        recurrent = config.build(width)
        yield (
            f"recurrent {config.kind}",
            f"nn.{type(reference).__name__}",
            recurrent,
            lambda x, m=recurrent: m(x)[0],
            reference,
            lambda x, m=reference: m(x)[0],
        )


def hugging_face_rows(batch: int, steps: int, width: int, heads: int) -> Iterator[Row]:
    """Against Hugging Face's layers, where the package is installed."""
    try:
        import transformers
        from transformers.models.gpt2.modeling_gpt2 import GPT2Block
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
    except ImportError:
        print("without rows against Hugging Face: pip install transformers", file=sys.stderr)
        return
    drop = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    gpt2 = transformers.GPT2Config(n_embd=width, n_head=heads, n_positions=steps, **drop)
    gpt2._attn_implementation = "sdpa"
    theirs = GPT2Block(gpt2, layer_idx=0)
    ours = TransformerConfig(attention=MultiHeadConfig(heads=heads, bias=True)).build(width, steps)
    context = in_order(steps, CAUSAL)

    def first(output: object) -> Tensor:
        return output[0] if isinstance(output, tuple) else output  # type: ignore[return-value]

    yield (
        "Transformer block, GPT-2's",
        "GPT2Block",
        ours,
        lambda x: ours(x, context)[0],
        theirs,
        lambda x: first(theirs(x)),
    )
    llama = transformers.LlamaConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        intermediate_size=2 * width,
    )
    llama._attn_implementation = "sdpa"
    layer = LlamaDecoderLayer(llama, layer_idx=0)
    at = torch.arange(steps)[None]
    turned = LlamaRotaryEmbedding(llama)(torch.zeros(1, 1, width), at)
    sizes = PositionSizes(width=width, key_width=width // heads, heads=heads, length=steps)
    rotation = RotaryConfig().build(sizes).rotation(at[..., None])
    turning = AttentionContext(mask=CAUSAL, query_positions=at, key_positions=at, rotation=rotation)
    block = TransformerConfig(
        attention=MultiHeadConfig(heads=heads, kv_heads=heads // 2),
        feedforward=FeedForwardConfig(activation="swiglu", inner=2 * width, bias=False),
        norm=NormConfig(kind="rms"),
    ).build(width, steps)
    yield (
        "Transformer block, Llama's",
        "LlamaDecoderLayer",
        block,
        lambda x: block(x, turning)[0],
        layer,
        lambda x: first(layer(x, position_embeddings=turned, position_ids=at)),
    )


def conformer_rows(batch: int, steps: int, width: int, heads: int) -> Iterator[Row]:
    """The Conformer block with relative positions, in training."""
    try:
        from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as theirs
    except ImportError:
        return
    off = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    config = theirs.Wav2Vec2ConformerConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_act="swish",
        position_embeddings_type="relative",
        conformer_conv_dropout=0.0,
        **off,
    )
    config._attn_implementation = "eager"  # the only one that knows relative positions
    layer = theirs.Wav2Vec2ConformerEncoderLayer(config)
    waves = theirs.Wav2Vec2ConformerRelPositionalEmbedding(config)(torch.zeros(1, steps, width))
    block = ConformerConfig(
        attention=MultiHeadConfig(heads=heads, bias=True, score=TransformerXLConfig())
    ).build(width, steps)
    context = in_order(steps, NO_MASK)
    yield (
        "Conformer block",
        "Wav2Vec2ConformerEncoderLayer",
        block,
        lambda x: block(x, context),
        layer,
        lambda x: layer(x, relative_position_embeddings=waves)[0],
    )


class PlainConvolutions(nn.Module):
    """Convolutions as one would write them by hand, channels first all the way."""

    def __init__(self, layers: int, kernel: int, width: int, *, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        written = 2 * width if gated else width
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, written, kernel, dilation=1 if gated else 2**depth)
            for depth in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.transpose(1, 2)
        for one in self.convolutions:
            reach = one.dilation[0] * (one.kernel_size[0] - 1)
            if self.gated:
                read = one(nn.functional.pad(rows, (reach // 2, reach - reach // 2)))
                rows = (rows + nn.functional.glu(read, dim=1)) * 0.5**0.5
            else:
                rows = rows + torch.relu(one(nn.functional.pad(rows, (reach, 0))))
        return rows.transpose(1, 2)


class PlainPyramid(nn.Module):
    """Stride-2 convolutions down, transposed ones up, by hand."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(width, width, 3, 2, 1) for _ in range(layers))
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width, width, 3, 2, 1, output_padding=1) for _ in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        levels = [inputs.transpose(1, 2)]
        for one in self.down:
            levels.append(torch.relu(one(levels[-1])))
        rows = levels.pop()
        for one, level in zip(self.up, reversed(levels), strict=True):
            rows = torch.relu(level + one(rows))
        return rows.transpose(1, 2)


def convolution_rows(batch: int, steps: int, width: int, heads: int) -> Iterator[Row]:
    """Convolutional layers against plain ones; the front against its three modules in a row."""
    causal = CausalConvolutionConfig(layers=3, kernel=3, activation="relu").build(width)
    gated = GatedConvolutionConfig(layers=3, kernel=3).build(width)
    pyramid = ConvPyramidConfig(layers=3, kernel=3, activation="relu").build(width)
    plain = PlainConvolutions(3, 3, width, gated=False)
    plain_gated = PlainConvolutions(3, 3, width, gated=True)
    plain_pyramid = PlainPyramid(3, width)
    yield "causal convolutions", "nn.Conv1d by hand", causal, causal, plain, plain
    yield "gated convolutions", "nn.Conv1d by hand", gated, gated, plain_gated, plain_gated
    yield "stride-2 pyramid", "nn.Conv1d by hand", pyramid, pyramid, plain_pyramid, plain_pyramid
    front = Conv2dSubsamplingConfig(channels=32).build(width, width)
    by_hand = nn.Sequential(
        nn.Unflatten(1, (1, steps)),
        nn.Conv2d(1, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 2, 1),
        nn.ReLU(),
    )
    last = nn.Linear(32 * width // 4, width)
    by_hand.append(last)

    def run_by_hand(x: Tensor) -> Tensor:
        return last(by_hand[:-1](x).transpose(1, 2).flatten(2))

    yield (
        "speech front",
        "nn.Conv2d by hand",
        front,
        lambda x: front(x).tokens,
        by_hand,
        run_by_hand,
    )


def spatial_rows(batch: int, steps: int, width: int, heads: int) -> Iterator[Row]:
    """Attention over x,y against the same places in a row."""
    side = round(steps**0.5)
    spatial = SpatialConfig(
        layers=1,
        attention=MultiHeadConfig(heads=heads, bias=True),
        position=NoPositionConfig(),
        feedforward=FeedForwardConfig(activation="relu"),
        norm=NormConfig(place="post"),
    ).build(width, side, side)
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
    places = grid(side, side, torch.device("cpu"))
    yield (
        "spatial self-attention",
        "nn.TransformerEncoderLayer",
        spatial,
        lambda x: spatial(x, places),
        layer,
        layer,
    )


def turn(module: nn.Module, run: Run, inputs: Tensor) -> float:
    """Seconds of one forward and backward."""
    started = time.perf_counter()
    run(inputs).sum().backward()
    passed = time.perf_counter() - started
    module.zero_grad(set_to_none=True)
    return passed


def ratio(row: Row, inputs: Tensor, rounds: int) -> float:
    _, _, ours, run_ours, theirs, run_theirs = row
    for _ in range(3):
        turn(ours, run_ours, inputs)
        turn(theirs, run_theirs, inputs)
    ratios = []
    for number in range(rounds):
        sides = [(ours, run_ours), (theirs, run_theirs)]
        if number % 2:  # neither side always goes first
            sides.reverse()
        seconds = {id(module): turn(module, run, inputs) for module, run in sides}
        ratios.append(seconds[id(ours)] / seconds[id(theirs)])
    return statistics.median(ratios)


SOURCES = (
    pytorch_rows,
    hugging_face_rows,
    conformer_rows,
    convolution_rows,
    spatial_rows,
)


def times(rounds: int) -> None:
    for name, (batch, steps, width, heads) in SIZES.items():
        inputs = torch.randn(batch, steps, width, requires_grad=True)
        for source in SOURCES:
            for row in source(batch, steps, width, heads):
                found = ratio(row, inputs, rounds)
                print(f"{name:6} {row[0]:30} {row[1]:30} {found:5.2f}", flush=True)


SCORES = {"dot": DotConfig(), "scaled": ScaledConfig(), "merged": MergedConfig()}


def peak(score: str, kind: str, steps: int) -> None:
    """Print the growth of this process's peak memory over one forward and backward, in bytes."""
    import resource

    width, heads = 64, 4
    config = MultiHeadConfig(heads=heads, score=SCORES[score])
    attention = config.build(width, steps)
    context = in_order(steps, NO_MASK if kind == "none" else CAUSAL)
    if kind == "rotary":
        _, key_width = config.head_widths(width)
        sizes = PositionSizes(width=width, key_width=key_width, heads=heads, length=steps)
        at = torch.arange(steps)[None]
        rotation = RotaryConfig().build(sizes).rotation(at[..., None])
        context = AttentionContext(
            mask=CAUSAL, query_positions=at, key_positions=at, rotation=rotation
        )
    attention(torch.randn(1, 8, width), in_order(8, NO_MASK))[0].sum().backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attention(torch.randn(1, steps, width), context)[0].sum().backward()
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def memory() -> None:
    for score in SCORES:
        for kind in ("none", "causal", "rotary"):
            grown = []
            for steps in (1024, 2048, 4096):
                call = [sys.executable, __file__, "--peak", score, kind, str(steps)]
                found = subprocess.run(call, capture_output=True, text=True, check=True)
                grown.append(int(found.stdout))
            table = 4 * 4 * 4096**2  # what the weights of four heads alone would take
            print(
                json.dumps(
                    {
                        "score": score,
                        "position": kind,
                        "MiB": [round(one / 2**20, 1) for one in grown],
                        "share_of_quadratic": round(grown[-1] / table, 3),
                    }
                ),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", nargs=3, metavar=("SCORE", "POSITION", "LENGTH"))
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    if options.peak:
        peak(options.peak[0], options.peak[1], int(options.peak[2]))
    elif options.memory:
        memory()
    else:
        times(options.rounds)


if __name__ == "__main__":
    main()
