"""Attention of the hypotheses that a search returns, recorded during the search.

    input     start w_1 … w_n            predicts        w_1 w_2 … w_n end

The row of a token is the step that predicted it: its query is the previous input token. A
hypothesis that was cut at the maximum length has no row for `end`.

    cross-attention                      k T M    over the hypothesis's own source
    self-attention of a decoder          k T T    lower triangular
    self-attention of a language model   k T S    the same after the keys of the prompt

The search runs unchanged on a stepper that stores the weights of every step and the parent of each
row in the previous step. Rows without active or finished descendants are dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Prompts, Seq2SeqModel, Stepper
from harken.errors import UserError
from harken.inspection.record import (
    ALL,
    AttentionRecord,
    Selection,
    attentions,
    cross_attentions,
    has_attention,
    on_attention,
    record,
)
from harken.inspection.refs import is_decoder_attention, is_encoder_attention


class StepAttention(NamedTuple):
    """Attention of one layer at the step that predicted each token; `name` is its path."""

    name: str
    weights: Float[Tensor, "k T S"]


@dataclass(frozen=True, slots=True)
class AttendedHypothesis:
    """A hypothesis of a search with the attention of every layer."""

    tokens: Sequence[int]
    log_probability: float
    attention: Sequence[StepAttention]


def search_with_attention(
    stepper: Stepper[Any],
    model: nn.Module,
    prompts: Prompts,
    present: Bool[Tensor, "B T"],
    *,
    search: SearchConfig,
    end: int,
    max_tokens: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
    selection: Selection = ALL,
) -> list[list[AttendedHypothesis]]:
    """Search as `generate` does with a stepper that runs `model`, and record its attention."""
    beam = None if search.temperature is not None else max(search.beam, nbest)
    recorder = RecordingStepper(stepper, model, end=end, beam=beam, selection=selection)
    limits = {"end": end, "max_tokens": max_tokens, "nbest": nbest}
    beams = generate(recorder, prompts, present, search=search, keys=keys, **limits)
    return [
        [
            AttendedHypothesis(
                found.tokens, found.log_probability, recorder.attention(item, found.tokens)
            )
            for found in beam
        ]
        for item, beam in enumerate(beams)
    ]


@torch.inference_mode()
def forced_cross_attention(
    model: Seq2SeqModel,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    texts: Sequence[Sequence[int]],
    start: int,
) -> list[Float[Tensor, "k T S"]]:
    """Return the cross-attention of the decoder's last layer in a teacher-forced pass per text."""
    assert isinstance(model, nn.Module)
    selection = Selection(paths=(cross_attentions(model)[-1],))
    weights = []
    for row, text in enumerate(texts):
        count = int(present[row].sum())
        inputs = torch.tensor([[start, *text]], device=memory.device)[:, : max(len(text), 1)]
        with record(model, selection) as records:
            state = model.init_state(memory[[row], :count], present[[row], :count])
            model.step(inputs, torch.ones_like(inputs, dtype=torch.bool), state)
        calls = [call.weights[0] for call in records]
        weights.append(torch.cat(calls, dim=1)[:, : len(text)])
    return weights


