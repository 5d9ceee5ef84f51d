import pytest
import torch
from torch.testing import assert_close

from harken.attention.attend import attend_fast
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
    stream = model.embedding(TOKENS) + model.position.table.weight[:7]
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
        slots = torch.arange(7)[None]
        stream, _ = block(stream, _causal(slots))


def _causal(slots: torch.Tensor):  # noqa: ANN202
    from harken.attention.masks import CAUSAL
    from harken.attention.multihead import Arrangement

    return Arrangement(mask=CAUSAL, query_positions=slots, key_positions=slots)
