"""Break a part of the library on purpose: the claim about it must fail."""

from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor

from harken.attention.masks import build_mask
from harken.attention.merging import merge_pair
from harken.attention.query_key import DotProductScore
from harken.attention.sinusoids import Sinusoids, angles, interleave
from harken.claims.claim import Setting, select_claims
from harken.claims.lecture29 import layer_states
from harken.models.decoders import AttentionRNNDecoder

step, conv1d = AttentionRNNDecoder.step, F.conv1d
shift_matrix = Sinusoids.shift_matrix


def delayed_step(self: AttentionRNNDecoder, *inputs: Any) -> tuple[Tensor, object]:
    states, state = step(self, *inputs)
    return states.roll(1, dims=1), state


def conv1d_of_stride_one(values: Tensor, weight: Tensor, bias: Tensor, **options: int) -> Tensor:
    return conv1d(values, weight, bias, **(options | {"stride": 1}))


def softmax_over_queries(terms: Any, mask: object) -> Tensor:
    return (terms.queries @ terms.keys.mT).softmax(dim=-2)


SABOTAGES = {
    "sign of β": (
        *("A4", "attention.sinusoids.Sinusoids.shift_matrix"),
        lambda self, offset: shift_matrix(self, -offset),
    ),
    "W~ transposed: attends ahead": (
        *("A4", "claims.ece537_problem_set9.merge_pair"),
        lambda q, k, scale: merge_pair(q, k, scale).mT,
    ),
    "W~ transposed": (
        *("B8", "claims.ttic31230_attention.merge_pair"),
        lambda q, k, scale: merge_pair(q, k, scale).mT,
    ),
    "cosine before sine": (
        *("A1", "attention.positions.interleave"),
        lambda sine, cosine, width: interleave(cosine, sine, width),
    ),
    "base 1000, as misprinted in the solution": (
        *("A1", "attention.positions.angles"),
        lambda positions, width, base: angles(positions, width, 1e3),
    ),
    "base 1000 in the shift": (
        *("A3", "attention.positions.angles"),
        lambda positions, width, base: angles(positions, width, 1e3),
    ),
    "no 1 / sqrt(I) in the score": (
        *("B6", "attention.scores.ScaledConfig.build"),
        lambda self, sizes: DotProductScore(sizes, scale=1.0),
    ),
    "no 1 / sqrt(I) in W~": (
        *("B8", "claims.ttic31230_attention.merge_pair"),
        lambda q, k, scale: merge_pair(q, k, 1.0),
    ),
    "strict mask with its diagonal": (
        *("B5", "claims.lecture29.build_mask"),
        lambda kind, queries, keys: build_mask("causal", queries, keys),
    ),
    "softmax over queries": ("B1", "attention.kernels.attention_weights", softmax_over_queries),
    "states one word late": ("C4", "models.decoders.AttentionRNNDecoder.step", delayed_step),
    "states in reverse order": (
        *("C2", "claims.lecture29.layer_states"),
        lambda problem: layer_states(problem).flip(0),
    ),
    "stride 1": ("C6", "layers.convolution.F.conv1d", conv1d_of_stride_one),
    "no block zeroed": (
        *("A5", "design.band.band_pairs"),
        lambda plan: tuple(range(plan.basis.pairs)),
    ),
    "sum over time in one step": ("C7", "cost.depth.sum_steps", lambda terms: 1),
}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_sabotage_is_detected(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, target, replacement = SABOTAGES[sabotage]
    (claim,) = select_claims([name])
    monkeypatch.setattr(f"harken.{target}", replacement)
    assert not claim.evaluate(Setting(width=16)).as_expected
