import pytest
import torch
from torch.testing import assert_close

from harken.attention.attend import attend_fast
from harken.attention.masks import CAUSAL
from harken.attention.multihead import Arrangement
from harken.inspection.record import record
from harken.models.language_model import LanguageModel
from small_models import HEADS, KEY_WIDTH, LAYERS, LEGAL, WIDTH, small_model

TOKENS = torch.arange(1, 15).reshape(2, 7)


def kernels(model: LanguageModel) -> list[object]:
    return [block.attention.kernel for block in model.stack.blocks]


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_recording_changes_no_output(score: str, position: str) -> None:
    model = small_model(score, position)
    quietly = model(TOKENS)
    with record(model) as seen:
        assert_close(model(TOKENS), quietly, rtol=0, atol=1e-12)
    assert [one.weights.shape for one in seen] == [(2, HEADS, 7, 7)] * LAYERS
    for one in seen:
        assert not one.weights.requires_grad
        assert_close(one.weights.sum(dim=-1), torch.ones(2, HEADS, 7).double())


@torch.no_grad()
def test_weights_are_those_of_queries_and_keys_in_every_layer() -> None:
    model = small_model()
    with record(model) as seen:
        model(TOKENS)
    slots = torch.arange(7)[None]
    arrangement = Arrangement(mask=CAUSAL, query_positions=slots, key_positions=slots)
    stream = model.embedding(TOKENS) + model.position.tables[0].weight[:7]
    for block, one in zip(model.stack.blocks, seen, strict=True):
        read, attention = block.attention_norm(stream), block.attention
        queries = attention.score.to_queries.weight.view(HEADS, KEY_WIDTH, WIDTH)
        keys = attention.score.to_keys.weight.view(HEADS, KEY_WIDTH, WIDTH)
        for b in range(2):
            for h in range(HEADS):
                for i in range(7):
                    query = queries[h] @ read[b, i]
                    scores = torch.stack([query @ (keys[h] @ key) for key in read[b, : i + 1]])
                    masses = (scores / KEY_WIDTH**0.5).exp()
                    assert_close(one.weights[b, h, i, : i + 1], masses / masses.sum())
                    assert not one.weights[b, h, i, i + 1 :].any()
        stream, _ = block(stream, arrangement)


def test_one_record_a_layer_in_order_with_its_name() -> None:
    model = small_model()
    with record(model) as seen:
        assert seen == []
        model(TOKENS)
        assert len(seen) == LAYERS
        model(TOKENS)
    names = ["stack.blocks.0.attention", "stack.blocks.1.attention"]
    assert [one.name for one in seen] == names + names


@torch.no_grad()
def test_a_cached_step_shows_the_row_that_the_whole_text_shows() -> None:
    model = small_model(position="rotary")
    with record(model) as whole:
        model(TOKENS)
    _, state = model.extend(TOKENS[:, :6], torch.ones(2, 6).bool(), model.begin(2, TOKENS.device))
    with record(model) as step:
        model.extend(TOKENS[:, 6:], torch.ones(2, 1).bool(), state)
    for one, row in zip(whole, step, strict=True):
        assert_close(row.weights, one.weights[:, :, 6:], rtol=0, atol=1e-12)


def test_kernels_come_back_when_the_block_ends_or_raises() -> None:
    model = small_model()
    assert kernels(model) == [attend_fast] * LAYERS
    with record(model):
        assert attend_fast not in kernels(model)
    assert kernels(model) == [attend_fast] * LAYERS
    with pytest.raises(IndexError, match="out of range"), record(model) as seen:
        model(torch.tensor([[-1]]))
    assert kernels(model) == [attend_fast] * LAYERS
    assert seen == []


def test_records_may_be_nested() -> None:
    model = small_model()
    with record(model) as outer:
        with record(model) as inner:
            model(TOKENS)
        model(TOKENS)
    assert (len(inner), len(outer)) == (LAYERS, LAYERS)
    assert kernels(model) == [attend_fast] * LAYERS
