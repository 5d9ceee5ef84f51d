"""TTIC 31230 (2020), Problems for Language Modeling, Translation and Attention.

P(w_t) = softmax over w of  e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]
α = softmax of h[t-1]·W_key·M,  V = Σ α M,  h[t] = CELL(h[t-1], V, e[w_t])
L_{l+1}[t] = σ(Σ W[Δ] L_l[2t+Δ] - B)
W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I)
"""

from collections.abc import Sequence

import numpy as np
import torch

from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import NO_MASK, Mask
from harken.attention.merging import merge_pair, split_merged
from harken.attention.multihead import MultiHeadConfig
from harken.attention.query_key import ScoreSizes
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig
from harken.claims import formulas
from harken.claims.claim import EXACT, Array, Case, Setting, claim, compare
from harken.claims.random_layers import (
    HEAD_WIDTH,
    HEADS,
    KEY_WIDTH,
    QUERIES,
    head_matrices,
    normal,
    numpy_parameters,
    random_layer,
    randomize,
    self_attention,
    to_numpy,
)
from harken.claims.ttic31230_transformer import tree
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


@claim(
    "B6",
    f"{SOURCE}, problems 4 and 6",
    "Scores are divided by the root of the width of queries and keys, or not at all.",
    formula="α = softmax of q·k / sqrt(I)",
    assumption="none; their I is our U",
)
def _check_scaled_scores(setting: Setting) -> Sequence[Case]:
    cases = []
    for score, scale in ((ScaledConfig(), KEY_WIDTH**-0.5), (DotConfig(), 1.0)):
        generator = setting.generator()
        config = MultiHeadConfig(
            heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=score
        )
        attention, tokens = random_layer(config, generator), normal(generator, QUERIES, 13)
        predicted = head_matrices(attention).weights(tokens, scale)
        measured = self_attention(attention, tokens)
        cases.append(compare(f"α, score '{score.kind}'", predicted, measured))
    return cases


