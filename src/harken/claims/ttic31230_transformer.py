"""TTIC 31230 Fundamentals of Deep Learning, Transformer Problems.

    Out[k,t] = Σ_t' α[k,t,t'] Value[k,t'],   h_out[t] = Out[1,t]; …; Out[K,t],   I = J/K
    α[k,x1,y1,x2,y2] = softmax over x2 and y2 of Query[k,x1,y1]·Key[k,x2,y2]

Parallel time is the longest chain of dependent steps. A sum of n terms takes ⌈log2 n⌉ steps, an
inner product one more, or n if it is serial. Self-attention has projections over J, scores over U,
and three sums over time: the largest score, Z and the weighted sum. The predicted number adds these
up by hand; the measured one is a trace of the library's layer (`cost/depth.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import DotConfig
from harken.claims.claim import Case, Setting, claim, compare
from harken.claims.random_layers import (
    HEADS,
    KEY_WIDTH,
    QUERIES,
    attend,
    head_matrices,
    normal,
    random_layer,
    sequence_context,
    to_numpy,
)
from harken.cost.step import trace_forward
from harken.layers.frontends import as_map, as_tokens

SOURCE = "TTIC 31230 Fundamentals of Deep Learning, Transformer Problems"
HEAD_WIDTH = 7
WIDTH = HEADS * HEAD_WIDTH
CONCATENATED = MultiHeadConfig(heads=HEADS, key_width=KEY_WIDTH, score=DotConfig(), out_proj=False)
Sizes = tuple[int, int, int]  # T, J, U
BASE: Sizes = (64, 64, 16)
LONG = 4096


@claim(
    "B2",
    f"{SOURCE}, problem 1",
    "K heads compare in U dimensions and output J/K each; concatenated they have width J.",
    formula="h_out[t] = Out[1,t]; …; Out[K,t],  Out[k,t] = Σ α[k,t,t'] Value[k,t']",
    assumption="none; U may differ from I",
)
def _check_concatenated_heads(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    attention = random_layer(CONCATENATED, generator, WIDTH)
    tokens = normal(generator, QUERIES, WIDTH)
    predicted = head_matrices(attention).outputs(tokens, tokens)
    width = float(CONCATENATED.head_widths(WIDTH)[0])
    return [
        compare("h_out, every position and element", predicted, attend(attention, tokens, tokens)),
        Case("width of a head, J / K", WIDTH / HEADS, width),
    ]


@claim(
    "B7",
    f"{SOURCE}, problem 2",
    "For images the same holds with x and y in place of t.",
    formula="α[k,x1,y1,x2,y2] = softmax over x2, y2 of Query[k,x1,y1]·Key[k,x2,y2]",
    assumption="none; it is attention over the flattened map",
)
def _check_spatial_attention(setting: Setting) -> Sequence[Case]:
    generator, columns, rows = setting.generator(), 3, 5
    attention = random_layer(CONCATENATED, generator, WIDTH)
    image = normal(generator, columns, rows, WIDTH)
    tokens = as_tokens(image[None])[0]
    measured = as_map(attend(attention, tokens, tokens)[None], columns)[0]
    matrices, pixels = head_matrices(attention), to_numpy(image)
    predicted = np.zeros_like(pixels)
    by_head = zip(matrices.query, matrices.key, matrices.value, strict=True)
    for head, (query, key, value) in enumerate(by_head):
        part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        for x in range(columns):
            for y in range(rows):
                scores = (pixels @ key.T) @ (query @ pixels[x, y])
                weights = np.exp(scores) / np.exp(scores).sum()  # over both axes at once
                predicted[x, y, part] = np.einsum("xy,xyi->i", weights, pixels @ value.T)
    return [compare("h_out[x, y], every position and element", predicted, measured)]


@claim(
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
        steps = attention_steps(*BASE, serial=serial), attention_depth(*BASE, serial=serial)
        cases.append(Case(f"steps of a layer, {mode}", float(steps[0]), float(steps[1])))
    doubled: tuple[tuple[str, Sizes, Sizes, int, int], ...] = (
        (f"T from {time}", BASE, (2 * time, width, key_width), 3, 3),
        (f"T from {LONG}", (LONG, width, key_width), (2 * LONG, width, key_width), 3, 3),
        ("J", BASE, (time, 2 * width, key_width), 1, width),
        ("U", BASE, (time, width, 2 * key_width), 1, key_width),
    )
    for what, small, large, *predicted in doubled:
        for serial, mode in modes:
            more = attention_depth(*large, serial=serial) - attention_depth(*small, serial=serial)
            name = f"steps more with twice {what}, {mode}"
            cases.append(Case(name, float(predicted[serial]), float(more)))
    columns, rows = 16, 32
    image = columns * rows, width, key_width
    steps = attention_steps(*image, serial=False), attention_depth(*image, serial=False)
    name = f"steps over a map of {columns} x {rows}"
    return [*cases, Case(name, float(steps[0]), float(steps[1]))]


def tree(terms: int) -> int:
    """Steps of a sum in which any two terms may be added at once."""
    return (terms - 1).bit_length()


def attention_steps(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """Projection, scores, softmax (maximum, difference, exponential, sum, quotient) and sum."""
    project, compare = (terms if serial else 1 + tree(terms) for terms in (width, key_width))
    return project + compare + (2 * tree(time) + 3) + (1 + tree(time))


def attention_depth(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """The same from a trace of the library's layer; without W_O, as in the document.

    With 8 heads, values are never wider than keys; the fused kernel would pad the keys.
    """
    config = MultiHeadConfig(heads=8, key_width=key_width, head_width=width // 8, out_proj=False)
    tokens, context = torch.empty(1, time, width), sequence_context(time, time)
    cost = trace_forward(lambda _: config.build(width, LONG), lambda layer: layer(tokens, context))
    return cost.serial if serial else cost.depth
