"""TTIC 31230 Fundamentals of Deep Learning, Transformer Problems.

Parallel time is the longest chain of dependent steps. A sum of n terms takes ⌈log2 n⌉ steps, an
inner product one more, or n if it is serial. The measured number comes from tracing the library's
layer (`cost/depth.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import DotConfig
from harken.claims import random_layers as layers
from harken.claims.claim import Case, Claim, Setting, compare_arrays
from harken.claims.random_layers import HEADS, KEY_WIDTH
from harken.cost.step import trace_forward
from harken.layers.frontends import as_map, as_tokens

SOURCE = "TTIC 31230 Fundamentals of Deep Learning, Transformer Problems"
HEAD_WIDTH = 7
WIDTH = HEADS * HEAD_WIDTH
CONCATENATED = MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH, score=DotConfig(), out_proj=False)
Sizes = tuple[int, int, int]  # T, J, U
BASE: Sizes = (64, 64, 16)
LONG = 4096


@Claim(
    "B2",
    f"{SOURCE}, problem 1",
    "K heads have queries and keys of width U, and outputs of width J/K; concatenated, of width J.",
    formula="h_out[t] = Out[1,t]; …; Out[K,t],  Out[k,t] = Σ α[k,t,t'] Value[k,t']",
    assumption="none; U may differ from I",
)
def _check_concatenated_heads(setting: Setting) -> Sequence[Case]:
    name, width = "h_out, every position and element", CONCATENATED.head_widths(WIDTH)[0]
    return [
        layers.output_case(name, CONCATENATED, setting, WIDTH),
        Case("width of the values of each head, J / K", WIDTH / HEADS, float(width)),
    ]


@Claim(
    "B7",
    f"{SOURCE}, problem 2",
    "Attention over an image has positions x and y in place of the time t.",
    formula="α[k,x1,y1,x2,y2] = softmax over x2, y2 of Query[k,x1,y1]·Key[k,x2,y2]",
    assumption="none; it equals attention over the flattened map",
)
def _check_spatial_attention(setting: Setting) -> Sequence[Case]:
    generator, columns, rows = setting.generator(), 3, 5
    attention, matrices = layers.random_attention(CONCATENATED, generator, WIDTH)
    image = layers.normal(generator, columns, rows, WIDTH)
    tokens = as_tokens(image[None])[0]
    measured = as_map(layers.attend(attention, tokens, tokens)[None], columns)[0]
    pixels, heads = layers.to_numpy(image), []
    for query, key, value in zip(matrices.query, matrices.key, matrices.value, strict=True):
        output = np.zeros((columns, rows, HEAD_WIDTH))
        for x, y in np.ndindex(columns, rows):
            scores = (pixels @ key.T) @ (query @ pixels[x, y])
            weights = np.exp(scores) / np.exp(scores).sum()  # over both axes at once
            output[x, y] = np.einsum("xy,xyi->i", weights, pixels @ value.T)
        heads.append(output)
    predicted = np.concatenate(heads, axis=2)
    return [compare_arrays("h_out[x, y], every position and element", predicted, measured)]


@Claim(
    "C7",
    f"{SOURCE}, problems 1 and 2",
    "A self-attention layer takes O(ln T + ln J) parallel time, O(J + ln T) with serial inner "
    "products, and O(ln XY + ln J) over an image.",
    formula="projections ln J, scores ln U, softmax 2 ln T, weighted sum ln T",
    assumption="a sum of N terms takes log N steps, on enough processors",
)
def _check_parallel_time(setting: Setting) -> Sequence[Case]:
    time, width, key_width = BASE
    cases = []
    modes = ((False, "sums as trees"), (True, "inner products serial"))
    for serial, mode in modes:
        predicted = attention_steps(*BASE, serial=serial)
        measured = attention_depth(*BASE, serial=serial)
        cases.append(Case(f"steps of one layer, {mode}", float(predicted), float(measured)))
    doubled: tuple[tuple[str, Sizes, Sizes, int, int], ...] = (
        (f"T from {time}", BASE, (2 * time, width, key_width), 3, 3),
        (f"T from {LONG}", (LONG, width, key_width), (2 * LONG, width, key_width), 3, 3),
        ("J", BASE, (time, 2 * width, key_width), 1, width),
        ("U", BASE, (time, width, 2 * key_width), 1, key_width),
    )
    for letter, small, large, tree_increase, serial_increase in doubled:
        for serial, mode in modes:
            increase = serial_increase if serial else tree_increase
            more = attention_depth(*large, serial=serial) - attention_depth(*small, serial=serial)
            name = f"additional steps with twice {letter}, {mode}"
            cases.append(Case(name, float(increase), float(more)))
    image, name = (16 * 32, width, key_width), "steps over a feature map of 16 x 32"
    predicted = attention_steps(*image, serial=False)
    return [*cases, Case(name, float(predicted), float(attention_depth(*image, serial=False)))]


def tree_steps(terms: int) -> int:
    """Return the depth of a binary tree of additions."""
    return (terms - 1).bit_length()


def attention_steps(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """Return the steps of projection, scores, softmax (maximum, -, exp, sum, /), weighted sum."""
    projection, score = (n if serial else 1 + tree_steps(n) for n in (width, key_width))
    return projection + score + (2 * tree_steps(time) + 3) + (1 + tree_steps(time))


def attention_depth(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """Return the traced steps of the library's layer, without W_O as in the document."""
    # With 8 heads, values are never wider than keys; the fused kernel would pad the keys.
    config = MultiHeadConfig(heads=8, key_width=key_width, head_width=width // 8, out_proj=False)
    tokens, context = torch.empty(1, time, width), layers.sequence_context(time, time)
    cost = trace_forward(lambda _: config.build(width, LONG), lambda layer: layer(tokens, context))
    return cost.serial if serial else cost.depth
