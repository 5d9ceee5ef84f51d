"""What a model looked at as it wrote the hypotheses that a search kept, from the search itself.

    told     start w_1 … w_n            decides        w_1 w_2 … w_n end

The row of a token is the step that decided it: what is told to the model last before it is chosen,
after a start symbol or a prompt that is told first. A hypothesis that was cut has no row for `end`.

    cross-attention                   k T M    over the places of the hypothesis's own source
    self-attention of a decoder       k T T    lower triangular: row i has looked at i tokens
    self-attention of a language model   k T S    the same, with the prompt's keys before

Searches run unchanged: the stepper they are given keeps the rows of every step, and its state says
for each row where those before it are. No more is kept than a row for each hypothesis tried and
step; rows are dropped from which neither a live hypothesis nor one that may have ended has come.

What is not here: attentions of an encoder, which are one for all hypotheses (`record` around it).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.decode.found import Found
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import Prompts, Stepper
from harken.errors import UserError
from harken.inspection.record import ALL, Choice, Recorded, attentions, watch
from harken.inspection.refs import is_decoder_attention, is_encoder_attention


class Decided(NamedTuple):
    """What one attention looked at as each token was decided; `name` is its path in the model."""

    name: str
    weights: Float[Tensor, "k T S"]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was found, and one block of rows for each attention."""

    found: Found
    decided: Sequence[Decided]


def seek_kept(
    stepper: Stepper[Any],
    model: nn.Module,
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    search: SearchConfig,
    end: int,
    most: int,
    nbest: int = 1,
    choice: Choice = ALL,
) -> list[list[Hypothesis]]:
    """As `seek`, of a stepper in which `model` does the looking."""
    beam = None if search.temperature is not None else max(search.beam, nbest)
    watched = WatchedSteps(stepper, model, end=end, beam=beam, choice=choice)
    found = seek(watched, prompts, present, search=search, end=end, most=most, nbest=nbest)
    return [
        [Hypothesis(one, watched.decided(item, one.tokens)) for one in row]
        for item, row in enumerate(found)
    ]


class Told(NamedTuple):
    """The stepper's own state, and where each row is among those of the last step."""

    own: Any
    step: int
    place: Int[Tensor, "rows"]


@dataclass(frozen=True, slots=True)
class Step:
    """Rows of one step; `parents` are their places in the step before."""

    parents: Int[Tensor, "rows"]
    tokens: Int[Tensor, "rows"]
    may_end: Bool[Tensor, "rows"]
    weights: dict[str, Float[Tensor, "rows k S"]]

    def of(self, places: Int[Tensor, "left"]) -> "Step":
        weights = {name: part[places] for name, part in self.weights.items()}
        return Step(self.parents[places], self.tokens[places], self.may_end[places], weights)


