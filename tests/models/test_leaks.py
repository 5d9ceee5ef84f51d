"""Nothing comes from the future, from padding, or from a neighbor in a packed row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from choices import EVERY_POSITION, EVERY_SCORE
from harken.models.gpt import GPT
from small_models import (
    BLOCKS,
    CASES,
    LAYERS,
    LEGAL,
    LENGTH,
    POSITIONS,
    SCORES,
    VOCABULARY,
    WINDOW,
    ModelCase,
    small_model,
)

PADDING = 0
every_model = pytest.mark.parametrize("case", CASES, ids=str)
few = settings(max_examples=3)
seeds = st.integers(0, 2**31)
# Large weights enlarge rounding too, so those of float32 are smaller.
PRECISIONS = [(torch.float32, 1e-6, 0.5), (torch.float64, 1e-12, 1.5)]


def model_and_tolerance(case: ModelCase) -> tuple[GPT, float]:
    """Precisions take turns over the models."""
    dtype, tolerance, strength = PRECISIONS[CASES.index(case) % 2]
    return small_model(*case, strength=strength).to(dtype), tolerance


def some_tokens(rows: int, time: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (rows, time), generator=generator)


def other_tokens(tokens: Tensor) -> Tensor:
    """A different token in every place, and none of them padding."""
    return 1 + tokens % (VOCABULARY - 1)


def assert_alike(ours: Tensor, alone: Tensor, tolerance: float) -> None:
    """To a share of the largest number, as rounding is."""
    assert_close(ours, alone, rtol=0, atol=tolerance * alone.abs().max().item())


def test_cases_cover_all_norms_and_masks() -> None:
    assert {config.kind for config in SCORES.values()} == {config.kind for config in EVERY_SCORE}
    assert {config.kind for config in POSITIONS.values()} == {
        config.kind for config in EVERY_POSITION
    }
    assert {case[:2] for case in CASES} == set(LEGAL)
    for kinds, which in ((SCORES, 0), (POSITIONS, 1)):
        for kind in kinds:
            met = [case[2:] for case in CASES if case[which] == kind]
            for every, own in zip(zip(*BLOCKS, strict=True), zip(*met, strict=True), strict=True):
                assert set(own) == set(every), kind


@every_model
@torch.no_grad()
def test_later_tokens_change_nothing(case: ModelCase) -> None:
    model = small_model(*case).float()
    reach = WINDOW * LAYERS if case[-1] == "window" else LENGTH  # how far back a state sees

    @given(seeds, st.integers(1, LENGTH - 1), st.integers(1, 3))
    @few
    def holds(seed: int, first: int, rows: int) -> None:
        tokens = some_tokens(rows, LENGTH, seed)
        for last in (first + 1, LENGTH):  # one token changed, then all that are left
            changed = tokens.clone()
            changed[:, first:last] = other_tokens(tokens[:, first:last])
            before, after = model.states(tokens), model.states(changed)
            assert torch.equal(before[:, :first], after[:, :first])
            # Without this a model that looks at nothing would pass.
            felt = slice(first, last + reach)
            assert (before[:, felt] != after[:, felt]).any(dim=-1).all()
            assert torch.equal(before[:, felt.stop :], after[:, felt.stop :])

    holds()


@every_model
@torch.no_grad()
def test_padding_on_the_right_changes_nothing(case: ModelCase) -> None:
    model, tolerance = model_and_tolerance(case)

    @given(seeds, st.lists(st.integers(1, LENGTH), min_size=1, max_size=3))
    @few
    def holds(seed: int, lengths: list[int]) -> None:
        tokens = some_tokens(len(lengths), LENGTH, seed)
        present = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
        padded = tokens.where(present, PADDING)
        whole = model.states(padded)
        extended, _ = model.step(padded, present, model.init_state(len(lengths), padded.device))
        for row, length in enumerate(lengths):
            (alone,) = model.states(tokens[row : row + 1, :length])
            assert_alike(whole[row, :length], alone, tolerance)
            assert_alike(extended[row, :length], alone, tolerance)

    holds()


def pack(lengths: list[int], room: int, seed: int) -> dict[str, Tensor]:
    """Return one packed row of texts; padding is another text at its end."""
    spare = room - sum(lengths)
    positions = [place for length in lengths for place in range(length)]
    documents = [text for text, length in enumerate(lengths) for _ in range(length)]
    return {
        "tokens": some_tokens(1, room, seed),
        "positions": torch.tensor([positions + [0] * spare]),
        "documents": torch.tensor([documents + [-1] * spare]),
    }


def run_packed(model: GPT, batch: dict[str, Tensor]) -> Tensor:
    return model.states(batch["tokens"], positions=batch["positions"], documents=batch["documents"])


texts = st.lists(st.integers(1, LENGTH), min_size=1, max_size=3)


@every_model
@torch.no_grad()
def test_packed_text_equals_the_text_alone(case: ModelCase) -> None:
    model, tolerance = model_and_tolerance(case)

    @given(seeds, texts, texts)
    @few
    def holds(seed: int, above: list[int], below: list[int]) -> None:
        room = max(sum(above), sum(below))
        rows = [pack(above, room, seed), pack(below, room, seed + 1)]
        batch = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
        states = run_packed(model, batch)
        assert states.isfinite().all()
        for row, lengths in enumerate((above, below)):
            begin = 0
            for length in lengths:
                (alone,) = model.states(batch["tokens"][row : row + 1, begin : begin + length])
                assert_alike(states[row, begin : begin + length], alone, tolerance)
                begin += length

    holds()


@every_model
@torch.no_grad()
def test_packed_texts_do_not_leak(case: ModelCase) -> None:
    model = small_model(*case).float()
    batch = pack([3, 5, 2], room=12, seed=4)
    before = run_packed(model, batch)
    for text in (-1, 0, 1, 2):
        inside = batch["documents"] == text
        changed = other_tokens(batch["tokens"]).where(inside, batch["tokens"])
        after = run_packed(model, {**batch, "tokens": changed})
        assert torch.equal(before[~inside], after[~inside])
        assert (before[inside] != after[inside]).any(dim=-1).all()


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_first_token_of_a_strictly_causal_model_sees_nothing(score: str, position: str) -> None:
    model, mixed = small_model(score, position, seen="strictly_causal"), []
    model.stack.blocks = model.stack.blocks[:1]
    attention = model.stack.blocks[0].attention
    attention.register_forward_hook(lambda *call: mixed.append(call[-1][0]))
    batch = pack([3, 1, 5], room=9, seed=6)
    first = batch["positions"] == 0
    # Anomaly detection raises at a NaN on the way, even where a later mask would hide it.
    with torch.autograd.set_detect_anomaly(True):
        states = run_packed(model, batch)
        gradients = torch.autograd.grad(states.square().sum(), list(model.parameters()))
    assert torch.equal(mixed[0][first], torch.zeros_like(mixed[0][first]))
    assert mixed[0][~first].any(dim=-1).all()
    assert states.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
