"""Recorded weights compared with the formula, the eager kernel and unrecorded passes."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from writers import writer

from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import CAUSAL, Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.errors import UserError
from harken.inspection.record import Selection, record
from harken.inspection.store import record_to_disk
from harken.models.gpt import GPT
from small_models import (
    CASES,
    HEAD_WIDTH,
    HEADS,
    KEY_WIDTH,
    LAYERS,
    LEGAL,
    WIDTH,
    MaskCase,
    Norm,
    small_config,
    small_model,
    stirred,
)

TOKENS = torch.arange(1, 15).reshape(2, 7)


def kernels(model: GPT) -> list[object]:
    return [block.attention.kernel for block in model.stack.blocks]


def test_kernels_come_back_when_the_block_ends_or_raises() -> None:
    model = small_model()
    assert kernels(model) == [fused_attention] * LAYERS
    with record(model):
        assert fused_attention not in kernels(model)
    assert kernels(model) == [fused_attention] * LAYERS
    with pytest.raises(IndexError, match="out of range"), record(model) as seen:
        model(torch.tensor([[-1]]))
    assert kernels(model) == [fused_attention] * LAYERS
    assert seen == []


def test_nested_recording() -> None:
    model = small_model()
    with record(model) as outer:
        with record(model, Selection(layers=(2,), heads=(3,))) as inner:
            model(TOKENS)
        model(TOKENS)
    names = ["stack.blocks.0.attention", "stack.blocks.1.attention"]
    assert [call.name for call in outer] == names + names
    assert [call.name for call in inner] == names[1:]
    assert_close(inner[0].weights, outer[1].weights[:, [2]], rtol=0, atol=1e-14)
    assert kernels(model) == [fused_attention] * LAYERS


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_outputs_and_gradients_are_the_same_to_the_last_bit(score: str, position: str) -> None:
    """In training mode, with attention dropout."""
    config = small_config(score, position)
    attention = replace(config.attention, dropout=0.3)
    model = stirred(replace(config, attention=attention, dropout=0.2)).train()
    plain = pass_through(model)
    with record(model, Selection(queries=True, keys=True, values=True)) as seen:
        recorded = pass_through(model)
    for before, after in zip(plain, recorded, strict=True):
        assert torch.equal(before, after)
    assert [call.weights.shape for call in seen] == [(2, HEADS, 7, 7)] * LAYERS
    for call in seen:  # before dropout
        assert not call.weights.requires_grad
        assert_close(call.weights.sum(dim=-1), torch.ones(2, HEADS, 7).double())


def pass_through(model: GPT) -> list[Tensor]:
    torch.manual_seed(3)
    output = model(TOKENS)
    return [output, *torch.autograd.grad(output.square().sum(), model.stack.parameters())]


def test_unselected_attentions_keep_their_kernel() -> None:
    model = small_model()
    with record(model, Selection(layers=(2,))) as records:
        first, second = kernels(model)
        assert first is fused_attention and second is not fused_attention
        model(TOKENS)
    assert [(call.name, call.layer) for call in records] == [("stack.blocks.1.attention", 2)]


def test_a_custom_kernel_still_computes_the_output() -> None:
    model = small_model()

    def mute(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        return 0 * fused_attention(terms, values, mask, dropout)

    for block in model.stack.blocks:
        block.attention.kernel = mute
    plain = model(TOKENS)
    with record(model):
        assert torch.equal(model(TOKENS), plain)
    assert kernels(model) == [mute] * LAYERS


@pytest.mark.parametrize("block", [1, 60, 1 << 20])
@pytest.mark.parametrize(("score", "position", "norm", "seen"), CASES)
def test_chosen_heads_and_steps_are_those_of_the_whole_table(
    score: str,
    position: str,
    norm: Norm,
    seen: MaskCase,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By blocks of any size, for every score, mask and position, in packed rows."""
    model = small_model(score, position, norm, seen)
    at = torch.tensor([[0, 1, 2, 3, 0, 1, 2], [0, 1, 0, 1, 2, 3, 4]])
    packed = {"positions": at, "documents": (at == 0).cumsum(dim=1)}
    explicit: list[Tensor] = []

    def whole(terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        attended = eager_attention(terms, values, mask, dropout)
        explicit.append(attended.weights)
        return attended.output

    for module in model.stack.blocks:
        module.attention.kernel = whole
    monkeypatch.setattr("harken.inspection.record.BLOCK", block)
    for given in ({}, packed):
        explicit.clear()
        with (
            torch.no_grad(),
            record(model, Selection(heads=(3, 1), steps=(-1, 1, 3, 99))) as result,
        ):
            model(TOKENS, **given)
        for call, table in zip(result, explicit, strict=True):
            assert (list(call.heads), list(call.steps)) == ([3, 1], [6, 1, 3])
            assert_close(call.weights, table[:, [2, 0]][:, :, [6, 1, 3]], rtol=0, atol=1e-14)


@torch.no_grad()
def test_queries_keys_and_values_are_those_that_make_weights_and_output() -> None:
    """With grouped keys and rotary positions."""
    config = small_config(position="rotary")
    attention = replace(config.attention, heads=4, kv_heads=2)
    model = stirred(replace(config, attention=attention))
    mixed: list[Tensor] = []
    for block in model.stack.blocks:
        block.attention.out_proj.register_forward_pre_hook(lambda _, given: mixed.append(given[0]))
    with record(model, Selection(heads=(4, 2), queries=True, keys=True, values=True)) as records:
        model(TOKENS)
    for call, joined in zip(records, mixed, strict=True):
        for b, h, i in product(range(2), range(2), range(7)):
            scores = call.keys[b, h, : i + 1] @ call.queries[b, h, i] * KEY_WIDTH**-0.5
            weights = scores.exp() / scores.exp().sum()
            assert_close(call.weights[b, h, i, : i + 1], weights)
            head = joined[b, i].view(4, HEAD_WIDTH)[call.heads[h] - 1]
            assert_close(weights @ call.values[b, h, : i + 1], head)


def test_scores_without_a_product_have_no_queries_and_keys() -> None:
    for score in ("additive", "dense", "random"):
        model = small_model(score)
        with record(model, Selection(queries=True, keys=True, values=True)) as records:
            model(TOKENS)
        assert {(call.queries, call.keys) for call in records} == {(None, None)}
        assert [call.values.shape for call in records] == [(2, HEADS, 7, HEAD_WIDTH)] * LAYERS


@torch.no_grad()
def test_steps_equal_a_full_pass_in_every_decoder() -> None:
    """Names and shapes in a pass over all tokens and in steps; cross, RNN and spatial attention."""
    for kind in ("translate transformer", "translate rnn", "caption transformer", "caption rnn"):
        case = writer(kind, 3, torch.float64)
        inputs = torch.tensor([[3, 7, 1], [3, 2, 11], [3, 5, 5]])
        with record(case.model) as whole:
            case.whole([0, 1, 2], inputs)
        with record(case.model) as steps:
            state = case.model.init_state(case.prompts, case.present)
            for token in inputs.split(1, dim=1):
                _, state = case.model.step(token, torch.ones_like(token).bool(), state)
        for name in dict.fromkeys(call.name for call in steps):
            rows = torch.cat([call.weights for call in whole if call.name == name], dim=2)
            parts = [call.weights for call in steps if call.name == name]
            if name.startswith("encoder."):
                assert_close(parts[0], rows, rtol=0, atol=1e-12)
                continue
            for step, part in enumerate(parts):
                assert part.shape[2] == 1
                row, over = rows[:, :, [step]], part.shape[3]
                assert_close(part, row[..., :over], rtol=0, atol=1e-12)
                assert not row[..., over:].any()


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(layers=(1, 3)), "layer 3 is not in the model (expected one of 1, 2)"),
        (Selection(layers=(0,)), "layer 0 is not in the model (expected one of 1, 2)"),
        (Selection(paths=("stack.*", "*.cross")), "attention '*.cross' is not in the model"),
        (Selection(heads=(HEADS + 1,)), "head 4 in stack.blocks.0.attention is not in the model"),
        (Selection(heads=(0,)), "head 0 in stack.blocks.0.attention is not in the model"),
        (Selection(layers=(1,), paths=("*.1.*",)), "attention with layers (1,) and paths"),
        (Selection(steps=(7,)), "steps (7,) match no query (expected steps below 7"),
    ],
)
def test_selections_that_match_nothing_are_refused(selection: Selection, message: str) -> None:
    model = small_model()
    with pytest.raises(UserError, match=re.escape(message)), record(model, selection):
        model(TOKENS)
    assert kernels(model) == [fused_attention] * LAYERS


