"""Break a part of the library on purpose: the claim about it must fail."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from harken.attention.masks import Mask, build_mask
from harken.attention.merging import merge_pair
from harken.attention.positions import interleave
from harken.attention.query_key import DotProductScore
from harken.attention.relative import angles
from harken.attention.scores import ScaledConfig
from harken.claims.claim import Setting, select_claims
from harken.design.waves import Waves, shift_matrix, wave_vectors
from harken.models.decoders import AttentionRNNDecoder

Break = Callable[[pytest.MonkeyPatch], None]


def turns_the_other_way(patch: pytest.MonkeyPatch) -> None:
    """The sign of β."""
    patch.setattr("harken.design.shift.shift_matrix", lambda waves, t: shift_matrix(waves, -t))


def merges_key_first(patch: pytest.MonkeyPatch) -> None:
    """W~ transposed: it would look T steps ahead."""
    for document in ("ece537_problem_set9", "ttic31230_attention"):
        patch.setattr(
            f"harken.claims.{document}.merge_pair", lambda q, k, scale: merge_pair(q, k, scale).mT
        )


def cosine_before_sine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "harken.attention.positions.interleave",
        lambda sine, cosine, width: interleave(cosine, sine, width),
    )


def another_base(patch: pytest.MonkeyPatch) -> None:
    """1000, as the source's solution misprints it."""
    patch.setattr(
        "harken.attention.positions.angles", lambda places, width, base: angles(places, width, 1e3)
    )


def weight(patch: pytest.MonkeyPatch) -> None:
    """No 1 / sqrt(I) in the score."""
    patch.setattr(ScaledConfig, "build", lambda self, sizes: DotProductScore(sizes, scale=1.0))


def merged_unscaled(patch: pytest.MonkeyPatch) -> None:
    """No 1 / sqrt(I) in W~."""
    patch.setattr(
        "harken.claims.ttic31230_attention.merge_pair", lambda q, k, scale: merge_pair(q, k, 1.0)
    )


def sees_itself(patch: pytest.MonkeyPatch) -> None:
    """The diagonal of the strict mask is left unmasked."""

    def causal(order: str, queries: Tensor, keys: Tensor, **_: object) -> Mask:
        return build_mask("causal", queries, keys)

    patch.setattr("harken.claims.lecture29.build_mask", causal)


def shares_over_queries(patch: pytest.MonkeyPatch) -> None:
    """Softmax over the wrong axis."""
    patch.setattr(
        "harken.attention.kernels.attention_weights",
        lambda terms, mask: (terms.queries @ terms.keys.mT).softmax(dim=-2),
    )


def credited_late(patch: pytest.MonkeyPatch) -> None:
    """Every state stands one word later than the look that made it."""
    extend = AttentionRNNDecoder.step

    def late(self: AttentionRNNDecoder, tokens: Tensor, present: Tensor, state: object) -> object:
        states, after = extend(self, tokens, present, state)
        return states.roll(1, dims=1), after

    patch.setattr(AttentionRNNDecoder, "step", late)


def forgets_the_future(patch: pytest.MonkeyPatch) -> None:
    """The recurrent term of back-propagation is missing."""
    patch.setattr(
        "harken.claims.backpropagation.through_time", lambda direct, history, weights: direct
    )


def stride_one(patch: pytest.MonkeyPatch) -> None:
    convolve = F.conv1d

    def every(window: Tensor, weight: Tensor, bias: Tensor, *, stride: int, padding: int) -> Tensor:
        return convolve(window, weight, bias, stride=1, padding=padding)

    patch.setattr("torch.nn.functional.conv1d", every)


def keeps_fast_waves(patch: pytest.MonkeyPatch) -> None:
    """The band head zeroes nothing."""
    patch.setattr("harken.design.band.kept_pairs", lambda plan: tuple(range(plan.waves.pairs)))


def rounded_time(patch: pytest.MonkeyPatch) -> None:
    """A sum over time counted as one step."""
    patch.setattr("harken.cost.depth.tree", lambda terms: 1)


SABOTAGES = [
    (turns_the_other_way, "A4"),
    (merges_key_first, "A4"),
    (merges_key_first, "B8"),
    (cosine_before_sine, "A1"),
    (another_base, "A1"),
    (another_base, "A3"),
    (weight, "B6"),
    (merged_unscaled, "B8"),
    (sees_itself, "B5"),
    (shares_over_queries, "B1"),
    (credited_late, "C4"),
    (forgets_the_future, "C2"),
    (stride_one, "C6"),
    (keeps_fast_waves, "A5"),
    (rounded_time, "C7"),
]


@pytest.mark.parametrize(("sabotage", "name"), SABOTAGES)
def test_sabotage_is_detected(sabotage: Break, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (claim,) = select_claims([name])
    assert claim.evaluate(Setting(width=16)).as_expected
    sabotage(monkeypatch)
    assert not claim.evaluate(Setting(width=16)).as_expected


@pytest.mark.parametrize("width", [8, 20])
def test_offset_of_the_transposed_matrix(width: int) -> None:
    """What `merges_key_first` stands for: A transposed walks the other way."""
    waves = Waves(width=width)
    places = wave_vectors(waves, 31)
    ahead = places @ shift_matrix(waves, 7)
    torch.testing.assert_close(ahead[:-7], places[7:], rtol=0, atol=1e-12)
