import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from harken.attention.kernels import attention_weights
from harken.attention.masks import NO_MASK
from harken.attention.query_key import ScoreInputs, ScoreSizes
from harken.attention.scores import TransformerXLConfig, TransformerXLScore, sinusoids
from small_layers import randomized

BATCH, TIME, KEYS = 2, 5, 7
WIDTH, MEMORY_WIDTH, HEADS, GROUPS, KEY_WIDTH, BASE = 11, 13, 6, 3, 5, 50.0
# Rows of their own, out of order and with gaps: nothing may rely on slots.
QUERIES_AT = torch.tensor([[0, 3, 1, 40, 2], [9, 8, 7, 6, 5]])
KEYS_AT = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [6, 0, 30, 3, 1, 2, 0]])


def built(width: int = WIDTH) -> TransformerXLScore:
    sizes = ScoreSizes(
        width=width,
        memory_width=MEMORY_WIDTH,
        heads=HEADS,
        kv_heads=GROUPS,
        key_width=KEY_WIDTH,
        max_length=1,
        bias=True,
    )
    return randomized(TransformerXLConfig(base=BASE).build(sizes), std=1.0)


def wave(distance: int, width: int) -> Tensor:
    angles = [distance * BASE ** (-(index - index % 2) / width) for index in range(width)]
    numbers = [math.cos(a) if index % 2 else math.sin(a) for index, a in enumerate(angles)]
    return torch.tensor(numbers, dtype=torch.float64)


def scores_of(terms: Any) -> Tensor:
    """Queries with the keys of their group, and the bias: the numbers before softmax."""
    keys = terms.keys.repeat_interleave(HEADS // GROUPS, dim=1)
    return terms.queries @ keys.transpose(-2, -1) * terms.scale + terms.bias


@pytest.mark.parametrize("width", [10, 11])
@torch.no_grad()
def test_the_score_by_the_formula(width: int) -> None:
    score = built(width)
    inputs = torch.randn(BATCH, TIME, width, dtype=torch.float64)
    memory = torch.randn(BATCH, KEYS, MEMORY_WIDTH, dtype=torch.float64)
    queries, keys = score.queries(inputs), score.keys(memory)
    ours = scores_of(score.terms(ScoreInputs(inputs, queries, keys, QUERIES_AT, KEYS_AT)))
    assert ours.shape == (BATCH, HEADS, TIME, KEYS)
    distances = score.pos_proj.weight.view(HEADS, KEY_WIDTH, width)
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(TIME):
                for t in range(KEYS):
                    query, key = queries[b, h, i], keys[b, h // 2, t]
                    far = int(QUERIES_AT[b, i] - KEYS_AT[b, t])
                    content = (query + score.content_offset[h, 0]) @ key
                    relative = distances[h] @ wave(far, width)
                    place = (query + score.distance_offset[h, 0]) @ relative
                    expected = (content + place) / math.sqrt(KEY_WIDTH)
                    assert_close(ours[b, h, i, t], expected, rtol=0, atol=1e-12)


def test_every_part_learns() -> None:
    score = built()
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    memory = torch.randn(BATCH, KEYS, MEMORY_WIDTH, dtype=torch.float64)
    terms = score.terms(
        ScoreInputs(inputs, score.queries(inputs), score.keys(memory), QUERIES_AT, KEYS_AT)
    )
    attention_weights(terms, NO_MASK).square().sum().backward()
    for name, parameter in score.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if name != "k_proj.bias":  # the same for all keys: softmax forgets it
            assert parameter.grad.abs().max() > 1e-6, name


def test_late_positions_do_not_blur_in_half_precision() -> None:
    at = torch.arange(2000, 2003)[None]
    ours = sinusoids(at, WIDTH, BASE, torch.bfloat16).double()
    exact = sinusoids(at, WIDTH, BASE, torch.float64)
    assert (ours - exact).abs().max() < 5e-3  # bfloat16's own spacing below one
