"""The interface between search and models: `prefill` processes the prompt, `step` one token.

    score(w_1 … w_n) = sum over t of  log_probs(logits of step t)[w_t]

For a single model the log-probabilities are the log-softmax of its logits. The probabilities of a
combination (`joint.py`) sum to less than one and must not be normalized. A state consists of
tensors in tuples, each with the batch first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.errors import UserError
from harken.models.causal import CausalState
from harken.models.inputs import select_rows

State = TypeVar("State")

Prompts = Int[Tensor, "B T"] | Float[Tensor, "B T F"]
"""Tokens, or vectors such as encoder states."""
Present = Bool[Tensor, "B T"]
"""True at tokens, false at padding."""
Logits = Float[Tensor, "B V"]


@dataclass(frozen=True, slots=True)
class TokenHypothesis:
    """Tokens without `end`, and their log-probability, which includes a generated `end`."""

    tokens: Sequence[int]
    log_probability: float


def until_end(end: int, tokens: list[int]) -> list[int]:
    """Return the tokens before the first `end`, or all of them."""
    return tokens[: tokens.index(end)] if end in tokens else tokens


def concatenate(
    first: Sequence[TokenHypothesis], second: Sequence[TokenHypothesis]
) -> list[TokenHypothesis]:
    """Concatenate the hypotheses of two consecutive chunks that have the same rank."""
    return [
        TokenHypothesis([*left.tokens, *right.tokens], left.log_probability + right.log_probability)
        for left, right in zip(first, second, strict=False)
    ]


def unfinished_rows(alive: Bool[Tensor, "rows"]) -> Int[Tensor, "alive"] | None:
    """Return the indices of unfinished rows; None if less than a quarter of all rows is finished.

    None avoids copying the state at every step.
    """
    return alive.nonzero()[:, 0] if 4 * int(alive.sum()) <= 3 * len(alive) else None


@runtime_checkable
class Stepper(Protocol[State]):
    """Interface of a model for search."""

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, State]:
        """Return the logits of the token after each row's last real token, and the state."""

    def step(self, tokens: Int[Tensor, "B"], state: State) -> tuple[Logits, State]:
        """Return the logits of the token after `tokens`, and the new state."""

    def log_probs(self, logits: Logits) -> Logits:
        """Return the term of each token in the score, in float64; at most 0."""

    def reorder(
        self, state: State, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> State:
        """Select hypotheses by their rows, so that each prompt has `beam` consecutive ones.

        `same_prompts` states that the prompts stay the same; otherwise some are dropped, or, with
        `beam` 1, repeated.
        """


@runtime_checkable
class IncrementalDecoder(Protocol):
    """A model that extends sequences from a state."""

    def step(
        self, tokens: Int[Tensor, "B T"], present: Present | None, state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]: ...

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]: ...


@runtime_checkable
class Seq2SeqModel(IncrementalDecoder, Protocol):
    """An encoder-decoder model."""

    def init_state(self, source: Prompts, present: Present) -> Any: ...

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any: ...


class LMStepper:
    """The `Stepper` of a language model, which also has `init_state(batch, device)`."""

    def __init__(self, model: IncrementalDecoder) -> None:
        self._model: Any = model

    @property
    def own_search(self) -> Callable[..., list[list[TokenHypothesis]]] | None:
        """The search of a model that replaces `search_steps`; None for other models."""
        return getattr(self._model, "search", None)

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        empty = self._model.init_state(tokens.shape[0], tokens.device)
        padding = None if bool(present.all()) else present
        states, state = self._model.step(tokens, padding, empty)
        indices = torch.arange(tokens.shape[1], device=tokens.device)
        last = (indices * present).amax(dim=1)
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        return self._model.logits(states[rows, last]), state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        states, state = self._model.step(tokens[:, None], None, state)
        return self._model.logits(states[:, 0]), state

    def log_probs(self, logits: Logits) -> Logits:
        return log_probabilities(logits)

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        if isinstance(state, CausalState):
            return state.reorder(rows, beam=beam, same_prompts=same_prompts)
        return select_rows(state, rows)


