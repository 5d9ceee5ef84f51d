"""Beam search.

    score(w_1 … w_n) = log P(w_1 … w_n) / n ** length_penalty        n includes `end`

Each step extends every live hypothesis by every token and sorts the candidates of a row by
log-probability. Of the first `beam` candidates, those that end are finished; the best `beam` that
do not end stay alive. After `max_tokens` tokens the first `beam` are finished even without `end`.

A row is done when no live hypothesis can beat the finished ones: log P never increases, so the
score of a live hypothesis is at most its log P / max_tokens ** length_penalty. With a large
`max_tokens` nearly every row runs to the end. With `early_stopping`, a row is also done as soon as
`beam` hypotheses of nonzero probability have ended.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.stepper import Prompts, State, Stepper, TokenHypothesis, compact, until_end


@dataclass(frozen=True, slots=True)
class Beam:
    """Hypotheses of each row, the best first; `tokens` are padded with `end`."""

    tokens: Int[Tensor, "rows beam max_tokens"]
    log_prob: Float[Tensor, "rows beam"]

    def select_rows(self, rows: Int[Tensor, "selected"]) -> "Beam":
        return Beam(self.tokens[rows], self.log_prob[rows])

    def take(self, indices: Int[Tensor, "rows taken"]) -> "Beam":
        """Return the hypotheses at these indices of each row."""
        tokens = self.tokens.take_along_dim(indices[..., None], dim=1)
        return Beam(tokens, self.log_prob.take_along_dim(indices, dim=1))


@dataclass(frozen=True, slots=True)
class Finished:
    """The best finished hypotheses of each row; the score is -inf where there is none."""

    beam: Beam
    score: Float[Tensor, "rows nbest"]

    def select_rows(self, rows: Int[Tensor, "selected"]) -> "Finished":
        return Finished(self.beam.select_rows(rows), self.score[rows])

    def merge(self, more: Beam, score: Float[Tensor, "rows more"]) -> "Finished":
        """Return the `nbest` best of these and `more`; on ties these come first."""
        scores = torch.cat((self.score, score), dim=1).sort(dim=1, descending=True, stable=True)
        nbest = self.score.shape[1]
        tokens = torch.cat((self.beam.tokens, more.tokens), dim=1)
        both = Beam(tokens, torch.cat((self.beam.log_prob, more.log_prob), dim=1))
        return Finished(both.take(scores.indices[:, :nbest]), scores.values[:, :nbest])

    def hypotheses(self, end: int) -> list[list[TokenHypothesis]]:
        """Return at least one per row: an empty one if every sequence has probability 0."""
        counts = (self.score != -torch.inf).sum(dim=1).tolist()
        rows = zip(self.beam.tokens.tolist(), self.beam.log_prob.tolist(), counts, strict=True)
        lists = [
            [
                TokenHypothesis(until_end(end, sequence), log_prob)
                for sequence, log_prob in zip(tokens[:count], log_probs[:count], strict=True)
            ]
            for tokens, log_probs, count in rows
        ]
        return [row or [TokenHypothesis([], -math.inf)] for row in lists]


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
    """Return the `nbest` best hypotheses of each row; fewer if there are no more."""
    check_nbest(beam, nbest)
    logits, state = stepper.prefill(prompts, present)
    rows = torch.arange(len(logits), device=logits.device)

    def empty_beam(width: int) -> Beam:
        tokens = rows.new_full((len(rows), width, max_tokens), end)
        return Beam(tokens, torch.zeros_like(tokens[..., 0], dtype=torch.float64))

    live, empty = empty_beam(1), empty_beam(nbest)
    finished = Finished(empty, torch.full_like(empty.log_prob, -torch.inf))
    ended_count, done = torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    results: dict[int, list[TokenHypothesis]] = {}
    for step in range(max_tokens):
        width, is_last = live.log_prob.shape[1], step + 1 == max_tokens
        candidates, parents = expand(live, stepper.log_probs(logits), beam, step)
        ended = candidates.tokens[:, :, step] == end
        score = candidates.log_prob / (step + 1) ** length_penalty
        score = score.masked_fill(~(ended | is_last) | done[:, None], -torch.inf)
        best = Beam(candidates.tokens[:, :beam], candidates.log_prob[:, :beam])
        finished = finished.merge(best, score[:, :beam])
        indices = first_unended(ended, beam)
        if is_last or indices.shape[1] == 0:
            break
        live, parents = candidates.take(indices), parents.take_along_dim(indices, dim=1)
        ended_count = ended_count + (ended[:, :beam] & (best.log_prob > -torch.inf)).sum(dim=1)
        done = done | (live.log_prob[:, 0] / max_tokens**length_penalty <= finished.score[:, -1])
        if early_stopping:
            done = done | (ended_count >= beam)
        if done.all():
            break
        kept = compact(~done)
        if kept is not None:
            removed = done.nonzero()[:, 0]
            hypotheses = finished.select_rows(removed).hypotheses(end)
            results |= zip(rows[removed].tolist(), hypotheses, strict=True)
            rows, live, finished = rows[kept], live.select_rows(kept), finished.select_rows(kept)
            parents, ended_count, done = parents[kept], ended_count[kept], done[kept]
        same_prompts = kept is None and live.log_prob.shape[1] == width
        state = stepper.reorder(state, parents.flatten(), same_prompts=same_prompts)
        logits, state = stepper.step(live.tokens[:, :, step].flatten(), state)
    results |= zip(rows.tolist(), finished.hypotheses(end), strict=True)
    return [results[row] for row in range(len(results))]


def check_nbest(beam: int, nbest: int) -> None:
    """Raise an error if `nbest` exceeds the beam size."""
    if nbest > beam:
        raise ValueError(f"nbest: expected at most the beam size {beam}, got {nbest}")


def expand(
    live: Beam, log_probs: Float[Tensor, "states V"], beam: int, step: int
) -> tuple[Beam, Int[Tensor, "rows tried"]]:
    """Return the best 2 * beam extensions of each row, and the state index of their parents.

    At most `beam` of them end, one per live hypothesis, so the others can fill the next beam.
    """
    rows, width = live.log_prob.shape
    # The best 2 * beam of a row are among the best 2 * beam of each hypothesis.
    best, token = log_probs.topk(min(2 * beam, log_probs.shape[1]), dim=-1)
    log_prob = (live.log_prob[..., None] + best.view(rows, width, -1)).flatten(1)
    ranked = log_prob.sort(dim=1, descending=True, stable=True)
    indices = ranked.indices[:, : 2 * beam]
    parents = indices // best.shape[1]
    tokens = live.tokens.take_along_dim(parents[..., None], dim=1)
    tokens[:, :, step] = token.view(rows, -1).take_along_dim(indices, dim=1)
    first_states = width * torch.arange(rows, device=log_probs.device)[:, None]
    return Beam(tokens, ranked.values[:, : 2 * beam]), first_states + parents


def first_unended(ended: Bool[Tensor, "rows tried"], beam: int) -> Int[Tensor, "rows live"]:
    """Return the indices of the best that have not ended: `beam`, or as many as every row has."""
    count = min(beam, int((~ended).sum(dim=1).min()))
    return ended.byte().sort(dim=1, stable=True).indices[:, :count]
