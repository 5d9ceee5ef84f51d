"""A band head is a shift without its high frequencies; its width depends on the sharpness."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.attention.sinusoids import Sinusoids
from harken.design.band import BandPlan, band_head, band_pairs, band_shape
from harken.design.designs import design_band, measure_worst_query
from harken.design.head import head_attention
from harken.errors import UserError


@given(st.floats(1.0, 5000.0), st.integers(2, 37))
def test_pairs_follow_the_formula(width: float, pairs: int) -> None:
    basis = Sinusoids(width=2 * pairs)
    edge = 2 * pairs * math.log(width) / (2 * math.log(10000))
    expected = [i for i in range(pairs) if i >= edge - 1e-9]
    plan = BandPlan(basis=basis, offset=1, band=width, length=7)
    if expected:
        assert list(band_pairs(plan)) == expected
    else:
        with pytest.raises(UserError, match="lowest frequency"):
            band_pairs(plan)


@given(st.integers(2, 40).map(float), st.floats(0.2, 6.0))
@settings(max_examples=40)
def test_attention_is_half_at_the_half_width(width: float, sharpness: float) -> None:
    plan = BandPlan(
        basis=Sinusoids(width=62), offset=120, band=width, sharpness=sharpness, length=307
    )
    shape = band_shape(plan)
    weights = head_attention(band_head(plan), plan.basis.vectors(307))[-1]
    peak = 306 - 120
    assert int(weights.argmax()) == peak
    if shape.half_width is not None and shape.half_width < 118:
        inner, outer = math.floor(shape.half_width), math.ceil(shape.half_width)
        assert weights[peak - inner] >= weights[peak] / 2 - 1e-12
        assert weights[peak + outer] <= weights[peak] / 2 + 1e-12
    for distance, drop in ((width / 2, shape.drop_at_half), (width, shape.drop_at_band)):
        if distance == int(distance):
            ratio = float(weights[peak - int(distance)] / weights[peak])
            assert ratio == pytest.approx(math.exp(-sharpness * drop), rel=1e-9)


def test_a_flat_head_has_no_half_width() -> None:
    plan = BandPlan(basis=Sinusoids(width=6), offset=1, band=3.0, sharpness=0.1, length=11)
    assert band_shape(plan).half_width is None


@pytest.mark.parametrize("mask_kind", ["causal", "strictly_causal", "bidirectional"])
def test_check_meets_the_prediction(mask_kind) -> None:
    plan = BandPlan(basis=Sinusoids(width=38), offset=7, band=5.0, length=43, key_width=11)
    for length in (17, 43):
        designed = design_band(replace(plan, length=length, mask_kind=mask_kind))
        assert len(designed.pairs) == 5
        expected = pytest.approx(designed.predicted, abs=1e-12), length - 1
        assert measure_worst_query(designed) == expected


@pytest.mark.parametrize(
    "invalid", [{"band": 0.0}, {"sharpness": math.nan}, {"offset": 11}, {"key_width": 1}]
)
def test_invalid_plans(invalid: dict) -> None:
    with pytest.raises(UserError, match="band"):
        BandPlan(**{"basis": Sinusoids(width=6), "offset": 1, "band": 2.0, "length": 11} | invalid)


def test_narrow_heads_keep_the_fastest_of_the_band_pairs() -> None:
    plan = BandPlan(basis=Sinusoids(width=38), offset=1, band=5.0, length=43)
    short = BandPlan(basis=Sinusoids(width=38), offset=1, band=5.0, length=43, key_width=6)
    assert band_pairs(short) == band_pairs(plan)[:3]
    fourier = Sinusoids(kind="fourier", width=22, span=101)
    slow = band_pairs(BandPlan(basis=fourier, offset=1, band=8.0, length=43))
    assert slow == tuple(i for i in range(11) if math.pi * (i + 1) / 101 * 8 <= 1)
    assert torch.tensor(slow).numel() == 4
