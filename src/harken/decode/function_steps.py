"""Search with any function from tokens to logits."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.decode.step import log_probabilities
from harken.errors import UserError
from harken.models.state import select_rows


class FunctionSteps:
    """`Stepper` that calls a function `B T -> B T V` on the whole sequence at every step.

    Prompts have no padding, so that the function needs no mask. An output with the attribute
    `logits`, as Hugging Face models return it, is accepted too.
    """

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self._function = function

    def prompt(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Tensor]:
        assert present.all(), "rows of equal length"
        return self._last_logits(tokens), tokens

    def step(self, tokens: Int[Tensor, "B"], state: Tensor) -> tuple[Float[Tensor, "B V"], Tensor]:
        longer = torch.cat((state, tokens[:, None]), dim=1)
        return self._last_logits(longer), longer

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return log_probabilities(scores)

    def select(self, state: Tensor, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return select_rows(state, rows)

    def _last_logits(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        return logits_of(self._function(tokens), tokens)[:, -1]


def logits_of(output: object, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """Return the logits in the output of a model; raise if it has none for every token."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"model: expected logits of shape {(*tokens.shape, 'vocabulary')} for tokens of shape "
            f"{tuple(tokens.shape)}, got {found}",
            fix="pass a function from tokens to logits, such as lambda tokens: model(tokens)[0]",
        )
    return logits
