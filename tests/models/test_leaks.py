"""Nothing comes from the future, from padding, or from a neighbour in a packed row."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.models.language_model import LanguageModel
from small_models import ILLEGAL, LEGAL, LENGTH, VOCABULARY, small_config, small_model

PADDING = 0
every_model = pytest.mark.parametrize("norm", ["pre", "post"])
every_kind = pytest.mark.parametrize(("score", "position"), LEGAL)
few = settings(max_examples=8)
seeds = st.integers(0, 2**31)
# Of weights as large as these; a leak is a thousand times larger.
PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]
Norm = Literal["pre", "post"]


def some_tokens(rows: int, time: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (rows, time), generator=generator)


def other_tokens(tokens: Tensor) -> Tensor:
    """A different token in every place, and none of them padding."""
    return 1 + tokens % (VOCABULARY - 1)


@pytest.mark.parametrize(("score", "position"), ILLEGAL)
def test_rotary_without_queries_is_refused_with_the_reason(score: str, position: str) -> None:
    with pytest.raises(ValueError, match="'rotary' turns queries and keys.*'synthesizer' has none"):
        small_config(score, position)


@every_model
@every_kind
@torch.no_grad()
def test_later_tokens_change_nothing(score: str, position: str, norm: Norm) -> None:
    model = small_model(score, position, norm).float()

    @given(seeds, st.integers(1, LENGTH - 1), st.integers(1, 3))
    @few
    def holds(seed: int, first: int, rows: int) -> None:
        tokens = some_tokens(rows, LENGTH, seed)
        for last in (first + 1, LENGTH):  # one token changed, then all that are left
            changed = tokens.clone()
            changed[:, first:last] = other_tokens(tokens[:, first:last])
            before, after = model(tokens), model(changed)
            assert torch.equal(before[:, :first], after[:, :first])
            # Without this a model that looks at nothing would pass.
            assert (before[:, first:] != after[:, first:]).any(dim=-1).all()

    holds()


@every_model
@every_kind
def test_gradients_do_not_reach_later_tokens(score: str, position: str, norm: Norm) -> None:
    model, embedded = small_model(score, position, norm), []
    model.embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    states = model(some_tokens(3, LENGTH, seed=1))
    for time in range(LENGTH):
        (gradient,) = torch.autograd.grad(
            states[:, time].square().sum(), embedded, retain_graph=True
        )
        assert not gradient[:, time + 1 :].any()
        assert gradient[:, : time + 1].any(dim=-1).all()


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@every_model
@every_kind
@torch.no_grad()
def test_padding_on_the_right_changes_nothing(
    score: str, position: str, norm: Norm, dtype: torch.dtype, tolerance: float
) -> None:
    model = small_model(score, position, norm).to(dtype)

    @given(seeds, st.lists(st.integers(1, LENGTH), min_size=1, max_size=4))
    @few
    def holds(seed: int, lengths: list[int]) -> None:
        tokens = some_tokens(len(lengths), LENGTH, seed)
        present = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
        padded = tokens.where(present, PADDING)
        whole = model(padded)
        extended, _ = model.extend(padded, present, model.begin(len(lengths), padded.device))
        for row, length in enumerate(lengths):
            (alone,) = model(tokens[row : row + 1, :length])
            assert_close(whole[row, :length], alone, rtol=0, atol=tolerance)
            assert_close(extended[row, :length], alone, rtol=0, atol=tolerance)

    holds()


@every_model
@every_kind
@torch.no_grad()
def test_padding_in_the_cache_is_seen_by_no_later_token(
    score: str, position: str, norm: Norm
) -> None:
    model = small_model(score, position, norm)
    tokens, present = some_tokens(2, 5, seed=2), torch.arange(5) < torch.tensor([[2], [4]])
    later = some_tokens(2, 3, seed=3)

    def after(prompt: Tensor) -> Tensor:
        _, state = model.extend(prompt, present, model.begin(2, prompt.device))
        return model.extend(later, torch.ones_like(later).bool(), state)[0]

    assert torch.equal(after(tokens), after(other_tokens(tokens).where(~present, tokens)))


def pack(lengths: list[int], seed: int) -> dict[str, Tensor]:
    """One row of texts one after the other, padding last as a text of its own."""
    texts = range(len(lengths))
    spare = 2
    return {
        "tokens": some_tokens(1, sum(lengths) + spare, seed),
        "positions": torch.cat([*(torch.arange(one) for one in lengths), torch.zeros(spare)])[None]
        .long(),
        "documents": torch.tensor([[*(one for one in texts for _ in range(lengths[one])), -1, -1]]),
    }  # fmt: skip


texts = st.lists(st.integers(1, LENGTH), min_size=1, max_size=3)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@every_model
@every_kind
@torch.no_grad()
def test_a_packed_text_reads_as_if_alone(
    score: str, position: str, norm: Norm, dtype: torch.dtype, tolerance: float
) -> None:
    model = small_model(score, position, norm).to(dtype)

    @given(seeds, texts, texts)
    @few
    def holds(seed: int, above: list[int], below: list[int]) -> None:
        rows = [pack(above, seed), pack(below, seed + 1)]
        width = max(row["tokens"].shape[1] for row in rows)
        fillers = {"tokens": PADDING, "positions": 0, "documents": -1}
        batch = {
            name: torch.cat([fill(row[name], width, filler) for row in rows])
            for name, filler in fillers.items()
        }
        states = run_packed(model, batch)
        assert states.isfinite().all()
        for row, lengths in enumerate((above, below)):
            begin = 0
            for length in lengths:
                (alone,) = model(batch["tokens"][row : row + 1, begin : begin + length])
                assert_close(states[row, begin : begin + length], alone, rtol=0, atol=tolerance)
                begin += length

    holds()


def fill(row: Tensor, width: int, filler: int) -> Tensor:
    return torch.nn.functional.pad(row, (0, width - row.shape[1]), value=filler)


def run_packed(model: LanguageModel, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["tokens"], positions=batch["positions"], documents=batch["documents"])


@every_model
@every_kind
@torch.no_grad()
def test_packed_neighbours_do_not_see_each_other(score: str, position: str, norm: Norm) -> None:
    model = small_model(score, position, norm).float()
    batch = pack([3, 5, 2], seed=4)
    before = run_packed(model, batch)
    for text in (-1, 0, 1, 2):
        inside = batch["documents"] == text
        changed = other_tokens(batch["tokens"]).where(inside, batch["tokens"])
        after = run_packed(model, {**batch, "tokens": changed})
        assert torch.equal(before[~inside], after[~inside])
        assert (before[inside] != after[inside]).any(dim=-1).all()


@every_model
@every_kind
def test_gradients_stay_inside_a_packed_text(score: str, position: str, norm: Norm) -> None:
    model, embedded = small_model(score, position, norm), []
    model.embedding.register_forward_hook(lambda *call: embedded.append(call[-1]))
    batch = pack([3, 5, 2], seed=5)
    states = run_packed(model, batch)
    for text in (0, 1, 2):
        inside = batch["documents"] == text
        loss = states[inside].square().sum()
        (gradient,) = torch.autograd.grad(loss, embedded, retain_graph=True)
        assert torch.equal(gradient.any(dim=-1), inside)
