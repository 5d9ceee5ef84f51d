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
from harken.claims.claim import ATOL, Array, Case, Claim, Setting, compare_arrays
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
TRACED_WIDTH, CNN_TOKENS = 64, 64
RNN_TOKENS = 16  # fewer, because each step is traced


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
        tokens = layers.normal(generator, QUERIES, layers.WIDTH)
        measured, name = layers.self_attention(attention, tokens), f"α, score '{score.kind}'"
        cases.append(compare_arrays(name, matrices.weights(tokens, scale), measured))
    return cases


@Claim(
    "B8",
    f"{SOURCE}, problem 6",
    "One matrix in place of W_Q and W_K gives the same attention, with as many weights if I = J/2.",
    formula="W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I);  2IJ weights per head become J²",
    assumption="W~ splits exactly into two matrices of I rows if its rank is at most I; otherwise "
    "only the largest singular values are kept",
    remark="The derivation gives both tokens the index t1; the second should be t2. The result is "
    "correct.",
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
    w_q, w_k = layers.to_numpy(query), layers.to_numpy(key)
    unused = w_k  # attention weights do not depend on the values
    predicted = layers.Matrices(w_q, w_k, value=unused).weights(tokens, inner**-0.5)
    split, half_rank = split_merged(merged, inner), split_merged(merged, inner // 2)
    split_terms = ScoreTerms(
        queries=torch.einsum("tj,kuj->kut", tokens, split.queries).mT[None],
        keys=torch.einsum("tj,kuj->kut", tokens, split.keys).mT[None],
    )
    singular_values = np.linalg.svd(layers.to_numpy(merged), compute_uv=False)
    dropped = singular_values[:, inner // 2].astype(np.float64)
    cases = [
        compare_arrays("α of the merged matrix", predicted, attention_weights(terms, NO_MASK)[0]),
        compare_arrays(
            "α of the split pair", predicted, attention_weights(split_terms, NO_MASK)[0]
        ),
        compare_arrays("largest singular value dropped at I/2", dropped, half_rank.truncation),
    ]
    for rows in (inner, width // 2):
        name = f"weights per head, one matrix relative to two of I = {rows}"
        pair_score = ScaledConfig().build(layers.score_sizes(width, rows))
        sizes = [sum(map(Tensor.numel, module.parameters())) for module in (score, pair_score)]
        cases.append(Case(name, width**2 / (2 * rows * width), sizes[0] / sizes[1], ATOL))
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
    all_words = torch.ones(1, TIME, dtype=torch.bool)  # present and blanked
    measured = model(tokens[None], all_words, all_words).softmax(dim=-1)
    weights = layers.numpy_parameters(model)
    table = weights["embedding.weight"]
    inputs = table[[end, *tokens.tolist(), end]]

    def run_rnn(inputs: Array, layer: str) -> Array:
        matrices = (weights[f"{layer}.weight_{name}_l0"] for name in ("ih", "hh"))
        return formulas.numpy_rnn(inputs, np.zeros(HIDDEN), *matrices)

    left = run_rnn(inputs, "forwards.forwards.0")
    right = run_rnn(inputs[::-1], "backwards.backwards.0")[::-1]
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
    case, decoder, tokens, state = decoder_case(setting, memory_shape=(17,))
    delay = float(attention_delay(decoder, tokens, state, step=3))
    return [case, Case("words from an attention step to the first word it affects", 1.0, delay)]


@Claim(
    "C5",
    f"{SOURCE}, problem 2 (image captioning)",
    "The same decoder generates captions if its memory is a feature map over x and y.",
    formula="α[x,y] = softmax over x, y of h[t-1]·W_key·M[x,y], V = Σ α[x,y] M[x,y]",
    assumption="none; channels K and width J may differ",
)
def _check_captioning(setting: Setting) -> Sequence[Case]:
    case, *_ = decoder_case(setting, memory_shape=(3, 5))
    return [case]


def decoder_case(
    setting: Setting, *, memory_shape: tuple[int, ...]
) -> tuple[Case, AttentionRNNDecoder, Tensor, AttentionRNNState]:
    """Compare word probabilities with the document's equations, where CELL is a tanh RNN.

    The memory is over time, or over x and y. Also return the decoder, its inputs and first state.
    """
    generator = setting.generator()
    config = AttentionRNNDecoderConfig(width=WIDTH, hidden=HIDDEN, cell=TanhConfig())
    built = config.build(WORDS, memory_width=MEMORY, summary_width=HIDDEN, seed=0)
    decoder = layers.randomize(built, generator).eval()
    source = layers.normal(generator, *memory_shape, MEMORY)[None]
    memory = as_tokens(source) if len(memory_shape) == 2 else source
    memory_array = layers.to_numpy(source).reshape(-1, MEMORY)
    hidden = layers.normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    first = decoder.init_state(memory, None, hidden[None])
    measured = decoder.logits(decoder(tokens[None], first))[0].softmax(dim=-1)
    weights, factors = layers.numpy_parameters(decoder), decoder.attention.score.factors()
    assert factors is not None
    # The score is (left h) . m, so W_key is the transpose of left.
    key_matrix, table = layers.to_numpy(factors.left[0].mT), weights["embedding.weight"]
    cell, state, predicted = "cell.forwards.0.weight", layers.to_numpy(hidden), []
    for word in tokens.tolist():
        attention = formulas.numpy_softmax(state @ key_matrix @ memory_array.T)
        context = attention @ memory_array
        inputs = np.concatenate((context, table[word]))
        state = np.tanh(weights[f"{cell}_ih_l0"] @ inputs + weights[f"{cell}_hh_l0"] @ state)
        predicted.append(formulas.numpy_softmax(table @ weights["to_words.weight"] @ state))
    name = "P(w_{t+1}) of every word and step"
    return compare_arrays(name, np.stack(predicted), measured), decoder, tokens, first


def attention_delay(
    decoder: AttentionRNNDecoder, tokens: Tensor, state: AttentionRNNState, step: int
) -> int:
    """Return the number of words from an attention step to the first word that it affects."""
    kernel, calls = decoder.attention.kernel, 0

    def perturb(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        nonlocal calls
        calls += 1
        return kernel(terms, values, mask, dropout) + float(calls == step)

    states = decoder(tokens[None], state)
    decoder.attention.kernel = perturb
    differs = (decoder(tokens[None], state) != states).any(dim=-1)[0]
    decoder.attention.kernel = kernel
    first_state = 1 + int(differs.nonzero()[0])  # counted from 1, as steps are
    return first_state + 1 - step  # state s decides word s + 1


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
    # Depth of a product with a matrix: 1 for all multiplications, and a tree of additions.
    rnn_product = 1 + tree_steps(TRACED_WIDTH)
    cnn_product = 1 + tree_steps(KERNEL * TRACED_WIDTH)
    rnn_depth = rnn_product + 2  # both products in parallel; their sum; tanh
    cnn_depth = cnn_product + 2  # one product; the threshold; σ
    long = 4 * RNN_TOKENS
    # The last two columns are (tokens, layers).
    for kind, doubled, predicted_steps, large, small in (
        ("CNN", "T", 0, (2 * CNN_TOKENS, 3), (CNN_TOKENS, 3)),
        ("CNN", "L = 3", 3 * cnn_depth, (CNN_TOKENS, 6), (CNN_TOKENS, 3)),
        ("RNN", "T", RNN_TOKENS * rnn_depth, (2 * RNN_TOKENS, 3), (RNN_TOKENS, 3)),
        ("RNN", f"L = 3, T = {RNN_TOKENS}", 3 * rnn_depth, (RNN_TOKENS, 6), (RNN_TOKENS, 3)),
        ("RNN", f"L = 3, T = {long}", 3 * rnn_depth, (long, 6), (long, 3)),
    ):
        measured_steps = traced_depth(kind, *large) - traced_depth(kind, *small)
        name = f"{kind}: additional steps with twice {doubled}"
        cases.append(Case(name, float(predicted_steps), float(measured_steps)))
    return cases


def numpy_convolution(below: Array, weight: Array, threshold: Array) -> Array:
    """Return σ(Σ over Δ of W[Δ] L[2t + Δ] - B), Δ in -1, 0, 1; σ is ReLU, zeros are padded."""
    padded = np.pad(below, ((1, 1), (0, 0)))
    outputs = []
    for start in range(0, len(below), 2):
        total = -threshold
        for offset in range(3):
            total = total + weight[:, :, offset] @ padded[start + offset]
        outputs.append(np.maximum(total, 0.0))
    return np.stack(outputs)


def traced_depth(kind: str, time: int, layer_count: int) -> int:
    """Return the length of the longest chain of dependent operations in the CNN or RNN."""
    cnn, rnn = ConvPyramidConfig(layers=layer_count, kernel=KERNEL), TanhConfig(layers=layer_count)
    tokens = torch.empty(1, time, TRACED_WIDTH)
    return trace_forward(
        lambda _: Downsample(cnn, TRACED_WIDTH) if kind == "CNN" else rnn.build(TRACED_WIDTH),
        lambda stack: stack(tokens),
    ).depth
