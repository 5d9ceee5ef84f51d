"""Attention recorded in a search compared with full passes over its hypotheses."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from writers import ENDS, MAX_TOKENS, START, Writer, writer

from harken.attention.kernels import fused_attention
from harken.decode.beam import beam_search
from harken.decode.search import SearchConfig, generate
from harken.errors import UserError
from harken.inspection.record import Selection, attention_layers, record
from harken.inspection.search_attention import (
    AttendedHypothesis,
    RecordingStepper,
    forced_cross_attention,
    search_with_attention,
)

BEAM = SearchConfig(beam=5)
each_kind = pytest.mark.parametrize("kind", ENDS)
each_precision = pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["double", "single"]
)


def search_case(
    case: Writer, kind: str, search: SearchConfig, **options: Any
) -> list[list[AttendedHypothesis]]:
    batch, limits = (case.prompts, case.present), {"end": ENDS[kind], "max_tokens": MAX_TOKENS}
    return search_with_attention(
        case.stepper, case.model, *batch, search=search, **limits, **options
    )


@torch.inference_mode()
def plain(
    case: Writer, items: list[int], texts: Sequence[Sequence[int]]
) -> list[dict[str, Tensor]]:
    """Return the weights of a full pass, at the steps that predict each token."""
    inputs = [[*case.prefix(item), *text] for item, text in zip(items, texts, strict=True)]
    longest = max(map(len, inputs))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in inputs])
    with record(case.model) as seen:
        case.whole(items, padded)
    calls: dict[str, list[Tensor]] = {}
    for call in seen:
        if not call.name.startswith("encoder."):
            calls.setdefault(call.name, []).append(call.weights)
    whole = {name: torch.cat(parts, dim=2) for name, parts in calls.items()}
    rows = []
    for row, (item, text) in enumerate(zip(items, texts, strict=True)):
        before, decided = len(case.prefix(item)), min(len(text) + 1, MAX_TOKENS)
        last = before - 1 + decided
        places = int(case.present[item].sum())
        rows.append(
            {
                name: weights[row, :, before - 1 : last, : places if over_memory(name) else last]
                for name, weights in whole.items()
            }
        )
    return rows


def over_memory(name: str) -> bool:
    return name.endswith("cross") or name == "decoder.attention"


def check(ours: AttendedHypothesis, expected: dict[str, Tensor], near: float) -> None:
    assert [name for name, _ in ours.attention] == list(expected)
    for name, weights in ours.attention:
        assert_close(weights, expected[name], rtol=0, atol=near)


@each_kind
@each_precision
def test_all_hypotheses_of_a_beam_have_the_weights_of_a_pass_over_each_alone(
    kind: str, dtype: torch.dtype, near: float
) -> None:
    case = writer(kind, 1, dtype)
    (result,) = search_case(case, kind, BEAM, nbest=5)
    assert len(result) == 5
    for hypothesis in result:
        check(hypothesis, *plain(case, [0], [hypothesis.tokens]), near)


@each_kind
@each_precision
def test_a_ragged_batch_of_64(kind: str, dtype: torch.dtype, near: float) -> None:
    case = writer(kind, 64, dtype)
    result = [row[0] for row in search_case(case, kind, BEAM)]
    texts = [hypothesis.tokens for hypothesis in result]
    assert len({len(text) for text in texts}) > 2, "rows leave the batch at different steps"
    for hypothesis, expected in zip(result, plain(case, list(range(64)), texts), strict=True):
        check(hypothesis, expected, near)


SEARCHES = {
    "greedy": (SearchConfig(), 1),
    "n-best alone": (SearchConfig(), 3),
    "exact": (SearchConfig(beam=4, early_stopping=False, length_penalty=0.5), 2),
    "samples": (SearchConfig(temperature=1.5, seed=5), 3),
}


@pytest.mark.parametrize(("search", "nbest"), SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("kind", ["translate rnn", "joint transformer", "language model"])
def test_recording_does_not_change_the_search(kind: str, search: SearchConfig, nbest: int) -> None:
    case = writer(kind, 7, torch.float64)
    result = search_case(case, kind, search, nbest=nbest)
    batch, end = (case.prompts, case.present), ENDS[kind]
    unrecorded = generate(
        case.stepper, *batch, search=search, end=end, max_tokens=MAX_TOKENS, nbest=nbest
    )
    for recorded, expected in zip(result, unrecorded, strict=True):
        assert [own.tokens for own in recorded] == [other.tokens for other in expected]
        log_probs = [other.log_probability for other in expected]
        assert [own.log_probability for own in recorded] == pytest.approx(log_probs, abs=1e-10)
    for item, row in enumerate(result):
        for hypothesis in row:
            check(hypothesis, *plain(case, [item], [hypothesis.tokens]), 1e-10)


def test_selected_attention() -> None:
    case = writer("translate transformer", 2, torch.float64)
    selection = Selection(layers=(2,), paths=("*.cross",), heads=(3, 1))
    chosen = search_case(case, "translate transformer", BEAM, selection=selection)
    every = search_case(case, "translate transformer", BEAM)
    for (few,), (all_of_it,) in zip(chosen, every, strict=True):
        ((name, weights),) = few.attention
        assert name == "decoder.stack.blocks.1.cross"
        assert_close(weights, dict(all_of_it.attention)[name][[2, 0]], rtol=0, atol=1e-14)


class Counting:
    """A stepper without attention that never ends."""

    def __init__(self, vocabulary: int, end: int) -> None:
        self.random = torch.Generator().manual_seed(0)
        self.vocabulary, self.end = vocabulary, end

    def prefill(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return self.scores(tokens[:, 0]), (tokens[:, 0],)

    def step(self, tokens: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        return self.scores(tokens), state

    def scores(self, tokens: Tensor) -> Tensor:
        shape = (len(tokens), self.vocabulary)
        scores = torch.randn(shape, generator=self.random, dtype=torch.float64)
        scores[:, self.end] = -100.0
        return scores

    def log_probs(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(dim=-1)

    def reorder(
        self, state: tuple[Tensor], rows: Tensor, *, beam: int, same_prompts: bool
    ) -> tuple[Tensor]:
        return (state[0][rows],)


def test_dead_rows_are_dropped() -> None:
    """Live hypotheses soon share one past, so rows grow by fewer than 5 per step."""
    case, steps = writer("language model", 1, torch.float64), 60
    recorded = RecordingStepper(Counting(31, 0), case.model, end=0, beam=5)
    tokens = torch.zeros(3, 1, dtype=torch.long)
    options = {"beam": 5, "length_penalty": 1.0, "early_stopping": True, "nbest": 5}
    result = beam_search(recorded, tokens, tokens == 0, end=0, max_tokens=steps, **options)
    assert 3 * steps <= recorded.stored_rows < 2 * 2 * 3 * steps < 3 * 5 * steps
    for item, row in enumerate(result):
        for hypothesis in row:
            assert recorded.attention(item, hypothesis.tokens) == []


def test_unknown_hypotheses_are_refused() -> None:
    case = writer("language model", 1, torch.float64)
    recorded = RecordingStepper(case.stepper, case.model, end=6, beam=5)
    (result,) = generate(
        recorded, case.prompts, case.present, search=BEAM, end=6, max_tokens=MAX_TOKENS
    )
    with pytest.raises(AssertionError, match="did not store this"):
        recorded.attention(0, [17, *result[0].tokens])


def test_a_search_that_runs_no_attention_is_refused() -> None:
    case, selection = writer("translate transformer", 1, torch.float64), Selection(paths=("enc*",))
    with pytest.raises(UserError, match="attention in the encoder only"):
        RecordingStepper(case.stepper, case.model, end=6, beam=5, selection=selection)


def test_kernels_come_back_after_every_step() -> None:
    case = writer("translate rnn", 2, torch.float64)
    recorded = RecordingStepper(case.stepper, case.model, end=15, beam=5)
    recorded.prefill(case.prompts, case.present)
    assert {part.kernel for part in attention_layers(case.model).values()} == {fused_attention}


@pytest.mark.parametrize("kind", ["caption transformer", "attention rnn", "joint transformer"])
def test_forced_cross_attention_equals_the_last_layer(kind: str) -> None:
    case = writer(kind, 3, torch.float64)
    stored = [row[0] for row in search_case(case, kind, BEAM)]
    texts = [hypothesis.tokens for hypothesis in stored]
    looks = forced_cross_attention(case.model, case.prompts, case.present, texts, START)
    for hypothesis, text, weights in zip(stored, texts, looks, strict=True):
        last = [own for name, own in hypothesis.attention if over_memory(name)][-1]
        assert_close(weights, last[:, : len(text)], rtol=0, atol=1e-10)
