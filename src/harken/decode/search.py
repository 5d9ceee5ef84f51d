"""Choose and run the search of a `SearchConfig`: greedy search, beam search or sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harken.config import MAX_SEED, bounded
from harken.decode.beam import beam_search
from harken.decode.sampling import (
    SampleKey,
    decode_steps,
    greedy_search,
    pick,
    truncated_probs,
    uniform_numbers,
)
from harken.decode.stepper import Present, Prompts, State, Stepper, TokenHypothesis


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig:
    """Beam search (greedy where `beam` is 1), or sampling if a `temperature` is given.

    A recipe that sets one of them turns off the other where it is only the default of its task.
    """

    # number of hypotheses of beam search; 1 is greedy search
    beam: int = bounded(1, at_least=1, at_most=1024, excludes=("temperature", "top_k", "top_p"))
    # exponent of the length by which log-probabilities are divided; 0 disables normalization
    length_penalty: float = bounded(1.0, at_least=0.0, at_most=10.0)
    early_stopping: bool = True  # stop when `beam` hypotheses have ended
    # maximum number of generated tokens; by default as many as the task allows
    max_tokens: int | None = bounded(None, at_least=1)
    # temperature of sampling; without one, beam search is used
    temperature: float | None = bounded(None, above=0.0, at_most=1e6, excludes=("beam",))
    top_k: int | None = bounded(None, at_least=1)  # sample among the k most probable tokens
    # sample among the most probable tokens with this total probability
    top_p: float | None = bounded(None, above=0.0, at_most=1.0)
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # seed of sampling

    def __post_init__(self) -> None:
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p restrict sampling; give a temperature too")
        if self.temperature is not None and self.beam > 1:
            raise ValueError("beam search does not sample; leave out beam, or temperature")


def generate(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Present,
    *,
    search: SearchConfig,
    end: int,
    max_tokens: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """Return the `nbest` hypotheses of each row, the best first, of at most `max_tokens` tokens.

    A sample depends on the seed and the key of its row; without `keys`, on the index of the row.
    """
    if len(prompts) == 0:
        return []
    limits = {"end": end, "max_tokens": max_tokens}
    if search.temperature is not None:
        keys = [(row,) for row in range(len(prompts))] if keys is None else keys
        return sample(stepper, prompts, present, search, keys=keys, nbest=nbest, **limits)
    beam = nbest if search.beam == 1 else search.beam
    if beam == 1:
        return [[best] for best in greedy_search(stepper, prompts, present, **limits)]
    return beam_search(
        stepper,
        prompts,
        present,
        beam=beam,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping,
        nbest=nbest,
        **limits,
    )


@torch.inference_mode()
def sample(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Present,
    search: SearchConfig,
    *,
    keys: Sequence[SampleKey],
    nbest: int,
    end: int,
    max_tokens: int,
) -> list[list[TokenHypothesis]]:
    """Return `nbest` independent samples of each row, the most probable first."""
    logits, state = stepper.prefill(prompts, present)
    uniform = uniform_numbers(search.seed, keys, nbest, max_tokens).to(logits.device)
    if nbest > 1:
        repeated = torch.arange(len(logits), device=logits.device).repeat_interleave(nbest)
        logits, state = logits[repeated], stepper.reorder(state, repeated, same_prompts=False)

    def draw(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        assert search.temperature is not None
        probs = truncated_probs(log_probs, search.temperature, search.top_k, search.top_p)
        return pick(probs, uniform[rows, step])

    drawn = decode_steps(stepper, logits, state, draw, end=end, max_tokens=max_tokens)
    groups = [drawn[first : first + nbest] for first in range(0, len(drawn), nbest)]
    return [sorted(group, key=lambda hypothesis: -hypothesis.log_probability) for group in groups]
