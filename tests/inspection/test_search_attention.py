"""Weights caught in a search against those of plain passes over the hypotheses it kept."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from writers import ENDS, MOST, START, Writer, writer

from harken.attention.kernels import fused_attention
from harken.decode.beam import beam_search
from harken.decode.search import SearchConfig, TokenHypothesis, generate
from harken.errors import UserError
from harken.inspection.record import Selection, attentions, record
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


def sought(
    one: Writer, kind: str, search: SearchConfig, nbest: int = 1, selection: Selection | None = None
) -> list[list[AttendedHypothesis]]:
    return search_with_attention(
        one.stepper,
        one.model,
        one.prompts,
        one.present,
        search=search,
        end=ENDS[kind],
        max_tokens=MOST,
        nbest=nbest,
        selection=selection or Selection(),
    )


@torch.inference_mode()
def plain(one: Writer, items: list[int], texts: Sequence[Sequence[int]]) -> list[dict[str, Tensor]]:
    """By one forward of the model over all that was told to it, cut down to what was decided."""
    told = [[*one.told(item), *text] for item, text in zip(items, texts, strict=True)]
    longest = max(map(len, told))
    # What is padded at the end is seen by nobody.
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in told])
    with record(one.model) as seen:
        one.whole(items, padded)
    calls: dict[str, list[Tensor]] = {}
    for call in seen:
        if not call.name.startswith("encoder."):
            calls.setdefault(call.name, []).append(call.weights)
    whole = {name: torch.cat(parts, dim=2) for name, parts in calls.items()}
    rows = []
    for row, (item, text) in enumerate(zip(items, texts, strict=True)):
        before, decided = len(one.told(item)), min(len(text) + 1, MOST)
        last = before - 1 + decided
        places = int(one.present[item].sum())
        rows.append(
            {
                name: weights[row, :, before - 1 : last, : places if over_memory(name) else last]
                for name, weights in whole.items()
            }
        )
    return rows


def over_memory(name: str) -> bool:
    return name.endswith("cross") or name == "decoder.attention"


def check(ours: AttendedHypothesis, wanted: dict[str, Tensor], near: float) -> None:
    assert [name for name, _ in ours.attention] == list(wanted)
    for name, weights in ours.attention:
        assert_close(weights, wanted[name], rtol=0, atol=near)


@each_kind
@each_precision
def test_all_hypotheses_of_a_beam_have_the_weights_of_a_pass_over_each_alone(
    kind: str, dtype: torch.dtype, near: float
) -> None:
    one = writer(kind, 1, dtype)
    (found,) = sought(one, kind, BEAM, nbest=5)
    assert len(found) == 5
    for hypothesis in found:
        check(hypothesis, *plain(one, [0], [hypothesis.tokens]), near)


@each_kind
@each_precision
def test_those_of_a_ragged_batch_of_64_too(kind: str, dtype: torch.dtype, near: float) -> None:
    one = writer(kind, 64, dtype)
    found = [row[0] for row in sought(one, kind, BEAM)]
    texts = [hypothesis.tokens for hypothesis in found]
    assert len({len(text) for text in texts}) > 2, "rows leave the batch at different steps"
    for hypothesis, wanted in zip(found, plain(one, list(range(64)), texts), strict=True):
        check(hypothesis, wanted, near)


SEARCHES = {
    "greedy": (SearchConfig(), 1),
    "n-best alone": (SearchConfig(), 3),
    "exact": (SearchConfig(beam=4, early_stopping=False, length_penalty=0.5), 2),
    "samples": (SearchConfig(temperature=1.5, seed=5), 3),
}


@pytest.mark.parametrize(("search", "nbest"), SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("kind", ["translate rnn", "joint transformer", "language model"])
def test_any_search_finds_what_it_finds_alone(kind: str, search: SearchConfig, nbest: int) -> None:
    one = writer(kind, 7, torch.float64)
    found = sought(one, kind, search, nbest)
    batch, end = (one.prompts, one.present), ENDS[kind]
    quietly = generate(one.stepper, *batch, search=search, end=end, max_tokens=MOST, nbest=nbest)
    assert [
        [TokenHypothesis(own.tokens, own.log_probability) for own in row] for row in found
    ] == quietly
    for item, row in enumerate(found):
        for hypothesis in row:
            check(hypothesis, *plain(one, [item], [hypothesis.tokens]), 1e-10)


def test_only_what_was_chosen_is_kept() -> None:
    one = writer("translate transformer", 2, torch.float64)
    selection = Selection(layers=(2,), paths=("*.cross",), heads=(3, 1))
    chosen = sought(one, "translate transformer", BEAM, selection=selection)
    every = sought(one, "translate transformer", BEAM)
    for (few,), (all_of_it,) in zip(chosen, every, strict=True):
        ((name, weights),) = few.attention
        assert name == "decoder.stack.blocks.1.cross"
        assert_close(weights, dict(all_of_it.attention)[name][[2, 0]], rtol=0, atol=1e-14)


class Counting:
    """A stepper of rows that look at nothing and never end."""

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

    def reorder(self, state: tuple[Tensor], rows: Tensor, *, same_prompts: bool) -> tuple[Tensor]:
        return (state[0][rows],)


def test_rows_that_nobody_can_go_on_from_are_dropped() -> None:
    """Live hypotheses soon have one past in common, so rows grow by a few a step, not by 5."""
    one, steps = writer("language model", 1, torch.float64), 60
    watched = RecordingStepper(Counting(31, 0), one.model, end=0, beam=5)
    tokens = torch.zeros(3, 1, dtype=torch.long)
    found = beam_search(
        watched,
        tokens,
        tokens == 0,
        beam=5,
        length_penalty=1.0,
        early_stopping=True,
        end=0,
        max_tokens=steps,
        nbest=5,
    )
    assert 3 * steps <= watched.rows < 2 * 2 * 3 * steps < 3 * 5 * steps
    for item, row in enumerate(found):
        for hypothesis in row:
            assert watched.attention(item, hypothesis.tokens) == []


def test_what_was_not_kept_cannot_be_asked_for() -> None:
    one = writer("language model", 1, torch.float64)
    watched = RecordingStepper(one.stepper, one.model, end=6, beam=5)
    (found,) = generate(watched, one.prompts, one.present, search=BEAM, end=6, max_tokens=MOST)
    with pytest.raises(AssertionError, match="did not keep this"):
        watched.attention(0, [17, *found[0].tokens])


@pytest.mark.parametrize(
    ("kind", "selection", "said"),
    [
        ("translate transformer", Selection(paths=("encoder.*",)), "attention in the encoder only"),
    ],
)
def test_a_search_that_runs_no_attention_is_refused(
    kind: str, selection: Selection, said: str
) -> None:
    one = writer(kind, 1, torch.float64)
    with pytest.raises(UserError, match=said):
        RecordingStepper(one.stepper, one.model, end=6, beam=5, selection=selection)


def test_kernels_come_back_after_every_step() -> None:
    one = writer("translate rnn", 2, torch.float64)
    watched = RecordingStepper(one.stepper, one.model, end=15, beam=5)
    watched.prefill(one.prompts, one.present)
    assert {part.kernel for part in attentions(one.model).values()} == {fused_attention}


@pytest.mark.parametrize("kind", ["caption transformer", "attention rnn", "joint transformer"])
def test_a_forced_pass_over_what_was_kept_shows_the_last_layer(kind: str) -> None:
    one = writer(kind, 3, torch.float64)
    kept = [row[0] for row in sought(one, kind, BEAM)]
    texts = [hypothesis.tokens for hypothesis in kept]
    looks = forced_cross_attention(one.model, one.prompts, one.present, texts, START)
    for hypothesis, text, weights in zip(kept, texts, looks, strict=True):
        last = [own for name, own in hypothesis.attention if over_memory(name)][-1]
        assert_close(weights, last[:, : len(text)], rtol=0, atol=1e-10)
