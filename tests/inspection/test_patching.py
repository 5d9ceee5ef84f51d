"""Activation patching compared with explicit hooks and with known cases."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.hooks import RemovableHandle
from writers import stirred

from harken.errors import UserError
from harken.inspection.ablation import AttentionRef, HeadRef, LayerRef, with_outputs
from harken.inspection.patching import NextTokenMetric, next_token_metric, patch_parts
from harken.layers.recurrent import GRUConfig
from harken.models.decoders import AttentionRNNDecoderConfig
from harken.models.gpt import GPT
from harken.models.seq2seq import EncoderDecoderConfig
from small_models import HEAD_WIDTH, HEADS, small_model

FIRST, SECOND = "stack.blocks.0.attention", "stack.blocks.1.attention"
CLEAN = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
OTHER = torch.tensor([[1, 12, 3, 4, 5], [6, 11, 8, 9, 10]])  # differs at place 1
RIGHT, WRONG = torch.tensor([3, 14]), torch.tensor([15, 9])


@torch.no_grad()
def test_heads_against_a_pass_that_takes_their_columns_from_the_clean_one() -> None:
    model = small_model()
    figure = logit_difference(model)
    parts = [HeadRef(name, head) for name in (FIRST, SECOND) for head in range(1, HEADS + 1)]
    result = patch_parts(model, CLEAN, OTHER, figure, parts)
    some = patch_parts(model, CLEAN, OTHER, figure, parts[1:2], by_position=True)
    clean = {name: joined(model, name) for name in (FIRST, SECOND)}
    above, below = (difference(model, tokens) for tokens in (CLEAN, OTHER))
    assert (result.clean, result.corrupted) == pytest.approx((above, below), abs=1e-12)
    assert some.positions is not None and some.positions.shape == (1, 5)
    cases = [(part, [*range(5)], share) for part, share in zip(parts, result.shares, strict=True)]
    cases += [(parts[1], [place], some.positions[0, place]) for place in range(5)]
    for part, places, share in cases:
        hook = exchanged(model, part, places, clean[part.module])
        expected = (difference(model, OTHER) - below) / (above - below)
        hook.remove()
        assert float(share) == pytest.approx(expected, abs=1e-9)
    assert result.shares.abs().max() > 0.01
    assert some.positions[0, 0] == 0  # the change is at position 1
    assert some.positions[0, 1] != 0


def difference(model: GPT, tokens: Tensor) -> float:
    scores = model(tokens)[:, -1]
    return sum(float(scores[row, RIGHT[row]] - scores[row, WRONG[row]]) for row in (0, 1)) / 2


def logit_difference(model: GPT) -> Callable[[Tensor], Tensor]:
    metric = NextTokenMetric(RIGHT, WRONG)
    return lambda tokens: metric(model(tokens)[:, -1])


def joined(model: GPT, name: str) -> Tensor:
    """The heads side by side before W_O, B T (k I), of the clean input."""
    stored: list[Tensor] = []
    hook = model.get_submodule(name).out_proj.register_forward_pre_hook(
        lambda _, inputs: stored.append(inputs[0])
    )
    model(CLEAN)
    hook.remove()
    return stored[0]


def exchanged(model: GPT, part: HeadRef, places: list[int], clean: Tensor) -> RemovableHandle:
    """One head's columns from the clean input at some places."""
    columns = slice((part.head - 1) * HEAD_WIDTH, part.head * HEAD_WIDTH)

    def exchange(_: object, inputs: tuple[Tensor]) -> Tensor:
        own = inputs[0].clone()
        for place in places:
            own[:, place, columns] = clean[:, place, columns]
        return own

    return model.get_submodule(part.module).out_proj.register_forward_pre_hook(exchange)


def test_the_last_position_of_the_only_layer_restores_everything() -> None:
    model = small_model()
    del model.stack.blocks[1]
    figure = logit_difference(model)
    result = patch_parts(
        model, CLEAN, OTHER, figure, [LayerRef("stack.blocks.0")], by_position=True
    )
    assert_close(result.shares, torch.ones(1).double(), rtol=0, atol=1e-9)
    assert_close(result.positions, torch.tensor([[0.0, 0, 0, 0, 1]]).double(), rtol=0, atol=1e-9)


@torch.no_grad()
def test_attention_that_runs_step_by_step_is_patched_step_by_step() -> None:
    config = EncoderDecoderConfig(
        encoder=GRUConfig(direction="both"), decoder=AttentionRNNDecoderConfig(width=12, hidden=13)
    )
    model = stirred(config.build(17, seed=0), torch.float64)
    present, target = torch.ones(2, 5).bool(), torch.tensor([[3, 4, 5], [3, 6, 7]])

    def figure(source: Tensor) -> Tensor:
        scores = model.logits(model.states(source, present, target)[:, -1])
        return scores[torch.arange(2), RIGHT] - scores[torch.arange(2), WRONG]

    part = AttentionRef("decoder.attention")
    result = patch_parts(model, CLEAN, OTHER, figure, [part], by_position=True)
    assert result.positions is not None and result.positions.shape == (1, 3)
    clean: list[Tensor] = []
    with with_outputs(model, {part.module: lambda output: clean.append(output) or output}):
        figure(CLEAN)
    assert len(clean) == 3
    for step in range(3):
        instead = iter([clean[step] if number == step else None for number in range(3)])
        with with_outputs(model, {part.module: partial(replaced, instead)}):
            share = (float(figure(OTHER).mean()) - result.corrupted) / (
                result.clean - result.corrupted
            )
        assert float(result.positions[0, step]) == pytest.approx(share, abs=1e-9)
    assert result.positions.abs().min() > 1e-6


def replaced(instead: Iterator[Tensor | None], written: Tensor) -> Tensor:
    other = next(instead)
    return written if other is None else other


def test_inputs_that_cannot_be_compared() -> None:
    model = small_model()
    figure = logit_difference(model)
    with pytest.raises(UserError, match="expected equal shapes"):
        patch_parts(model, CLEAN, OTHER[:, :4], figure, [HeadRef(FIRST, 1)])
    with pytest.raises(UserError, match="for both inputs"):
        patch_parts(model, CLEAN, CLEAN, figure, [HeadRef(FIRST, 1)])


def test_the_metric_compares_the_predictions_of_both_inputs() -> None:
    clean, corrupted = torch.tensor([[[1.0, 3, 2], [5, 0, 0]], [[4, 3, 2], [0, 0, 1]]])
    metric = next_token_metric(clean, corrupted)
    assert metric.name == "logit difference"
    assert metric(clean).tolist() == [2, 5] and metric(corrupted).tolist() == [-1, -1]
    same = next_token_metric(clean, clean)
    assert same.name == "log-probability"
    assert_close(same(clean), clean.double().log_softmax(dim=1).amax(dim=1))