class RecordedState(NamedTuple):
    """The state of the inner stepper, and the index of each row in the last step."""

    inner: Any
    step: int
    rows: Int[Tensor, "rows"]


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Rows of one step; `parents` are their indices in the previous step."""

    parents: Int[Tensor, "rows"]
    tokens: Int[Tensor, "rows"]
    may_end: Bool[Tensor, "rows"]
    weights: dict[str, Float[Tensor, "rows k S"]]

    def select(self, rows: Int[Tensor, "selected"]) -> "RecordedStep":
        weights = {name: part[rows] for name, part in self.weights.items()}
        return RecordedStep(self.parents[rows], self.tokens[rows], self.may_end[rows], weights)


class RecordingStepper:
    """`Stepper` that records attention, for one search at a time.

    A hypothesis may end where fewer than 2 `beam` tokens are more probable than `end`, since a beam
    search expands no more continuations of a hypothesis. Without a `beam` all may end.
    """

    def __init__(
        self,
        stepper: Stepper[Any],
        model: nn.Module,
        *,
        end: int,
        beam: int | None,
        selection: Selection = ALL,
    ) -> None:
        self._stepper, self._model, self._end, self._beam = stepper, model, end, beam
        # Only one query of each call predicts, so the selection's steps do not apply.
        self._selection = replace(selection, steps=None)
        if has_attention(model):
            every = attentions(model, self._selection)
            names = [name for name in every if not is_encoder_attention(name)]
            if not names:
                raise UserError(
                    f"{type(model).__name__}: no attention runs in a search (expected attention in "
                    "a decoder or a language model, got attention in the encoder only)",
                    fix="record the encoder with harken.record",
                )
            self._selection = replace(self._selection, layers=None, paths=tuple(names))
        self._steps: list[RecordedStep] = []
        self._rows_left = 0  # after the last pruning

    def prefill(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        self._present, self._steps, self._rows_left = present, [], 0
        items = torch.arange(len(tokens), device=tokens.device)
        last = (torch.arange(present.shape[1], device=tokens.device) * present).amax(dim=1)
        return self._run(lambda: self._stepper.prefill(tokens, present), items, items, last)

    def step(
        self, tokens: Int[Tensor, "B"], state: RecordedState
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        assert state.step == len(self._steps) - 1, "rows before the last step may be gone"
        return self._run(lambda: self._stepper.step(tokens, state.inner), state.rows, tokens)

    def log_probs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return self._stepper.log_probs(scores)

    def reorder(
        self, state: RecordedState, rows: Int[Tensor, "rows"], *, same_prompts: bool
    ) -> RecordedState:
        inner = self._stepper.reorder(state.inner, rows, same_prompts=same_prompts)
        return RecordedState(inner, state.step, state.rows[rows])

    @property
    def rows(self) -> int:
        return sum(len(step.tokens) for step in self._steps)

    def attention(self, item: int, tokens: Sequence[int]) -> list[StepAttention]:
        """Return the attention of a hypothesis that the search returned."""
        # Samples that begin with the same tokens have separate rows for them.
        candidates = torch.tensor([item], device=self._present.device)
        steps = self._steps[: len(tokens) + 1]
        for step, token in zip(steps[1:], tokens, strict=False):
            same = torch.isin(step.parents, candidates) & (step.tokens == token)
            assert same.any(), "the search did not store this hypothesis"
            candidates = same.nonzero()[:, 0]
        rows = [int(candidates[0])]
        for step in reversed(steps[1:]):
            rows.insert(0, int(step.parents[rows[0]]))
        attention = []
        for name in steps[0].weights:
            weights = [step.weights[name][row] for step, row in zip(steps, rows, strict=True)]
            longest = weights[-1].shape[1]
            table = torch.stack([F.pad(row, (0, longest - row.shape[1])) for row in weights], dim=1)
            if not is_decoder_attention(name):  # there the keys are generated tokens only
                present = self._present[item]
                generated = present.new_ones(longest - len(present))
                table = table[:, :, torch.cat((present, generated))]
            attention.append(StepAttention(name, table))
        return attention

    def _run(
        self,
        step: Callable[[], tuple[Tensor, Any]],
        parents: Int[Tensor, "B"],
        tokens: Int[Tensor, "B"],
        last: Int[Tensor, "B"] | None = None,
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        """Run one step; `last` is the query that predicts, by default the last one of the call."""
        weights: dict[str, Tensor] = {}
        rows = torch.arange(len(tokens), device=tokens.device)

        def store(call: AttentionRecord) -> None:
            final = call.weights.shape[2] - 1
            query = final if last is None else last.clamp(max=final)
            weights[call.name] = call.weights[rows, :, query]

        with on_attention(self._model, self._selection, store):
            scores, inner = step()
        self._steps.append(RecordedStep(parents, tokens, self._may_end(scores), weights))
        if self.rows >= 2 * self._rows_left:
            self._prune()
        return scores, RecordedState(inner, len(self._steps) - 1, rows)

    def _may_end(self, scores: Float[Tensor, "B V"]) -> Bool[Tensor, "B"]:
        if self._beam is None:
            return scores.new_ones(len(scores), dtype=torch.bool)
        log_probs = self._stepper.log_probs(scores)
        return (log_probs > log_probs[:, self._end, None]).sum(dim=1) < 2 * self._beam

    def _prune(self) -> None:
        """Drop rows without descendants in the last step that may not have ended themselves."""
        # Keep the prompts, where lookups start, and the rows of the last step, which are active.
        for index in range(len(self._steps) - 2, 0, -1):
            after, needed = self._steps[index + 1], self._steps[index].may_end.clone()
            needed[after.parents] = True
            new_index = needed.cumsum(dim=0) - 1
            self._steps[index + 1] = replace(after, parents=new_index[after.parents])
            self._steps[index] = self._steps[index].select(needed.nonzero()[:, 0])
        self._rows_left = self.rows
