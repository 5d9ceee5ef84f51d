"""CTC as a model that writes token after token, so that any search, and any mixture, can use it.

    P(g …) = probability of all texts that begin with g
    P(c | g)   = P(g c …) / P(g …)          P(end | g) = P(g) / P(g …)

These are the shares of a whole: a text either goes on with some token or ends. With spoken, silent
and enter of `ctc_beam.py`, over all T frames,

    P(g c …) = sum over t of  enter_{t-1}(g, c) p_t(c)          P(g) = spoken_T(g) + silent_T(g)

The sum is a product of matrices for all tokens c at once, scaled by the best token of every frame;
only for the token that was chosen do `spoken` and `silent` go through the frames again. A token
e^700 times less likely than the best counts as impossible.

`end` may be the blank: the one is never said by CTC, the other never written.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.ctc import heard
from harken.decode.step import Prompts
from harken.models.state import select_rows


class Prefix(NamedTuple):
    """What was written in each row; logs are those after 0..T frames."""

    row: Int[Tensor, "rows"]  # whose frames
    last: Int[Tensor, "rows"]  # token; the blank before any
    spoken: Float[Tensor, "rows times"]
    silent: Float[Tensor, "rows times"]
    begun: Float[Tensor, "rows"]  # log P(g …)


class CTCSteps:
    """`Stepper` over rows of log-probabilities; what is told as a prompt is not looked at."""

    def __init__(
        self,
        logs: Float[Tensor, "B T V"],
        present: Bool[Tensor, "B T"],
        *,
        blank: int,
        end: int,
    ) -> None:
        logs = heard(logs, present, blank)
        self._blank, self._end = blank, end
        self._quiet = logs[..., blank].clone()
        logs[..., blank] = -torch.inf
        self._logs = logs
        self._tallest = logs.amax(dim=-1)
        self._shares = (logs - finite(self._tallest)[..., None]).exp()

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Prefix]:
        rows = torch.arange(len(self._logs), device=self._logs.device)
        assert len(tokens) == len(rows), f"{len(tokens)} prompts to {len(rows)} rows of frames"
        nothing = self._quiet.new_zeros(len(rows), 1)
        silent = torch.cat((nothing, self._quiet.cumsum(dim=1)), dim=1)
        spoken = torch.full_like(silent, -torch.inf)
        last = torch.full_like(rows, self._blank)
        state = Prefix(rows, last, spoken, silent, nothing[:, 0])
        return self._scores(state), state

    def step(self, tokens: Int[Tensor, "B"], state: Prefix) -> tuple[Float[Tensor, "B V"], Prefix]:
        both = torch.logaddexp(state.spoken, state.silent)
        enter = torch.where((tokens == state.last)[:, None], state.silent, both)
        logs = self._logs[state.row, :, tokens]
        entered = enter[:, :-1] + logs
        spoken, silent = listen(entered, logs, self._quiet[state.row])
        state = Prefix(state.row, tokens, spoken, silent, entered.logsumexp(dim=1))
        return self._scores(state), state

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return scores

    def select(self, state: Prefix, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Prefix:
        chosen: Prefix = select_rows(state, rows)
        return chosen

    def _scores(self, state: Prefix) -> Float[Tensor, "B V"]:
        """log P(c | g) of every token, and of the end."""
        both = torch.logaddexp(state.spoken, state.silent)
        weights = both[:, :-1] + self._tallest[state.row]
        top = finite(weights.amax(dim=1, keepdim=True))
        rows, counts = torch.unique_consecutive(state.row, return_counts=True)
        of_rows = torch.split((weights - top).exp(), counts.tolist())
        parts = zip(of_rows, rows.tolist(), strict=True)
        begun = torch.cat([part @ self._shares[row] for part, row in parts]).log() + top
        again = state.silent[:, :-1] + self._logs[state.row, :, state.last]
        begun.scatter_(1, state.last[:, None], again.logsumexp(dim=1, keepdim=True))
        begun[:, self._end] = both[:, -1]
        # Nothing goes on from what is impossible.
        return begun - torch.where(state.begun == -torch.inf, torch.inf, state.begun)[:, None]


def listen(
    entered: Float[Tensor, "rows T"], logs: Float[Tensor, "rows T"], quiet: Float[Tensor, "rows T"]
) -> tuple[Float[Tensor, "rows times"], Float[Tensor, "rows times"]]:
    """`spoken` and `silent` of a prefix, given what enters its last token at each frame."""
    never = logs.new_full(logs.shape[:1], -torch.inf)
    spoken, silent = [never], [never]
    by_frame = (part.T.contiguous() for part in (entered, logs, quiet))
    for enter, log, blank in zip(*by_frame, strict=True):
        silent.append(torch.logaddexp(spoken[-1], silent[-1]) + blank)
        spoken.append(torch.logaddexp(spoken[-1] + log, enter))
    return torch.stack(spoken, dim=1), torch.stack(silent, dim=1)


def finite(logs: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """What to take off logs before they are exponentiated, also where all are -inf."""
    return logs.masked_fill(logs == -torch.inf, 0.0)
