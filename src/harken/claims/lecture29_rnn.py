"""Mark Hasegawa-Johnson, Lecture 29: Transformers. Recurrent networks and a memory for speech."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from harken.attention.masks import build_mask
from harken.claims import formulas
from harken.claims.claim import EXACT, Array, Case, Claim, Setting, compare_arrays
from harken.claims.lecture29 import SOURCE
from harken.claims.random_layers import normal, randomize, to_numpy
from harken.layers.recurrent import TanhConfig
from harken.models.decoders import AttentionRNNDecoderConfig, Location
from harken.models.recognizer import RecognizerConfig

TIME, WIDTH, HIDDEN, TAGS = 11, 5, 7, 3
BUFFER_MS, HOP_MS = 200.0, 10.0


@dataclass(frozen=True, slots=True)
class TanhWeights:
    """U, V and W of the formulas."""

    inputs: Float[Tensor, "hidden J"]
    states: Float[Tensor, "hidden hidden"]
    outputs: Float[Tensor, "V hidden"]


@torch.no_grad()
def backpropagate(
    weights: TanhWeights, inputs: Float[Tensor, "T J"], targets: Int[Tensor, "T"]
) -> tuple[float, TanhWeights]:
    """Return L = -Σ ln o_t[y_t] and its gradients by explicit back-propagation through time.

    ∂L/∂h_t = (o_t - onehot(y_t)) W,   ∂h_{t+1}/∂h_t = diag(1 - h_{t+1}²) V,   h_0 = 0
    """
    states = [inputs.new_zeros(len(weights.states))]
    for token in inputs:
        states.append(torch.tanh(weights.inputs @ token + weights.states @ states[-1]))
    history = torch.stack(states)  # h_0 .. h_T
    outputs = (history[1:] @ weights.outputs.T).softmax(dim=-1)
    steps = torch.arange(len(inputs))
    errors = outputs.clone()  # o_t - onehot(y_t)
    errors[steps, targets] -= 1.0
    total = gradients_through_time(errors @ weights.outputs, history[1:], weights.states)
    inner = (1 - history[1:] ** 2) * total  # gradient of U x_t + V h_{t-1}
    gradients = TanhWeights(inner.T @ inputs, inner.T @ history[:-1], errors.T @ history[1:])
    return -outputs[steps, targets].log().sum().item(), gradients


def gradients_through_time(
    direct: Float[Tensor, "T hidden"],
    states: Float[Tensor, "T hidden"],
    recurrent_weight: Float[Tensor, "hidden hidden"],
) -> Float[Tensor, "T hidden"]:
    """Return dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t, from the last state to the first."""
    total = direct.clone()
    for t in reversed(range(len(direct) - 1)):
        slope = (1 - states[t + 1] ** 2)[:, None] * recurrent_weight  # ∂h_{t+1}/∂h_t
        total[t] = direct[t] + total[t + 1] @ slope
    return total


@Claim(
    "C1",
    f"{SOURCE}, Example: Part of speech tagging",
    "A tagger computes its state from the word and the previous state, and the tag from the state.",
    formula="h_t = tanh(U x_t + V h_{t-1}), o_t = softmax(W h_t)",
)
def _check_tagger(setting: Setting) -> Sequence[Case]:
    weights, inputs, targets = random_problem(setting)
    predicted = numpy_states(weights, inputs)
    measured, _ = backpropagate(weights, inputs, targets)
    outputs = [formulas.numpy_softmax(to_numpy(weights.outputs) @ state) for state in predicted]
    loss = -sum(np.log(o[y]) for o, y in zip(outputs, targets.tolist(), strict=True))
    return [
        compare_arrays("h_t, all states", predicted, layer_states(weights, inputs)),
        Case("-Σ ln o_t[y_t]", float(loss), measured, EXACT),
    ]


@Claim(
    "C2",
    f"{SOURCE}, Back-propagation through time",
    "The gradient of a state is the sum of its direct effect and its effect through the next "
    "state.",
    formula="dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t",
)
def _check_backpropagation(setting: Setting) -> Sequence[Case]:
    weights, inputs, targets = random_problem(setting)
    predicted = numpy_gradient(weights, inputs, targets)
    _, explicit = backpropagate(weights, inputs, targets)
    learned = weights.states.clone().requires_grad_()
    states = layer_states(replace(weights, states=learned), inputs)
    F.cross_entropy(states @ weights.outputs.T, targets, reduction="sum").backward()  # type: ignore[no-untyped-call]
    assert learned.grad is not None
    return [
        compare_arrays("dL/dV, explicit back-propagation", predicted, explicit.states),
        compare_arrays("dL/dV, autograd through the layer", predicted, learned.grad),
    ]


def random_problem(setting: Setting) -> tuple[TanhWeights, Tensor, Tensor]:
    """Return U, V, W; x_1 .. x_T; y_1 .. y_T."""
    generator = setting.generator()
    weights = TanhWeights(
        normal(generator, HIDDEN, WIDTH) * WIDTH**-0.5,
        normal(generator, HIDDEN, HIDDEN) * HIDDEN**-0.5,
        normal(generator, TAGS, HIDDEN),
    )
    targets = torch.randint(TAGS, (TIME,), generator=generator)
    return weights, normal(generator, TIME, WIDTH), targets


def numpy_states(weights: TanhWeights, inputs: Tensor) -> Array:
    """Return h_1 .. h_T by the formula."""
    matrices = to_numpy(weights.inputs), to_numpy(weights.states)
    return formulas.numpy_rnn(to_numpy(inputs), np.zeros(HIDDEN), *matrices)


def layer_states(weights: TanhWeights, inputs: Tensor) -> Tensor:
    """Return h_1 .. h_T of the library's layer."""
    recurrent = TanhConfig(hidden=HIDDEN).build(WIDTH).double()
    names = ("forwards.0.weight_ih_l0", "forwards.0.weight_hh_l0")
    parameters = dict(zip(names, (weights.inputs, weights.states), strict=True))
    states: Tensor = torch.func.functional_call(recurrent, parameters, (inputs[None],))[0]
    return states[0]


