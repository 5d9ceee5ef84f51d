"""TTIC 31230 (2020), Problems for Language Modeling, Translation and Attention."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.merging import merge_pair, split_merged
from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig
from harken.claims import formulas
from harken.claims import random_layers as layers
from harken.claims.claim import EXACT, Array, Case, Claim, Setting, compare_arrays
from harken.claims.random_layers import HEAD_WIDTH, HEADS, KEY_WIDTH, QUERIES
from harken.claims.ttic31230_transformer import tree_steps
from harken.cost.step import trace_forward
from harken.layers.convolution import ConvPyramidConfig, Downsample
from harken.layers.frontends import as_tokens
from harken.layers.recurrent import TanhConfig
from harken.models.cloze import BiRNNClozeConfig
from harken.models.decoders import AttentionRNNDecoder, AttentionRNNDecoderConfig, AttentionRNNState

SOURCE = (
    "TTIC 31230 Fundamentals of Deep Learning (2020), Problems for Language Modeling, "
    "Translation and Attention"
)
WORDS, TIME, WIDTH, HIDDEN, MEMORY, KERNEL = 23, 7, 5, 11, 13, 3
TRACED_WIDTH, SHORT = 64, 64
TOKENS = 16  # of a traced RNN; a trace follows each of its steps


@Claim(
    "B6",
    f"{SOURCE}, problems 4 and 6",
    "Scores are divided by the square root of the width of queries and keys, or not scaled.",
    formula="α = softmax of q·k / sqrt(I)",
    assumption="none; the document's I is the key width U",
)
def _check_scaled_scores(setting: Setting) -> Sequence[Case]:
    cases = []
    for score, scale in ((ScaledConfig(), KEY_WIDTH**-0.5), (DotConfig(), 1.0)):
        generator = setting.generator()
        config = MultiHeadConfig(
            heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=score
        )
        attention, matrices = layers.random_attention(config, generator)
        tokens = layers.normal(generator, QUERIES, 13)
        measured, what = layers.self_attention(attention, tokens), f"α, score '{score.kind}'"
        cases.append(compare_arrays(what, matrices.weights(tokens, scale), measured))
    return cases


@Claim(
    "B8",
    f"{SOURCE}, problem 6",
    "One matrix in place of W_Q and W_K gives the same attention, with as many weights if I = J/2.",
    formula="W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I);  2IJ weights per head become J²",
    assumption="W~ splits into two matrices of I rows exactly if its rank is at most I; otherwise "
    "the largest directions are kept",
    remark="The derivation writes t1 for t2 in the second token; the result is right.",
)
def _check_merged_matrix(setting: Setting) -> Sequence[Case]:
    generator, width = setting.generator(), setting.width
    inner = width // 4
    query, key = (layers.normal(generator, HEADS, inner, width) * width**-0.5 for _ in range(2))
    tokens = layers.normal(generator, QUERIES, width)
    merged = merge_pair(query, key, inner**-0.5)
    score = MergedConfig().build(layers.score_sizes(width, inner))
    score.double().weight.data.copy_(merged / score.scale)
    terms = ScoreTerms(queries=score.queries(tokens[None]), keys=score.keys(tokens[None]))
    pair = layers.to_numpy(query), layers.to_numpy(key)
    predicted = layers.Matrices(*pair, value=pair[1]).weights(tokens, inner**-0.5)
    split, half = split_merged(merged, inner), split_merged(merged, inner // 2)
    split_terms = ScoreTerms(
        queries=torch.einsum("tj,kuj->kut", tokens, split.queries).mT[None],
        keys=torch.einsum("tj,kuj->kut", tokens, split.keys).mT[None],
    )
    values = np.linalg.svd(layers.to_numpy(merged), compute_uv=False).astype(np.float64)
    what, dropped = "largest singular value dropped at I/2", values[:, inner // 2]
    cases = [
        compare_arrays("α of the merged matrix", predicted, attention_weights(terms, NO_MASK)[0]),
        compare_arrays(
            "α of the split pair", predicted, attention_weights(split_terms, NO_MASK)[0]
        ),
        compare_arrays(what, dropped, half.truncation),
    ]
    for rows in (inner, width // 2):
        what = f"weights per head, one matrix relative to two of I = {rows}"
        pair_score = ScaledConfig().build(layers.score_sizes(width, rows))
        sizes = [sum(map(Tensor.numel, built.parameters())) for built in (score, pair_score)]
        cases.append(Case(what, width**2 / (2 * rows * width), sizes[0] / sizes[1], EXACT))
    return cases


@Claim(
    "C3",
    f"{SOURCE}, problem 1 (blank language modeling)",
    "A blank is predicted from the forward state before it and the backward state after it.",
    formula="P(w_t) = softmax of e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]",
    assumption="an end symbol precedes the first word and follows the last",
)
def _check_cloze(setting: Setting) -> Sequence[Case]:
    generator, end = setting.generator(), 0
    config = BiRNNClozeConfig(width=WIDTH, cell=TanhConfig(hidden=HIDDEN))
    model = layers.randomize(config.build(WORDS, mask=1, end=end, seed=0), generator).eval()
    tokens = torch.randint(2, WORDS, (TIME,), generator=generator)
    everywhere = torch.ones(1, TIME, dtype=torch.bool)
    measured = model(tokens[None], everywhere, everywhere).softmax(dim=-1)
    weights = layers.numpy_parameters(model)
    table = weights["embedding.weight"]
    inputs = table[[end, *tokens.tolist(), end]]

    def states(inputs: Array, layer: str) -> Array:
        matrices = (weights[f"{layer}.weight_{name}_l0"] for name in ("ih", "hh"))
        return formulas.numpy_rnn(inputs, np.zeros(HIDDEN), *matrices)

    left = states(inputs, "forwards.forwards.0")
    right = states(inputs[::-1], "backwards.backwards.0")[::-1]
    predicted = [
        formulas.numpy_softmax(
            table @ weights["from_left.weight"] @ left[t - 1]
            + table @ weights["from_right.weight"] @ right[t + 1]
        )
        for t in range(1, TIME + 1)
    ]
    return [compare_arrays("P of every word at every blank", np.stack(predicted), measured)]


@Claim(
    "C4",
    f"{SOURCE}, problem 2 (translation with attention)",
    "The decoder attends to the source with its previous state, and the context vector enters its "
    "next state.",
    formula="α = softmax of h[t-1]·W_key·M, V = Σ α M, h[t] = CELL(h[t-1], V, e[w_t])",
    assumption="V of step t enters h[t] and so decides w_{t+1}; a start symbol comes first",
)
def _check_translation(setting: Setting) -> Sequence[Case]:
    case, decoder, tokens, state = decoder_case(setting, 17)
    delay = float(attention_delay(decoder, tokens, state, step=3))
    return [case, Case("words from an attention step to the first word it affects", 1.0, delay)]


@Claim(
    "C5",
    f"{SOURCE}, problem 2 (image captioning)",
    "The same decoder writes captions if its memory is a feature map over x and y.",
    formula="α[x,y] = softmax over x, y of h[t-1]·W_key·M[x,y], V = Σ α[x,y] M[x,y]",
    assumption="none; channels K and width J may differ",
)
def _check_captioning(setting: Setting) -> Sequence[Case]:
    return [decoder_case(setting, 3, 5)[0]]


def decoder_case(
    setting: Setting, *shape: int
) -> tuple[Case, AttentionRNNDecoder, Tensor, AttentionRNNState]:
    """Compare probabilities of words with the document's equations; CELL is a tanh layer."""
    generator = setting.generator()
    config = AttentionRNNDecoderConfig(width=WIDTH, hidden=HIDDEN, cell=TanhConfig())
    built = config.build(WORDS, memory_width=MEMORY, source_width=HIDDEN, seed=0)
    decoder = layers.randomize(built, generator).eval()
    source = layers.normal(generator, *shape, MEMORY)[None]
    memory = as_tokens(source) if len(shape) == 2 else source
    states = layers.to_numpy(source).reshape(-1, MEMORY)
    hidden = layers.normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    first = decoder.init_state(memory, None, hidden[None])
    measured = decoder.logits(decoder(tokens[None], first))[0].softmax(dim=-1)
    weights, factors = layers.numpy_parameters(decoder), decoder.attention.score.factors()
    assert factors is not None
    key_matrix, table = layers.to_numpy(factors.left[0].mT), weights["embedding.weight"]
    cell, state, predicted = "cell.forwards.0.weight", layers.to_numpy(hidden), []
    for word in tokens.tolist():
        context = formulas.numpy_softmax(state @ key_matrix @ states.T) @ states
        inputs = np.concatenate((context, table[word]))
        state = np.tanh(weights[f"{cell}_ih_l0"] @ inputs + weights[f"{cell}_hh_l0"] @ state)
        predicted.append(formulas.numpy_softmax(table @ weights["to_words.weight"] @ state))
    what = "P(w_{t+1}) of every word and step"
    return compare_arrays(what, np.stack(predicted), measured), decoder, tokens, first


