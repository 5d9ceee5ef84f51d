"""Mark Hasegawa-Johnson, Lecture 29: Transformers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import NO_MASK, build_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import FourierConfig, SinusoidConfig, model_width
from harken.attention.scores import DotConfig
from harken.attention.sinusoids import Sinusoids
from harken.claims import formulas
from harken.claims import random_layers as layers
from harken.claims.claim import (
    ATOL,
    ATOL32,
    HOLDS_NARROWER,
    Array,
    Case,
    Claim,
    Setting,
    compare_arrays,
)
from harken.claims.random_layers import HEAD_WIDTH, HEADS, KEY_WIDTH, KEYS, QUERIES, WIDTH
from harken.layers.recurrent import TanhConfig
from harken.models.decoders import AttentionRNNDecoderConfig, LocationBias
from harken.models.gpt import GPTConfig
from harken.models.recognizer import RecognizerConfig

SOURCE = "Mark Hasegawa-Johnson, Lecture 29: Transformers"
SPAN, OFFSETS = 67, (1, 7, 31)
TIME, INPUT, HIDDEN, TAGS = 11, 5, 7, 3  # sizes of the recurrent tagger
BUFFER_MS, HOP_MS = 200.0, 10.0
DOT_PRODUCT = MultiHeadConfig(
    heads=HEADS, key_width=KEY_WIDTH, head_width=HEAD_WIDTH, score=DotConfig()
)


@Claim(
    "A2",
    f"{SOURCE}, Position encoding by Fourier basis",
    "Positions can be encoded by cosines and sines of 1, 2, 3, … half periods over T steps.",
    formula="e_t = cos(πt/T), sin(πt/T), …, cos(πDt/2T), sin(πDt/2T)",
    assumption="D is the width of e_t; texts of at most T tokens: positions repeat after 2T, so "
    "larger offsets are ambiguous",
)
def _check_fourier_basis(setting: Setting) -> Sequence[Case]:
    positions = torch.arange(3 * SPAN)
    measured = layers.position_vectors(FourierConfig(span=SPAN), positions, setting.width)
    predicted = formulas.numpy_fourier(SPAN, setting.width, SPAN)
    repeats = (measured[1:] - measured[0]).abs().amax(dim=1) < ATOL32
    period = (1 + int(repeats.nonzero()[0])) / SPAN if repeats.any() else np.inf
    return [
        compare_arrays("element with the largest difference", predicted, measured[:SPAN], ATOL32),
        Case("period of the positions, in units of T", 2.0, period),
    ]


@Claim(
    "A3",
    f"{SOURCE}, Position encoding by Fourier basis",
    "One matrix shifts every position by a fixed offset: it rotates each pair (cosine, sine).",
    formula="e_{t-d} = A e_t, block j is [[cos, sin], [-sin, cos]] of jπd/T (cosine first)",
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
            name = f"{basis.kind}: A e_t is e_(t-{offset})"
            cases.append(compare_arrays(name, predicted[:-offset], shifted, ATOL32))
    cosine, sine = np.cos(np.pi * 7 / SPAN), np.sin(np.pi * 7 / SPAN)
    printed, block = np.array([[cosine, sine], [-sine, cosine]]), fourier.shift_matrix(7)[:2, :2]
    name = "fourier: the first block as the lecture prints it"
    return [*cases, compare_arrays(name, printed, block)]


@Claim(
    "A7",
    f"{SOURCE}, Where do we put the positional encoding?",
    "Concatenating positions to tokens makes every vector twice and every matrix four times as "
    "large; adding them costs nothing.",
    formula="x_t = [x_t, e_t]:  J -> 2J,  J x J -> 2J x 2J",
    assumption="widths of heads and of the feed-forward layer grow with J",
    expected=HOLDS_NARROWER,
    remark="Four times is true of the matrices between two vectors of the model. The embedding "
    "table keeps its size, because positions are concatenated after it, and the output matrix "
    "doubles.",
)
def _check_concatenation(setting: Setting) -> Sequence[Case]:
    add, concat = SinusoidConfig(combine="add"), SinusoidConfig(combine="concat")
    config = GPTConfig(
        layers=1, width=setting.width, attention=MultiHeadConfig(heads=4), tie_embeddings=False
    )
    added, concatenated = (
        {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2}
        for model in (
            replace(config, position=position).build(vocabulary=97, seed=0)
            for position in (add, concat)
        )
    )
    vector_growth = model_width(concat, setting.width) / setting.width
    growth = {name: concatenated[name] / size for name, size in added.items()}
    names = [name for name in added if "blocks" in name]
    block_growth = sum(concatenated[name] for name in names) / sum(added[name] for name in names)
    return [
        Case("growth of vectors", 2.0, vector_growth),
        Case("growth of the embedding table, as stated", 4.0, growth["embedding.weight"]),
        Case("growth of the embedding table", 1.0, growth["embedding.weight"], stated=False),
        Case("growth of the output matrix", 2.0, growth["lm_head.weight"], stated=False),
        Case("growth of all matrices of a block", 4.0, block_growth, stated=False),
    ]


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
    return [compare_arrays("outputs of permuted tokens = permuted outputs", predicted, measured)]


@Claim(
    "B1",
    f"{SOURCE}, Attention = a probability mass over time",
    "Each context vector is a sum of values, weighted by a probability mass function over time.",
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
    name = "queries from the output so far, keys and values from the input"
    return [layers.output_case(name, DOT_PRODUCT, setting, memory_width=19)]


@Claim(
    "B5",
    f"{SOURCE}, Masked attention",
    "Masked attention lets c_i depend only on values v_t with t < i.",
    formula="score = q_i·k_t where t < i, else -∞",
    expected=HOLDS_NARROWER,
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
    predicted_strict = matrices.weights(tokens, visible=np.tri(QUERIES, k=-1, dtype=np.bool_))
    predicted_causal = matrices.weights(tokens, visible=np.tri(QUERIES, dtype=np.bool_))
    zeros, mass = np.zeros((HEADS, QUERIES)), float(strict[0, 0].sum())
    return [
        Case("t < i: Σ_t α of the first query, 1 as stated", 1.0, mass, ATOL),
        compare_arrays("t < i: α of others", predicted_strict[:, 1:], strict[:, 1:], stated=False),
        compare_arrays("t < i: α of the first query, zeros", zeros, strict[:, 0], stated=False),
        compare_arrays("t <= i: α of all", predicted_causal, causal, stated=False),
    ]


class TaggingProblem(NamedTuple):
    """Weights of a tanh RNN, its inputs and the true tags."""

    input_weight: Float[Tensor, "hidden J"]  # U in the lecture
    recurrent_weight: Float[Tensor, "hidden hidden"]  # V
    output_weight: Float[Tensor, "tags hidden"]  # W
    inputs: Float[Tensor, "T J"]  # x_1 .. x_T
    tags: Int[Tensor, "T"]  # y_1 .. y_T


def random_problem(setting: Setting) -> TaggingProblem:
    """Return a random RNN and a random sentence."""
    generator = setting.generator()
    weights = (
        layers.normal(generator, HIDDEN, INPUT) * INPUT**-0.5,
        layers.normal(generator, HIDDEN, HIDDEN) * HIDDEN**-0.5,
        layers.normal(generator, TAGS, HIDDEN),
    )
    tags = torch.randint(TAGS, (TIME,), generator=generator)
    return TaggingProblem(*weights, layers.normal(generator, TIME, INPUT), tags)


def numpy_states(problem: TaggingProblem) -> Array:
    """Return h_1 .. h_T, computed with `formulas.numpy_rnn`."""
    inputs, *matrices = map(
        layers.to_numpy, (problem.inputs, problem.input_weight, problem.recurrent_weight)
    )
    return formulas.numpy_rnn(inputs, np.zeros(HIDDEN), *matrices)


def layer_states(problem: TaggingProblem) -> Float[Tensor, "T hidden"]:
    """Return h_1 .. h_T, computed by the library's layer."""
    recurrent = TanhConfig(hidden=HIDDEN).build(INPUT).double()
    parameters = {
        "forwards.0.weight_ih_l0": problem.input_weight,
        "forwards.0.weight_hh_l0": problem.recurrent_weight,
    }
    inputs = problem.inputs[None]
    states: Tensor = torch.func.functional_call(recurrent, parameters, (inputs,))[0]
    return states[0]


