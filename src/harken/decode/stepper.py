"""The interface between search and models: process a prompt, then one token at a time.

    score(w_1 … w_n) = sum over t of  log_probs(logits of step t)[w_t]

For a single model the log-probabilities are the log-softmax of its logits. Those of a combination
(`joint.py`) sum to less than one and must not be normalized. A state consists of tensors in tuples,
each with the batch first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.errors import UserError
from harken.models.inputs import select_rows

State = TypeVar("State")

Prompts = Int[Tensor, "B T"] | Float[Tensor, "B T F"]
"""Tokens, or vectors such as the states of an encoder."""
Present = Bool[Tensor, "B T"]
Logits = Float[Tensor, "B V"]


@dataclass(frozen=True, slots=True)
class TokenHypothesis:
    """Tokens without `end`, and their log-probability, with that of `end` if it was generated."""

    tokens: Sequence[int]
    log_probability: float


def until_end(end: int, tokens: list[int]) -> list[int]:
    """Return the tokens before the first `end`, or all of them."""
    return tokens[: tokens.index(end)] if end in tokens else tokens


def concatenate(
    first: Sequence[TokenHypothesis], second: Sequence[TokenHypothesis]
) -> list[TokenHypothesis]:
    """Join the hypotheses of two consecutive chunks, rank by rank."""
    return [
        TokenHypothesis([*left.tokens, *right.tokens], left.log_probability + right.log_probability)
        for left, right in zip(first, second, strict=False)
    ]


def compact(alive: Bool[Tensor, "rows"]) -> Int[Tensor, "left"] | None:
    """Return the rows to continue with, or None if fewer than a quarter are done: no copy."""
    return alive.nonzero()[:, 0] if 4 * int(alive.sum()) <= 3 * len(alive) else None


@runtime_checkable
class Stepper(Protocol[State]):
    """A causal model as a search sees it."""

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, State]:
        """Return the logits of the token after each row's last present one."""

    def step(self, tokens: Int[Tensor, "B"], state: State) -> tuple[Logits, State]:
        """Return the logits of the token after `tokens`."""

    def log_probs(self, logits: Logits) -> Logits:
        """Return what each token adds to the score, in double precision; at most 0."""

    def reorder(self, state: State, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> State:
        """Return these rows; with `same_prompts`, each replaces a row of the same prompt."""


@runtime_checkable
class Decoder(Protocol):
    """A model that continues sequences from a state."""

    def step(
        self, tokens: Int[Tensor, "B T"], present: Present, state: Any
    ) -> tuple[Float[Tensor, "B T J"], Any]: ...

    def logits(self, states: Float[Tensor, "*B J"]) -> Float[Tensor, "*B V"]: ...


@runtime_checkable
class Seq2SeqModel(Decoder, Protocol):
    """An encoder-decoder whose decoder has a state."""

    def init_state(self, source: Prompts, present: Present) -> Any: ...

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any: ...


class LMStepper:
    """`Stepper` of a causal language model, which also has `init_state(batch, device)`."""

    def __init__(self, model: Decoder) -> None:
        self._model: Any = model

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        empty = self._model.init_state(tokens.shape[0], tokens.device)
        states, state = self._model.step(tokens, present, empty)
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        last = (slots * present).amax(dim=1)
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        return self._model.logits(states[rows, last]), state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        present = torch.ones_like(tokens, dtype=torch.bool)[:, None]
        states, state = self._model.step(tokens[:, None], present, state)
        return self._model.logits(states[:, 0]), state

    def log_probs(self, logits: Logits) -> Logits:
        return log_probabilities(logits)

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return select_rows(state, rows)


class Seq2SeqStepper(LMStepper):
    """`Stepper` of an encoder-decoder: the prompt is the source, the first input `start`."""

    def __init__(self, model: Seq2SeqModel, start: int) -> None:
        self._model, self._start = model, start

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        start = torch.full((len(tokens),), self._start, device=tokens.device)
        return self.step(start, self._model.init_state(tokens, present))

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return self._model.reorder(state, rows, same_prompts=same_prompts)


class FunctionStepper(LMStepper):
    """`Stepper` that calls a function `B T -> B T V` on the whole sequence at every step.

    Prompts have no padding. The output may be an object with `logits`, as of Hugging Face models.
    """

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self._function = function

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Tensor]:
        assert present.all(), "rows of equal length"
        return logits_of(self._function(tokens), tokens)[:, -1], tokens

    def step(self, tokens: Int[Tensor, "B"], state: Tensor) -> tuple[Logits, Tensor]:
        longer = torch.cat((state, tokens[:, None]), dim=1)
        return self.prefill(longer, torch.ones_like(longer, dtype=torch.bool))


def logits_of(output: object, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """Return the logits in the output of a model; raise if it has none for every token."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"model: expected logits of shape {(*tokens.shape, 'vocabulary')} for tokens of shape "
            f"{tuple(tokens.shape)}, got {got}",
            fix="pass a function from tokens to logits, such as lambda tokens: model(tokens)[0]",
        )
    return logits


class NonEmptyStepper:
    """`Stepper` that never generates `end` first; other log-probabilities stay as they are."""

    def __init__(self, stepper: Stepper[Any], end: int) -> None:
        self._stepper, self._end = stepper, end

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        logits, state = self._stepper.prefill(tokens, present)
        first = self._stepper.log_probs(logits).clone()
        first[:, self._end] = -torch.inf
        return first, state

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        logits, state = self._stepper.step(tokens, state)
        return self._stepper.log_probs(logits), state

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return self._stepper.reorder(state, rows, same_prompts=same_prompts)


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
    """Return log P of one text per row, with `end` after it unless it has `max_tokens` tokens."""
    targets = [[*text, end][:max_tokens] for text in texts]
    rows = [torch.tensor([end, *target], device=source.device) for target in targets]
    padded = pad_sequence(rows, batch_first=True, padding_value=end)
    inputs = padded[:, :-1]  # padding after a text changes no state before it
    lengths = torch.tensor([len(target) for target in targets], device=source.device)
    is_target = torch.arange(inputs.shape[1], device=source.device) < lengths[:, None]
    state = model.init_state(source, present)
    states, _ = model.step(inputs, torch.ones_like(inputs, dtype=torch.bool), state)
    log_probs = log_probabilities(model.logits(states[is_target]))
    chosen = log_probs.gather(1, padded[:, 1:][is_target][:, None])[:, 0]
    return log_probs.new_zeros(len(texts)).index_add(0, is_target.nonzero()[:, 0], chosen)


def log_probabilities(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Return the log-softmax in double precision, so that long sums do not tie by rounding."""
    return logits.double().log_softmax(dim=-1)