class WatchedSteps:
    """`Stepper` that keeps what was looked at, for one search that goes on from its last state.

    A hypothesis may end where fewer than 2 `beam` tokens are likelier than `end`: more than these
    of one hypothesis no beam tries. Without a `beam` all may.
    """

    def __init__(
        self,
        stepper: Stepper[Any],
        model: nn.Module,
        *,
        end: int,
        beam: int | None,
        choice: Choice = ALL,
    ) -> None:
        self._stepper, self._end, self._beam = stepper, end, beam
        # Steps are the calls, each with the one query that decides.
        self._choice = replace(choice, steps=None)
        self._attentions = {
            name: part
            for name, part in attentions(model, self._choice).items()
            if not is_encoder_attention(name)
        }
        if not self._attentions:
            raise UserError(
                f"{type(model).__name__}: no attention runs in a search (expected a decoder or a "
                "language model, found attention in the encoder only)",
                fix="record the encoder with harken.inspection.record.record",
            )
        self._steps: list[Step] = []
        self._left = 0

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Told]:
        self._present, self._steps, self._left = present, [], 0
        items = torch.arange(len(tokens), device=tokens.device)
        last = (torch.arange(present.shape[1], device=tokens.device) * present).amax(dim=1)
        return self._run(lambda: self._stepper.prompt(tokens, present), items, items, last)

    def step(self, tokens: Int[Tensor, "B"], state: Told) -> tuple[Float[Tensor, "B V"], Told]:
        assert state.step == len(self._steps) - 1, "rows before the last step may be gone"
        last = torch.zeros_like(tokens)
        return self._run(lambda: self._stepper.step(tokens, state.own), state.place, tokens, last)

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return self._stepper.logs(scores)

    def select(self, state: Told, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Told:
        own = self._stepper.select(state.own, rows, same_prompts=same_prompts)
        return Told(own, state.step, state.place[rows])

    @property
    def rows(self) -> int:
        """How many are kept."""
        return sum(len(step.tokens) for step in self._steps)

    def decided(self, item: int, tokens: Sequence[int]) -> list[Decided]:
        """The rows of a hypothesis that the search has kept, `end` being decided by the last."""
        # Two samples may begin alike: then each has rows of its own for the same tokens.
        alike = [torch.tensor([item], device=self._present.device)]
        for step, token in zip(self._steps[1:], tokens, strict=False):
            same = torch.isin(step.parents, alike[-1]) & (step.tokens == token)
            assert same.any(), "the search did not keep this"
            alike.append(same.nonzero()[:, 0])
        places = [int(alike[-1][0])]
        for step in reversed(self._steps[1 : len(alike)]):
            places.insert(0, int(step.parents[places[0]]))
        return [Decided(name, self._block(name, item, places)) for name in self._steps[0].weights]

    def _block(self, name: str, item: int, places: Sequence[int]) -> Float[Tensor, "k T S"]:
        rows = [step.weights[name][at] for step, at in zip(self._steps, places, strict=False)]
        longest = rows[-1].shape[1]
        block = torch.stack([F.pad(row, (0, longest - row.shape[1])) for row in rows], dim=1)
        if is_decoder_attention(name):
            return block  # over tokens told, none of which is padding
        present = self._present[item]
        after = present.new_ones(longest - len(present))
        return block[:, :, torch.cat((present, after))]

    def _run(
        self,
        call: Callable[[], tuple[Tensor, Any]],
        parents: Int[Tensor, "B"],
        tokens: Int[Tensor, "B"],
        last: Int[Tensor, "B"],
    ) -> tuple[Float[Tensor, "B V"], Told]:
        """`last` is the query that decides where a call has several."""
        weights: dict[str, Tensor] = {}
        places = torch.arange(len(tokens), device=tokens.device)

        def tell(one: Recorded) -> None:
            weights[one.name] = one.weights[places, :, last.clamp(max=one.weights.shape[2] - 1)]

        with watch(self._attentions, self._choice, tell):
            scores, own = call()
        self._steps.append(Step(parents, tokens, self._may_end(scores), weights))
        self._forget()
        return scores, Told(own, len(self._steps) - 1, places)

    def _may_end(self, scores: Float[Tensor, "B V"]) -> Bool[Tensor, "B"]:
        if self._beam is None:
            return scores.new_ones(len(scores), dtype=torch.bool)
        logs = self._stepper.logs(scores)
        return (logs > logs[:, self._end, None]).sum(dim=1) < 2 * self._beam

    def _forget(self) -> None:
        """Drop rows that are of no more use, each time that twice as many are kept as were left."""
        if self.rows < 2 * self._left:
            return
        # Prompts stay, for hypotheses are looked up from there; the last step's rows are all alive.
        for at in range(len(self._steps) - 2, 0, -1):
            after, needed = self._steps[at + 1], self._steps[at].may_end.clone()
            needed[after.parents] = True
            self._steps[at + 1] = replace(after, parents=(needed.cumsum(dim=0) - 1)[after.parents])
            self._steps[at] = self._steps[at].of(needed.nonzero()[:, 0])
        self._left = self.rows
