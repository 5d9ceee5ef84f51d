"""Mark Hasegawa-Johnson, Lecture 29: Transformers. Attention, heads, masks and positions.

The first part of the lecture, recurrent networks, is in `lecture29_rnn.py`.
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import NO_MASK, build_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig, Place, SinusoidConfig, model_width
from harken.attention.scores import DotConfig
from harken.attention.sinusoids import Sinusoids
from harken.claims import formulas
from harken.claims import random_layers as layers
from harken.claims.claim import EXACT, NARROWER, SINGLE, Case, Claim, Setting, compare_arrays
from harken.claims.random_layers import HEAD_WIDTH, HEADS, KEY_WIDTH, KEYS, QUERIES, WIDTH
from harken.models.gpt import GPTConfig

SOURCE = "Mark Hasegawa-Johnson, Lecture 29: Transformers"
SPAN, OFFSETS = 67, (1, 7, 31)
PLACES: tuple[Place, Place] = ("add", "concat")
DOT_PRODUCT = MultiHeadConfig(
    heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=DotConfig()
)


@Claim(
    "A2",
    f"{SOURCE}, Position encoding by Fourier basis",
    "Positions can be encoded by cosines and sines of 1, 2, 3, … half periods over T steps.",
    formula="e_t = cos(πt/T), sin(πt/T), …, cos(πDt/2T), sin(πDt/2T)",
    assumption="texts of at most T tokens: positions repeat after 2T, so larger offsets are "
    "ambiguous",
)
def _check_fourier_basis(setting: Setting) -> Sequence[Case]:
    positions = torch.arange(3 * SPAN)
    measured = layers.position_vectors(FourierConfig(span=SPAN), positions, setting.width)
    predicted = formulas.numpy_fourier(SPAN, setting.width, SPAN)
    repeats = (measured[1:] - measured[0]).abs().amax(dim=1) < SINGLE
    period = (1 + int(repeats.nonzero()[0])) / SPAN if repeats.any() else np.inf
    return [
        compare_arrays("the element that differs most", predicted, measured[:SPAN], SINGLE),
        Case("spans after which positions repeat", 2.0, period),
    ]


@Claim(
    "A3",
    f"{SOURCE}, Position encoding by Fourier basis",
    "One matrix shifts every position by a fixed offset: it rotates each pair.",
    formula="e_{t-d} = A e_t, blocks [[cos, sin], [-sin, cos]] of πd/T (cosine first)",
    assumption="none; with the sine first, as in the sinusoids, the signs of the sines change",
)
def _check_shift_matrix(setting: Setting) -> Sequence[Case]:
    width = setting.width
    fourier, sinusoid = (
        Sinusoids(kind="fourier", width=width, span=SPAN),
        Sinusoids(width=width),
    )
    cases = []
    for basis, config, predicted in (
        (fourier, FourierConfig(span=SPAN), formulas.numpy_fourier(SPAN, width, SPAN)),
        (sinusoid, SinusoidConfig(), formulas.numpy_sinusoids(SPAN, width)),
    ):
        vectors = layers.position_vectors(config, torch.arange(SPAN), width).double()
        for offset in OFFSETS:
            shifted = (vectors @ basis.shift_matrix(offset).T)[offset:]
            what = f"{basis.kind}: A e_t is e_(t-{offset})"
            cases.append(compare_arrays(what, predicted[:-offset], shifted, SINGLE))
    cosine, sine = np.cos(np.pi * 7 / SPAN), np.sin(np.pi * 7 / SPAN)
    printed, block = np.array([[cosine, sine], [-sine, cosine]]), fourier.shift_matrix(7)[:2, :2]
    what = "fourier: the first block as the lecture prints it"
    return [*cases, compare_arrays(what, printed, block)]


@Claim(
    "A7",
    f"{SOURCE}, Where do we put the positional encoding?",
    "Concatenating positions to tokens makes every vector twice and every matrix four times as "
    "large; adding them costs nothing.",
    formula="x_t = [x_t, e_t]:  J -> 2J,  J x J -> 2J x 2J",
    assumption="widths of heads and of the feed-forward layer grow with J",
    expected=NARROWER,
    remark="Four times is true of the matrices between two vectors of the model. The embedding "
    "table keeps its size, because positions are concatenated after it, and the output matrix "
    "doubles.",
)
def _check_concatenation(setting: Setting) -> Sequence[Case]:
    added, concatenated = (
        matrix_sizes(SinusoidConfig(place=place), setting.width) for place in PLACES
    )
    vectors = model_width(SinusoidConfig(place="concat"), setting.width) / setting.width
    growth = {name: concatenated[name] / size for name, size in added.items()}
    names = [name for name in added if "blocks" in name]
    blocks = sum(concatenated[name] for name in names) / sum(added[name] for name in names)
    return [
        Case("growth of vectors", 2.0, vectors),
        Case("growth of the embedding table, as stated", 4.0, growth["embedding.weight"]),
        Case("growth of the embedding table", 1.0, growth["embedding.weight"], stated=False),
        Case("growth of the output matrix", 2.0, growth["lm_head.weight"], stated=False),
        Case("growth of all matrices of a block", 4.0, blocks, stated=False),
    ]


def matrix_sizes(position: SinusoidConfig, width: int) -> dict[str, int]:
    """Return the number of elements of every matrix of a language model."""
    attention = MultiHeadConfig(heads=4)
    config = GPTConfig(
        layers=1, width=width, attention=attention, position=position, tie_embeddings=False
    )
    parameters = config.build(vocabulary=97, seed=0).named_parameters()
    return {name: weight.numel() for name, weight in parameters if weight.dim() == 2}


@Claim(
    "A8",
    f"{SOURCE}, What we have lost",
    "Without positions, attention ignores the order of its inputs.",
    formula="f(x_π(1), …, x_π(n)) = f(x)_π(1), …, f(x)_π(n)",
    assumption="no mask: a causal mask reveals the order",
)
def _check_permutation(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    attention, matrices = layers.random_attention(DOT_PRODUCT, generator)
    tokens = layers.normal(generator, QUERIES, WIDTH)
    permutation = torch.randperm(QUERIES, generator=generator)
    predicted = matrices.outputs(tokens, tokens)[permutation.numpy()]
    measured = layers.attend(attention, tokens[permutation], tokens[permutation])
    return [compare_arrays("outputs of permuted tokens, permuted", predicted, measured)]


@Claim(
    "B1",
    f"{SOURCE}, Attention = a probability mass over time",
    "Each context vector is a sum of values, weighted by a probability mass over time.",
    formula="c_i = Σ_t α_it v_t, α_it = exp(q_i·k_t) / Σ_τ exp(q_i·k_τ), Σ_t α_it = 1",
)
def _check_attention(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    shapes = (QUERIES, KEY_WIDTH), (KEYS, KEY_WIDTH), (KEYS, HEAD_WIDTH)
    queries, keys, values = (layers.normal(generator, *shape) for shape in shapes)
    weights = formulas.numpy_attention(layers.to_numpy(queries), layers.to_numpy(keys))
    context = weights @ layers.to_numpy(values)
    terms = ScoreTerms(queries=queries[None, None], keys=keys[None, None])
    eager = eager_attention(terms, values[None, None], NO_MASK)
    fused = fused_attention(terms, values[None, None], NO_MASK)[0, 0]
    return [
        compare_arrays("α, eager kernel", weights, eager.weights[0, 0]),
        compare_arrays("c, eager kernel", context, eager.output[0, 0]),
        compare_arrays("c, fused kernel", context, fused),
        compare_arrays("Σ_t α_it", np.ones(QUERIES), eager.weights[0, 0].sum(dim=1)),
    ]


@Claim(
    "B3",
    f"{SOURCE}, Multi-headed attention",
    "The outputs of several heads are concatenated and multiplied by an output matrix.",
    formula="c_i = W_O [h_1i; …; h_ki]",
)
def _check_output_matrix(setting: Setting) -> Sequence[Case]:
    return [layers.output_case("W_O over the concatenated heads", DOT_PRODUCT, setting)]


@Claim(
    "B4",
    f"{SOURCE}, Cross-attention",
    "In cross-attention, queries depend on the preceding output, keys and values on the input.",
    formula="q_i = W_Q o_{i-1}, k_t = W_K x_t, v_t = W_V x_t",
    assumption="none; input and output may have different widths",
)
def _check_cross_attention(setting: Setting) -> Sequence[Case]:
    what = "queries from the output so far, keys and values from the input"
    return [layers.output_case(what, DOT_PRODUCT, setting, memory_width=19)]


@Claim(
    "B5",
    f"{SOURCE}, Masked attention",
    "Masked attention lets c_i depend only on values v_t with t < i.",
    formula="score = q_i·k_t where t < i, else -∞",
    expected=NARROWER,
    remark="It holds for queries that see a key. The first query sees none, so the formula is 0/0; "
    "Harken returns zeros. The common mask t <= i has no such query.",
)
def _check_masks(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    attention, matrices = layers.random_attention(DOT_PRODUCT, generator)
    tokens, positions = layers.normal(generator, QUERIES, WIDTH), torch.arange(QUERIES)[None]
    strict, causal = (
        layers.self_attention(attention, tokens, build_mask(kind, positions, positions))
        for kind in ("strictly_causal", "causal")
    )
    past = matrices.weights(tokens, is_visible=lambda i, t: t < i)
    present = matrices.weights(tokens, is_visible=lambda i, t: t <= i)
    zeros, mass = np.zeros((HEADS, QUERIES)), float(strict[0, 0].sum())
    return [
        Case("t < i: Σ_t α of the first query, 1 as stated", 1.0, mass, EXACT),
        compare_arrays("t < i: α of all others", past[:, 1:], strict[:, 1:], stated=False),
        compare_arrays("t < i: α of the first query, zeros", zeros, strict[:, 0], stated=False),
        compare_arrays("t <= i: α of all", present, causal, stated=False),
    ]
