"""Activation patching: which part carries what makes two inputs come out differently.

    share(part) = (figure(other, part as for clean) - figure(other))
                / (figure(clean)                    - figure(other))

The clean input runs once, and what every part writes is kept. The other runs again and again, each
time with one part writing what it wrote for the clean one: 1 is all of the difference brought back,
0 none, below 0 the wrong way. Shares of several parts need not add up, for later parts read what
earlier ones wrote. The figure is the mean over the rows, mostly a difference of two logits.

Inputs have equal lengths, so that places stand for one another. Attention that runs step by step
(an RNN that looks back, a cache) is patched step by step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.decode.step import Causal
from harken.inspection.ablation import WritingPart, changed, only_head
from harken.inspection.refs import HeadRef

Figure = Callable[[Tensor], Tensor]
"""Tokens B T -> one number a row, by running the model."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Patched:
    """The figure of both inputs, and of each part the share that it brings back."""

    clean: float
    other: float
    parts: Sequence[WritingPart]
    shares: Float[Tensor, "parts"]
    places: Float[Tensor, "parts T"] | None = None  # of each place alone, where asked for


@torch.inference_mode()
def patch(
    model: nn.Module,
    clean: Int[Tensor, "B T"],
    other: Int[Tensor, "B other"],
    figure: Figure,
    parts: Sequence[WritingPart],
    *,
    by_place: bool = False,
) -> Patched:
    """Shares of these parts; with `by_place`, one more run for each and each of its places."""
    if clean.shape != other.shape:
        raise ValueError(
            f"inputs of {tuple(clean.shape)} and {tuple(other.shape)}, wanted equal lengths"
        )
    kept: dict[str, list[Tensor]] = {part.module: [] for part in parts}
    with changed(model, {name: partial(_keep, calls) for name, calls in kept.items()}):
        above = float(figure(clean).mean())
    written = {name: _placed(calls) for name, calls in kept.items()}
    below = float(figure(other).mean())
    if above == below:
        raise ValueError(f"the figure is {above} for both inputs, wanted two that differ")

    def share(part: WritingPart, place: int | None) -> float:
        put_back = partial(_put_back, part, place, iter(written[part.module]))
        with changed(model, {part.module: put_back}):
            return (float(figure(other).mean()) - below) / (above - below)

    places = None
    if by_place:
        lengths = {name: sum(one.shape[-2] for one in calls) for name, calls in kept.items()}
        places = torch.tensor(
            [[share(part, place) for place in range(lengths[part.module])] for part in parts],
            dtype=torch.float64,
        )
    shares = torch.tensor([share(part, None) for part in parts], dtype=torch.float64)
    return Patched(clean=above, other=below, parts=parts, shares=shares, places=places)


def logit_difference(model: Causal, right: Int[Tensor, "B"], wrong: Int[Tensor, "B"]) -> Figure:
    """Of a language model after the last token: how far `right` scores above `wrong`."""

    def figure(tokens: Tensor) -> Tensor:
        begun = model.begin(len(tokens), tokens.device)
        states, _ = model.extend(tokens, torch.ones_like(tokens, dtype=torch.bool), begun)
        scores = model.logits(states[:, -1])
        rows = torch.arange(len(tokens), device=tokens.device)
        return scores[rows, right] - scores[rows, wrong]

    return figure


def _keep(calls: list[Tensor], written: Tensor) -> Tensor:
    calls.append(written)
    return written


def _placed(calls: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Each call with the place that it begins at: calls come in the order of time."""
    ends = accumulate(one.shape[-2] for one in calls)
    return [(end - one.shape[-2], one) for end, one in zip(ends, calls, strict=True)]


def _put_back(
    part: WritingPart, place: int | None, calls: Iterator[tuple[int, Tensor]], written: Tensor
) -> Tensor:
    """The next call of the clean run in place of this one; each comes with its first place."""
    start, clean = next(calls)
    places = torch.arange(start, start + written.shape[-2], device=written.device)
    chosen = torch.ones_like(places).bool() if place is None else places == place
    here = chosen[:, None]
    if isinstance(part, HeadRef):
        here = here & only_head(part, written)
    return torch.where(here, clean, written)
