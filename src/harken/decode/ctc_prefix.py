"""CTC prefix beam search, and a CTC prefix scorer for joint search.

    nonblank_t(g)  = P(the first t frames collapse to g, and frame t is the last token of g)
    blank_t(g)     = P(the first t frames collapse to g, and frame t is a blank)
    both           = nonblank + blank
    emit_t(h, c)   = P(the first t frames collapse to h, and c in frame t + 1 would make it h c)

    blank_t(g)     = both_{t-1}(g) p_t(blank)
    nonblank_t(g)  = nonblank_{t-1}(g) p_t(last of g)  +  emit_{t-1}(h, c) p_t(c)        g = h c
    emit_t(h, c)   = both_t(h), but blank_t(h) if c is the last token of h

Prefix beam search keeps the `beam` prefixes with the largest `both` after each frame. It returns
lower bounds of log-probabilities, since it sums only over paths whose prefixes were kept.

`CTCPrefixScorer` needs the probability P(g …) of all texts that begin with g, over all T frames:

    P(g c …) = sum over t of  emit_{t-1}(g, c) p_t(c)          P(g) = nonblank_T(g) + blank_T(g)
    P(c | g) = P(g c …) / P(g …)                               P(end | g) = P(g) / P(g …)

The sum is one matrix product for all tokens c. It is scaled by the best token of every frame, so
tokens that are e^700 times less probable become impossible. The recursion over the frames runs only
for the chosen token. All probabilities are logarithms in float64.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.decode.beam import check_nbest
from harken.decode.ctc import LogProbs, set_padding_to_blank
from harken.decode.stepper import Logits, Present, Prompts, TokenHypothesis
from harken.models.inputs import select_rows

NO_PREFIX, EMPTY = 0, 1  # indices of an unused slot of a beam, and of the empty prefix


class PrefixTree:
    """All prefixes that have been in a beam, by index, with their parents and last tokens."""

    def __init__(self, blank: int) -> None:
        self.parents, self.last = [-1, -1], [blank, blank]  # of NO_PREFIX and EMPTY
        self._children: dict[tuple[int, int], int] = {}

    def add(self, prefix: int, token: int) -> int:
        """Return the index of `prefix` extended by `token`."""
        index = self._children.setdefault((prefix, token), len(self.last))
        if index == len(self.last):
            self.parents.append(prefix)
            self.last.append(token)
        return index

    def tokens(self, prefix: int) -> list[int]:
        reversed_tokens = []
        while prefix != EMPTY:
            reversed_tokens.append(self.last[prefix])
            prefix = self.parents[prefix]
        return reversed_tokens[::-1]


class PrefixBeam(NamedTuple):
    """The prefixes of each row and their log-probabilities, which are -inf for NO_PREFIX."""

    prefixes: Int[Tensor, "B beam"]
    nonblank: Float[Tensor, "B beam"]
    blank: Float[Tensor, "B beam"]


def split_blank(
    log_probs: LogProbs, present: Present, blank: int
) -> tuple[LogProbs, Float[Tensor, "B T"]]:
    """Return the log-probabilities with -inf for the blank, and those of the blank."""
    log_probs = set_padding_to_blank(log_probs, present, blank)
    blanks = log_probs[..., blank].clone()
    log_probs[..., blank] = -torch.inf
    return log_probs, blanks


@torch.inference_mode()
def search_prefixes(
    log_probs: LogProbs, present: Present, *, blank: int, beam: int, nbest: int = 1
) -> list[list[TokenHypothesis]]:
    """Return up to `nbest` texts of each row, the most probable first."""
    check_nbest(beam, nbest)
    if len(log_probs) == 0:
        return []
    log_probs, blanks = split_blank(log_probs, present, blank)
    # The best 2 * beam tokens of a frame suffice. For each prefix, at most `beam` of them are its
    # last token or lead to a prefix that is already in the beam. The others give `beam` new
    # prefixes, each at least as probable as one with a token that is not among the best.
    best, tokens = log_probs.topk(min(2 * beam, log_probs.shape[-1]), dim=-1)
    tree = PrefixTree(blank)
    prefixes = torch.full((len(log_probs), beam), NO_PREFIX, device=log_probs.device)
    prefixes[:, 0] = EMPTY
    impossible = torch.full_like(prefixes, -torch.inf, dtype=torch.float64)
    prefix_beam = PrefixBeam(prefixes, impossible, impossible.masked_fill(prefixes == EMPTY, 0.0))
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
    # Without a possible prefix, for example with NaN weights, return an empty text.
    return [row[:nbest] or [TokenHypothesis([], -math.inf)] for row in beams]


def advance_beam(
    prefix_beam: PrefixBeam,
    tree: PrefixTree,
    log_probs: Float[Tensor, "B V"],
    best: Float[Tensor, "B best"],
    tokens: Int[Tensor, "B best"],
    blank_log_prob: Float[Tensor, "B"],
) -> PrefixBeam:
    """Process one frame: keep every prefix, extend it by the best tokens, and prune."""
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
    from_parent = emit(last).masked_fill(~is_parent, -torch.inf).amax(dim=1)
    # `from_parent` covers the extensions that are already in the beam.
    same_token = (last[:, :, None] == tokens[:, None]).float()
    in_beam = (is_parent.float() @ same_token).bool()
    extended = (emit(tokens) + best[:, None]).masked_fill(in_beam, -torch.inf).flatten(1)
    nonblank = torch.logaddexp(nonblank, from_parent) + log_probs.gather(1, last)
    blank = both + blank_log_prob[:, None]

    kept = torch.logaddexp(nonblank, blank)
    total, indices = torch.cat((kept, extended), dim=1).topk(beam, dim=1)
    is_kept, extension = indices < beam, (indices - beam).clamp(min=0)
    source = torch.where(is_kept, indices, extension // tokens.shape[1])
    token = tokens.gather(1, extension % tokens.shape[1])
    columns = (prefixes.gather(1, source), token, is_kept, total > -torch.inf)
    new_prefixes = [
        [
            (prefix if same else tree.add(prefix, token)) if possible else NO_PREFIX
            for prefix, token, same, possible in zip(*row, strict=True)
        ]
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return PrefixBeam(
        torch.tensor(new_prefixes, device=device),
        torch.where(is_kept, nonblank.gather(1, source), total),
        blank.gather(1, source).masked_fill(~is_kept, -torch.inf),
    )


class PrefixState(NamedTuple):
    """The prefix g of each row, and its log-probabilities after 0..T frames."""

    row: Int[Tensor, "rows"]  # index of the row of frames
    last: Int[Tensor, "rows"]  # last token; the blank for the empty prefix
    nonblank: Float[Tensor, "rows times"]
    blank: Float[Tensor, "rows times"]
    total: Float[Tensor, "rows"]  # log P(g …)


class CTCPrefixScorer:
    """A `Stepper` over rows of CTC log-probabilities, which ignores the prompt.

    `end` may be the blank, since a text never contains the blank.
    """

    def __init__(self, log_probs: LogProbs, present: Present, *, blank: int, end: int) -> None:
        self._blank, self._end = blank, end
        self._log_probs, self._blanks = split_blank(log_probs, present, blank)
        self._largest = self._log_probs.amax(dim=-1)
        self._scaled = (self._log_probs - replace_neg_inf(self._largest)[..., None]).exp()

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, PrefixState]:
        rows = torch.arange(len(self._log_probs), device=self._log_probs.device)
        assert len(tokens) == len(rows), f"{len(tokens)} prompts for {len(rows)} rows of frames"
        zeros = self._blanks.new_zeros(len(rows), 1)
        blank = torch.cat((zeros, self._blanks.cumsum(dim=1)), dim=1)
        nonblank = torch.full_like(blank, -torch.inf)
        last = torch.full_like(rows, self._blank)
        state = PrefixState(rows, last, nonblank, blank, zeros[:, 0])
        return self._next_log_probs(state), state

    def step(self, tokens: Int[Tensor, "B"], state: PrefixState) -> tuple[Logits, PrefixState]:
        both = torch.logaddexp(state.nonblank, state.blank)
        emit = torch.where((tokens == state.last)[:, None], state.blank, both)
        log_probs = self._log_probs[state.row, :, tokens]
        extended = emit[:, :-1] + log_probs
        nonblank = [torch.full_like(state.total, -torch.inf)]
        blank = [nonblank[0]]
        by_frame = (part.T.contiguous() for part in (extended, log_probs, self._blanks[state.row]))
        for extended_log_prob, token_log_prob, blank_log_prob in zip(*by_frame, strict=True):
            blank.append(torch.logaddexp(nonblank[-1], blank[-1]) + blank_log_prob)
            nonblank.append(torch.logaddexp(nonblank[-1] + token_log_prob, extended_log_prob))
        paths = torch.stack(nonblank, dim=1), torch.stack(blank, dim=1)
        state = PrefixState(state.row, tokens, *paths, extended.logsumexp(dim=1))
        return self._next_log_probs(state), state

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        return select_rows(state, rows)

    def _next_log_probs(self, state: PrefixState) -> Logits:
        """Return log P(c | g) of every token c, and log P(end | g) at `end`."""
        both = torch.logaddexp(state.nonblank, state.blank)
        weights = both[:, :-1] + self._largest[state.row]
        scale = replace_neg_inf(weights.amax(dim=1, keepdim=True))
        rows, counts = torch.unique_consecutive(state.row, return_counts=True)
        parts = torch.split((weights - scale).exp(), counts.tolist())
        pairs = zip(parts, rows.tolist(), strict=True)
        total = torch.cat([part @ self._scaled[row] for part, row in pairs]).log() + scale
        repeated = state.blank[:, :-1] + self._log_probs[state.row, :, state.last]
        total.scatter_(1, state.last[:, None], repeated.logsumexp(dim=1, keepdim=True))
        total[:, self._end] = both[:, -1]
        # An impossible prefix has no continuation.
        return total - torch.where(state.total == -torch.inf, torch.inf, state.total)[:, None]


def replace_neg_inf(logarithms: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Replace -inf by 0, since -inf - (-inf) is NaN."""
    return logarithms.masked_fill(logarithms == -torch.inf, 0.0)
