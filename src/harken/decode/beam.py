"""Beam search.

    score(w_1 … w_n) = log P(w_1 … w_n) / n ** length_penalty        n includes `end`

Each step extends every live hypothesis by every token. Of the best `beam` candidates of a row,
those that end with `end` are finished; the best `beam` other candidates stay alive. After
`max_tokens` tokens, the best `beam` are finished even without `end`. A row is done when no live
hypothesis can beat the finished ones: its score is at most log P / max_tokens ** length_penalty.
With `early_stopping`, a row is also done when `beam` hypotheses with P > 0 are finished.
"""

import math
from typing import NamedTuple

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
from harken.models.inputs import select_rows


class Beam(NamedTuple):
    """Hypotheses of each row; `tokens` are padded with `end`."""

    tokens: Int[Tensor, "rows beam max_tokens"]
    log_prob: Float[Tensor, "rows beam"]
    score: Float[Tensor, "rows beam"]  # of finished hypotheses; -inf for no hypothesis

    def take(self, indices: Int[Tensor, "rows taken"]) -> "Beam":
        """Return the hypotheses at these indices of each row."""
        tokens = self.tokens.take_along_dim(indices[..., None], dim=1)
        return Beam(tokens, *(part.take_along_dim(indices, dim=1) for part in self[1:]))

    def merge(self, other: "Beam") -> "Beam":
        """Return the best hypotheses of both, as many as `self` has; on ties, its own first."""
        merged = Beam(*(torch.cat(parts, dim=1) for parts in zip(self, other, strict=True)))
        order = merged.score.sort(dim=1, descending=True, stable=True).indices
        return merged.take(order[:, : self.score.shape[1]])

    def hypotheses(self, end: int) -> list[list[TokenHypothesis]]:
        """Return the finished hypotheses of each row, or an empty one with P = 0 if it has none."""
        finished = [
            [
                TokenHypothesis(until_end(end, tokens), log_prob)
                for tokens, log_prob, score in zip(*row, strict=True)
                if score != -math.inf
            ]
            for row in zip(*(part.tolist() for part in self), strict=True)
        ]
        return [row or [TokenHypothesis([], -math.inf)] for row in finished]


@torch.inference_mode()
def beam_search(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    beam: int,
    length_penalty: float,
    early_stopping: bool,
    end: int,
    max_tokens: int,
    nbest: int,
) -> list[list[TokenHypothesis]]:
    """Return up to `nbest` hypotheses of each row, the best first."""
    check_nbest(beam, nbest)
    logits, state = stepper.prefill(prompts, present)
    rows = torch.arange(len(logits), device=logits.device)
    tokens = rows.new_full((len(rows), nbest, max_tokens), end)
    zeros = torch.zeros_like(tokens[..., 0], dtype=torch.float64)
    finished = Beam(tokens, zeros, torch.full_like(zeros, -torch.inf))
    live = Beam(*(part[:, :1] for part in finished))
    ended_count, done = torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    results: dict[int, list[TokenHypothesis]] = {}
    for step in range(max_tokens):
        is_last = step + 1 == max_tokens
        candidates, parents = expand(live, stepper.log_probs(logits), beam, step)
        ended = candidates.tokens[:, :, step] == end
        score = candidates.log_prob / (step + 1) ** length_penalty
        score = score.masked_fill(~(ended | is_last) | done[:, None], -torch.inf)
        best = Beam(*(part[:, :beam] for part in candidates._replace(score=score)))
        finished = finished.merge(best)
        # Keep equally many unfinished candidates in every row: `beam`, or fewer if a row has fewer.
        width = min(beam, int((~ended).sum(dim=1).min()))
        if is_last or width == 0:
            break
        indices = ended.byte().sort(dim=1, stable=True).indices[:, :width]
        live, parents = candidates.take(indices), parents.take_along_dim(indices, dim=1)
        ended_count = ended_count + (ended[:, :beam] & (best.log_prob > -torch.inf)).sum(dim=1)
        done = done | (live.log_prob[:, 0] / max_tokens**length_penalty <= finished.score[:, -1])
        if early_stopping:
            done = done | (ended_count >= beam)
        if done.all():
            break
        unfinished = unfinished_rows(~done)
        if unfinished is not None:
            hypotheses = select_rows(finished, done.nonzero()[:, 0]).hypotheses(end)
            results |= zip(rows[done].tolist(), hypotheses, strict=True)
            tensors = (rows, live, finished, parents, ended_count, done)
            rows, live, finished, parents, ended_count, done = select_rows(tensors, unfinished)
        same_prompts = unfinished is None
        state = stepper.reorder(state, parents.flatten(), beam=width, same_prompts=same_prompts)
        logits, state = stepper.step(live.tokens[:, :, step].flatten(), state)
    results |= zip(rows.tolist(), finished.hypotheses(end), strict=True)
    return [results[row] for row in range(len(results))]


def check_nbest(beam: int, nbest: int) -> None:
    """Raise an error if `nbest` exceeds the beam size."""
    if nbest > beam:
        raise ValueError(f"nbest: expected at most the beam size {beam}, got {nbest}")


def expand(
    live: Beam, log_probs: Float[Tensor, "hypotheses V"], beam: int, step: int
) -> tuple[Beam, Int[Tensor, "rows candidates"]]:
    """Return the best 2 * beam extensions of each row, and the rows of their parents' states."""
    rows, width = live.log_prob.shape
    # At most `beam` of them end, one per live hypothesis, so enough others remain.
    best, token = log_probs.topk(min(2 * beam, log_probs.shape[1]), dim=-1)
    log_prob = (live.log_prob[..., None] + best.view(rows, width, -1)).flatten(1)
    ranked = log_prob.sort(dim=1, descending=True, stable=True)
    indices = ranked.indices[:, : 2 * beam]
    parents = indices // best.shape[1]
    tokens = live.tokens.take_along_dim(parents[..., None], dim=1)
    tokens[:, :, step] = token.view(rows, -1).take_along_dim(indices, dim=1)
    first_states = width * torch.arange(rows, device=log_probs.device)[:, None]
    log_prob = ranked.values[:, : 2 * beam]
    return Beam(tokens, log_prob, log_prob), first_states + parents
