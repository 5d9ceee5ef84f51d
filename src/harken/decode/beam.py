"""Keep the `beam` likeliest beginnings of each row, and the best sequences that have ended.

    rank(w_1 … w_n) = log P(w_1 … w_n) / n ** length_penalty        n counts `end`

Each step tries every live hypothesis with every token; the tries of a row stand in line by their
log-probability. Of the first `beam` in line, those that end are finished; the best `beam` that do
not end live on. When room for `most` tokens is used up, the first `beam` are finished as they are.

A row is done, and keeps what it has while it waits to leave the batch,

    exact    when no live hypothesis can outrank those kept: log P only falls, so none gets beyond
             its log P now / most ** length_penalty. Nothing is lost that going on would find, but
             where `most` is large nearly every row goes on to the end
    filled   then, or as soon as `beam` hypotheses of nonzero probability have ended
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.found import Found, before, leave
from harken.decode.search import Stop
from harken.decode.step import Prompts, State, Stepper


@dataclass(frozen=True, slots=True)
class Line:
    """Hypotheses of each row, the best first; `tokens` are `end` where nothing is written yet."""

    tokens: Int[Tensor, "rows line most"]
    total: Float[Tensor, "rows line"]  # log-probability

    def of(self, rows: Int[Tensor, "left"]) -> "Line":
        return Line(self.tokens[rows], self.total[rows])

    def first(self, count: int) -> "Line":
        return Line(self.tokens[:, :count], self.total[:, :count])

    def take(self, places: Int[Tensor, "rows taken"]) -> "Line":
        """For each row the hypotheses in these places."""
        tokens = self.tokens.take_along_dim(places[..., None], dim=1)
        return Line(tokens, self.total.take_along_dim(places, dim=1))


@dataclass(frozen=True, slots=True)
class Kept:
    """The finished hypotheses of each row that rank best; -inf where there is none."""

    line: Line
    rank: Float[Tensor, "rows nbest"]

    def of(self, rows: Int[Tensor, "left"]) -> "Kept":
        return Kept(self.line.of(rows), self.rank[rows])

    def among(self, more: Line, rank: Float[Tensor, "rows more"]) -> "Kept":
        """As many, the best of these and more; of equals, those that were there."""
        ranks = torch.cat((self.rank, rank), dim=1).sort(dim=1, descending=True, stable=True)
        nbest = self.rank.shape[1]
        both = Line(
            torch.cat((self.line.tokens, more.tokens), dim=1),
            torch.cat((self.line.total, more.total), dim=1),
        )
        return Kept(both.take(ranks.indices[:, :nbest]), ranks.values[:, :nbest])

    def found(self, end: int) -> list[list[Found]]:
        """At least one for each row: where every sequence is impossible, the empty one."""
        lines = zip(self.line.tokens.tolist(), self.line.total.tolist(), strict=True)
        there = (self.rank != -torch.inf).sum(dim=1).tolist()
        found = [
            [Found(before(end, one), log) for one, log in zip(tokens[:n], totals[:n], strict=True)]
            for (tokens, totals), n in zip(lines, there, strict=True)
        ]
        return [row or [Found([], -math.inf)] for row in found]


@torch.inference_mode()
def search_beam(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    beam: int,
    length_penalty: float,
    stop: Stop,
    end: int,
    most: int,
    nbest: int,
) -> list[list[Found]]:
    """For each row the `nbest` that rank best; fewer where there are no more."""
    if nbest > beam:
        raise ValueError(f"a beam of {beam} cannot find {nbest} best; widen it or ask for fewer")
    scores, state = stepper.prompt(prompts, present)
    rows = torch.arange(len(scores), device=scores.device)
    live, nothing = _empty(rows, 1, most, end), _empty(rows, nbest, most, end)
    kept = Kept(nothing, torch.full_like(nothing.total, -torch.inf))
    finished, done = torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    found: dict[int, list[Found]] = {}
    for step in range(most):
        width, last = live.total.shape[1], step + 1 == most
        tried, parents = try_all(live, stepper.logs(scores), beam, step)
        ended = tried.tokens[:, :, step] == end
        rank = tried.total / (step + 1) ** length_penalty
        rank = rank.masked_fill(~(ended | last) | done[:, None], -torch.inf)
        kept = kept.among(tried.first(beam), rank[:, :beam])
        places = going_on(ended, beam)
        if last or places.shape[1] == 0:
            break
        live, parents = tried.take(places), parents.take_along_dim(places, dim=1)
        possible = tried.total[:, :beam] > -torch.inf
        finished = finished + (ended[:, :beam] & possible).sum(dim=1)
        done = done | (live.total[:, 0] / most**length_penalty <= kept.rank[:, -1])
        if stop == "filled":
            done = done | (finished >= beam)
        if done.all():
            break
        left = leave(~done)
        if left is not None:
            gone = done.nonzero()[:, 0]
            found |= zip(rows[gone].tolist(), kept.of(gone).found(end), strict=True)
            rows, live, kept, parents = rows[left], live.of(left), kept.of(left), parents[left]
            finished, done = finished[left], done[left]
        in_place = left is None and live.total.shape[1] == width
        state = stepper.select(state, parents.flatten(), same_prompts=in_place)
        scores, state = stepper.step(live.tokens[:, :, step].flatten(), state)
    found |= zip(rows.tolist(), kept.found(end), strict=True)
    return [found[row] for row in range(len(found))]


def try_all(
    live: Line, logs: Float[Tensor, "states V"], beam: int, step: int
) -> tuple[Line, Int[Tensor, "rows tried"]]:
    """The best 2 * beam tries of each row, in line, and the row of the state each comes from.

    So many that at least `beam` do not end, where there are as many: each of at most `beam`
    hypotheses can end in one way only.
    """
    rows, width = live.total.shape
    # More than these of one hypothesis cannot be among the best of all.
    best, token = logs.topk(min(2 * beam, logs.shape[1]), dim=-1)
    total = (live.total[..., None] + best.view(rows, width, -1)).flatten(1)
    line = total.sort(dim=1, descending=True, stable=True)
    places = line.indices[:, : 2 * beam]
    parents = places // best.shape[1]
    tokens = live.tokens.take_along_dim(parents[..., None], dim=1)
    tokens[:, :, step] = token.view(rows, -1).take_along_dim(places, dim=1)
    firsts = width * torch.arange(rows, device=logs.device)[:, None]
    return Line(tokens, line.values[:, : 2 * beam]), firsts + parents


def going_on(ended: Bool[Tensor, "rows tried"], beam: int) -> Int[Tensor, "rows going"]:
    """Places of the best that have not ended, as many in every row."""
    count = min(beam, int((~ended).sum(dim=1).min()))
    return ended.byte().sort(dim=1, stable=True).indices[:, :count]


def _empty(rows: Int[Tensor, "rows"], width: int, most: int, end: int) -> Line:
    tokens = rows.new_full((len(rows), width, most), end)
    return Line(tokens, torch.zeros_like(tokens[..., 0], dtype=torch.float64))
