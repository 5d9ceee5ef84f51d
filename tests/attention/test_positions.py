import cmath
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.positions import LearnedConfig, NoPositionConfig, SinusoidConfig
from harken.attention.relative import PositionSizes, RotaryConfig, rotate


def sizes(width: int, key_width: int, length: int) -> PositionSizes:
    return PositionSizes(width=width, key_width=key_width, heads=3, length=length)


Draw = Callable[[str], Tensor]
PLACES = torch.tensor([[0, 1, 2, 3, 4], [2, 0, 31, 1, 7]])  # the second row as if packed
BASE = 100.0
# Angles are made in float32 on purpose; what they turn is float64 here.
ANGLE = 1e-5


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoid_equals_the_formula(width: int) -> None:
    inputs = torch.randn(2, 5, width, dtype=torch.float64)
    sinusoid = SinusoidConfig(base=BASE).build(sizes(width, 3, 2))
    added = sinusoid.enter(inputs, PLACES[..., None]) - inputs
    assert sinusoid.rotation(PLACES[..., None]) is None
    for b in range(2):
        for t in range(5):
            for i in range(width):
                angle = PLACES[b, t].item() / BASE ** ((i - i % 2) / width)
                wave = math.cos(angle) if i % 2 else math.sin(angle)
                assert added[b, t, i].item() == pytest.approx(wave, abs=ANGLE)


def test_learned_adds_the_row_of_each_position() -> None:
    inputs = torch.randn(2, 5, 7)
    learned = LearnedConfig().build(sizes(7, 3, 37))
    ours = learned.enter(inputs, PLACES[..., None])
    for b in range(2):
        for t in range(5):
            assert torch.equal(ours[b, t], inputs[b, t] + learned.tables[0].weight[PLACES[b, t]])
    assert learned.rotation(PLACES[..., None]) is None


def test_none_says_nothing() -> None:
    inputs = torch.randn(2, 5, 7)
    nowhere = NoPositionConfig().build(sizes(7, 3, 37))
    assert torch.equal(nowhere.enter(inputs, PLACES[..., None]), inputs)
    assert nowhere.rotation(PLACES[..., None]) is None


def turned(heads: Tensor, places: Tensor) -> Tensor:
    rotary = RotaryConfig(base=BASE).build(sizes(19, heads.shape[-1], 2))
    assert torch.equal(rotary.enter(heads[:, 0], places[..., None]), heads[:, 0])
    rotation = rotary.rotation(places[..., None])
    assert rotation is not None
    return rotate(heads, rotation)


@pytest.mark.parametrize("rows", [1, 2])
def test_rotary_turns_each_pair_by_its_angle(rows: int) -> None:
    heads, places = torch.randn(2, 3, 5, 6, dtype=torch.float64), PLACES[-rows:]
    ours = turned(heads, places)
    for b in range(2):
        for t, place in enumerate(places[b % rows].tolist()):
            for i in range(3):
                angle = place / BASE ** (2 * i / 6)
                cosine, sine = math.cos(angle), math.sin(angle)
                matrix = torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)
                pair = heads[b, :, t, [i, i + 3]]
                assert_close(ours[b, :, t, [i, i + 3]], pair @ matrix.T, rtol=0, atol=ANGLE)


def test_rotary_pairs_as_hugging_face_does() -> None:
    """Their `rotate_half`: number i goes with number i + U/2, as one complex number."""
    head = torch.randn(1, 1, 1, 10, dtype=torch.float64)
    ours = turned(head, torch.tensor([[7]]))[0, 0, 0].tolist()
    numbers = head[0, 0, 0].tolist()
    for i in range(5):
        frequency = 1 / BASE ** (2 * i / 10)
        whole = complex(numbers[i], numbers[i + 5]) * cmath.exp(7j * frequency)
        assert complex(ours[i], ours[i + 5]) == pytest.approx(whole, abs=ANGLE)


@given(
    st.integers(0, 2**31),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 6),
)
@settings(max_examples=50)
def test_rotary_scores_depend_only_on_the_distance(
    seed: int, query_at: int, key_at: int, shift: int, pairs: int
) -> None:
    torch.manual_seed(seed)
    query, key = torch.randn(2, 1, 1, 1, 2 * pairs, dtype=torch.float64)

    def score(query_place: int, key_place: int) -> Tensor:
        there, here = torch.tensor([[query_place]]), torch.tensor([[key_place]])
        return (turned(query, there) * turned(key, here)).sum()

    here, shifted = score(query_at, key_at), score(query_at + shift, key_at + shift)
    assert_close(shifted, here, rtol=0, atol=20 * pairs * ANGLE)


def test_rotary_scores_do_change_with_the_distance() -> None:
    ones = torch.ones(1, 1, 4, 6, dtype=torch.float64)
    rotated = turned(ones, PLACES[:1, :4])[0, 0]
    scores = rotated[0] @ rotated.T
    assert (scores[:-1] - scores[1:] > 0.1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_head_keeps_its_precision(dtype: torch.dtype) -> None:
    assert turned(torch.ones(2, 3, 5, 6, dtype=dtype), PLACES).dtype == dtype
    sinusoid = SinusoidConfig().build(sizes(7, 3, 2))
    assert sinusoid.enter(torch.ones(2, 5, 7, dtype=dtype), PLACES[..., None]).dtype == dtype