@torch.no_grad()
def backpropagate(problem: TaggingProblem) -> tuple[float, Float[Tensor, "hidden hidden"]]:
    """Return L = -Σ ln o_t[y_t] and dL/dV by explicit back-propagation through time.

    ∂L/∂h_t = (o_t - onehot(y_t)) W,   ∂h_{t+1}/∂h_t = diag(1 - h_{t+1}²) V,   h_0 = 0
    """
    input_weight, recurrent_weight, output_weight, inputs, tags = problem
    history = [inputs.new_zeros(HIDDEN)]
    for token in inputs:
        history.append(torch.tanh(input_weight @ token + recurrent_weight @ history[-1]))
    previous, states = torch.stack(history[:-1]), torch.stack(history[1:])
    outputs = (states @ output_weight.T).softmax(dim=-1)
    gradients = (outputs - F.one_hot(tags, TAGS)) @ output_weight  # ∂L/∂h_t
    for t in reversed(range(TIME - 1)):
        gradients[t] += gradients[t + 1] @ ((1 - states[t + 1] ** 2)[:, None] * recurrent_weight)
    inner = (1 - states**2) * gradients  # dL / d(U x_t + V h_{t-1})
    return -outputs[torch.arange(TIME), tags].log().sum().item(), inner.T @ previous


