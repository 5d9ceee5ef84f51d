"""A shift rotates every pair, and the vectors are those that models add."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from harken.attention.positions import FourierConfig, SinusoidConfig
from harken.attention.relative import PositionSizes
from harken.attention.sinusoids import Sinusoids
from harken.design.shift import choose_pairs, score_gaps
from harken.errors import UserError

BOTH = [Sinusoids(width=14), Sinusoids(kind="fourier", width=14, span=53)]
every_basis = pytest.mark.parametrize("basis", BOTH, ids=["sinusoid", "fourier"])


@every_basis
def test_vectors_equal_those_of_models(basis: Sinusoids) -> None:
    config = SinusoidConfig() if basis.span is None else FourierConfig(span=basis.span)
    sizes = PositionSizes(width=14, key_width=2, heads=1, max_length=53)
    theirs = config.build(sizes).vectors(torch.arange(53)[None, :, None])[0]
    assert_close(basis.vectors(53), theirs.double(), rtol=0, atol=1e-4)


@given(st.integers(-97, 97), st.integers(1, 11), st.integers(0, 89), st.booleans())
@settings(max_examples=60)
def test_shift_is_a_rotation(offset: int, pairs: int, at: int, fourier: bool) -> None:
    span = 101 if fourier else None
    basis = Sinusoids(kind="fourier" if fourier else "sinusoid", width=2 * pairs, span=span)
    matrix = basis.shift_matrix(offset)
    both = basis.vectors(300)
    start = at + max(offset, 0)
    assert_close(matrix @ both[start], both[start - offset], rtol=0, atol=1e-10)
    assert_close(matrix @ matrix.T, torch.eye(2 * pairs, dtype=torch.float64), rtol=0, atol=1e-12)


def test_blocks_are_those_of_the_documents() -> None:
    """Sine first: [[cos, -sin], [sin, cos]]; cosine first the sines change their signs."""
    offset, width = 3, 6
    for basis, sign in (
        (Sinusoids(width=6), 1),
        (Sinusoids(kind="fourier", width=6, span=7), -1),
    ):
        matrix = basis.shift_matrix(offset)
        for i in range(3):
            angle = (
                offset / 10000 ** (2 * i / width) if sign > 0 else math.pi * (i + 1) * offset / 7
            )
            expected = [
                [math.cos(angle), -sign * math.sin(angle)],
                [sign * math.sin(angle), math.cos(angle)],
            ]
            block = matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]
            assert_close(block, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)
        blocks = torch.block_diag(*(torch.ones(2, 2),) * 3).bool()
        assert not matrix[~blocks].any()


@every_basis
def test_gap_is_the_drop_of_the_inner_product(basis: Sinusoids) -> None:
    vectors = basis.vectors(53)
    gaps = score_gaps(basis.frequencies, torch.arange(53)).sum(dim=1)
    for distance in (0, 1, 7, 41):
        lost = vectors[47] @ vectors[47] - vectors[47] @ vectors[47 - distance]
        assert float(gaps[distance]) == pytest.approx(float(lost), abs=1e-12)


def test_chosen_pairs_have_a_larger_gap() -> None:
    gaps = score_gaps(Sinusoids(width=64).frequencies, torch.arange(512))
    chosen = choose_pairs(gaps, 3)
    assert len(set(chosen)) == 3
    smallest = float(gaps[1:, list(chosen)].sum(dim=1).min())
    assert smallest > 10 * float(gaps[1:, :3].sum(dim=1).min())
    assert choose_pairs(gaps, 40) == tuple(range(32))


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"width": 7}, "expected an even width"),
        ({"width": 6, "base": 1.0}, "above 1"),
        ({"width": 6, "span": 9}, "span"),
        ({"width": 6, "kind": "fourier"}, "span"),
    ],
)
def test_invalid_bases(invalid: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Sinusoids(**invalid)