class Seq2SeqStepper(LMStepper):
    """The `Stepper` of an encoder-decoder. The prompt is the source, `start` the first inputs."""

    def __init__(self, model: Seq2SeqModel, *start: int) -> None:
        self._model, self._start = model, start

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        state = self._model.init_state(tokens, present)
        if isinstance(state, CausalState):
            state = state.without_padding()
        start = torch.tensor(self._start, device=tokens.device).expand(len(tokens), -1)
        states, state = self._model.step(start, None, state)
        return self._model.logits(states[:, -1]), state

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        return self._model.reorder(state, rows, beam=beam, same_prompts=same_prompts)


class FunctionStepper(LMStepper):
    """A `Stepper` that calls a function `B T -> B T V` on the whole sequence at every step.

    Prompts have no padding. The output may be an object with `logits`, as in Hugging Face.
    """

    own_search = None

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self._function = function

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Tensor]:
        assert present.all(), "prompts must not have padding"
        return extract_logits(self._function(tokens), tokens)[:, -1], tokens

    def step(self, tokens: Int[Tensor, "B"], state: Tensor) -> tuple[Logits, Tensor]:
        extended = torch.cat((state, tokens[:, None]), dim=1)
        return self.prefill(extended, torch.ones_like(extended, dtype=torch.bool))


def extract_logits(output: object, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """Return the logits in the output of a model; raise an error if their shape is wrong."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"model: expected logits of shape {(*tokens.shape, 'vocabulary')} for tokens of shape "
            f"{tuple(tokens.shape)}, got {got}",
            fix="pass a function from tokens to logits, such as lambda tokens: model(tokens)[0]",
        )
    return logits


class SuppressingStepper:
    """A `Stepper` that never generates the tokens `always`, and those of `first` not as the first.

    The probabilities of the other tokens are normalized.
    """

    def __init__(self, stepper: Stepper[Any], always: Sequence[int], first: Sequence[int]) -> None:
        self._stepper, self._always, self._first = stepper, always, [*always, *first]

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        logits, state = self._stepper.prefill(tokens, present)
        return self._without(logits, self._first), state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        logits, state = self._stepper.step(tokens, state)
        return self._without(logits, self._always), state

    def log_probs(self, logits: Logits) -> Logits:
        return self._stepper.log_probs(logits)

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        return self._stepper.reorder(state, rows, beam=beam, same_prompts=same_prompts)

    def _without(self, logits: Logits, tokens: Sequence[int]) -> Logits:
        return logits.index_fill(1, torch.tensor(tokens, device=logits.device), -torch.inf)


class NonEmptyStepper:
    """A `Stepper` that never generates `end` first; other log-probabilities are unchanged."""

    def __init__(self, stepper: Stepper[Any], end: int) -> None:
        self._stepper, self._end = stepper, end
        self.own_search = getattr(stepper, "own_search", None)

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        logits, state = self._stepper.prefill(tokens, present)
        log_probs = self._stepper.log_probs(logits).clone()
        log_probs[:, self._end] = -torch.inf
        return log_probs, state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        logits, state = self._stepper.step(tokens, state)
        return self._stepper.log_probs(logits), state

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        return self._stepper.reorder(state, rows, beam=beam, same_prompts=same_prompts)


@torch.inference_mode()
def forced_log_probs(
    model: Seq2SeqModel,
    source: Prompts,
    present: Present,
    texts: Sequence[Sequence[int]],
    *,
    end: int,
    max_tokens: int,
) -> Float[Tensor, "B"]:
    """Return log P of one text per row, with `end` if it is shorter than `max_tokens`."""
    targets = [[*text, end][:max_tokens] for text in texts]
    # `end` is also the first input.
    rows = [torch.tensor([end, *target], device=source.device) for target in targets]
    padded = pad_sequence(rows, batch_first=True, padding_value=end)
    inputs = padded[:, :-1]  # padding does not change the states before it
    lengths = torch.tensor([len(target) for target in targets], device=source.device)
    is_target = torch.arange(inputs.shape[1], device=source.device) < lengths[:, None]
    state = model.init_state(source, present)
    states, _ = model.step(inputs, None, state)
    log_probs = log_probabilities(model.logits(states[is_target]))
    chosen = log_probs.gather(1, padded[:, 1:][is_target][:, None])[:, 0]
    return log_probs.new_zeros(len(texts)).index_add(0, is_target.nonzero()[:, 0], chosen)


def log_probabilities(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Return the log-softmax in float64, so that rounding of long sums makes no ties."""
    return logits.double().log_softmax(dim=-1)
