"""What a search needs of a model: begin with a prompt, then one token at a time.

    rank(w_1 … w_n) = sum over t of  logs(scores of step t)[w_t]

For a model the logs of its scores are their log-softmax, and the rank is log P. A mixture of models
(`joint.py`) has logs that add up to less than one: normalised, they would rank otherwise.

A state is tensors in tuples, each with the batch first: `select` takes the rows that a search goes
on with, whatever the model. State is an argument and a result, it is kept nowhere.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.models.state import select_rows

State = TypeVar("State")

Prompts = Int[Tensor, "B T"] | Float[Tensor, "B T F"]
"""What rows begin with: tokens, or frames of numbers that were never tokens."""


@runtime_checkable
class Stepper(Protocol[State]):
    """A causal model behind four calls."""

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], State]:
        """Scores of the first token after each row's last present one."""
        ...

    def step(self, tokens: Int[Tensor, "B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """Scores of the token after `tokens`."""
        ...

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """What each token would add to the rank, in double precision; never more than 0."""
        ...

    def select(self, state: State, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> State:
        """These rows of a state; with `same_prompts`, each takes the place of one of its prompt."""
        ...


@runtime_checkable
class Causal(Protocol):
    """A language model that goes on from a state."""

    def begin(self, batch: int, device: torch.device) -> Any: ...

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]: ...

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]: ...


@runtime_checkable
class Writing(Protocol):
    """A model that reads a source, then writes from a state."""

    def begin(self, source: Prompts, present: Bool[Tensor, "B T"]) -> Any: ...

    def extend(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]: ...

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any: ...

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]: ...


class LanguageModelSteps:
    """`Stepper` for a causal language model."""

    def __init__(self, model: Causal) -> None:
        self._model = model

    def prompt(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Any]:
        begun = self._model.begin(tokens.shape[0], tokens.device)
        states, state = self._model.extend(tokens, present, begun)
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        last = (slots * present).amax(dim=1)
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        return self._model.logits(states[rows, last]), state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        return _step(self._model, tokens, state)

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return log_probabilities(scores)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return select_rows(state, rows)


class WritingSteps:
    """`Stepper` for a model that reads a source; its prompt is the source, then `start` is told."""

    def __init__(self, model: Writing, start: int) -> None:
        self._model, self._start = model, start

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Any]:
        begun = self._model.begin(tokens, present)
        start = torch.full((len(tokens),), self._start, device=tokens.device)
        return self.step(start, begun)

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        return _step(self._model, tokens, state)

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return log_probabilities(scores)

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return self._model.select(state, rows, same_prompts=same_prompts)


class NonEmptySteps:
    """`Stepper` that never ends a sequence before its first token.

    Log-probabilities of the other tokens stay those of the wrapped stepper.
    """

    def __init__(self, stepper: Stepper[Any], end: int) -> None:
        self._stepper, self._end = stepper, end

    def prompt(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], Any]:
        scores, state = self._stepper.prompt(tokens, present)
        first = self._stepper.logs(scores).clone()
        first[:, self._end] = -torch.inf
        return first, state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        scores, state = self._stepper.step(tokens, state)
        return self._stepper.logs(scores), state

    def logs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return scores

    def select(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return self._stepper.select(state, rows, same_prompts=same_prompts)


@torch.inference_mode()
def forced_log_probabilities(
    model: Writing,
    source: Prompts,
    present: Bool[Tensor, "B T"],
    texts: Sequence[Sequence[int]],
    *,
    end: int,
    most: int,
) -> Float[Tensor, "B"]:
    """log P of one text a row, with `end` behind it unless it fills all `most` places."""
    targets = [[*text, end][:most] for text in texts]
    longest = max(map(len, targets))
    padded = torch.full((len(texts), longest + 1), end, device=source.device)
    for row, target in zip(padded, targets, strict=True):
        row[1 : len(target) + 1] = torch.tensor(target, device=source.device)
    lengths = torch.tensor([len(target) for target in targets], device=source.device)
    counted = torch.arange(longest, device=source.device) < lengths[:, None]
    inputs = padded[:, :-1]  # padding stands behind a text and changes no state before it
    state = model.begin(source, present)
    states, _ = model.extend(inputs, torch.ones_like(inputs, dtype=torch.bool), state)
    logs = log_probabilities(model.logits(states[counted]))
    chosen = logs.gather(1, padded[:, 1:][counted][:, None])[:, 0]
    totals = logs.new_zeros(len(texts))
    return totals.index_add(0, counted.nonzero()[:, 0], chosen)


def log_probabilities(scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Of each token, in double precision, so that sums of many do not round ranks together."""
    return scores.double().log_softmax(dim=-1)


def _step(model: Causal | Writing, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    present = torch.ones_like(tokens, dtype=torch.bool)[:, None]
    states, state = model.extend(tokens[:, None], present, state)
    return model.logits(states[:, 0]), state