def attention_delay(
    decoder: AttentionRNNDecoder, tokens: Tensor, state: AttentionRNNState, step: int
) -> int:
    """Return the distance from the word read at an attention step to the first word it affects."""
    kernel, steps = decoder.attention.kernel, 0

    def perturbed(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        nonlocal steps
        steps += 1
        return kernel(terms, values, mask, dropout) + float(steps == step)

    states = decoder(tokens[None], state)
    decoder.attention.kernel = perturbed
    differs = (decoder(tokens[None], state) != states).any(dim=-1)[0]
    decoder.attention.kernel = kernel
    return int(differs.nonzero()[0]) + 2 - step  # state s (counted from 1) decides word s + 1


@Claim(
    "C6",
    f"{SOURCE}, problem 3 (language CNNs)",
    "A language CNN of stride 2 halves the length with every layer and takes O(L) parallel time, "
    "stacked RNNs take O(T + L).",
    formula="L_{l+1}[t] = σ(Σ_Δ W[Δ] L_l[2t+Δ] - B)",
    assumption="zeros beyond both ends; widths are constants; L = log T layers see T tokens",
)
def _check_language_cnn(setting: Setting) -> Sequence[Case]:
    generator, depth = setting.generator(), 3
    config = ConvPyramidConfig(layers=depth, kernel=KERNEL)
    cnn = layers.randomize(Downsample(config, WIDTH), generator)
    tokens = layers.normal(generator, 1, 19, WIDTH)
    measured, weights = cnn(tokens), layers.numpy_parameters(cnn)
    predicted, cases = layers.to_numpy(tokens[0]), []
    for layer in range(depth):
        kernel, threshold = weights[f"kernels.{layer}.weight"], weights[f"thresholds.{layer}"]
        predicted = numpy_convolution(predicted, kernel, threshold)
        cases.append(
            compare_arrays(f"L_{layer + 1}[t], every t", predicted, measured[layer + 1][0])
        )
    step = 1 + tree_steps(TRACED_WIDTH) + 2  # both products at once, their sum, tanh
    window = 1 + tree_steps(KERNEL * TRACED_WIDTH) + 2  # the product, the threshold, σ
    long = 4 * TOKENS
    for kind, what, increase, large, small in (
        ("CNN", "T", 0, (2 * SHORT, 3), (SHORT, 3)),
        ("CNN", "L = 3", 3 * window, (SHORT, 6), (SHORT, 3)),
        ("RNN", "T", TOKENS * step, (2 * TOKENS, 3), (TOKENS, 3)),
        ("RNN", f"L = 3, T = {TOKENS}", 3 * step, (TOKENS, 6), (TOKENS, 3)),
        ("RNN", f"L = 3, T = {long}", 3 * step, (long, 6), (long, 3)),
    ):
        more = traced_depth(kind, *large) - traced_depth(kind, *small)
        name = f"{kind}: additional steps with twice {what}"
        cases.append(Case(name, float(increase), float(more)))
    return cases


def numpy_convolution(below: Array, weight: Array, threshold: Array) -> Array:
    """Return σ(Σ over Δ of W[Δ] L[2t + Δ] - B), Δ in -1, 0, 1, with zeros beyond both ends."""
    padded = np.pad(below, ((1, 1), (0, 0)))
    outputs = []
    for start in range(0, len(below), 2):
        total = -threshold
        for offset in range(3):
            total = total + weight[:, :, offset] @ padded[start + offset]
        outputs.append(np.maximum(total, 0.0))
    return np.stack(outputs)


def traced_depth(kind: str, time: int, layers: int) -> int:
    """Trace the CNN or stacked RNNs; an RNN layer starts when the one below has read a token."""
    cnn, rnn = ConvPyramidConfig(layers=layers, kernel=KERNEL), TanhConfig(layers=layers)
    tokens = torch.empty(1, time, TRACED_WIDTH)
    return trace_forward(
        lambda _: Downsample(cnn, TRACED_WIDTH) if kind == "CNN" else rnn.build(TRACED_WIDTH),
        lambda stack: stack(tokens),
    ).depth
