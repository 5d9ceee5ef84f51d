import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.training.schedule import ScheduleConfig

DECAYS = ("cosine", "linear", "constant")
each_decay = pytest.mark.parametrize("decay", DECAYS)


# 10 steps of warm-up and 20 of decay, to a factor of 0.1: the middle is step 20.
@pytest.mark.parametrize(
    ("decay", "quarter", "middle", "last"),
    [
        ("cosine", 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.10554),
        ("linear", 0.775, 0.55, 0.145),
        ("constant", 1.0, 1.0, 1.0),
    ],
)
def test_by_hand(decay: str, quarter: float, middle: float, last: float) -> None:
    schedule = ScheduleConfig(decay=decay, warmup=10, min_lr_ratio=0.1)  # type: ignore[arg-type]
    factors = [schedule.factor(step, 30) for step in range(30)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[4] == pytest.approx(0.5)
    assert factors[9] == factors[10] == 1.0
    assert factors[15] == pytest.approx(quarter)
    assert factors[20] == pytest.approx(middle)
    assert factors[29] == pytest.approx(last, abs=1e-5)
    # After the last step it stays at the minimum.
    end = 1.0 if decay == "constant" else 0.1
    assert schedule.factor(30, 30) == schedule.factor(97, 30) == pytest.approx(end)


@each_decay
def test_without_warm_up_the_peak_is_first(decay: str) -> None:
    schedule = ScheduleConfig(decay=decay, warmup=0)  # type: ignore[arg-type]
    assert schedule.factor(0, 7) == 1.0


@each_decay
def test_warm_up_is_half_of_a_short_stage(decay: str) -> None:
    schedule = ScheduleConfig(decay=decay, warmup=50)  # type: ignore[arg-type]
    assert [schedule.factor(step, 8) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert schedule.factor(0, 1) == 1.0


@given(st.sampled_from(DECAYS), st.integers(0, 97), st.floats(0, 1), st.integers(1, 307))
def test_factors_rise_once_and_then_fall_without_jumps(
    decay: str, warmup: int, lowest: float, steps: int
) -> None:
    schedule = ScheduleConfig(decay=decay, warmup=warmup, min_lr_ratio=lowest)  # type: ignore[arg-type]
    factors = [schedule.factor(step, steps) for step in range(steps)]
    peak = factors.index(max(factors))
    assert max(factors) == 1.0
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert min(factors[peak:]) >= lowest - 1e-12
    # No decrease is larger than the largest one of a cosine.
    down = max(1, steps - min(warmup, steps // 2))
    jumps = [before - after for before, after in pairwise(factors[peak:])]
    assert max(jumps, default=0.0) <= (1 - lowest) * math.pi / 2 / down + 1e-12
