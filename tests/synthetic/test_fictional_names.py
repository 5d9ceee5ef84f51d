from hypothesis import given
from hypothesis import strategies as st

from harken.synthetic import fictional_names as module
from harken.synthetic.fictional_names import fictional_names

NAMES = st.lists(
    st.lists(st.sampled_from(["a", "b", "ç", "d", "愛"]), min_size=1, max_size=3).map(" ".join),
    max_size=11,
)


@given(NAMES, NAMES, st.integers(0, 7), st.integers(0, 99))
def test_new_names_of_old_parts(names: list[str], taken: list[str], count: int, seed: int) -> None:
    made = fictional_names(names, taken, count, seed)
    parts = [name.rsplit(maxsplit=1) for name in names if " " in name]
    every = {f"{first} {last}" for first, _ in parts for _, last in parts} - {*names, *taken}
    assert set(made) <= every
    assert len(set(made)) == len(made) == min(count, len(every))
    assert made == fictional_names(names, taken, count, seed)


def test_the_seed_decides_and_no_person_is_preferred() -> None:
    names = [f"first{at} last{at}" for at in range(101)]
    made = fictional_names(names, [], 200, seed=3)
    assert made != fictional_names(names, [], 200, seed=4)
    assert len({name.split()[0] for name in made}) > 70
    assert len({name.split()[1] for name in made}) > 70


def test_a_large_crowd_costs_no_more() -> None:
    names = [f"first{at} last{at}" for at in range(20_011)]  # 400 million combinations
    assert len(fictional_names(names, names, 200, seed=0)) == 200
    assert module.ATTEMPTS * 200 < 20_011
