"""What a search needs of a model: begin with a prompt, then one token at a time."""

from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.models.language_model import LanguageModel, LanguageModelState

State = TypeVar("State")


@runtime_checkable
class Stepper(Protocol[State]):
    """A causal model behind two calls; the state goes in and comes out, it is kept nowhere."""

    def prompt(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], State]:
        """Scores of the first token after each row's last present one."""
        ...

    def step(self, tokens: Int[Tensor, "B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """Scores of the token after `tokens`."""
        ...


class LanguageModelSteps:
    """`Stepper` for a causal language model, on its key/value cache."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def prompt(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], LanguageModelState]:
        begun = self._model.begin(tokens.shape[0], tokens.device)
        states, state = self._model.extend(tokens, present, begun)
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        last = (slots * present).amax(dim=1)
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        return self._model.scores(states[rows, last]), state

    def step(
        self, tokens: Int[Tensor, "B"], state: LanguageModelState
    ) -> tuple[Float[Tensor, "B V"], LanguageModelState]:
        states, state = self._model.extend(
            tokens[:, None], torch.ones_like(tokens, dtype=torch.bool)[:, None], state
        )
        return self._model.scores(states[:, 0]), state
