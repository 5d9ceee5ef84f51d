"""Take the likeliest token, again and again; of equals the first in the vocabulary."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.found import Found
from harken.decode.step import Prompts, State, Stepper
from harken.decode.walk import walk


@torch.inference_mode()
def decode_greedily(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    end: int,
    most: int,
) -> list[Found]:
    """At most `most` new tokens a row."""
    scores, state = stepper.prompt(prompts, present)
    return walk(stepper, scores, state, likeliest, end=end, most=most)


def likeliest(
    logs: Float[Tensor, "rows V"], rows: Int[Tensor, "rows"], step: int
) -> Int[Tensor, "rows"]:
    """The rule of greedy search."""
    return logs.argmax(dim=-1)
