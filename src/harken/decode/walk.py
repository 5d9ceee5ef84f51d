"""One path a row: choose a token, tell it to the model, until `end` or until there is no room.

    log P(w_1 … w_n) = sum over t of  logs(scores of step t)[w_t]

Which token is chosen is a function's affair: greedy search and sampling differ in nothing else.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.decode.found import Found, before, leave
from harken.decode.step import State, Stepper

Choose = Callable[[Float[Tensor, "rows V"], Int[Tensor, "rows"], int], Int[Tensor, "rows"]]
"""Log-probabilities, the numbers of their rows and the step -> a token for each row."""


@torch.inference_mode()
def walk(
    stepper: Stepper[State],
    scores: Float[Tensor, "B V"],
    state: State,
    choose: Choose,
    *,
    end: int,
    most: int,
) -> list[Found]:
    """At most `most` tokens a row; a row that never ends is cut and has no `end` counted."""
    rows = torch.arange(len(scores), device=scores.device)
    alive = torch.ones_like(rows, dtype=torch.bool)
    total = torch.zeros_like(rows, dtype=torch.float64)
    written = rows.new_full((len(rows), most), end)
    for step in range(most):
        logs = stepper.logs(scores)
        token = choose(logs, rows, step)
        total[rows] += torch.where(alive, logs.gather(1, token[:, None])[:, 0], 0.0)
        token = torch.where(alive, token, end)
        written[rows, step] = token
        alive = alive & (token != end)
        if step + 1 == most or not alive.any():
            break
        if (left := leave(alive)) is not None:
            rows, token, alive = rows[left], token[left], alive[left]
            state = stepper.select(state, left, same_prompts=False)
        scores, state = stepper.step(token, state)
    pairs = zip(written.tolist(), total.tolist(), strict=True)
    return [Found(before(end, tokens), log) for tokens, log in pairs]