def test_empty_and_repeated_selections_are_refused() -> None:
    with pytest.raises(UserError, match="one or more different heads"):
        Selection(heads=())
    with pytest.raises(UserError, match="one or more different heads"):
        Selection(heads=(2, 2))


class Gate(nn.Module):
    """Calls no attention."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.sigmoid()


def test_a_model_that_runs_no_attention_is_refused(tmp_path: Path) -> None:
    model = Gate()
    for recorder in (record(model), record_to_disk(model, tmp_path / "recording")):
        with pytest.raises(UserError, match="Gate: no attention intercepted"), recorder:
            model(torch.zeros(2, 3))
    assert not list(tmp_path.iterdir())


@torch.no_grad()
def test_a_causal_flag_over_a_cache_sees_all_that_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven keys, of which three are new, in blocks of one query."""
    torch.manual_seed(0)
    attention = MultiHeadConfig(heads=3, head_width=5, key_width=4).build(WIDTH, 11).double()
    tokens, slots = torch.randn(2, 7, WIDTH).double(), torch.arange(7)[None]
    past = attention.project_kv(tokens[:, :4])
    context = AttentionContext(mask=CAUSAL, query_positions=slots[:, 4:], key_positions=slots)
    monkeypatch.setattr("harken.inspection.record.BLOCK", 1)
    with record(attention) as seen:
        _, remembered = attention(tokens[:, 4:], context, past)
    terms = attention.terms(tokens[:, 4:], remembered, context)
    expected = eager_attention(terms, remembered.values, CAUSAL).weights
    assert_close(seen[0].weights, expected, rtol=0, atol=1e-14)
