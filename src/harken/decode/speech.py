"""One door to what a recogniser heard: by CTC, by attention, or by both together.

ctc          best path where beam = 1, else the sum over paths of each text
attention    the decoder alone, as any model that writes
both         the weighted sum of `joint.py`; a model with one of them uses that one
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.config import bounded
from harken.decode.ctc import best_paths
from harken.decode.ctc_beam import search_prefixes
from harken.decode.ctc_steps import CTCSteps
from harken.decode.found import Found
from harken.decode.joint import jointly
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import Stepper, Writing, WritingSteps
from harken.errors import UserError

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
        raise UserError(
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
    logs = None if way == "attention" else model.symbols(memory)
    if way == "ctc":
        assert logs is not None
        if search.temperature is not None:
            raise UserError(
                f"search.temperature: found {search.temperature:g}, wanted none of ctc",
                fix="leave it out, or set search.by = 'attention'",
            )
        beam = max(search.beam, nbest)
        if beam == 1:
            paths = best_paths(logs, present, blank=blank)
            return [[Found(path.tokens, path.log_probability)] for path in paths]
        return search_prefixes(logs, present, blank=blank, beam=beam, nbest=nbest)
    stepper: Stepper[object] = WritingSteps(model, end)
    if logs is not None:
        heard = CTCSteps(logs, present, blank=blank, end=end)
        stepper = jointly(stepper, heard, search.ctc_weight)
    return seek(stepper, memory, present, search=search, end=end, most=most, nbest=nbest, keys=keys)
