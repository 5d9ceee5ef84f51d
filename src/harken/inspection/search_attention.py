"""Attention of the hypotheses that a search returns, recorded during the search.

    input     start w_1 … w_n            predicts        w_1 w_2 … w_n end

The weights of a token are those of the step that predicted it, whose query is the previous token.
A hypothesis that reached the maximum length has no weights for `end`.

    cross-attention                      k T M    over the source of the hypothesis
    self-attention of a decoder          k T T    lower triangular
    self-attention of a language model   k T S    over the prompt, then lower triangular

The search runs unchanged on a stepper that stores every step. A row of a step is a prefix; with its
weights, the stepper stores the index of the prefix that it extends (its parent) in the previous
step. Rows without active or finished descendants are dropped.
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
from harken.errors import OptionError, UserError
from harken.inspection.record import (
    ALL,
    AttentionRecord,
    Selection,
    attention_layers,
    cross_attention_layers,
    has_multihead,
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
    sample_keys: Sequence[SampleKey] | None = None,
    selection: Selection = ALL,
) -> list[list[AttendedHypothesis]]:
    """Search as `generate` does with a stepper that runs `model`, and record its attention."""
    beam = None if search.temperature is not None else max(search.beam, nbest)
    recorder = RecordingStepper(stepper, model, end=end, beam=beam, selection=selection)
    limits = {"end": end, "max_tokens": max_tokens, "nbest": nbest}
    results = generate(recorder, prompts, present, search=search, sample_keys=sample_keys, **limits)
    return [
        [
            AttendedHypothesis(
                hypothesis.tokens,
                hypothesis.log_probability,
                recorder.attention(prompt, hypothesis.tokens),
            )
            for hypothesis in hypotheses
        ]
        for prompt, hypotheses in enumerate(results)
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
    selection = Selection(paths=(cross_attention_layers(model)[-1],))
    weights = []
    for row, text in enumerate(texts):
        length = int(present[row].sum())
        inputs = torch.tensor([[start, *text]], device=memory.device)[:, : max(len(text), 1)]
        with record(model, selection) as records:
            state = model.init_state(memory[[row], :length], present[[row], :length])
            model.step(inputs, None, state)
        if not records:
            raise OptionError(
                "attention: the model computes with an export, which returns no weights of "
                "attention (they are needed for word times and for metrics of boxes)",
                fix="compute with PyTorch (command line: --engine torch)",
            )
        calls = [call.weights[0] for call in records]
        weights.append(torch.cat(calls, dim=1)[:, : len(text)])
    return weights


class RecordedState(NamedTuple):
    """The state of the inner stepper, and the index of each row's prefix in a recorded step."""

    inner: Any
    step: int
    prefixes: Int[Tensor, "rows"]


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """The prefixes of one step, their last tokens, and their parents in the previous step."""

    parents: Int[Tensor, "rows"]
    tokens: Int[Tensor, "rows"]
    may_end: Bool[Tensor, "rows"]
    weights: dict[str, Float[Tensor, "rows k S"]]

    def select(self, rows: Int[Tensor, "selected"]) -> "RecordedStep":
        weights = {name: part[rows] for name, part in self.weights.items()}
        return RecordedStep(self.parents[rows], self.tokens[rows], self.may_end[rows], weights)


