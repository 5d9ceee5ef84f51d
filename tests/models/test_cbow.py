"""Means of neighbors against a slow loop, and that CBOW finds what words have in common."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from harken.models.tagger import CBOW, CBOWConfig, context_means

B, T, J = 3, 7, 5


def slow_means(vectors: Tensor, lengths: list[int], window: int) -> Tensor:
    means = torch.zeros_like(vectors)
    for row, length in enumerate(lengths):
        for at in range(length):
            around = [
                vectors[row, other]
                for other in range(length)
                if other != at and abs(other - at) <= window
            ]
            if around:
                means[row, at] = torch.stack(around).mean(dim=0)
    return means


@given(st.lists(st.integers(0, T), min_size=B, max_size=B), st.integers(1, 9))
def test_means_equal_a_slow_loop(lengths: list[int], window: int) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    vectors = torch.randn(B, T, J, generator=generator, dtype=torch.float64)
    present = torch.arange(T) < torch.tensor(lengths)[:, None]
    vectors[~present] = torch.nan  # what stands at padding is never read
    actual = context_means(vectors, present, window)[present]
    expected = slow_means(vectors, lengths, window)[present]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_one_word_has_no_neighbors() -> None:
    means = context_means(torch.ones(2, 1, J), torch.ones(2, 1, dtype=torch.bool), 2)
    assert not means.any()


def test_scores_are_of_the_present_words_in_order() -> None:
    neighbors = CBOW(CBOWConfig(window=1), J, 11)
    vectors = torch.randn(2, 3, J, generator=torch.Generator().manual_seed(0))
    present = torch.tensor([[True, True, False], [True, True, True]])
    scores = neighbors(vectors, present)
    means = context_means(vectors, present, 1)
    expected = torch.stack(
        [neighbors.lm_head.weight @ means[at] for at in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))]
    )
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("window", [1, 2])
def test_words_used_alike_come_to_lie_together(window: int) -> None:
    """Words 0-4 stand before 5-9 and after 10-14; which of the five it is, chance decides."""
    generator = torch.Generator().manual_seed(3)
    kinds = torch.arange(12) % 3
    table = nn.Embedding(15, 8)
    nn.init.normal_(table.weight, generator=generator)
    neighbors = CBOW(CBOWConfig(window=window), 8, 15)
    nn.init.zeros_(neighbors.lm_head.weight)
    optimizer = torch.optim.Adam([*table.parameters(), *neighbors.parameters()], lr=0.03)
    present = torch.ones(16, 12, dtype=torch.bool)
    for _ in range(150):
        words = kinds * 5 + torch.randint(0, 5, (16, 12), generator=generator)
        loss = cross_entropy(neighbors(table(words), present), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    vectors = table.weight.detach()
    alike = cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    same = torch.arange(15)[:, None] // 5 == torch.arange(15) // 5
    others = same & ~torch.eye(15, dtype=torch.bool)
    assert alike[others].mean() > alike[~same].mean() + 0.5
