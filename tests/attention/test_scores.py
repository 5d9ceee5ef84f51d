import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import NO_MASK
from harken.attention.query_key import ScoreInputs, ScoreSizes
from harken.attention.scores import (
    AdditiveConfig,
    DotConfig,
    MergedConfig,
    SynthesizerConfig,
    SynthesizerScore,
)
from small_layers import randomized

WIDTH, HEADS, KEY_WIDTH, LENGTH = 11, 3, 5, 7
QUERIES_AT = torch.tensor([[5, 6], [1, 0]])
KEYS_AT = torch.tensor([[0, 1, 0, 1, 2], [6, 0, 3, 1, 2]])


over_key_positions = pytest.mark.parametrize(
    "keys_at", [KEYS_AT, KEYS_AT[:1]], ids=["own positions", "shared positions"]
)


def sizes(heads: int = HEADS, **options: Any) -> ScoreSizes:
    defaults = {"memory_width": WIDTH, "kv_heads": heads, "key_width": KEY_WIDTH}
    return ScoreSizes(width=WIDTH, heads=heads, max_length=LENGTH, **(defaults | options))


def synthesizer(**choices: object) -> SynthesizerScore:
    return randomized(SynthesizerConfig(**choices).build(sizes()), std=1.0)


def terms_of(score: Any, inputs: Tensor, memory: Tensor) -> ScoreTerms:
    places = (torch.arange(tokens.shape[1])[None] for tokens in (inputs, memory))
    return score.terms(ScoreInputs(inputs, score.queries(inputs), score.keys(memory), *places))


def rows_of(positions: Tensor, batch: int) -> Tensor:
    """Expand a batch axis of one to every row."""
    return positions.expand(batch, -1)


@over_key_positions
@pytest.mark.parametrize("hidden", [None, 13])
def test_dense_synthesizer_equals_a_loop(hidden: int | None, keys_at: Tensor) -> None:
    score = synthesizer(form="dense", hidden=hidden)
    width = hidden or KEY_WIDTH
    inputs = torch.randn(2, 2, WIDTH, dtype=torch.float64)
    ours = score.terms(ScoreInputs(inputs, None, None, QUERIES_AT, keys_at)).bias
    assert ours.shape == (2, HEADS, 2, 5)
    assert score.queries(inputs) is None and score.keys(inputs) is None
    first = score.from_token[0]
    for b in range(2):
        for h in range(HEADS):
            for i in range(2):
                wide = first.weight @ inputs[b, i] + first.bias
                active = [max(0.0, number) for number in wide[h * width : (h + 1) * width].tolist()]
                for t, position in enumerate(rows_of(keys_at, 2)[b].tolist()):
                    total = score.score_offsets[h, 0, position].item()
                    for c in range(width):
                        total += active[c] * score.to_scores[h, c, position].item()
                    assert ours[b, h, i, t].item() == pytest.approx(total, abs=1e-12)


@over_key_positions
@pytest.mark.parametrize("queries_at", [QUERIES_AT, QUERIES_AT[:1]], ids=["own", "shared"])
def test_random_synthesizer_looks_up_both_positions(queries_at: Tensor, keys_at: Tensor) -> None:
    score = synthesizer(form="random")
    inputs = torch.randn(2, 2, WIDTH, dtype=torch.float64)
    ours = score.terms(ScoreInputs(inputs, None, None, queries_at, keys_at)).bias.expand(
        2, -1, -1, -1
    )
    assert ours.shape == (2, HEADS, 2, 5)
    for b in range(2):
        for h in range(HEADS):
            for i, query_at in enumerate(rows_of(queries_at, 2)[b]):
                for t, key_at in enumerate(rows_of(keys_at, 2)[b]):
                    assert ours[b, h, i, t] == score.table[h, query_at, key_at]


def images(linear: nn.Linear, token: Tensor, head: int) -> list[float]:
    """Return W x + b of one head."""
    rows = slice(head * KEY_WIDTH, (head + 1) * KEY_WIDTH)
    return (linear.weight[rows] @ token + linear.bias[rows]).tolist()


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("config", [AdditiveConfig(), DotConfig()])
@torch.no_grad()
def test_pairs_with_shared_keys_equal_a_loop(
    config: AdditiveConfig | DotConfig, kv_heads: int
) -> None:
    """Of six heads with two kv_heads, the first three share the first."""
    score = randomized(config.build(sizes(6, memory_width=13, kv_heads=kv_heads, bias=True)), 1.0)
    inputs = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    memory = torch.randn(2, 5, 13, dtype=torch.float64)
    assert score.keys(memory).shape == (2, kv_heads, 5, KEY_WIDTH)
    terms = terms_of(score, inputs, memory)
    ours = attention_weights(terms, NO_MASK).log()
    for b in range(2):
        for h in range(6):
            group = h // (6 // kv_heads)
            for i in range(3):
                query, totals = images(score.q_proj, inputs[b, i], h), []
                for t in range(5):
                    key = images(score.k_proj, memory[b, t], group)
                    pairs = list(zip(query, key, strict=True))
                    if isinstance(config, AdditiveConfig):
                        direction = score.direction[h].tolist()
                        total = sum(
                            weight * math.tanh(left + right)
                            for weight, (left, right) in zip(direction, pairs, strict=True)
                        )
                        assert terms.bias[b, h, i, t].item() == pytest.approx(total, abs=1e-12)
                    else:
                        total = sum(left * right for left, right in pairs)
                    totals.append(total)
                logs = torch.tensor(totals, dtype=torch.float64).log_softmax(dim=0)
                assert_close(ours[b, h, i], logs, rtol=0, atol=1e-10)
    if isinstance(config, AdditiveConfig):
        assert terms.queries is None and terms.keys is None


@torch.no_grad()
def test_merged_equals_a_loop() -> None:
    memory_width = 13
    score = randomized(MergedConfig().build(sizes(memory_width=13, key_width=13)), std=1.0)
    inputs = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    memory = torch.randn(2, 5, memory_width, dtype=torch.float64)
    terms = terms_of(score, inputs, memory)
    assert terms.bias is None
    assert terms.keys.shape == (2, 1, 5, memory_width)  # a token is the key of every head
    for b in range(2):
        for h in range(HEADS):
            for i in range(3):
                for t in range(5):
                    expected = inputs[b, i] @ score.matrix[h] @ memory[b, t]
                    ours = terms.scale * (terms.queries[b, h, i] @ terms.keys[b, 0, t])
                    assert_close(ours, expected, rtol=0, atol=1e-11)
