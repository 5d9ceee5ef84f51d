"""Figures of attention against slow loops over its weights, and heads whose figures are known."""

import math
from functools import reduce
from operator import add

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.inspection.head_statistics import (
    HeadStatistics,
    head_statistics,
    induction_score,
    mean_entropy,
    repeated_tokens,
)

ROWS, HEADS, TIME, REACH = 3, 2, 7, 4


def random_weights(seed: int = 0, present: Tensor | None = None, time: int = TIME) -> Tensor:
    """Causal, and none to padding."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(ROWS, HEADS, time, TIME, generator=generator).double()
    visible = torch.ones(time, TIME).bool().tril(diagonal=TIME - time)
    if present is not None:
        visible = visible & present[:, None, None, :]
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return weights.nan_to_num(0.0)


PRESENT = torch.tensor(
    [[1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], dtype=torch.bool
)


@pytest.mark.parametrize("time", [TIME, 3])
def test_figures_are_means_over_queries(time: int) -> None:
    """Padding on either side; the last three queries only, as when a text is extended."""
    weights = random_weights(present=PRESENT, time=time)
    result = head_statistics(weights, PRESENT, max_offset=REACH)
    for head in range(HEADS):
        offsets, distances, entropies_, shares, first = [], [], [], [], []
        at: dict[int, list[float]] = {d: [] for d in range(-REACH, REACH + 1)}
        for b in range(ROWS):
            slots = PRESENT[b].nonzero()[:, 0].tolist()
            for i, slot in enumerate(slots):
                if slot < TIME - time:
                    continue
                row = weights[b, head, slot - (TIME - time)][slots].tolist()
                offsets.append(sum(w * (i - t) for t, w in enumerate(row)))
                distances.append(sum(w * abs(i - t) for t, w in enumerate(row)))
                entropies_.append(-sum(w * math.log(w) for w in row if w > 0))
                if i > 0:
                    shares.append(entropies_[-1] / math.log(i + 1))
                    first.append(row[0])
                for d in at:
                    if 0 <= i - d < len(row):
                        at[d].append(row[i - d])
        for tally, values in [
            (result.offset, offsets),
            (result.distance, distances),
            (result.entropy, entropies_),
            (result.evenness, shares),
            (result.first, first),
        ]:
            assert tally.count == len(values)
            assert_close(tally.mean[head].item(), sum(values) / len(values))
        assert result.entropy.count == len(offsets)
        for d, values in at.items():
            assert result.query_counts[d + REACH] == len(values)
            assert_close(result.mean_weight_at(d)[head].item(), sum(values) / max(len(values), 1))


def test_inputs_one_by_one_add_up_to_all_at_once() -> None:
    weights = random_weights()
    whole = head_statistics(weights)
    parts = reduce(add, (head_statistics(row[None]) for row in weights))
    assert (whole.entropy.count, parts.entropy.count) == (ROWS * TIME, ROWS * TIME)
    for name in ("offset", "distance", "entropy", "evenness", "first"):
        assert_close(getattr(parts, name).mean, getattr(whole, name).mean)
    assert_close(parts.histogram(), whole.histogram())


def looking_at(offset: int, time: int = 11) -> HeadStatistics:
    weights = torch.zeros(1, 1, time, time)
    for i in range(time):
        if 0 <= i - offset < time:
            weights[0, 0, i, i - offset] = 1.0
    return head_statistics(weights)


@given(st.integers(-9, 9))
def test_a_head_of_one_offset_has_that_offset(offset: int) -> None:
    result = looking_at(offset)
    assert result.entropy.count == 11 - abs(offset)  # those that see nothing do not count
    assert result.offset.mean.item() == offset and result.distance.mean.item() == abs(offset)
    assert result.entropy.mean.item() == 0 and result.mean_weight_at(offset).item() == 1
    assert result.top_offset().item() == offset


def test_a_rare_offset_is_not_the_commonest() -> None:
    """Only the last of twenty queries can look nineteen back."""
    weights = torch.full((1, 1, 20, 20), 0.02)
    weights += 0.3 * torch.eye(20).roll(-1, dims=1).tril()
    weights[0, 0, 19, 0] = 0.9
    assert head_statistics(weights).top_offset().item() != 19


def test_even_attention_is_as_even_as_can_be() -> None:
    weights = torch.ones(5, 5).tril()[None, None].double()
    result = head_statistics(weights / weights.sum(dim=-1, keepdim=True))
    assert_close(result.evenness.mean.item(), 1.0)
    assert result.evenness.count == 4  # the first sees only itself
    memory = torch.full((2, 1, 3, 7), 1 / 7).double()
    assert_close(mean_entropy(memory).mean.item(), math.log(7))
    assert mean_entropy(memory).count == 6


def test_nothing_counted_is_no_figure() -> None:
    result = head_statistics(torch.zeros(1, 2, 3, 3))
    assert result.entropy.count == 0 and result.offset.mean.isnan().all()


def test_induction_looks_behind_an_earlier_copy() -> None:
    weights = random_weights(seed=5)
    tokens = torch.tensor([[4, 5, 4, 4, 5, 9, 4], [1, 1, 1, 2, 2, 1, 3], [0, 1, 2, 3, 4, 5, 6]])
    result = induction_score(weights, tokens)
    for head in range(HEADS):
        values = []
        for b in range(ROWS):
            for i in range(TIME):
                keys = [j + 1 for j in range(i - 1) if tokens[b, j] == tokens[b, i]]
                if keys:
                    values.append(sum(weights[b, head, i, key].item() for key in keys))
        assert result.count == len(values) == 6
        assert_close(result.mean[head].item(), sum(values) / len(values))


def test_a_head_that_does_induction_does_it_on_repeated_tokens() -> None:
    tokens = repeated_tokens(1000, rows=2, period=9, seed=3)
    assert tokens.shape == (2, 18) and tokens[:, :9].equal(tokens[:, 9:])
    weights = torch.zeros(2, 1, 18, 18)
    for i in range(9, 18):
        weights[:, 0, i, i - 8] = 1.0
    result = induction_score(weights, tokens)
    assert (result.count, result.mean.item()) == (18, 1.0)
