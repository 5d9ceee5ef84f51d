"""Generate with the search of a `SearchConfig`: greedy search, beam search or sampling."""

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
    sample_tokens,
    truncated_probs,
    uniform_numbers,
)
from harken.decode.stepper import Present, Prompts, State, Stepper, TokenHypothesis


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig:
    """Beam search (greedy if `beam` is 1), or sampling if `temperature` is set.

    If the default of a task is sampling, a recipe that sets `beam` disables it, and vice versa.
    """

    # number of hypotheses of beam search; 1 is greedy search
    beam: int = bounded(1, at_least=1, at_most=1024, excludes=("temperature", "top_k", "top_p"))
    # log-probabilities are divided by length ** length_penalty; 0 disables normalization
    length_penalty: float = bounded(1.0, at_least=0.0, at_most=10.0)
    early_stopping: bool = True  # stop when `beam` hypotheses have ended
    # maximum number of generated tokens; by default, the limit of the task
    max_tokens: int | None = bounded(None, at_least=1)
    # sampling temperature; by default, beam search is used
    temperature: float | None = bounded(None, above=0.0, at_most=1e6, excludes=("beam",))
    top_k: int | None = bounded(None, at_least=1)  # sample among the k most probable tokens
    # sample among the fewest most probable tokens (after top_k) with this total probability
    top_p: float | None = bounded(None, above=0.0, at_most=1.0)
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # seed of sampling

    def __post_init__(self) -> None:
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p need a temperature, which turns on sampling")
        if self.temperature is not None and self.beam > 1:
            raise ValueError("beam and temperature exclude each other; leave out one of them")


def generate(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Present,
    *,
    search: SearchConfig,
    end: int,
    max_tokens: int,
    nbest: int = 1,
    sample_keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """Return up to `nbest` hypotheses of each row, the best first, of up to `max_tokens` tokens.

    Greedy search finds one hypothesis. For a larger `nbest`, beam search of this width replaces it.
    The random numbers of a sample depend only on the seed of `search`, the key of its row (by
    default its index) and the index of the sample. `present` is the padding mask, `end` the token
    that ends a sequence. A model with a method `search`, such as an export (`export/format.py`),
    searches instead of `search_steps`, with the same arguments.
    """
    if len(prompts) == 0:
        return []
    search_function = getattr(stepper, "own_search", None) or search_steps
    return search_function(
        stepper,
        prompts,
        present,
        search=search,
        end=end,
        max_tokens=max_tokens,
        nbest=nbest,
        sample_keys=sample_keys,
    )


def search_steps(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Present,
    *,
    search: SearchConfig,
    end: int,
    max_tokens: int,
    nbest: int,
    sample_keys: Sequence[SampleKey] | None,
) -> list[list[TokenHypothesis]]:
    """Search with the steps of the stepper; see `generate`."""
    stopping = {"end": end, "max_tokens": max_tokens}
    if search.temperature is not None:
        if sample_keys is None:
            sample_keys = [(row,) for row in range(len(prompts))]
        return sample(
            stepper, prompts, present, search, sample_keys=sample_keys, nbest=nbest, **stopping
        )
    beam = nbest if search.beam == 1 else search.beam
    if beam == 1:
        return [[best] for best in greedy_search(stepper, prompts, present, **stopping)]
    return beam_search(
        stepper,
        prompts,
        present,
        beam=beam,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping,
        nbest=nbest,
        **stopping,
    )


@torch.inference_mode()
def sample(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Present,
    search: SearchConfig,
    *,
    sample_keys: Sequence[SampleKey],
    nbest: int,
    end: int,
    max_tokens: int,
) -> list[list[TokenHypothesis]]:
    """Return `nbest` independent samples of each row, the most probable first."""
    logits, state = stepper.prefill(prompts, present)
    uniform = uniform_numbers(search.seed, sample_keys, nbest, max_tokens).to(logits.device)
    if nbest > 1:
        repeated = torch.arange(len(logits), device=logits.device).repeat_interleave(nbest)
        state = stepper.reorder(state, repeated, beam=1, same_prompts=False)
        logits = logits[repeated]

    def draw(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        assert search.temperature is not None
        probs = truncated_probs(log_probs, search.temperature, search.top_k, search.top_p)
        return sample_tokens(probs, uniform[rows, step])

    hypotheses = decode_steps(stepper, logits, state, draw, end=end, max_tokens=max_tokens)
    groups = [hypotheses[start : start + nbest] for start in range(0, len(hypotheses), nbest)]
    return [sorted(group, key=lambda hypothesis: -hypothesis.log_probability) for group in groups]