@claim(
    "B8",
    f"{SOURCE}, problem 6",
    "One matrix in place of W_Q and W_K gives the same attention, with as many weights if I = J/2.",
    formula="W~[j1,j2] = Σ_i W_Q[i,j1] W_K[i,j2] / sqrt(I);  2IJ against J² a head",
    assumption="splitting W~ into I rows is exact if its rank is I; else the largest are kept",
    remark="The derivation writes t1 for t2 in the second token; the result is right.",
)
def _check_merged_matrix(setting: Setting) -> Sequence[Case]:
    generator, width = setting.generator(), setting.width
    inner = width // 4
    query, key = (normal(generator, HEADS, inner, width) * width**-0.5 for _ in range(2))
    tokens = normal(generator, QUERIES, width)
    merged = merge_pair(query, key, inner**-0.5)
    score = MergedConfig().build(score_sizes(width, inner))
    score.double().weight.data.copy_(merged / score.scale)
    terms = ScoreTerms(queries=score.queries(tokens[None]), keys=score.keys(tokens[None]))
    predicted = formulas.stack_heads(to_numpy(tokens), to_numpy(query), to_numpy(key), inner**-0.5)
    split, half = split_merged(merged, inner), split_merged(merged, inner // 2)
    split_terms = ScoreTerms(
        queries=torch.einsum("tj,kuj->kut", tokens, split.queries).mT[None],
        keys=torch.einsum("tj,kuj->kut", tokens, split.keys).mT[None],
    )
    values = np.stack([np.linalg.svd(to_numpy(matrix), compute_uv=False) for matrix in merged])
    again = attention_weights(split_terms, NO_MASK)[0]
    return [
        compare("α of the merged matrix", predicted, attention_weights(terms, NO_MASK)[0]),
        compare("α of a pair split out of it", predicted, again),
        compare("largest singular value dropped at I/2", values[:, inner // 2], half.truncation),
        *(
            Case(
                f"weights a head, one matrix against two of I = {rows}",
                width**2 / (2 * rows * width),
                score_parameters(MergedConfig(), width, width)
                / score_parameters(ScaledConfig(), width, rows),
                EXACT,
            )
            for rows in (inner, width // 2)
        ),
    ]


def score_sizes(width: int, key_width: int) -> ScoreSizes:
    """Sizes of a score over tokens of this width."""
    return ScoreSizes(
        width=width,
        memory_width=width,
        heads=HEADS,
        kv_heads=HEADS,
        key_width=key_width,
        length=QUERIES,
    )


def score_parameters(config: MergedConfig | ScaledConfig, width: int, key_width: int) -> int:
    """The number of parameters of a score."""
    score = config.build(score_sizes(width, key_width))
    return sum(weight.numel() for weight in score.parameters())


@claim(
    "C3",
    f"{SOURCE}, problem 1 (blank language modeling)",
    "A blank is predicted from a forward state before it and a backward state after it.",
    formula="P(w_t) = softmax of e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]",
    assumption="an end symbol precedes the first word and follows the last",
)
def _check_cloze(setting: Setting) -> Sequence[Case]:
    generator, end = setting.generator(), 0
    config = BiRNNClozeConfig(width=WIDTH, cell=TanhConfig(hidden=HIDDEN))
    model = randomize(config.build(WORDS, mask=1, end=end, seed=0), generator).eval()
    tokens = torch.randint(2, WORDS, (TIME,), generator=generator)
    everywhere = torch.ones(1, TIME, dtype=torch.bool)
    measured = model(tokens[None], everywhere, everywhere).softmax(dim=-1)
    weights = numpy_parameters(model)
    table = weights["embedding.weight"]
    inputs = table[[end, *tokens.tolist(), end]]

    def states(inputs: Array, layer: str) -> Array:
        matrices = (weights[f"{layer}.weight_{name}_l0"] for name in ("ih", "hh"))
        return formulas.rnn_states(inputs, np.zeros(HIDDEN), *matrices)

    left = states(inputs, "forwards.forwards.0")
    right = states(inputs[::-1], "backwards.backwards.0")[::-1]
    predicted = [
        formulas.softmax(
            table @ weights["from_left.weight"] @ left[t - 1]
            + table @ weights["from_right.weight"] @ right[t + 1]
        )
        for t in range(1, TIME + 1)
    ]
    return [compare("P of every word at every blank", np.stack(predicted), measured)]


@claim(
    "C4",
    f"{SOURCE}, problem 2 (translation with attention)",
    "A translator attends to the source with its previous state; the context vector enters the "
    "next state.",
    formula="α = softmax of h[t-1]·W_key·M, V = Σ α M, h[t] = CELL(h[t-1], V, e[w_t])",
    assumption="V of step t enters h[t] and so decides w_{t+1}; a start symbol comes first",
)
def _check_translation(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    decoder = random_decoder(generator)
    memory, first = normal(generator, 17, MEMORY), normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    state = decoder.init_state(memory[None], None, first[None])
    measured = decoder.logits(decoder(tokens[None], state))[0].softmax(dim=-1)
    predicted = numpy_decoder(decoder, to_numpy(memory), to_numpy(first), tokens.tolist())
    delay = float(attention_delay(decoder, tokens, state, step=3))
    return [
        compare("P(w_{t+1}) of every word and step", predicted, measured),
        Case("words from an attention step to the first word that it decides", 1.0, delay),
    ]


@claim(
    "C5",
    f"{SOURCE}, problem 2 (image captioning)",
    "The same decoder writes captions if the memory is a feature map over x and y.",
    formula="α[x,y] = softmax over x, y of h[t-1]·W_key·M[x,y], V = Σ α[x,y] M[x,y]",
    assumption="none; channels K and width J may differ",
)
def _check_captioning(setting: Setting) -> Sequence[Case]:
    generator = setting.generator()
    decoder, columns, rows = random_decoder(generator), 3, 5
    image, first = normal(generator, columns, rows, MEMORY), normal(generator, HIDDEN)
    tokens = torch.randint(WORDS, (TIME,), generator=generator)
    state = decoder.init_state(as_tokens(image[None]), None, first[None])
    measured = decoder.logits(decoder(tokens[None], state))[0].softmax(dim=-1)
    memory = np.stack([to_numpy(image)[x, y] for x in range(columns) for y in range(rows)])
    predicted = numpy_decoder(decoder, memory, to_numpy(first), tokens.tolist())
    return [compare("P(w_{t+1}) of every word and step", predicted, measured)]


def random_decoder(generator: torch.Generator) -> AttentionRNNDecoder:
    """The document's decoder, with a tanh layer as CELL."""
    config = AttentionRNNDecoderConfig(width=WIDTH, hidden=HIDDEN, cell=TanhConfig())
    decoder = config.build(WORDS, memory_width=MEMORY, source_width=HIDDEN, seed=0)
    return randomize(decoder, generator).eval()


def numpy_decoder(
    decoder: AttentionRNNDecoder, memory: Array, state: Array, words: list[int]
) -> Array:
    """Probabilities after each word, by the document's equations."""
    weights = numpy_parameters(decoder)
    factors = decoder.attention.score.factors()
    assert factors is not None
    key_matrix = to_numpy(factors.left[0].mT)
    table, cell = weights["embedding.weight"], "cell.forwards.0.weight"
    probabilities = []
    for word in words:
        context = formulas.softmax(state @ key_matrix @ memory.T) @ memory
        inputs = np.concatenate((context, table[word]))
        state = np.tanh(weights[f"{cell}_ih_l0"] @ inputs + weights[f"{cell}_hh_l0"] @ state)
        probabilities.append(formulas.softmax(table @ weights["to_words.weight"] @ state))
    return np.stack(probabilities)


def attention_delay(
    decoder: AttentionRNNDecoder, tokens: torch.Tensor, state: AttentionRNNState, step: int
) -> int:
    """Words from the one consumed at an attention step to the first one that the step changes."""
    kernel, steps = decoder.attention.kernel, 0

    def perturbed(
        terms: ScoreTerms, values: torch.Tensor, mask: Mask, dropout: float
    ) -> torch.Tensor:
        nonlocal steps
        steps += 1
        return kernel(terms, values, mask, dropout) + float(steps == step)

    states = decoder(tokens[None], state)
    decoder.attention.kernel = perturbed
    differs = (decoder(tokens[None], state) != states).any(dim=-1)[0]
    decoder.attention.kernel = kernel
    return int(differs.nonzero()[0]) + 2 - step  # state s (counted from 1) decides word s + 1


@claim(
    "C6",
    f"{SOURCE}, problem 3 (language CNNs)",
    "A language CNN of stride 2 halves the text with every layer, and takes O(L) parallel time "
    "where RNNs take O(T + L).",
    formula="L_{l+1}[t] = σ(Σ_Δ W[Δ] L_l[2t+Δ] - B)",
    assumption="zeros beyond both ends; widths are constants; to see T tokens, L must be log T",
)
def _check_language_cnn(setting: Setting) -> Sequence[Case]:
    generator, layers = setting.generator(), 3
    config = ConvPyramidConfig(layers=layers, kernel=KERNEL)
    cnn = randomize(Downsample(config, WIDTH), generator)
    tokens = normal(generator, 1, 19, WIDTH)
    measured, weights = cnn(tokens), numpy_parameters(cnn)
    predicted, cases = to_numpy(tokens[0]), []
    for layer in range(layers):
        kernel, threshold = weights[f"kernels.{layer}.weight"], weights[f"thresholds.{layer}"]
        predicted = numpy_convolution(predicted, kernel, threshold)
        cases.append(compare(f"L_{layer + 1}[t], every t", predicted, measured[layer + 1][0]))
    step = 1 + tree(TRACED_WIDTH) + 2  # both products at once, their sum, tanh
    window = 1 + tree(KERNEL * TRACED_WIDTH) + 2  # the product, the threshold, σ
    long, what = 4 * TOKENS, "RNN: steps more with twice"
    for name, steps, more in (
        ("CNN: steps more with twice T", 0, cnn_depth(2 * SHORT, 3) - cnn_depth(SHORT, 3)),
        ("CNN: steps more with twice L = 3", 3 * window, cnn_depth(SHORT, 6) - cnn_depth(SHORT, 3)),
        (f"{what} T", TOKENS * step, rnn_depth(2 * TOKENS, 3) - rnn_depth(TOKENS, 3)),
        (f"{what} L = 3, T = {TOKENS}", 3 * step, rnn_depth(TOKENS, 6) - rnn_depth(TOKENS, 3)),
        (f"{what} L = 3, T = {long}", 3 * step, rnn_depth(long, 6) - rnn_depth(long, 3)),
    ):
        cases.append(Case(name, float(steps), float(more)))
    return cases


def numpy_convolution(below: Array, weight: Array, threshold: Array) -> Array:
    """σ(Σ over Δ of W[Δ] L[2t + Δ] - B), Δ in -1, 0, 1, with zeros beyond both ends."""
    outputs = []
    for t in range((len(below) + 1) // 2):
        total = -threshold
        for delta in (-1, 0, 1):
            if 0 <= 2 * t + delta < len(below):
                total = total + weight[:, :, delta + 1] @ below[2 * t + delta]
        outputs.append(np.maximum(total, 0.0))
    return np.stack(outputs)


def cnn_depth(time: int, layers: int) -> int:
    """Traced steps of the CNN: windows of k J numbers per layer, for any length."""
    config, tokens = (
        ConvPyramidConfig(layers=layers, kernel=KERNEL),
        torch.empty(1, time, TRACED_WIDTH),
    )
    return trace_forward(
        lambda _: Downsample(config, TRACED_WIDTH), lambda layer: layer(tokens)
    ).depth


def rnn_depth(time: int, layers: int) -> int:
    """Traced steps of stacked RNNs: a layer starts when the one below has read a token."""
    config, tokens = TanhConfig(layers=layers), torch.empty(1, time, TRACED_WIDTH)
    return trace_forward(lambda _: config.build(TRACED_WIDTH), lambda layer: layer(tokens)).depth
