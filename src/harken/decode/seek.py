"""One door to every search: what a `SearchConfig` asks for, for each row of a batch."""

from collections.abc import Sequence

from jaxtyping import Bool
from torch import Tensor

from harken.decode.beam import search_beam
from harken.decode.found import Found
from harken.decode.greedy import decode_greedily
from harken.decode.sampling import SampleKey, sample
from harken.decode.search import SearchConfig
from harken.decode.step import Prompts, State, Stepper

__all__ = ["Found", "seek"]


def seek(
    stepper: Stepper[State],
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    search: SearchConfig,
    end: int,
    most: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[Found]]:
    """For each row the `nbest` sequences found, the best first, of at most `most` tokens.

    A sample depends on the seed and the key of its row; without `keys`, on the number of the row.
    """
    if len(prompts) == 0:
        return []
    if search.temperature is not None:
        return sample(
            stepper,
            prompts,
            present,
            temperature=search.temperature,
            top_k=search.top_k,
            top_p=search.top_p,
            seed=search.seed,
            keys=[(row,) for row in range(len(prompts))] if keys is None else keys,
            end=end,
            most=most,
            nbest=nbest,
        )
    beam = nbest if search.beam == 1 else search.beam
    if beam == 1:
        return [[one] for one in decode_greedily(stepper, prompts, present, end=end, most=most)]
    return search_beam(
        stepper,
        prompts,
        present,
        beam=beam,
        length_penalty=search.length_penalty,
        stop=search.stop,
        end=end,
        most=most,
        nbest=nbest,
    )
