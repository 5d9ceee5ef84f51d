import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.split import hold_out


@given(st.lists(st.text(max_size=3), min_size=2), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_key_is_on_one_side_only(words: list[str], share: float, seed: int) -> None:
    if len(set(words)) < 2:
        with pytest.raises(UserError, match="distinct"):
            hold_out(words, share, seed, key=str)
        return
    kept, held = hold_out(words, share, seed, key=str)
    assert kept and held and not set(kept) & set(held)
    assert sorted(kept + held) == sorted(words)
    assert [word for word in words if word in set(kept)] == kept  # in their order
    distinct = len(set(words))
    assert abs(len(set(held)) - share * distinct) <= max(0.5, 1 - share * distinct) + 1e-9 or (
        len(set(kept)) == 1
    )


def test_the_seed_decides_and_more_examples_move_few() -> None:
    numbers = [str(number) for number in range(400)]
    first, again, other = (set(hold_out(numbers, 0.2, seed, key=str)[1]) for seed in (1, 1, 2))
    assert first == again != other
    more = set(hold_out([*numbers, *(f"{one} more" for one in range(40))], 0.2, 1, key=str)[1])
    assert len(first & more) >= 0.8 * len(first)
