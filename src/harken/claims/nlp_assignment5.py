"""Iran University of Science and Technology, Natural Language Processing (2021), Assignment 5.

Noisy keys (B11): k_a = ε μ_a, ε ~ N(1, 1/2); the other keys are μ_i, orthonormal; M is large.

    one head, q = M Σ μ      one key noisy: this key gets all attention if ε > 1, none if ε < 1
                             all keys noisy: the key with the largest ε gets all attention
    m heads, q_j = M μ_j     head j outputs v_j if ε > 0, else the mean of all other values

P(ε < 0) = Φ(-√2) = 7.9 %. The variance of c is the trace of its covariance; values are orthonormal.
The document's covariance αI is omitted, because it is vanishingly small.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.kernels import ScoreTerms, eager_attention
from harken.attention.masks import NO_MASK
from harken.attention.query_key import ScoreInputs
from harken.attention.scores import SynthesizerConfig, SynthesizerScore
from harken.claims import formulas
from harken.claims import random_layers as layers
from harken.claims.claim import ATOL, HOLDS_NARROWER, Case, Claim, Setting, compare_arrays
from harken.design.content import copy_head, lookup_head, lookup_norm, lookup_tokens
from harken.design.head import Head, head_attention

SOURCE = (
    "Iran University of Science and Technology, Natural Language Processing (2021), Assignment 5"
)
KEYS, TOLERANCE = 7, 0.01
A, B = 2, 5  # keys that are copied or averaged (B10)
NOISE_KEYS, SHARPNESS, DRAWS = 8, 5000.0, 40000  # B11; SHARPNESS is M
MISS_RATE = formulas.normal_cdf(-math.sqrt(2))  # P(ε < 0): a head gives its key no attention


@Claim(
    "B9",
    f"{SOURCE}, question 2 (Synthesizer)",
    "A Synthesizer computes scores from each token alone, or learns them: keys are not used.",
    formula="dense: row i = W_2 relu(W_1 x_i);  random: row i is learned",
    remark="The document adds that it is poor at long distances, which "
    "benchmarks/synthesizer_distance.py tests by training.",
)
def _check_synthesizer(setting: Setting) -> Sequence[Case]:
    generator, sizes = setting.generator(), layers.score_sizes()
    dense = layers.randomize(SynthesizerConfig(form="dense").build(sizes), generator)
    random = layers.randomize(SynthesizerConfig(form="random").build(sizes), generator)
    tokens, others = (layers.normal(generator, sizes.max_length, sizes.width) for _ in range(2))
    others[4] = tokens[4]
    positions = torch.arange(sizes.max_length)[None]
    weights = layers.numpy_parameters(dense)
    first_weight, first_bias = weights["from_token.0.weight"], weights["from_token.0.bias"]
    inner = layers.to_numpy(tokens) @ first_weight.T + first_bias
    by_head = np.split(np.maximum(inner, 0), sizes.heads, axis=1)
    pairs = zip(by_head, weights["to_scores"], strict=True)
    products = [hidden @ second_weight for hidden, second_weight in pairs]
    predicted = np.stack(products) + weights["score_offsets"]

    def compute_scores(score: SynthesizerScore, inputs: Tensor) -> Tensor:
        bias = score.terms(ScoreInputs(inputs[None], None, None, positions, positions)).bias
        assert isinstance(bias, Tensor)
        return bias[0]

    assert random.table is not None
    name, row = "dense: scores of one token if all others change", predicted[:, 4]
    table, learned = layers.to_numpy(random.table), compute_scores(random, others)
    return [
        compare_arrays("dense: scores W_2 relu(W_1 x_i)", predicted, compute_scores(dense, tokens)),
        compare_arrays(name, row, compute_scores(dense, others)[:, 4]),
        compare_arrays("random: scores for any tokens", table, learned),
    ]


@Claim(
    "B10",
    f"{SOURCE}, questions 1(a) and 1(b)",
    "A query along one key copies its value, a query along two keys averages their values.",
    formula="q = M k_a: α_a ≈ 1;  q = M (k_a + k_b): c ≈ (v_a + v_b) / 2",
    assumption="keys orthonormal, M large: log((n-1) (1-ε) / ε) for a tolerance ε",
    remark="The condition is printed as α_a ≈ α_b ≈ 1, which is impossible for weights that sum "
    "to one; the text and the measurement give 1/2.",
)
def _check_copy_and_average(setting: Setting) -> Sequence[Case]:
    keys = layers.orthonormal(setting.generator(), KEYS, setting.width)
    copied = head_attention(copy_head(keys, [A], TOLERANCE), keys, "bidirectional")[0]
    averaged = head_attention(copy_head(keys, [A, B], TOLERANCE), keys, "bidirectional")[0]
    context, mean = averaged @ keys, (keys[A] + keys[B]) / 2
    m_copy = math.log((KEYS - 1) * (1 - TOLERANCE) / TOLERANCE)
    m_average = math.log((KEYS - 2) / 2 * (1 - TOLERANCE) / TOLERANCE)
    copy_weight = 1 / (1 + (KEYS - 1) * math.exp(-m_copy))
    average_weight = 1 / (2 + (KEYS - 2) * math.exp(-m_average))
    array, query = layers.to_numpy(keys), f"for q = M (k_a + k_b), M = {m_average:.2f}"
    predicted = formulas.numpy_attention(m_average * (array[[A]] + array[[B]]), array) @ array
    distance = float((context - mean).norm())
    return [
        Case(f"α_a for q = M k_a, M = {m_copy:.2f}", copy_weight, float(copied[A]), ATOL),
        Case(f"α_a {query}", average_weight, float(averaged[A]), ATOL),
        Case(f"α_b {query}", average_weight, float(averaged[B]), ATOL),
        compare_arrays("c of the average", predicted[0], context),
        Case("|c - (v_a + v_b) / 2|, at most the tolerance", 0.0, distance, TOLERANCE),
    ]


@Claim(
    "B11",
    f"{SOURCE}, questions 1(c) and 1(d)",
    "If the length of a key is noisy, one head that averages two values alternates between them; "
    "two heads are stable.",
    formula="k_a = ε μ_a, ε ~ N(1, 1/2);  one head: q = M (μ_a + μ_b), two: q1 = M μ_a, q2 = M μ_b",
    assumption="μ orthonormal, the rest of the noise vanishing, M large",
    expected=HOLDS_NARROWER,
    remark="Two heads are stable if ε > 0. With probability Φ(-√2) = 7.9 %, ε < 0 and the first "
    "head outputs the mean of all other values. The variance of c falls from 1/2 to 0.021.",
)
def _check_noisy_keys(setting: Setting) -> Sequence[Case]:
    single = noisy_average(heads=1, averaged=2, noisy=1, setting=setting)
    double = noisy_average(heads=2, averaged=2, noisy=1, setting=setting)
    stable = ((double[:, :2] - 0.5).abs().amax(dim=1) < 0.01).double().mean()
    switched = ((single[:, :2] - 0.5).abs().amin(dim=1) > 0.49).double().mean()
    name = "two heads: draws in which c"
    cases = [
        Case(f"{name} = (v_a + v_b) / 2, all as stated", 1.0, float(stable), 0.01),
        Case(f"{name} differs, Φ(-√2)", MISS_RATE, 1 - float(stable), 0.01, stated=False),
        Case("one head: draws with c = v_a or c = v_b", 1.0, float(switched), 0.01, stated=False),
    ]
    for name, heads, averaged, noisy in (
        ("one head, two values, one key noisy", 1, 2, 1),
        ("two heads, two values, one key noisy", 2, 2, 1),
        ("one head, four values, all keys noisy", 1, 4, 4),
        ("four heads, four values, all keys noisy", 4, 4, 4),
    ):
        predicted = predicted_variance(heads, averaged, noisy)
        measured = float(noisy_average(heads, averaged, noisy, setting).var(dim=0).sum())
        tolerance = 0.09 * predicted
        cases.append(Case(f"variance of c: {name}", predicted, measured, tolerance, stated=False))
    return cases


def noisy_average(
    heads: int, averaged: int, noisy: int, setting: Setting, draws: int = DRAWS
) -> Float[Tensor, "N J"]:
    """Return c for many draws of the noise. Without noise, it is the mean of `averaged` values.

    Either one head attends to the keys of all these values, or `averaged` heads attend to one key
    each. The first `noisy` keys have noise.
    """
    keys = torch.eye(NOISE_KEYS, dtype=torch.float64)
    queries = keys[:averaged] if heads > 1 else keys[:averaged].sum(dim=0, keepdim=True)
    scales = torch.ones(draws, NOISE_KEYS, dtype=torch.float64)
    scales[:, :noisy] += layers.normal(setting.generator(), draws, noisy) * math.sqrt(0.5)
    terms = ScoreTerms(
        queries=(SHARPNESS * queries)[None, :, None].expand(draws, -1, -1, -1),
        keys=(scales[:, :, None] * keys)[:, None],
    )
    values = keys.expand(draws, 1, -1, -1)
    return eager_attention(terms, values, NO_MASK).output[:, :, 0].mean(dim=1)


def predicted_variance(heads: int, averaged: int, noisy: int) -> float:
    """Return the variance of c in `noisy_average` for large M.

    If c is x with probability p and y otherwise, its variance is p (1 - p) |x - y|².
    """
    if heads == 1 and noisy == 1:  # v_a or the mean of the other averaged values, p = 1/2
        return (1 + 1 / (averaged - 1)) / 4
    if heads == 1:  # all keys noisy: one of the averaged values, with equal probabilities
        return 1 - 1 / averaged
    # Each noisy head outputs its value, or the mean of all other values with p = MISS_RATE.
    variance = MISS_RATE * (1 - MISS_RATE) * (1 + 1 / (NOISE_KEYS - 1))
    return noisy * variance / averaged**2


@Claim(
    "B12",
    f"{SOURCE}, question 1(e)",
    "Identity attention cannot copy u_b into c_2; with suitable matrices V and Q, and K = I, c_2 "
    "is u_b and c_1 is u_b - u_c.",
    formula="x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b;  "
    "V = (u_b u_b' - u_c u_c') / β², Q = (u_d u_a' + u_c u_d') / β², K = I:  "
    "c_1 = u_b - u_c, c_2 = u_b",
    assumption="the u orthogonal with norm β, and β² large: log(2 (1-ε) / ε) for a tolerance ε",
)
def _check_lookup(setting: Setting) -> Sequence[Case]:
    directions = layers.orthonormal(setting.generator(), 4, setting.width)
    norm = math.sqrt(math.log(2 * (1 - TOLERANCE) / TOLERANCE))
    a, b, c, d = directions * norm
    tokens, head = lookup_tokens(directions, norm), lookup_head(directions)
    assert head.values is not None
    contexts = head_attention(head, tokens, "bidirectional") @ (tokens @ head.values.T)
    right = 1 / (1 + 2 * math.exp(-(norm**2)))
    wrong = (1 - right) / 2
    u_b, u_c = layers.to_numpy(b), layers.to_numpy(c)
    # In c_1 the wrong keys are x_1, whose value is u_b, and x_2, whose value is zero.
    first = right * (u_b - u_c) + wrong * u_b
    second = right * u_b + wrong * (u_b - u_c)
    cases = [
        Case("β for a tolerance of 0.01", norm, lookup_norm(TOLERANCE), ATOL),
        compare_arrays("c_1, which tends to u_b - u_c as β grows", first, contexts[0]),
        compare_arrays("c_2, which tends to u_b as β grows", second, contexts[1]),
    ]
    identity = torch.eye(setting.width, dtype=torch.float64)
    # The added vector raises the score of one neighbor to β², and that of the token itself to 2 β².
    share = 1 - formulas.numpy_softmax(np.array([norm**2, 2 * norm**2, 0.0]))[1]
    for name, added in (("u_c", c), ("u_d", d)):
        inputs = torch.stack((d + b, a + added, c + b))
        weights = head_attention(Head(queries=identity, keys=identity), inputs, "bidirectional")
        measured = float(weights[1] @ inputs @ b) / norm**2
        case_name = f"identity attention: share of u_b in c_2 with {name} added to x_2"
        cases.append(Case(case_name, float(share), measured, ATOL))
    return cases
