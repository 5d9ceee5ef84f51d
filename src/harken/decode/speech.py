"""One door to what a recogniser heard: by CTC, by attention, or by both together.

ctc          text of the best path where beam = 1, else the likeliest texts of a prefix beam
attention    the decoder alone, as any model that writes
both         the weighted sum of `joint.py`; a model with one of them uses that one

The log-probability of what is found is that of the text:

ctc          P_ctc(text), summed over all paths that say it
attention    P_attention(text end)
both         (1 - w) P_attention(text end) + w P_ctc(text), the mixture with w = ctc_weight. The
             hypotheses are ranked by `joint.py`, so their probabilities need not be in order
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.config import bounded
from harken.decode.ctc import best_paths, text_log_probabilities
from harken.decode.ctc_beam import search_prefixes
from harken.decode.ctc_steps import CTCSteps
from harken.decode.found import Found
from harken.decode.joint import jointly
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import Stepper, Writing, WritingSteps, forced_log_probabilities
from harken.errors import OptionError

Way = Literal["ctc", "attention", "both"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechSearchConfig(SearchConfig):
    """`by` says who is asked, `ctc_weight` how much CTC has to say where both are."""

    by: Way = "both"
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)


class Recognising(Writing, Protocol):
    """A model that may write from its memory in two ways; `ways` are those that it has."""

    @property
    def ways(self) -> frozenset[str]: ...

    def symbols(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]: ...


def way_of(model: Recognising, wanted: Way) -> Way:
    """What can be had of what is wanted."""
    if wanted == "both":
        return "both" if len(model.ways) == 2 else "ctc" if "ctc" in model.ways else "attention"
    if wanted not in model.ways:
        (other,) = model.ways
        raise OptionError(
            f"search.by: found {wanted!r}, wanted {other!r}: the model writes by {other} alone",
            fix="set model.ctc = true and a model.decoder, then train again, to have both",
        )
    return wanted


@torch.inference_mode()
def seek_speech(
    model: Recognising,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    *,
    search: SpeechSearchConfig,
    blank: int,
    end: int,
    most: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[Found]]:
    """For each row of a memory the `nbest` texts found, the best first."""
    way = way_of(model, search.by)
    if way == "ctc":
        if search.temperature is not None:
            raise OptionError(
                f"search.temperature: found {search.temperature:g}, wanted none of ctc",
                fix="leave it out, or set search.by = 'attention'",
            )
        beam = max(search.beam, nbest)
        return search_ctc(model.symbols(memory), present, blank=blank, beam=beam, nbest=nbest)
    stepper: Stepper[object] = WritingSteps(model, end)
    logs = None if way == "attention" else model.symbols(memory)
    if logs is not None:
        ctc = CTCSteps(logs, present, blank=blank, end=end)
        stepper = jointly(stepper, ctc, search.ctc_weight)
    found = seek(
        stepper, memory, present, search=search, end=end, most=most, nbest=nbest, keys=keys
    )
    if logs is None:
        return found
    weights = torch.tensor([1 - search.ctc_weight, search.ctc_weight], dtype=torch.float64)

    def mixture(rows: list[int], texts: list[Sequence[int]]) -> Tensor:
        heard = memory[rows], present[rows]
        by_attention = forced_log_probabilities(model, *heard, texts, end=end, most=most)
        by_ctc = text_log_probabilities(logs[rows], present[rows], texts, blank=blank)
        both = torch.stack((by_attention.cpu(), by_ctc.cpu()), dim=1)
        return (both + weights.log()).logsumexp(dim=1)

    return rescore(found, mixture)


def search_ctc(
    logs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    *,
    blank: int,
    beam: int,
    nbest: int,
) -> list[list[Found]]:
    """The likeliest texts of each row among those that the search keeps."""
    if beam == 1:
        paths = best_paths(logs, present, blank=blank)
        found = [[Found(path.tokens, path.log_probability)] for path in paths]
    else:
        found = search_prefixes(logs, present, blank=blank, beam=beam, nbest=beam)
    scored = rescore(
        found,
        lambda rows, texts: text_log_probabilities(logs[rows], present[rows], texts, blank=blank),
    )
    return [sorted(row, key=lambda one: -one.log_probability)[:nbest] for row in scored]


def rescore(
    found: Sequence[Sequence[Found]],
    score: Callable[[list[int], list[Sequence[int]]], Float[Tensor, "rows"]],
) -> list[list[Found]]:
    """The same hypotheses with the log-probabilities that `score` gives to one text a row."""
    scored: list[list[Found]] = [[] for _ in found]
    for rank in range(max(map(len, found), default=0)):
        rows = [row for row, hypotheses in enumerate(found) if rank < len(hypotheses)]
        texts = [found[row][rank].tokens for row in rows]
        for row, text, log in zip(rows, texts, score(rows, texts).tolist(), strict=True):
            scored[row].append(Found(text, log))
    return scored
