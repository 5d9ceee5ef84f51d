"""Several models write together, each with a weight: attention and CTC about the same sound.

    rank(y) = (1 - w) log P_attention(y end) + w log P_ctc(y)

Attention alone may skip or repeat a stretch of sound, CTC alone knows no language; each rank falls
where either disagrees. While y is being written, P_ctc is that of all texts that begin with y; at
`end` it is that of y itself (`ctc_steps.py`), so ranks of prefixes only fall, as the beam expects.

The rank is not the log-probability of a distribution, except at w = 0 and 1: in between, exp(rank)
summed over all texts falls short of one by as much as the parts disagree. A search over these steps
gives back the rank as `log_probability`; `speech.py` replaces it by that of the mixture
(1 - w) P_attention + w P_ctc. How long texts may get is the search's affair (`SearchConfig`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.step import Prompts, Stepper


def jointly(attention: Stepper[Any], ctc: Stepper[Any], ctc_weight: float) -> "JointSteps":
    """CTC has nothing to say beside attention at 0, and everything at 1."""
    return JointSteps(((attention, 1 - ctc_weight), (ctc, ctc_weight)))


class JointSteps:
    """`Stepper` of a weighted sum over one vocabulary; a part without weight is not asked."""

    def __init__(self, parts: Sequence[tuple[Stepper[Any], float]]) -> None:
        self._parts = [(stepper, weight) for stepper, weight in parts if weight > 0]
        assert self._parts, "nobody has any weight"

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Any]:
        return self._together([one.prompt(tokens, present) for one, _ in self._parts])

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        pairs = zip(self._parts, state, strict=True)
        return self._together([one.step(tokens, own) for (one, _), own in pairs])

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return scores

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        pairs = zip(self._parts, state, strict=True)
        return tuple(one.select(own, rows, same_prompts=same_prompts) for (one, _), own in pairs)

    def _together(self, answers: Sequence[tuple[Tensor, Any]]) -> tuple[Float[Tensor, "B V"], Any]:
        logs = [
            weight * stepper.logs(scores)
            for (stepper, weight), (scores, _) in zip(self._parts, answers, strict=True)
        ]
        return torch.stack(logs).sum(dim=0), tuple(state for _, state in answers)
