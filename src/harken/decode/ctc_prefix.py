"""Probabilities of prefixes under CTC: prefix beam search, and CTC as a stepper for joint search.

    nonblank_t(g) = P(first t frames give g, the last of them its last token)
    blank_t(g)    = P(first t frames give g, the last of them a blank)
    both          = nonblank + blank

    blank_t(g)     = both_{t-1}(g) p_t(blank)
    nonblank_t(g)  = nonblank_{t-1}(g) p_t(last of g)  +  emit_{t-1}(h, c) p_t(c)        g = h c
    emit(h, c)     = both(h), but blank(h) where c is the last token of h

Prefix beam search keeps the `beam` prefixes with the largest `both` after each frame. The result of
a text is the sum over the paths whose every prefix was kept, a lower bound of its log-probability.

`CTCPrefixScorer` needs the probability of all texts that begin with g, over all T frames:

    P(g c …) = sum over t of  emit_{t-1}(g, c) p_t(c)          P(g) = nonblank_T(g) + blank_T(g)
    P(c | g) = P(g c …) / P(g …)                               P(end | g) = P(g) / P(g …)

The sum is a matrix product for all tokens c at once, scaled by the best token of every frame; only
for the chosen token the recursion runs over the frames again. A token e^700 times less probable
than the best counts as impossible. Everything is in logarithms of double precision.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.beam import check_nbest
from harken.decode.ctc import blank_padding
from harken.decode.stepper import Logits, Present, Prompts, TokenHypothesis
from harken.models.state import select_rows

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


class Frame(NamedTuple):
    """Log-probabilities of one frame: all tokens, the best tokens, the blank."""

    log_probs: Float[Tensor, "B V"]
    best: Float[Tensor, "B best"]
    tokens: Int[Tensor, "B best"]
    blank: Float[Tensor, "B"]


def split_blank(
    log_probs: Float[Tensor, "B T V"], present: Bool[Tensor, "B T"], blank: int
) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T"]]:
    """Return log-probabilities in which the blank is impossible, and those of the blank."""
    log_probs = blank_padding(log_probs, present, blank)
    blanks = log_probs[..., blank].clone()
    log_probs[..., blank] = -torch.inf
    return log_probs, blanks


@torch.inference_mode()
def search_prefixes(
    log_probs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    *,
    blank: int,
    beam: int,
    nbest: int = 1,
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
        prefix_beam = advance_beam(prefix_beam, Frame(*frame), tree)
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


def advance_beam(prefix_beam: PrefixBeam, frame: Frame, tree: PrefixTree) -> PrefixBeam:
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
    is_parent = prefixes[:, :, None] == parents[:, None]  # row, parent, child
    entered = emit(both, blank, last, last).masked_fill(~is_parent, -torch.inf).amax(dim=1)
    # Extensions that are in the beam already are covered by `entered`.
    same_token = (last[:, :, None] == frame.tokens[:, None]).float()
    in_beam = (is_parent.float() @ same_token).bool()
    grown = emit(both, blank, last, frame.tokens) + frame.best[:, None]
    grown = grown.masked_fill(in_beam, -torch.inf).flatten(1)
    nonblank = torch.logaddexp(nonblank, entered) + frame.log_probs.gather(1, last)
    blank = both + frame.blank[:, None]

    stayed = torch.logaddexp(nonblank, blank)
    best, indices = torch.cat((stayed, grown), dim=1).topk(beam, dim=1)
    stays, extension = indices < beam, (indices - beam).clamp(min=0)
    source = torch.where(stays, indices, extension // frame.tokens.shape[1])
    token = frame.tokens.gather(1, extension % frame.tokens.shape[1]).masked_fill(stays, -1)
    return PrefixBeam(
        add_prefixes(tree, prefixes.gather(1, source), token, best),
        torch.where(stays, nonblank.gather(1, source), best),
        blank.gather(1, source).masked_fill(~stays, -torch.inf),
    )


def emit(
    both: Float[Tensor, "B beam"],
    blank: Float[Tensor, "B beam"],
    last: Int[Tensor, "B beam"],
    tokens: Int[Tensor, "B tokens"],
) -> Float[Tensor, "B beam tokens"]:
    """Return what can continue with each token: a repeated token needs a blank between."""
    same = last[:, :, None] == tokens[:, None]
    return torch.where(same, blank[:, :, None], both[:, :, None])


def add_prefixes(
    tree: PrefixTree,
    prefixes: Int[Tensor, "B beam"],
    tokens: Int[Tensor, "B beam"],
    log_probs: Float[Tensor, "B beam"],
) -> Int[Tensor, "B beam"]:
    """Return each prefix with its new token, -1 for none; NO_PREFIX for what is impossible."""
    rows = zip(prefixes.tolist(), tokens.tolist(), (log_probs > -torch.inf).tolist(), strict=True)
    indices = [
        [
            (tree.add(prefix, token) if token >= 0 else prefix) if possible else NO_PREFIX
            for prefix, token, possible in zip(*row, strict=True)
        ]
        for row in rows
    ]
    return torch.tensor(indices, device=prefixes.device)


class PrefixState(NamedTuple):
    """The prefix of each row; log-probabilities are those after 0..T frames."""

    row: Int[Tensor, "rows"]  # of the frames
    last: Int[Tensor, "rows"]  # token; the blank before any
    nonblank: Float[Tensor, "rows times"]
    blank: Float[Tensor, "rows times"]
    total: Float[Tensor, "rows"]  # log P(g …)


class CTCPrefixScorer:
    """`Stepper` over rows of CTC log-probabilities; the prompt is ignored.

    `end` may be the blank: CTC never emits the one, and a text never contains the other.
    """

    def __init__(
        self, log_probs: Float[Tensor, "B T V"], present: Present, *, blank: int, end: int
    ) -> None:
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
        nonblank, blank = advance(entered, log_probs, self._blanks[state.row])
        state = PrefixState(state.row, tokens, nonblank, blank, entered.logsumexp(dim=1))
        return self._next_tokens(state), state

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(
        self, state: PrefixState, rows: Int[Tensor, "rows"], *, same_prompts: bool
    ) -> PrefixState:
        chosen: PrefixState = select_rows(state, rows)
        return chosen

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
        # Nothing follows what is impossible.
        return total - torch.where(state.total == -torch.inf, torch.inf, state.total)[:, None]


def advance(
    entered: Float[Tensor, "rows T"],
    log_probs: Float[Tensor, "rows T"],
    blanks: Float[Tensor, "rows T"],
) -> tuple[Float[Tensor, "rows times"], Float[Tensor, "rows times"]]:
    """Return `nonblank` and `blank` of a prefix from what enters its last token at each frame."""
    never = log_probs.new_full(log_probs.shape[:1], -torch.inf)
    nonblank, blank = [never], [never]
    by_frame = (part.T.contiguous() for part in (entered, log_probs, blanks))
    for enter, token_log_prob, blank_log_prob in zip(*by_frame, strict=True):
        blank.append(torch.logaddexp(nonblank[-1], blank[-1]) + blank_log_prob)
        nonblank.append(torch.logaddexp(nonblank[-1] + token_log_prob, enter))
    return torch.stack(nonblank, dim=1), torch.stack(blank, dim=1)


def finite(logarithms: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return what to subtract before exponentiating; 0 in place of -inf."""
    return logarithms.masked_fill(logarithms == -torch.inf, 0.0)
