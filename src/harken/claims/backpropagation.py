"""Explicit back-propagation through time for the recurrence of Lecture 29.

    h_t = tanh(U x_t + V h_{t-1}),  o_t = softmax(W h_t)
    L = sum over t of L_t,  L_t = -ln o_t[y_t]

    dL/dh_t = ∂L/∂h_t + dL/dh_{t+1} ∂h_{t+1}/∂h_t
    ∂L/∂h_t = (o_t - onehot(y_t)) W
    ∂h_{t+1}/∂h_t = diag(1 - h_{t+1}²) V

One sequence, in loops that follow the formulas, without autograd. Training uses
`layers/recurrent.py` and autograd.
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
    """The loss and its gradients."""

    loss: float
    weights: TanhWeights
    inputs: Float[Tensor, "T J"]
    first: Float[Tensor, "hidden"]  # of h_0


@torch.no_grad()
def backpropagate(
    weights: TanhWeights,
    inputs: Float[Tensor, "T J"],
    first: Float[Tensor, "hidden"],
    targets: Int[Tensor, "T"],
) -> Backpropagated:
    """Forward and backward pass for inputs x_1 .. x_T, state h_0 and targets y_1 .. y_T."""
    states = [first]
    for token in inputs:
        states.append(torch.tanh(weights.inputs @ token + weights.states @ states[-1]))
    history = torch.stack(states)  # h_0 .. h_T
    outputs = (history[1:] @ weights.outputs.T).softmax(dim=-1)
    steps = torch.arange(len(inputs), device=inputs.device)
    loss = -outputs[steps, targets].log().sum()

    errors = outputs.clone()  # o_t - onehot(y_t)
    errors[steps, targets] -= 1.0
    direct = torch.cat(
        (torch.zeros_like(first)[None], errors @ weights.outputs)
    )  # no output at h_0
    total = through_time(direct, history, weights.states)

    inside = (1 - history[1:] ** 2) * total[1:]  # gradient of U x_t + V h_{t-1}
    return Backpropagated(
        loss=loss.item(),
        weights=TanhWeights(
            inputs=einsum(inside, inputs, "T hidden, T J -> hidden J"),
            states=einsum(inside, history[:-1], "T new, T old -> new old"),
            outputs=einsum(errors, history[1:], "T V, T hidden -> V hidden"),
        ),
        inputs=inside @ weights.inputs,
        first=total[0],
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
