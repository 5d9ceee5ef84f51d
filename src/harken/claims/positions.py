"""The problem set on positions: sinusoids, and heads that look T steps back, or about there.

    A = W_K^T W_Q has blocks [[cos β, -sin β], [sin β, cos β]],  β = T / 10000^(2i/d)
    band: zero the blocks with  i < d log B / (2 log 10000)

A is key-first: score(i, t) = e_t A e_i. The merged matrix of `attention/merging.py` is query-first,
so it is A transposed. What positions do to a head of contents is in `crosstalk.py`.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.merging import merge_pair
from harken.attention.positions import SinusoidConfig
from harken.attention.relative import PositionSizes
from harken.claims import formulas
from harken.claims.claim import EXACT, NARROWER, SINGLE, Array, Case, Claim, Setting, worst
from harken.design.band import BandPlan, band, band_shape
from harken.design.head import attention
from harken.design.shift import ShiftPlan, shift
from harken.design.waves import Waves, wave_vectors

SOURCE = "problem set on positions"
LENGTH, OFFSET, TOLERANCE = 61, 7, 0.01
BAND, BAND_OFFSET, BAND_LENGTH = 8, 20, 127


def sinusoids(setting: Setting) -> Sequence[Case]:
    """A1: every element."""
    sizes = PositionSizes(width=setting.width, key_width=setting.width, heads=1, length=LENGTH)
    places = torch.arange(LENGTH)[None, :, None]
    measured = SinusoidConfig().build(sizes).vectors(places)[0]
    predicted = formulas.sinusoids(LENGTH, setting.width)
    return [worst("the element that differs most", predicted, measured, SINGLE)]


def steps_back(setting: Setting) -> Sequence[Case]:
    """A4: the matrix, then the attention of the designed head."""
    waves = Waves(width=setting.width)
    plan = ShiftPlan(
        waves=waves, offset=OFFSET, length=LENGTH, tolerance=TOLERANCE, precision=torch.float64
    )
    head = shift(plan)
    measured = attention(head, wave_vectors(waves, LENGTH))
    turn = formulas.turning(setting.width, OFFSET)
    sharpness = enough_sharpness(setting.width)
    vectors = formulas.sinusoids(LENGTH, setting.width)
    predicted = formulas.attention(
        sharpness * vectors @ turn.T, vectors, seen=lambda query, key: key <= query
    )
    right = measured.argmax(dim=1)[OFFSET:] == torch.arange(LENGTH - OFFSET)
    product = head.keys.T @ head.queries / sharpness
    merged = merge_pair(head.queries[None], head.keys[None], 1 / sharpness)[0]
    return [
        worst("A = W_K^T W_Q at sharpness 1", turn, product),
        worst("the merged matrix, query first, is A transposed", turn.T, merged),
        Case(
            what=f"queries whose largest attention is {OFFSET} steps back",
            predicted=1.0,
            measured=float(right.double().mean()),
            tolerance=0.0,
        ),
        worst("attention, every query and key", predicted, measured, EXACT),
    ]


def enough_sharpness(width: int) -> float:
    """log(n (1 - ε) / ε) over the smallest gap of a wrong key: then it has at most ε in all."""
    distances = np.arange(1, LENGTH)[:, None]
    gap = (1 - np.cos(distances * formulas.rates(width))).sum(axis=1).min()
    return math.log((LENGTH - 1) * (1 - TOLERANCE) / TOLERANCE) / float(gap)


def about_there(setting: Setting) -> Sequence[Case]:
    """A5: the designed band head, around its offset."""
    waves = Waves(width=setting.width)
    soft, sharp = (
        BandPlan(
            waves=waves,
            offset=BAND_OFFSET,
            band=float(BAND),
            sharpness=sharpness,
            length=BAND_LENGTH,
        )
        for sharpness in (1.0, 8.0)
    )
    rates = formulas.rates(setting.width)
    slow = np.arange(len(rates)) >= setting.width * math.log(BAND) / (2 * math.log(10000))
    weights = attention(band(soft), wave_vectors(waves, BAND_LENGTH))[-1].log()
    peak = BAND_LENGTH - 1 - BAND_OFFSET
    fall = float(weights[peak] - weights[peak - BAND // 2])
    shape = band_shape(soft)
    return [
        Case(
            what="fall of the score from T to T - B/2, flat as stated",
            predicted=0.0,
            measured=fall,
            tolerance=0.01,
        ),
        Case(
            what="blocks zeroed",
            predicted=float((~slow).sum()),
            measured=float(shape.zeroed),
            tolerance=0.0,
            stated=False,
        ),
        Case(
            what="steps back of the largest attention",
            predicted=float(BAND_OFFSET),
            measured=float(BAND_LENGTH - 1 - int(weights.argmax())),
            tolerance=0.0,
            stated=False,
        ),
        Case(
            what="fall of the score from T to T - B/2, Σ 1 - cos(w B/2)",
            predicted=float((1 - np.cos(rates[slow] * BAND / 2)).sum()),
            measured=fall,
            tolerance=EXACT,
            stated=False,
        ),
        *(
            Case(
                what=f"steps to half of the largest attention, sharpness {plan.sharpness:g}",
                predicted=half_width(rates[slow], plan.sharpness),
                measured=band_shape(plan).half_width or math.inf,
                tolerance=0.01,
                stated=False,
            )
            for plan in (soft, sharp)
        ),
    ]


def half_width(rates: Array, sharpness: float) -> float:
    """By walking away from the peak until the score has fallen by log 2."""
    distances = np.arange(0, math.pi / rates.max(), 0.001)
    fallen = sharpness * (1 - np.cos(distances[:, None] * rates)).sum(axis=1) >= math.log(2)
    return float(distances[fallen.argmax()]) if fallen.any() else math.inf


CLAIMS = (
    Claim(
        id="A1",
        source=SOURCE,
        statement="A place is told by a sine and a cosine for each of d/2 falling frequencies.",
        formula="e_t[2i] = sin(t / 10000^(2i/d)), e_t[2i+1] = cos(t / 10000^(2i/d))",
        assumption="none",
        check=sinusoids,
        remark="The solution prints 1000 for 10000 in two places; the definition has 10000.",
    ),
    Claim(
        id="A4",
        source=SOURCE,
        statement="A head looks exactly T steps back when A turns each pair of waves by its angle "
        "over T steps.",
        formula="A = W_K^T W_Q, blocks [[cos β, -sin β], [sin β, cos β]], β = T / 10000^(2i/d)",
        assumption="tokens are places alone, t >= T, and A is sharp enough for the length",
        check=steps_back,
    ),
    Claim(
        id="A5",
        source=SOURCE,
        statement="Zeroing the blocks that turn a radian within B steps makes attention largest "
        "anywhere in T ± B/2.",
        formula="zero the blocks with i < d log B / (2 log 10000)",
        assumption="the peak of a wave is about one radian wide",
        check=about_there,
        expected=NARROWER,
        remark="The score still peaks at T and falls smoothly, by at most 1 - cos(1/2) = 12 % of "
        "each block at T ± B/2. How wide the band of attention is depends on the sharpness: any "
        "band narrows as the head is sharpened.",
    ),
)
