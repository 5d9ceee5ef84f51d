"""University of Illinois, ECE 537 Fundamentals of Speech Processing (2022), Problem Set 9.

score(i, t) = e_t^T A e_i with A = W_K^T W_Q. The library's merged matrix is A^T.

A6: (k + e_τ)·(q + e_t) = k·q + k·e_t + e_τ·q + e_τ·e_t with k = q. With independent uniform phases
the last three products have mean 0 and variances |k|²/2, |k|²/2 and d/4:

    elements ±1          mean d    variance 5d/4         k·q is the constant d
    elements Gaussian    mean d    variance 13d/4        k·q itself has variance 2d
    norm 1               mean 1    variance 1 + d/4      the document's |k| = 1

The document combines the norm of the third row with the variance of the first.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.attention.merging import merge_pair
from harken.attention.positions import SinusoidConfig
from harken.attention.sinusoids import Sinusoids, interleave
from harken.claims import formulas
from harken.claims.claim import ATOL, ATOL32, HOLDS_NARROWER, Case, Claim, Setting, compare_arrays
from harken.claims.random_layers import normal, position_vectors
from harken.design.band import BandPlan, band_head, band_shape
from harken.design.head import head_attention
from harken.design.shift import ShiftPlan, shift_head

SOURCE = "University of Illinois, ECE 537 Fundamentals of Speech Processing (2022), Problem Set 9"
LENGTH, OFFSET, TOLERANCE = 61, 7, 0.01  # A1 and A4
BAND, BAND_OFFSET, BAND_LENGTH = 8, 20, 127  # A5
DRAWS, POSITIONS = 20000, 128  # A6
RTOL = 0.06  # at least six standard errors of the mean and the variance

Sampler = Callable[[torch.Generator, int], Float[Tensor, "N J"]]


@Claim(
    "A1",
    f"{SOURCE}, problem 1",
    "A position is encoded by the sine and the cosine of d/2 decreasing frequencies.",
    formula="e_t[2i] = sin(t / 10000^(2i/d)), e_t[2i+1] = cos(t / 10000^(2i/d))",
    remark="The solution prints 1000 for 10000 in two places; the definition has 10000.",
)
def _check_sinusoids(setting: Setting) -> Sequence[Case]:
    measured = position_vectors(SinusoidConfig(), torch.arange(LENGTH), setting.width)
    predicted = formulas.numpy_sinusoids(LENGTH, setting.width)
    return [compare_arrays("element with the largest difference", predicted, measured, ATOL32)]


@Claim(
    "A4",
    f"{SOURCE}, problem 1(a)",
    "A head attends exactly T steps back if A rotates each pair by its angle over T steps.",
    formula="A = W_K^T W_Q, blocks [[cos β, -sin β], [sin β, cos β]], β = T / 10000^(2i/d)",
    assumption="inputs are position vectors only, t >= T, and A is sharp enough for the length",
)
def _check_shift_head(setting: Setting) -> Sequence[Case]:
    basis = Sinusoids(width=setting.width)
    head = shift_head(
        ShiftPlan(
            basis=basis, offset=OFFSET, length=LENGTH, tolerance=TOLERANCE, precision=torch.float64
        )
    )
    measured = head_attention(head, basis.vectors(LENGTH))
    rotation = formulas.numpy_rotation(setting.width, OFFSET)
    # log(n (1 - ε) / ε) / (smallest gap): the n wrong keys get at most ε of the attention.
    angles = np.arange(1, LENGTH)[:, None] * formulas.numpy_frequencies(setting.width)
    gap = float((1 - np.cos(angles)).sum(axis=1).min())
    sharpness = math.log((LENGTH - 1) * (1 - TOLERANCE) / TOLERANCE) / gap
    vectors = formulas.numpy_sinusoids(LENGTH, setting.width)
    predicted = formulas.numpy_attention(
        sharpness * vectors @ rotation.T, vectors, visible=np.tri(LENGTH, dtype=np.bool_)
    )
    is_correct = measured.argmax(dim=1)[OFFSET:] == torch.arange(LENGTH - OFFSET)
    product = head.keys.T @ head.queries / sharpness
    merged = merge_pair(head.queries[None], head.keys[None], 1 / sharpness)[0]
    name = f"share of queries whose largest attention is {OFFSET} steps back"
    return [
        compare_arrays("A = W_K^T W_Q at sharpness 1", rotation, product),
        compare_arrays("the merged matrix, query first, is A transposed", rotation.T, merged),
        Case(name, 1.0, float(is_correct.double().mean())),
        compare_arrays("attention, every query and key", predicted, measured),
    ]


@Claim(
    "A5",
    f"{SOURCE}, problem 1(b)",
    "If the blocks that rotate more than a radian in B steps are zeroed, attention is largest at "
    "every offset in T ± B/2.",
    formula="zero the blocks with i < d log B / (2 log 10000)",
    assumption="the peak of a sinusoid is about one radian wide",
    expected=HOLDS_NARROWER,
    remark="The score still peaks at T and falls smoothly, by at most 1 - cos(1/2) = 12 % of each "
    "block at T ± B/2. The width of the band depends on the sharpness: any band narrows as the "
    "head is sharpened.",
)
def _check_band_head(setting: Setting) -> Sequence[Case]:
    basis = Sinusoids(width=setting.width)
    soft = BandPlan(basis=basis, offset=BAND_OFFSET, band=float(BAND), length=BAND_LENGTH)
    sharp = replace(soft, sharpness=8.0)
    frequencies = formulas.numpy_frequencies(setting.width)
    is_slow = np.arange(len(frequencies)) >= setting.width * math.log(BAND) / (2 * math.log(10000))
    slow = frequencies[is_slow]
    log_weights = head_attention(band_head(soft), basis.vectors(BAND_LENGTH))[-1].log()
    peak = BAND_LENGTH - 1 - BAND_OFFSET
    drop = float(log_weights[peak] - log_weights[peak - BAND // 2])
    predicted_drop = float((1 - np.cos(slow * BAND / 2)).sum())
    peak_offset = float(BAND_LENGTH - 1 - int(log_weights.argmax()))
    zeroed = float(band_shape(soft).above_limit)
    drop_name = "drop of the score from T to T - B/2"
    cases = [
        Case(f"{drop_name}, 0 as stated", 0.0, drop, 0.01),
        Case("blocks zeroed", float((~is_slow).sum()), zeroed, stated=False),
        Case("offset of the largest attention", float(BAND_OFFSET), peak_offset, stated=False),
        Case(f"{drop_name}, Σ 1 - cos(w B/2)", predicted_drop, drop, ATOL, stated=False),
    ]
    for plan in (soft, sharp):
        name = f"steps to half of the largest attention, sharpness {plan.sharpness:g}"
        # Search a grid for the distance from the peak at which the score is log 2 lower.
        distances = np.arange(0, math.pi / slow.max(), 0.001)
        drops = plan.sharpness * (1 - np.cos(distances[:, None] * slow)).sum(axis=1)
        is_half = drops >= math.log(2)
        predicted = float(distances[is_half.argmax()]) if is_half.any() else math.inf
        measured = band_shape(plan).half_width or math.inf
        cases.append(Case(name, predicted, measured, tolerance=0.01, stated=False))
    return cases


def random_positions(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Return sinusoids with an independent uniform phase per sine and cosine pair."""
    uniform = torch.rand(1, DRAWS, width // 2, generator=generator, dtype=torch.float64)
    phases = uniform * 2 * torch.pi
    return interleave(phases.sin(), phases.cos(), width)[0]


def real_positions(generator: torch.Generator, width: int) -> Float[Tensor, "N J"]:
    """Return sinusoids of random positions below `POSITIONS`."""
    positions = torch.randint(POSITIONS, (DRAWS,), generator=generator)
    return position_vectors(SinusoidConfig(), positions, width).double()


def content_scores(
    transform: Callable[[Tensor], Tensor], positions: Sampler, setting: Setting
) -> Float[Tensor, "N"]:
    """Return scores (k + e_τ)·(k + e_t), where k is a transformed normal vector."""
    generator, width = setting.generator(), setting.width
    content = transform(normal(generator, DRAWS, width))
    key, query = (content + positions(generator, width) for _ in range(2))
    return (key * query).sum(dim=1)


@Claim(
    "A6",
    f"{SOURCE}, problem 1(c)",
    "With positions added, the score of a key that equals its query has mean 1 and variance 5d/4.",
    formula="E = k·q, Var = d (0 + 1/2 + 1/2 + 1/4)",
    assumption="|k| = 1, phases of all sinusoids independent and uniform",
    expected=HOLDS_NARROWER,
    remark="The variance 5d/4 is that of elements ±1, whose norm is sqrt(d) and whose k·q is "
    "constant (mean d). With |k| = 1 it is 1 + d/4, with Gaussian elements 13d/4. Real sinusoids "
    "are not random: low frequencies hardly change over a text, which raises every score, and "
    "those of near positions most.",
)
def _check_content_scores(setting: Setting) -> Sequence[Case]:
    width = setting.width
    cases = []
    for name, transform, mean, variance, stated in (
        ("|k| = 1, as stated", F.normalize, 1.0, 5 * width / 4, True),
        ("elements ±1", torch.sign, float(width), 5 * width / 4, False),
        ("Gaussian elements", torch.positive, float(width), 13 * width / 4, False),
        ("|k| = 1", F.normalize, 1.0, 1 + width / 4, False),
    ):
        scores = content_scores(transform, random_positions, setting)
        moments = float(scores.mean()), float(scores.var())
        cases.append(Case(f"{name}: mean", mean, moments[0], RTOL * variance**0.5, stated))
        cases.append(Case(f"{name}: variance", variance, moments[1], RTOL * variance, stated))
    scores = content_scores(torch.sign, real_positions, setting)
    measured, tolerance = float(scores.mean()), RTOL * float(scores.std())
    name = f"real sinusoids, {POSITIONS} positions: mean"
    positions = np.arange(POSITIONS)
    distances = (positions[:, None] - positions).ravel()
    products = np.cos(distances[:, None] * formulas.numpy_frequencies(width)).sum(axis=1)
    predicted = width + float(products.mean())
    return [
        *cases,
        Case(f"{name}, d as stated", float(width), measured, tolerance),
        Case(f"{name}, d + mean of e_τ·e_t", predicted, measured, tolerance, stated=False),
    ]
