import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.synthetic.draws import keyed_rng

keys = st.tuples(st.integers(-(2**70), 2**70), st.text(max_size=3), st.integers(0, 10**9))


@given(keys, keys)
def test_a_key_has_one_stream_and_others_have_others(one: tuple, other: tuple) -> None:
    first = keyed_rng(*one).random(5)
    np.testing.assert_array_equal(keyed_rng(*one).random(5), first)
    assert (keyed_rng(*other).random(5) == first).any() == (one == other)


def test_neighboring_streams_are_not_alike() -> None:
    drawn = np.array(
        [keyed_rng("spoken", 0, "train", index).standard_normal(97) for index in range(89)]
    )
    between = np.corrcoef(drawn)[np.triu_indices(89, k=1)]
    assert abs(between.mean()) < 0.01
    assert between.std() == pytest.approx(97**-0.5, rel=0.1)


def test_the_bits_are_written_down() -> None:
    # NumPy promises the bits of Philox for ever: a change here is a change of all made sounds.
    assert keyed_rng("spoken", 7, "test", 11).bit_generator.random_raw() == 14052128093553201358
