"""Take the likeliest token, again and again, until `end` or until there is no room."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.step import State, Stepper


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tokens up to but without `end`, and the log-probability of them with it."""

    tokens: list[list[int]]
    log_probability: Float[Tensor, "B"]


@torch.inference_mode()
def decode_greedily(
    stepper: Stepper[State],
    prompts: Int[Tensor, "B T"],
    present: Bool[Tensor, "B T"],
    *,
    end: int,
    most: int,
) -> Decoded:
    """At most `most` new tokens a row; a row that never ends is cut and has no `end` counted."""
    scores, state = stepper.prompt(prompts, present)
    total = scores.new_zeros(scores.shape[0], dtype=torch.float64)
    alive = torch.ones_like(total, dtype=torch.bool)
    chosen: list[Tensor] = []
    for _ in range(most):
        log_probabilities = scores.double().log_softmax(dim=-1)
        best, token = log_probabilities.max(dim=-1)
        total = total + torch.where(alive, best, 0.0)
        chosen.append(torch.where(alive, token, end))
        alive = alive & (token != end)
        if not alive.any():
            break
        if len(chosen) < most:
            scores, state = stepper.step(token, state)
    grid = torch.stack(chosen, dim=1).tolist()
    return Decoded([row[: row.index(end)] if end in row else row for row in grid], total)
