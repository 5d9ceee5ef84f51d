"""Which text CTC finds likeliest, summed over its paths: frame after frame some prefixes are kept.

    spoken_t(g) = P(first t frames say g, the last of them its last token)
    silent_t(g) = P(first t frames say g, the last of them a blank)
    both        = spoken + silent

    silent_t(g)   = both_{t-1}(g) p_t(blank)
    spoken_t(g)   = spoken_{t-1}(g) p_t(last of g)  +  enter_{t-1}(h, c) p_t(c)        g = h c
    enter(h, c)   = both(h), but silent(h) where c is the last token of h

After each frame the `beam` prefixes with the largest `both` are kept. What is given back for a text
is the sum over the paths whose every beginning was kept: with a beam that holds all prefixes its
log-probability, with a smaller one a bound below it. Everything is in logs of double precision.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.ctc import heard
from harken.decode.found import Found

NOBODY, EMPTY = 0, 1  # numbers of no prefix at all, and of the one without a token


class Prefixes:
    """Every prefix that was ever kept has a number, by which it is known when it comes back."""

    def __init__(self, blank: int) -> None:
        self.parents, self.last = [-1, -1], [blank, blank]  # of NOBODY and EMPTY
        self._longer: dict[tuple[int, int], int] = {}

    def extend(self, prefix: int, token: int) -> int:
        """The number of a prefix with one more token."""
        number = self._longer.setdefault((prefix, token), len(self.last))
        if number == len(self.last):
            self.parents.append(prefix)
            self.last.append(token)
        return number

    def tokens(self, prefix: int) -> list[int]:
        written = []
        while prefix != EMPTY:
            written.append(self.last[prefix])
            prefix = self.parents[prefix]
        return written[::-1]


class Kept(NamedTuple):
    """The prefixes of each row, by number; those that are NOBODY have no probability."""

    numbers: Int[Tensor, "B beam"]
    spoken: Float[Tensor, "B beam"]
    silent: Float[Tensor, "B beam"]


class Frame(NamedTuple):
    """Log-probabilities of one frame: of all tokens, of the likeliest, of the blank."""

    logs: Float[Tensor, "B V"]
    best: Float[Tensor, "B best"]
    tokens: Int[Tensor, "B best"]
    quiet: Float[Tensor, "B"]


@torch.inference_mode()
def search_prefixes(
    logs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    *,
    blank: int,
    beam: int,
    nbest: int = 1,
) -> list[list[Found]]:
    """For each row the `nbest` texts, the likeliest first; fewer where there are no more."""
    if nbest > beam:
        raise ValueError(f"a beam of {beam} cannot find {nbest} best; widen it or ask for fewer")
    if len(logs) == 0:
        return []
    logs = heard(logs, present, blank)
    quiet = logs[..., blank].clone()
    logs[..., blank] = -torch.inf  # from here on the blank is no token
    # Of the likeliest 2 * beam at most `beam` are of less use to a prefix: the one that it ends in,
    # and those that make it one that is kept already. So no other token can be among the best.
    best, tokens = logs.topk(min(2 * beam, logs.shape[-1]), dim=-1)
    prefixes = Prefixes(blank)
    numbers = torch.full((len(logs), beam), NOBODY, device=logs.device)
    numbers[:, 0] = EMPTY
    never = torch.full_like(numbers, -torch.inf, dtype=torch.float64)
    kept = Kept(numbers, never, never.masked_fill(numbers == EMPTY, 0.0))
    for parts in zip(*(part.unbind(dim=1) for part in (logs, best, tokens, quiet)), strict=True):
        kept = hear(kept, Frame(*parts), prefixes)
    totals = torch.logaddexp(kept.spoken, kept.silent).tolist()
    rows = [zip(*row, strict=True) for row in zip(kept.numbers.tolist(), totals, strict=True)]
    found = [
        [Found(prefixes.tokens(one), log) for one, log in row if one != NOBODY] for row in rows
    ]
    # Where nothing is possible, as with a model that has lost its mind, nothing was said.
    return [row[:nbest] or [Found([], -math.inf)] for row in found]


def hear(kept: Kept, frame: Frame, prefixes: Prefixes) -> Kept:
    """One more frame: every prefix stays as it is, or grows by one of the likeliest tokens."""
    numbers, spoken, silent = kept
    beam, device = numbers.shape[1], numbers.device
    last, parents = (
        torch.tensor([[of[one] for one in row] for row in numbers.tolist()], device=device)
        for of in (prefixes.last, prefixes.parents)
    )
    both = torch.logaddexp(spoken, silent)
    kin = numbers[:, :, None] == parents[:, None]  # row, a prefix, one that is a token longer
    entered = enter(both, silent, last, last).masked_fill(~kin, -torch.inf).amax(dim=1)
    grown = enter(both, silent, last, frame.tokens) + frame.best[:, None]
    grown = grown.masked_fill(among(kin, last, frame.tokens), -torch.inf).flatten(1)
    spoken = torch.logaddexp(spoken, entered) + frame.logs.gather(1, last)
    silent = both + frame.quiet[:, None]

    stayed = torch.logaddexp(spoken, silent)
    best, places = torch.cat((stayed, grown), dim=1).topk(beam, dim=1)
    stays, place = places < beam, (places - beam).clamp(min=0)
    source = torch.where(stays, places, place // frame.tokens.shape[1])
    token = frame.tokens.gather(1, place % frame.tokens.shape[1]).masked_fill(stays, -1)
    return Kept(
        renumber(prefixes, numbers.gather(1, source), token, best),
        torch.where(stays, spoken.gather(1, source), best),
        silent.gather(1, source).masked_fill(~stays, -torch.inf),
    )


def enter(
    both: Float[Tensor, "B beam"],
    silent: Float[Tensor, "B beam"],
    last: Int[Tensor, "B beam"],
    tokens: Int[Tensor, "B tokens"],
) -> Float[Tensor, "B beam tokens"]:
    """What may go on to each token: only a blank tells a token from the same one that lasts."""
    same = last[:, :, None] == tokens[:, None]
    return torch.where(same, silent[:, :, None], both[:, :, None])


def among(
    kin: Bool[Tensor, "B beam beam"],
    last: Int[Tensor, "B beam"],
    tokens: Int[Tensor, "B tokens"],
) -> Bool[Tensor, "B beam tokens"]:
    """Whether a prefix with one more token is in the beam already, which has been seen to."""
    ends_so = (last[:, :, None] == tokens[:, None]).float()
    return (kin.float() @ ends_so).bool()


def renumber(
    prefixes: Prefixes,
    numbers: Int[Tensor, "B beam"],
    tokens: Int[Tensor, "B beam"],
    logs: Float[Tensor, "B beam"],
) -> Int[Tensor, "B beam"]:
    """Of each prefix with its new token, -1 for none; what is impossible is nobody."""
    possible = (logs > -torch.inf).tolist()
    rows = zip(numbers.tolist(), tokens.tolist(), possible, strict=True)
    renumbered = [
        [
            (prefixes.extend(one, token) if token >= 0 else one) if there else NOBODY
            for one, token, there in zip(*row, strict=True)
        ]
        for row in rows
    ]
    return torch.tensor(renumbered, device=numbers.device)
