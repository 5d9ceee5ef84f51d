"""The lecture on attention, its first part: recurrent networks and a short memory of sound.

h_t = tanh(U x_t + V h_{t-1}),  o_t = softmax(W h_t)
dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from harken.attention.masks import build_mask
from harken.claims import formulas
from harken.claims.backpropagation import TanhWeights, backpropagate
from harken.claims.claim import Array, Case, Claim, Setting, worst
from harken.claims.drawn import array, filled, normal
from harken.layers.recurrent import TanhConfig
from harken.models.decoders import AttentionRNNDecoderConfig, Location
from harken.models.recognizer import RecognizerConfig

SOURCE = "lecture on attention"
TIME, WIDTH, HIDDEN, TAGS = 11, 5, 7, 3
BUFFER_MS, HOP_MS = 200.0, 10.0


def tagging(setting: Setting) -> Sequence[Case]:
    """C1: states and loss."""
    weights, inputs, targets = problem(setting)
    predicted = formulas.states(
        array(inputs), np.zeros(HIDDEN), array(weights.inputs), array(weights.states)
    )
    found = backpropagate(weights, inputs, torch.zeros(HIDDEN, dtype=torch.float64), targets)
    outputs = [formulas.softmax(array(weights.outputs) @ state) for state in predicted]
    loss = -sum(np.log(o[y]) for o, y in zip(outputs, targets.tolist(), strict=True))
    return [
        worst("h_t, all states", predicted, run_states(weights, inputs)),
        worst("-Σ ln o_t[y_t]", np.array(loss), torch.tensor(found.loss, dtype=torch.float64)),
    ]


def through_time(setting: Setting) -> Sequence[Case]:
    """C2: by the library's own steps, and by autograd."""
    weights, inputs, targets = problem(setting)
    predicted = gradient(weights, inputs, targets)
    by_hand = backpropagate(weights, inputs, torch.zeros(HIDDEN, dtype=torch.float64), targets)
    learned = weights.states.clone().requires_grad_()
    states = run_states(TanhWeights(weights.inputs, learned, weights.outputs), inputs)
    F.cross_entropy(states @ weights.outputs.T, targets, reduction="sum").backward()  # type: ignore[no-untyped-call]
    assert learned.grad is not None
    return [
        worst(
            "dL/dV, the formula's steps in claims/backpropagation.py",
            predicted,
            by_hand.weights.states,
        ),
        worst("dL/dV, autograd through the layer", predicted, learned.grad),
    ]


def problem(setting: Setting) -> tuple[TanhWeights, torch.Tensor, torch.Tensor]:
    """U, V, W; x_1 .. x_T; y_1 .. y_T."""
    generator = setting.generator()
    weights = TanhWeights(
        normal(generator, HIDDEN, WIDTH) * WIDTH**-0.5,
        normal(generator, HIDDEN, HIDDEN) * HIDDEN**-0.5,
        normal(generator, TAGS, HIDDEN),
    )
    targets = torch.randint(TAGS, (TIME,), generator=generator)
    return weights, normal(generator, TIME, WIDTH), targets


def run_states(weights: TanhWeights, inputs: torch.Tensor) -> torch.Tensor:
    """h_1 .. h_T of the library's own layer."""
    recurrent = TanhConfig(hidden=HIDDEN).build(WIDTH).double()
    named = {
        "forwards.0.weight_ih_l0": weights.inputs,
        "forwards.0.weight_hh_l0": weights.states,
    }
    states: torch.Tensor = torch.func.functional_call(recurrent, named, (inputs[None],))[0]
    return states[0]


def gradient(weights: TanhWeights, inputs: torch.Tensor, targets: torch.Tensor) -> Array:
    """dL/dV by the lecture's recursion, from the last state to the first."""
    recurrent, output = array(weights.states), array(weights.outputs)
    states = formulas.states(array(inputs), np.zeros(HIDDEN), array(weights.inputs), recurrent)
    before = np.vstack((np.zeros(HIDDEN), states[:-1]))
    found, later = np.zeros_like(recurrent), np.zeros(HIDDEN)
    for t in reversed(range(TIME)):
        error = formulas.softmax(output @ states[t])
        error[int(targets[t])] -= 1.0
        total = error @ output + later
        inside = (1 - states[t] ** 2) * total
        found += np.outer(inside, before[t])
        later = inside @ recurrent
    return found


def short_memory(setting: Setting) -> Sequence[Case]:
    """C9: a window over the past, and the recogniser's own."""
    config = RecognizerConfig(decoder=AttentionRNNDecoderConfig(), memory_ms=BUFFER_MS)
    stride = HOP_MS * config.front.factor
    predicted = BUFFER_MS / stride
    places = torch.arange(41)[None]
    past = build_mask("causal", places, places, window=round(predicted) - 1).visible
    assert past is not None
    decoder = config.windowed(HOP_MS)
    assert isinstance(decoder, AttentionRNNDecoderConfig) and decoder.location is not None
    generator = setting.generator()
    location = filled(Location(decoder.location, HIDDEN, WIDTH), generator)
    looked = location.init_state(normal(generator, 1, 41, WIDTH))
    looked = looked._replace(weights=F.one_hot(torch.tensor([20]), 41).double())
    around = location.mask(looked, torch.ones(1, 41, dtype=torch.bool)).visible
    assert around is not None
    return [
        Case(
            what=f"states seen of the past 200 ms, one every {stride:g} ms",
            predicted=predicted,
            measured=float(past[0, 0, -1].sum()),
            tolerance=0.0,
        ),
        Case(
            what="states seen with memory_ms = 200, around where it looked last",
            predicted=predicted,
            measured=float(around.sum()),
            tolerance=0.0,
        ),
    ]


CLAIMS = (
    Claim(
        id="C1",
        source=SOURCE,
        statement="A tagger's state is made of the word and the state before it, its tags of the "
        "state.",
        formula="h_t = tanh(U x_t + V h_{t-1}), o_t = softmax(W h_t)",
        assumption="none",
        check=tagging,
    ),
    Claim(
        id="C2",
        source=SOURCE,
        statement="The gradient of a state is what it made wrong itself and what it made wrong "
        "through the next.",
        formula="dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t",
        assumption="none",
        check=through_time,
    ),
    Claim(
        id="C9",
        source=SOURCE,
        statement="A recogniser can attend to a buffer of the past 200 ms of states.",
        formula="states seen = 200 ms / (hop · stride)",
        assumption="the library's buffer lies around the last place looked at, half on each side",
        check=short_memory,
    ),
)
