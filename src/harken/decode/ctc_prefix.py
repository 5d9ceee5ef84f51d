"""Probabilities of prefixes under CTC: prefix beam search, and CTC as a stepper for joint search.

    nonblank_t(g) = P(first t frames give g, the last of them its last token)
    blank_t(g)    = P(first t frames give g, the last of them a blank)
    both          = nonblank + blank

    blank_t(g)     = both_{t-1}(g) p_t(blank)
    nonblank_t(g)  = nonblank_{t-1}(g) p_t(last of g)  +  emit_{t-1}(h, c) p_t(c)        g = h c
    emit(h, c)     = both(h), but blank(h) where c is the last token of h

Prefix beam search continues with the `beam` prefixes of largest `both` after each frame. Its result
is a lower bound of a text's log-probability: the sum over the paths whose prefixes stayed.

`CTCPrefixScorer` needs the probability of all texts that begin with g, over all T frames:

    P(g c …) = sum over t of  emit_{t-1}(g, c) p_t(c)          P(g) = nonblank_T(g) + blank_T(g)
    P(c | g) = P(g c …) / P(g …)                               P(end | g) = P(g) / P(g …)

The sum is a matrix product for all tokens c at once, scaled by the best token of every frame, so a
token e^700 times less probable counts as impossible. Only for the chosen token the recursion runs
over the frames again. Everything is in logarithms of double precision.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.decode.beam import check_nbest
from harken.decode.ctc import LogProbs, blank_padding
from harken.decode.stepper import Logits, Present, Prompts, TokenHypothesis
from harken.models.inputs import select_rows

NO_PREFIX, EMPTY = 0, 1  # indices of no prefix at all, and of the prefix without tokens


class PrefixTree:
    """The prefixes of all beams so far, each with an index."""

    def __init__(self, blank: int) -> None:
        self.parents, self.last = [-1, -1], [blank, blank]  # of NO_PREFIX and EMPTY
        self._children: dict[tuple[int, int], int] = {}

    def add(self, prefix: int, token: int) -> int:
        """Return the index of a prefix with one more token."""
        index = self._children.setdefault((prefix, token), len(self.last))
        if index == len(self.last):
            self.parents.append(prefix)
            self.last.append(token)
        return index

    def tokens(self, prefix: int) -> list[int]:
        reverse = []
        while prefix != EMPTY:
            reverse.append(self.last[prefix])
            prefix = self.parents[prefix]
        return reverse[::-1]


class PrefixBeam(NamedTuple):
    """The prefixes of each row by index; those that are NO_PREFIX have no probability."""

    prefixes: Int[Tensor, "B beam"]
    nonblank: Float[Tensor, "B beam"]
    blank: Float[Tensor, "B beam"]


def split_blank(
    log_probs: LogProbs, present: Present, blank: int
) -> tuple[LogProbs, Float[Tensor, "B T"]]:
    """Return log-probabilities in which the blank is impossible, and those of the blank."""
    log_probs = blank_padding(log_probs, present, blank)
    blanks = log_probs[..., blank].clone()
    log_probs[..., blank] = -torch.inf
    return log_probs, blanks


@torch.inference_mode()
def search_prefixes(
    log_probs: LogProbs, present: Present, *, blank: int, beam: int, nbest: int = 1
) -> list[list[TokenHypothesis]]:
    """Return the `nbest` texts of each row, the most probable first; fewer if there are no more."""
    check_nbest(beam, nbest)
    if len(log_probs) == 0:
        return []
    log_probs, blanks = split_blank(log_probs, present, blank)
    # At most `beam` of the best 2 * beam tokens cannot extend a prefix: its last token, and those
    # that make it a prefix of the beam. So no other token can be among the best.
    best, tokens = log_probs.topk(min(2 * beam, log_probs.shape[-1]), dim=-1)
    tree = PrefixTree(blank)
    prefixes = torch.full((len(log_probs), beam), NO_PREFIX, device=log_probs.device)
    prefixes[:, 0] = EMPTY
    never = torch.full_like(prefixes, -torch.inf, dtype=torch.float64)
    prefix_beam = PrefixBeam(prefixes, never, never.masked_fill(prefixes == EMPTY, 0.0))
    frames = (part.unbind(dim=1) for part in (log_probs, best, tokens, blanks))
    for frame in zip(*frames, strict=True):
        prefix_beam = advance_beam(prefix_beam, tree, *frame)
    totals = torch.logaddexp(prefix_beam.nonblank, prefix_beam.blank).tolist()
    beams = [
        [
            TokenHypothesis(tree.tokens(prefix), total)
            for prefix, total in zip(*row, strict=True)
            if prefix != NO_PREFIX
        ]
        for row in zip(prefix_beam.prefixes.tolist(), totals, strict=True)
    ]
    # If nothing is possible, as with NaN weights, the text is empty.
    return [row[:nbest] or [TokenHypothesis([], -math.inf)] for row in beams]


def advance_beam(
    prefix_beam: PrefixBeam,
    tree: PrefixTree,
    log_probs: Float[Tensor, "B V"],
    best: Float[Tensor, "B best"],
    tokens: Int[Tensor, "B best"],
    blank_log_prob: Float[Tensor, "B"],
) -> PrefixBeam:
    """Process one frame: every prefix stays, or grows by one of the best tokens."""
    prefixes, nonblank, blank = prefix_beam
    beam, device = prefixes.shape[1], prefixes.device
    last, parents = (
        torch.tensor(
            [[table[prefix] for prefix in row] for row in prefixes.tolist()], device=device
        )
        for table in (tree.last, tree.parents)
    )
    both = torch.logaddexp(nonblank, blank)

    def emit(following: Int[Tensor, "B tokens"]) -> Float[Tensor, "B beam tokens"]:
        same = last[:, :, None] == following[:, None]
        return torch.where(same, blank[:, :, None], both[:, :, None])

    is_parent = prefixes[:, :, None] == parents[:, None]  # row, parent, child
    entered = emit(last).masked_fill(~is_parent, -torch.inf).amax(dim=1)
    # Extensions that are in the beam already are covered by `entered`.
    same_token = (last[:, :, None] == tokens[:, None]).float()
    in_beam = (is_parent.float() @ same_token).bool()
    grown = (emit(tokens) + best[:, None]).masked_fill(in_beam, -torch.inf).flatten(1)
    nonblank = torch.logaddexp(nonblank, entered) + log_probs.gather(1, last)
    blank = both + blank_log_prob[:, None]

    stayed = torch.logaddexp(nonblank, blank)
    total, indices = torch.cat((stayed, grown), dim=1).topk(beam, dim=1)
    stays, extension = indices < beam, (indices - beam).clamp(min=0)
    source = torch.where(stays, indices, extension // tokens.shape[1])
    token = tokens.gather(1, extension % tokens.shape[1])
    columns = (prefixes.gather(1, source), token, stays, total > -torch.inf)
    new_prefixes = [
        [
            (prefix if same else tree.add(prefix, token)) if possible else NO_PREFIX
            for prefix, token, same, possible in zip(*row, strict=True)
        ]
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return PrefixBeam(
        torch.tensor(new_prefixes, device=device),
        torch.where(stays, nonblank.gather(1, source), total),
        blank.gather(1, source).masked_fill(~stays, -torch.inf),
    )


class PrefixState(NamedTuple):
    """The prefix of each row; log-probabilities are those after 0..T frames."""

    row: Int[Tensor, "rows"]  # of the frames
    last: Int[Tensor, "rows"]  # token; the blank before any
    nonblank: Float[Tensor, "rows times"]
    blank: Float[Tensor, "rows times"]
    total: Float[Tensor, "rows"]  # log P(g …)


class CTCPrefixScorer:
    """`Stepper` over rows of CTC log-probabilities; the prompt is ignored.

    `end` may be the blank, since a text never contains the blank.
    """

    def __init__(self, log_probs: LogProbs, present: Present, *, blank: int, end: int) -> None:
        self._blank, self._end = blank, end
        self._log_probs, self._blanks = split_blank(log_probs, present, blank)
        self._largest = self._log_probs.amax(dim=-1)
        self._scaled = (self._log_probs - finite(self._largest)[..., None]).exp()

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, PrefixState]:
        rows = torch.arange(len(self._log_probs), device=self._log_probs.device)
        assert len(tokens) == len(rows), f"{len(tokens)} prompts to {len(rows)} rows of frames"
        certain = self._blanks.new_zeros(len(rows), 1)
        blank = torch.cat((certain, self._blanks.cumsum(dim=1)), dim=1)
        nonblank = torch.full_like(blank, -torch.inf)
        last = torch.full_like(rows, self._blank)
        state = PrefixState(rows, last, nonblank, blank, certain[:, 0])
        return self._next_tokens(state), state

    def step(self, tokens: Int[Tensor, "B"], state: PrefixState) -> tuple[Logits, PrefixState]:
        both = torch.logaddexp(state.nonblank, state.blank)
        emitted = torch.where((tokens == state.last)[:, None], state.blank, both)
        log_probs = self._log_probs[state.row, :, tokens]
        entered = emitted[:, :-1] + log_probs
        nonblank = [torch.full_like(state.total, -torch.inf)]
        blank = [nonblank[0]]
        by_frame = (part.T.contiguous() for part in (entered, log_probs, self._blanks[state.row]))
        for enter, token_log_prob, blank_log_prob in zip(*by_frame, strict=True):
            blank.append(torch.logaddexp(nonblank[-1], blank[-1]) + blank_log_prob)
            nonblank.append(torch.logaddexp(nonblank[-1] + token_log_prob, enter))
        paths = torch.stack(nonblank, dim=1), torch.stack(blank, dim=1)
        state = PrefixState(state.row, tokens, *paths, entered.logsumexp(dim=1))
        return self._next_tokens(state), state

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return select_rows(state, rows)

    def _next_tokens(self, state: PrefixState) -> Logits:
        """Return log P(c | g) of every token, and of the end."""
        both = torch.logaddexp(state.nonblank, state.blank)
        weights = both[:, :-1] + self._largest[state.row]
        top = finite(weights.amax(dim=1, keepdim=True))
        rows, counts = torch.unique_consecutive(state.row, return_counts=True)
        parts = zip(torch.split((weights - top).exp(), counts.tolist()), rows.tolist(), strict=True)
        total = torch.cat([part @ self._scaled[row] for part, row in parts]).log() + top
        repeated = state.blank[:, :-1] + self._log_probs[state.row, :, state.last]
        total.scatter_(1, state.last[:, None], repeated.logsumexp(dim=1, keepdim=True))
        total[:, self._end] = both[:, -1]
        # An impossible prefix has no continuation.
        return total - torch.where(state.total == -torch.inf, torch.inf, state.total)[:, None]


def finite(logarithms: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Replace -inf by 0, for logarithms that are subtracted before exponentiating."""
    return logarithms.masked_fill(logarithms == -torch.inf, 0.0)