@Claim(
    "C1",
    f"{SOURCE}, Example: Part of speech tagging",
    "A tagger computes its state from the word and the previous state, and the tag from the state.",
    formula="h_t = tanh(U x_t + V h_{t-1}), o_t = softmax(W h_t)",
)
def _check_tagger(setting: Setting) -> Sequence[Case]:
    problem = random_problem(setting)
    states, (measured_loss, _) = numpy_states(problem), backpropagate(problem)
    output = layers.to_numpy(problem.output_weight)
    outputs = [formulas.numpy_softmax(output @ state) for state in states]
    predicted_loss = -sum(np.log(o[y]) for o, y in zip(outputs, problem.tags.tolist(), strict=True))
    return [
        compare_arrays("h_t, all states", states, layer_states(problem)),
        Case("-Σ ln o_t[y_t]", float(predicted_loss), measured_loss, ATOL),
    ]


@Claim(
    "C2",
    f"{SOURCE}, Back-propagation through time",
    "The gradient of a state is the sum of its direct effect and its effect through the next "
    "state.",
    formula="dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t",
)
def _check_backpropagation(setting: Setting) -> Sequence[Case]:
    problem = random_problem(setting)
    recurrent, output = map(layers.to_numpy, (problem.recurrent_weight, problem.output_weight))
    states = numpy_states(problem)
    previous = np.vstack((np.zeros(HIDDEN), states[:-1]))
    predicted, from_next = np.zeros_like(recurrent), np.zeros(HIDDEN)
    for t in reversed(range(TIME)):  # the lecture's recursion
        error = formulas.numpy_softmax(output @ states[t])
        error[int(problem.tags[t])] -= 1.0
        inner = (1 - states[t] ** 2) * (error @ output + from_next)
        predicted += np.outer(inner, previous[t])
        from_next = inner @ recurrent
    _, explicit = backpropagate(problem)
    weight = problem.recurrent_weight.clone().requires_grad_()
    logits = layer_states(problem._replace(recurrent_weight=weight)) @ problem.output_weight.T
    loss = F.cross_entropy(logits, problem.tags, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, weight)
    return [
        compare_arrays("dL/dV, explicit back-propagation", predicted, explicit),
        compare_arrays("dL/dV, autograd through the layer", predicted, gradient),
    ]


@Claim(
    "C9",
    f"{SOURCE}, Bottom-up attention as a strategy for machine listening",
    "A speech recognizer can attend to a buffer of the past 200 ms of states.",
    formula="visible states = 200 ms / (hop · stride)",
    assumption="none; Harken's window is centered at the mean position of the previous attention",
)
def _check_memory_window(setting: Setting) -> Sequence[Case]:
    config = RecognizerConfig(decoder=AttentionRNNDecoderConfig(), attention_window_ms=BUFFER_MS)
    state_ms = HOP_MS * config.frontend.subsampling
    predicted = BUFFER_MS / state_ms
    states, center = 41, 20  # number of states, and the state that had all previous attention
    positions = torch.arange(states)[None]
    # The window is the largest visible distance, so it does not count the current state.
    past = build_mask("causal", positions, positions, window=round(predicted) - 1).visible
    decoder = config.windowed_decoder(HOP_MS)
    assert isinstance(decoder, AttentionRNNDecoderConfig) and decoder.location is not None
    generator = setting.generator()
    location = layers.randomize(LocationBias(decoder.location, HIDDEN, INPUT), generator)
    state = location.init_state(layers.normal(generator, 1, states, INPUT))
    state = state._replace(weights=F.one_hot(torch.tensor([center]), states).double())
    window = location.mask(state, torch.ones(1, states, dtype=torch.bool)).visible
    assert past is not None and window is not None
    past_name = f"visible states of the past 200 ms, one every {state_ms:g} ms"
    window_name = "visible states with attention_window_ms = 200"
    return [
        Case(past_name, predicted, float(past[0, 0, -1].sum())),
        Case(window_name, predicted, float(window.sum())),
    ]
