"""Greedy search, and sampling in proportion to P(w) ** (1 / temperature).

`top_k` keeps the k most probable tokens. Of these, `top_p` keeps the fewest of the most probable
ones whose probabilities add up to at least the share p of the total.

Each sample has its own random stream, derived from the seed, the key of its row and the index of
the sample, so that it does not depend on the batch. Returned log-probabilities are the model's,
before temperature and truncation.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.stepper import (
    Prompts,
    State,
    Stepper,
    TokenHypothesis,
    unfinished_rows,
    until_end,
)

SampleKey = tuple[int, ...]
"""Identifies a row: the index of its input, then the index of the chunk of this input, if any."""

TokenChooser = Callable[[Float[Tensor, "rows V"], Int[Tensor, "rows"], int], Int[Tensor, "rows"]]
"""Maps log-probabilities, the indices of their rows and the step to a token for each row."""


@torch.inference_mode()
def decode_steps(
    stepper: Stepper[State],
    logits: Float[Tensor, "B V"],
    state: State,
    choose: TokenChooser,
    *,
    end: int,
    max_tokens: int,
) -> list[TokenHypothesis]:
    """Generate tokens in each row until `end` or `max_tokens`."""
    rows = torch.arange(len(logits), device=logits.device)
    alive = torch.ones_like(rows, dtype=torch.bool)
    total = torch.zeros_like(rows, dtype=torch.float64)
    generated = rows.new_full((len(rows), max_tokens), end)
    for step in range(max_tokens):
        log_probs = stepper.log_probs(logits)
        token = choose(log_probs, rows, step)
        total[rows] += torch.where(alive, log_probs.gather(1, token[:, None])[:, 0], 0.0)
        token = torch.where(alive, token, end)
        generated[rows, step] = token
        alive = alive & (token != end)
        if step + 1 == max_tokens or not alive.any():
            break
        if (unfinished := unfinished_rows(alive)) is not None:
            rows, token, alive = rows[unfinished], token[unfinished], alive[unfinished]
            state = stepper.reorder(state, unfinished, beam=1, same_prompts=False)
        logits, state = stepper.step(token, state)
    pairs = zip(generated.tolist(), total.tolist(), strict=True)
    return [TokenHypothesis(until_end(end, tokens), log_prob) for tokens, log_prob in pairs]


@torch.inference_mode()
def greedy_search(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    end: int,
    max_tokens: int,
) -> list[TokenHypothesis]:
    """Choose the most probable token at each step; on ties, the lowest token id."""
    return decode_steps(
        stepper,
        *stepper.prefill(prompts, present),
        lambda log_probs, rows, step: log_probs.argmax(dim=-1),
        end=end,
        max_tokens=max_tokens,
    )


def uniform_numbers(
    seed: int, keys: Sequence[SampleKey], samples: int, steps: int
) -> Float[Tensor, "rows_and_samples steps"]:
    """Return numbers in [0, 1), each of which depends only on seed, key, sample and step."""
    seeds = [
        np.random.SeedSequence(seed, spawn_key=(*key, sample))
        for key in keys
        for sample in range(samples)
    ]
    streams = (np.random.Generator(np.random.Philox(stream_seed)) for stream_seed in seeds)
    return torch.from_numpy(np.stack([stream.random(steps) for stream in streams]))


def truncated_probs(
    log_probs: Float[Tensor, "rows V"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "rows V"]:
    """Return unnormalized probabilities to sample from; 0 for tokens outside top-k and top-p."""
    # Subtract the maximum, so that a very low temperature does not make all of them -inf.
    shifted = log_probs - log_probs.amax(dim=-1, keepdim=True)
    probs = (shifted / temperature).softmax(dim=-1)
    if top_k is None and top_p is None:
        return probs
    ranked, tokens = probs.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[:, top_k:] = 0.0
    if top_p is not None:
        cumulative = ranked.cumsum(dim=-1)
        # Remove a token if the tokens before it reach top_p. The first token always stays.
        ranked[:, 1:].masked_fill_(cumulative[:, :-1] >= top_p * cumulative[:, -1:], 0.0)
    return torch.zeros_like(probs).scatter(1, tokens, ranked)


def sample_tokens(
    probs: Float[Tensor, "rows V"], uniform: Float[Tensor, "rows"]
) -> Int[Tensor, "rows"]:
    """Return the first token whose cumulative probability exceeds `uniform` times the total."""
    cumulative = probs.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # A threshold that is rounded up to the total would not be exceeded.
    threshold = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return (cumulative <= threshold).sum(dim=-1)
