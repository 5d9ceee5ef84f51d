"""Tables of times: between, below and above what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.cost.machine import Machine, Timed, interpolated

TABLE = [Timed(10.0, 1.0), Timed(100.0, 2.0), Timed(1000.0, 16.0)]


def test_measured_sizes_have_their_own_time() -> None:
    assert [interpolated(TABLE, one.size) for one in TABLE] == pytest.approx([1.0, 2.0, 16.0])


def test_beyond_the_table() -> None:
    assert interpolated(TABLE, 1.0) == 1.0
    assert interpolated(TABLE, 3000.0) == pytest.approx(48.0)


@given(st.floats(1.0, 1e6), st.floats(1.0, 1e6))
def test_more_work_takes_no_less_time(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert interpolated(TABLE, small) <= interpolated(TABLE, large) * (1 + 1e-12)


def test_a_product_with_a_short_side_is_slower() -> None:
    """Between two measured sides as on logarithmic axes, beyond them as at the nearest."""
    fast, slow = [Timed(1.0, 1.0)], [Timed(1.0, 4.0)]
    made = Machine(kinds={}, linear=[(16.0, slow), (256.0, fast)], adamw=[], muon=[])
    sides = (1.0, 16.0, 64.0, 256.0, 4000.0)
    found = [made.seconds("linear", 10.0, side) for side in sides]
    assert found == pytest.approx([40.0, 40.0, 20.0, 10.0, 10.0])
