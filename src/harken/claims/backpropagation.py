"""Back-propagation through time by hand, for the recurrence of the lecture.

    h_t = tanh(U x_t + V h_{t-1}),  o_t = softmax(W h_t)
    L = sum over t of L_t,  L_t = -ln o_t[y_t]

    dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t
    ∂L/∂h_t = (o_t - onehot(y_t)) W           what h_t itself made wrong
    ∂h_{t+1}/∂h_t = diag(1 - h_{t+1}²) V      how it made the next state wrong

One sequence, in loops that read like the formulas: for study, for checking, and for the figure of
gradients that vanish or explode with distance. Training uses `recurrent.py` and autograd, which is
not used here.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TanhWeights:
    """U, V and W of the formulas."""

    inputs: Float[Tensor, "hidden J"]
    states: Float[Tensor, "hidden hidden"]
    outputs: Float[Tensor, "V hidden"]


@dataclass(frozen=True, slots=True)
class Backpropagated:
    """The loss and its gradients; `reach[t]` is the size of dL_T/dh_t, of the last loss alone."""

    loss: float
    weights: TanhWeights
    inputs: Float[Tensor, "T J"]
    first: Float[Tensor, "hidden"]  # of h_0
    reach: tuple[float, ...]  # for t = 0 .. T, so T - t is the distance


@torch.no_grad()
def backpropagate(
    weights: TanhWeights,
    inputs: Float[Tensor, "T J"],
    first: Float[Tensor, "hidden"],
    targets: Int[Tensor, "T"],
) -> Backpropagated:
    """Forward, then back: x_1 .. x_T and h_0 given, y_1 .. y_T wanted."""
    time = inputs.shape[0]
    states = [first]
    for token in inputs:
        states.append(torch.tanh(weights.inputs @ token + weights.states @ states[-1]))
    history = torch.stack(states)  # h_0 .. h_T
    outputs = (history[1:] @ weights.outputs.T).softmax(dim=-1)
    steps = torch.arange(time, device=inputs.device)
    loss = -outputs[steps, targets].log().sum()

    errors = outputs.clone()  # o_t - onehot(y_t)
    errors[steps, targets] -= 1.0
    direct = torch.cat((torch.zeros_like(first)[None], errors @ weights.outputs))  # h_0 is not read
    total = through_time(direct, history, weights.states)

    # Through the tanh, to U x_t + V h_{t-1}: both matrices and x_t hang on that sum alone.
    inside = (1 - history[1:] ** 2) * total[1:]
    last = torch.zeros_like(direct)
    last[time] = direct[time]
    return Backpropagated(
        loss=loss.item(),
        weights=TanhWeights(
            inputs=einsum(inside, inputs, "T hidden, T J -> hidden J"),
            states=einsum(inside, history[:-1], "T new, T old -> new old"),
            outputs=einsum(errors, history[1:], "T V, T hidden -> V hidden"),
        ),
        inputs=inside @ weights.inputs,
        first=total[0],
        reach=tuple(through_time(last, history, weights.states).norm(dim=-1).tolist()),
    )


def through_time(
    direct: Float[Tensor, "states hidden"],
    history: Float[Tensor, "states hidden"],
    state_weights: Float[Tensor, "hidden hidden"],
) -> Float[Tensor, "states hidden"]:
    """dL/dh_t of all states from ∂L/∂h_t, from the last state to the first."""
    total = direct.clone()
    for t in reversed(range(len(direct) - 1)):
        slope = (1 - history[t + 1] ** 2)[:, None] * state_weights  # ∂h_{t+1}/∂h_t
        total[t] = direct[t] + total[t + 1] @ slope
    return total
