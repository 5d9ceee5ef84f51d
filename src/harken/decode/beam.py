"""Beam search.

    rank(w_1 … w_n) = log P(w_1 … w_n) / n ** length_penalty        n counts `end`

Each step extends every live hypothesis by every token and sorts the candidates of a row by
log-probability. Of the first `beam` candidates, those that end are finished; the best `beam` that
do not end stay alive. After `max_tokens` tokens the first `beam` are finished as they are.

A row is done when no live hypothesis can outrank the finished ones: log P only falls, so the rank
of a live hypothesis is at most its log P / max_tokens ** length_penalty. With a large `max_tokens`
nearly every row runs to the end. With `early_stopping`, a row is also done as soon as `beam`
hypotheses of nonzero probability have ended.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.stepper import Prompts, State, Stepper, TokenHypothesis, compact, until_end


@dataclass(frozen=True, slots=True)
class Beam:
    """Hypotheses of each row, the best first; `tokens` are `end` where none is generated yet."""

    tokens: Int[Tensor, "rows beam max_tokens"]
    total: Float[Tensor, "rows beam"]  # log-probability

    def of(self, rows: Int[Tensor, "left"]) -> "Beam":
        return Beam(self.tokens[rows], self.total[rows])

    def take(self, places: Int[Tensor, "rows taken"]) -> "Beam":
        """Return the hypotheses in these places of each row."""
        tokens = self.tokens.take_along_dim(places[..., None], dim=1)
        return Beam(tokens, self.total.take_along_dim(places, dim=1))


@dataclass(frozen=True, slots=True)
class Finished:
    """The finished hypotheses of each row that rank best; -inf where there is none."""

    beam: Beam
    rank: Float[Tensor, "rows nbest"]

    def of(self, rows: Int[Tensor, "left"]) -> "Finished":
        return Finished(self.beam.of(rows), self.rank[rows])

    def merge(self, more: Beam, rank: Float[Tensor, "rows more"]) -> "Finished":
        """Return the best of these and `more`, as many as before; on ties these come first."""
        ranks = torch.cat((self.rank, rank), dim=1).sort(dim=1, descending=True, stable=True)
        nbest = self.rank.shape[1]
        tokens = torch.cat((self.beam.tokens, more.tokens), dim=1)
        both = Beam(tokens, torch.cat((self.beam.total, more.total), dim=1))
        return Finished(both.take(ranks.indices[:, :nbest]), ranks.values[:, :nbest])

    def hypotheses(self, end: int) -> list[list[TokenHypothesis]]:
        """Return at least one per row: the empty one where every sequence is impossible."""
        counts = (self.rank != -torch.inf).sum(dim=1).tolist()
        rows = zip(self.beam.tokens.tolist(), self.beam.total.tolist(), counts, strict=True)
        lists = [
            [
                TokenHypothesis(until_end(end, sequence), total)
                for sequence, total in zip(tokens[:count], totals[:count], strict=True)
            ]
            for tokens, totals, count in rows
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
    """Return the `nbest` hypotheses of each row that rank best; fewer if there are no more."""
    check_nbest(beam, nbest)
    logits, state = stepper.prefill(prompts, present)
    rows = torch.arange(len(logits), device=logits.device)

    def empty(width: int) -> Beam:
        tokens = rows.new_full((len(rows), width, max_tokens), end)
        return Beam(tokens, torch.zeros_like(tokens[..., 0], dtype=torch.float64))

    live, nothing = empty(1), empty(nbest)
    finished = Finished(nothing, torch.full_like(nothing.total, -torch.inf))
    counts, done = torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    results: dict[int, list[TokenHypothesis]] = {}
    for step in range(max_tokens):
        width, last = live.total.shape[1], step + 1 == max_tokens
        candidates, parents = expand(live, stepper.log_probs(logits), beam, step)
        ended = candidates.tokens[:, :, step] == end
        rank = candidates.total / (step + 1) ** length_penalty
        rank = rank.masked_fill(~(ended | last) | done[:, None], -torch.inf)
        first = Beam(candidates.tokens[:, :beam], candidates.total[:, :beam])
        finished = finished.merge(first, rank[:, :beam])
        places = unfinished(ended, beam)
        if last or places.shape[1] == 0:
            break
        live, parents = candidates.take(places), parents.take_along_dim(places, dim=1)
        possible = candidates.total[:, :beam] > -torch.inf
        counts = counts + (ended[:, :beam] & possible).sum(dim=1)
        done = done | (live.total[:, 0] / max_tokens**length_penalty <= finished.rank[:, -1])
        if early_stopping:
            done = done | (counts >= beam)
        if done.all():
            break
        left = compact(~done)
        if left is not None:
            gone = done.nonzero()[:, 0]
            results |= zip(rows[gone].tolist(), finished.of(gone).hypotheses(end), strict=True)
            rows, live, finished = rows[left], live.of(left), finished.of(left)
            parents, counts, done = parents[left], counts[left], done[left]
        in_place = left is None and live.total.shape[1] == width
        state = stepper.reorder(state, parents.flatten(), same_prompts=in_place)
        logits, state = stepper.step(live.tokens[:, :, step].flatten(), state)
    results |= zip(rows.tolist(), finished.hypotheses(end), strict=True)
    return [results[row] for row in range(len(results))]


def check_nbest(beam: int, nbest: int) -> None:
    """Raise if a beam is too narrow for this many results."""
    if nbest > beam:
        raise ValueError(f"nbest: expected at most the beam of {beam}, got {nbest}; widen the beam")


def expand(
    live: Beam, log_probs: Float[Tensor, "states V"], beam: int, step: int
) -> tuple[Beam, Int[Tensor, "rows tried"]]:
    """Return the best 2 * beam extensions of each row, and the row of the state of each.

    At least `beam` of them do not end, if there are as many: each hypothesis ends in one way only.
    """
    rows, width = live.total.shape
    # More extensions of a single hypothesis cannot be among the best.
    best, token = log_probs.topk(min(2 * beam, log_probs.shape[1]), dim=-1)
    total = (live.total[..., None] + best.view(rows, width, -1)).flatten(1)
    ranked = total.sort(dim=1, descending=True, stable=True)
    places = ranked.indices[:, : 2 * beam]
    parents = places // best.shape[1]
    tokens = live.tokens.take_along_dim(parents[..., None], dim=1)
    tokens[:, :, step] = token.view(rows, -1).take_along_dim(places, dim=1)
    firsts = width * torch.arange(rows, device=log_probs.device)[:, None]
    return Beam(tokens, ranked.values[:, : 2 * beam]), firsts + parents


def unfinished(ended: Bool[Tensor, "rows tried"], beam: int) -> Int[Tensor, "rows going"]:
    """Return the places of the best that have not ended, equally many in every row."""
    count = min(beam, int((~ended).sum(dim=1).min()))
    return ended.byte().sort(dim=1, stable=True).indices[:, :count]