class RecordingStepper:
    """`Stepper` that records attention, for one search at a time.

    A hypothesis can end at a step only if fewer than 2 `beam` tokens are more probable than `end`,
    since a beam search expands no more tokens. If `beam` is None (sampling), all can end.
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
        # Each call predicts from one query, so the steps of the selection do not apply.
        self._selection = replace(selection, steps=None)
        if has_multihead(model):
            layers = attention_layers(model, self._selection)
            names = [name for name in layers if not is_encoder_attention(name)]
            if not names:
                raise UserError(
                    f"{type(model).__name__}: no attention runs in a search (expected attention in "
                    "a decoder or a language model, got attention in the encoder only)",
                    fix="record the encoder with harken.record",
                )
            self._selection = replace(self._selection, layers=None, paths=tuple(names))
        self._steps: list[RecordedStep] = []
        self._rows_after_pruning = 0

    def prefill(
        self, tokens: Prompts, present: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        self._present, self._steps, self._rows_after_pruning = present, [], 0
        prompts = torch.arange(len(tokens), device=tokens.device)
        last = (torch.arange(present.shape[1], device=tokens.device) * present).amax(dim=1)
        # A prompt has no parent and no last token; `attention` does not read them at this step.
        return self._run(
            lambda: self._stepper.prefill(tokens, present),
            parents=prompts,
            tokens=prompts,
            last=last,
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: RecordedState
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        assert state.step == len(self._steps) - 1, "rows before the last step may be gone"
        return self._run(
            lambda: self._stepper.step(tokens, state.inner), parents=state.prefixes, tokens=tokens
        )

    def log_probs(self, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return self._stepper.log_probs(scores)

    def reorder(
        self, state: RecordedState, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> RecordedState:
        # With `beam` 1, hypotheses do not share keys, so every row has weights for its own tokens.
        inner = self._stepper.reorder(state.inner, rows, beam=1, same_prompts=False)
        return RecordedState(inner, state.step, state.prefixes[rows])

    @property
    def stored_rows(self) -> int:
        return sum(len(step.tokens) for step in self._steps)

    def attention(self, prompt: int, tokens: Sequence[int]) -> list[StepAttention]:
        """Return the attention of a hypothesis that the search returned for a prompt."""
        # Several samples may begin with the same tokens, in separate rows.
        candidates = torch.tensor([prompt], device=self._present.device)
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
            if not is_decoder_attention(name):  # drop the keys at padding of the prompt
                present = self._present[prompt]
                generated = present.new_ones(longest - len(present))
                table = table[:, :, torch.cat((present, generated))]
            attention.append(StepAttention(name, table))
        return attention

    def _run(
        self,
        step: Callable[[], tuple[Tensor, Any]],
        *,
        parents: Int[Tensor, "B"],
        tokens: Int[Tensor, "B"],
        last: Int[Tensor, "B"] | None = None,
    ) -> tuple[Float[Tensor, "B V"], RecordedState]:
        """Run and store one step; `last` is the index of each prompt's last real token."""
        weights: dict[str, Tensor] = {}
        rows = torch.arange(len(tokens), device=tokens.device)

        def store(call: AttentionRecord) -> None:
            final = call.weights.shape[2] - 1
            # In `prefill`, a language model has the prompt as queries, a decoder only `start`.
            query = final if last is None else last.clamp(max=final)
            weights[call.name] = call.weights[rows, :, query]

        with on_attention(self._model, self._selection, store):
            scores, inner = step()
        self._steps.append(RecordedStep(parents, tokens, self._may_end(scores), weights))
        if self.stored_rows >= 2 * self._rows_after_pruning:
            self._prune()
        return scores, RecordedState(inner, len(self._steps) - 1, rows)

    def _may_end(self, scores: Float[Tensor, "B V"]) -> Bool[Tensor, "B"]:
        if self._beam is None:
            return scores.new_ones(len(scores), dtype=torch.bool)
        log_probs = self._stepper.log_probs(scores)
        return (log_probs > log_probs[:, self._end, None]).sum(dim=1) < 2 * self._beam

    def _prune(self) -> None:
        """Drop rows that cannot have ended and have no descendant in the last step."""
        # Keep the prompts, where `attention` starts, and the last step, whose rows are active.
        for index in range(len(self._steps) - 2, 0, -1):
            after, needed = self._steps[index + 1], self._steps[index].may_end.clone()
            needed[after.parents] = True
            new_index = needed.cumsum(dim=0) - 1
            self._steps[index + 1] = replace(after, parents=new_index[after.parents])
            self._steps[index] = self._steps[index].select(needed.nonzero()[:, 0])
        self._rows_after_pruning = self.stored_rows
