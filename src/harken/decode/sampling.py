"""Draw sequences from a model: the next token by chance, in proportion to

    P(w) ** (1 / temperature)

among the likeliest `top_k`, and of these only the likeliest that just make up the share `top_p`.

One uniform number u for each row, sample and step picks the first token at which the running sum of
the shares passes u. Each sample has its own random stream, derived from the seed, the key of its
row and the number of the sample. A sample therefore does not depend on the batch of its row.
Log-probabilities given back are the model's own, before temperature and cuts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.found import Found
from harken.decode.step import Prompts, State, Stepper
from harken.decode.walk import walk

SampleKey = tuple[int, ...]
"""Identifies a row among all inputs: the index of its input, then that of the part of it."""


@torch.inference_mode()
def sample(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    keys: Sequence[SampleKey],
    end: int,
    most: int,
    nbest: int,
) -> list[list[Found]]:
    """For each row `nbest` samples, independent and so perhaps equal; the likeliest first."""
    scores, state = stepper.prompt(prompts, present)
    uniform = uniform_numbers(seed, keys, nbest, most).to(scores.device)
    again = torch.arange(len(scores), device=scores.device).repeat_interleave(nbest)

    def by_chance(logs: Tensor, rows: Tensor, step: int) -> Tensor:
        return pick(shares(logs, temperature, top_k, top_p), uniform[rows, step])

    if nbest > 1:
        scores, state = scores[again], stepper.select(state, again, same_prompts=False)
    drawn = walk(stepper, scores, state, by_chance, end=end, most=most)
    groups = [drawn[first : first + nbest] for first in range(0, len(drawn), nbest)]
    return [sorted(group, key=lambda one: -one.log_probability) for group in groups]


def uniform_numbers(
    seed: int, keys: Sequence[SampleKey], samples: int, steps: int
) -> Float[Tensor, "rows_and_samples steps"]:
    """Numbers in [0, 1); more keys, samples or steps change none of those that were there."""
    seeds = [
        np.random.SeedSequence(seed, spawn_key=(*key, number))
        for key in keys
        for number in range(samples)
    ]
    streams = (np.random.Generator(np.random.Philox(stream_seed)) for stream_seed in seeds)
    return torch.from_numpy(np.stack([stream.random(steps) for stream in streams]))


def shares(
    logs: Float[Tensor, "rows V"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "rows V"]:
    """What each token's chance is proportional to; 0 for those cut off."""
    # With the likeliest at 0 no temperature, however low, makes all of them vanish.
    likely = ((logs - logs.amax(dim=-1, keepdim=True)) / temperature).softmax(dim=-1)
    if top_k is None and top_p is None:
        return likely
    ranked, tokens = likely.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[:, top_k:] = 0.0
    if top_p is not None:
        reached = ranked.cumsum(dim=-1)
        # A token goes if those before it are enough; before the first there are none.
        ranked[:, 1:].masked_fill_(reached[:, :-1] >= top_p * reached[:, -1:], 0.0)
    return torch.zeros_like(likely).scatter(1, tokens, ranked)


def pick(shares: Float[Tensor, "rows V"], uniform: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """The first token at which the running sum of shares passes `uniform` of the whole.

    In the order of the vocabulary, not of likelihood: two tokens that rounding makes change ranks
    keep their places.
    """
    reached = shares.cumsum(dim=-1)
    whole = reached[:, -1:]
    # Rounded up to the whole, it would be passed nowhere.
    passed = torch.minimum(uniform[:, None] * whole, whole.nextafter(torch.zeros_like(whole)))
    return (reached <= passed).sum(dim=-1)