def numpy_gradient(weights: TanhWeights, inputs: Tensor, targets: Tensor) -> Array:
    """Return dL/dV by the lecture's recursion, from the last state to the first."""
    recurrent, output = to_numpy(weights.states), to_numpy(weights.outputs)
    states = numpy_states(weights, inputs)
    previous = np.vstack((np.zeros(HIDDEN), states[:-1]))
    gradient, from_next = np.zeros_like(recurrent), np.zeros(HIDDEN)
    for t in reversed(range(TIME)):
        error = formulas.numpy_softmax(output @ states[t])
        error[int(targets[t])] -= 1.0
        inner = (1 - states[t] ** 2) * (error @ output + from_next)
        gradient += np.outer(inner, previous[t])
        from_next = inner @ recurrent
    return gradient


@Claim(
    "C9",
    f"{SOURCE}, Bottom-up attention as a strategy for machine listening",
    "A speech recognizer can attend to a buffer of the past 200 ms of states.",
    formula="visible states = 200 ms / (hop · stride)",
    assumption="the library's buffer is centered at the previous attention peak",
)
def _check_memory_window(setting: Setting) -> Sequence[Case]:
    config = RecognizerConfig(decoder=AttentionRNNDecoderConfig(), attention_window_ms=BUFFER_MS)
    stride = HOP_MS * config.frontend.subsampling
    predicted = BUFFER_MS / stride
    positions = torch.arange(41)[None]
    past = build_mask("causal", positions, positions, window=round(predicted) - 1).visible
    decoder = config.windowed_decoder(HOP_MS)
    assert isinstance(decoder, AttentionRNNDecoderConfig) and decoder.location is not None
    generator = setting.generator()
    location = randomize(Location(decoder.location, HIDDEN, WIDTH), generator)
    state = location.init_state(normal(generator, 1, 41, WIDTH))
    state = state._replace(weights=F.one_hot(torch.tensor([20]), 41).double())
    window = location.mask(state, torch.ones(1, 41, dtype=torch.bool)).visible
    assert past is not None and window is not None
    what = f"visible states of the past 200 ms, one every {stride:g} ms"
    centered = "visible states with memory_ms = 200, around the previous attention peak"
    return [
        Case(what, predicted, float(past[0, 0, -1].sum())),
        Case(centered, predicted, float(window.sum())),
    ]
