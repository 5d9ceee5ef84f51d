import cmath
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    NoPositionConfig,
    SinusoidConfig,
)
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
    added = sinusoid.embed(inputs, PLACES[..., None]) - inputs
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
    ours = learned.embed(inputs, PLACES[..., None])
    for b in range(2):
        for t in range(5):
            assert torch.equal(ours[b, t], inputs[b, t] + learned.tables[0].weight[PLACES[b, t]])
    assert learned.rotation(PLACES[..., None]) is None


def test_none_says_nothing() -> None:
    inputs = torch.randn(2, 5, 7)
    nowhere = NoPositionConfig().build(sizes(7, 3, 37))
    assert torch.equal(nowhere.embed(inputs, PLACES[..., None]), inputs)
    assert nowhere.rotation(PLACES[..., None]) is None


def turned(heads: Tensor, places: Tensor) -> Tensor:
    rotary = RotaryConfig(base=BASE).build(sizes(19, heads.shape[-1], 2))
    assert torch.equal(rotary.embed(heads[:, 0], places[..., None]), heads[:, 0])
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
    assert sinusoid.embed(torch.ones(2, 5, 7, dtype=dtype), PLACES[..., None]).dtype == dtype


# The lecture's basis


@pytest.mark.parametrize("width", [6, 7])
def test_fourier_equals_the_formula(width: int) -> None:
    span = 37
    inputs = torch.randn(2, 5, width, dtype=torch.float64)
    fourier = FourierConfig(span=span).build(sizes(width, 3, 2))
    added = fourier.embed(inputs, PLACES[..., None]) - inputs
    assert fourier.length == span
    assert fourier.rotation(PLACES[..., None]) is None
    assert fourier.bias(PLACES[..., None], PLACES[..., None]) is None
    for b in range(2):
        for t in range(5):
            for i in range(width):
                angle = math.pi * (i // 2 + 1) * PLACES[b, t].item() / span
                wave = math.sin(angle) if i % 2 else math.cos(angle)
                assert added[b, t, i].item() == pytest.approx(wave, abs=ANGLE)


def test_fourier_by_hand() -> None:
    """cos(pi t / T), sin(pi t / T), ..., cos(pi D t / 2T), sin(pi D t / 2T)."""
    fourier = FourierConfig().build(sizes(6, 3, 4))
    assert fourier.span == 4  # the model's length
    (vectors,) = fourier.vectors(torch.tensor([[[1], [2]]])).double()
    half = 0.5**0.5
    expected = [[half, half, 0, 1, -half, half], [0, 1, -1, 0, 0, -1]]
    assert_close(vectors, torch.tensor(expected).double(), rtol=0, atol=1e-6)


@given(st.integers(2, 40), st.integers(0, 90), st.integers(1, 9))
@settings(max_examples=40)
def test_fourier_repeats_after_twice_its_span_and_not_before(
    span: int, place: int, width: int
) -> None:
    fourier = FourierConfig(span=span).build(sizes(width, 3, 2))
    places = torch.arange(place, place + 2 * span + 1)[None, :, None]
    (turned,) = fourier.vectors(places)
    assert_close(turned[-1], turned[0], rtol=0, atol=1e-4)
    if width > 1:  # a cosine alone comes back on its way
        assert (turned[1:-1] - turned[0]).abs().amax(dim=-1).min() > 1e-2
    half = turned[span] - turned[0]
    assert_close(half[0], -2 * turned[0, 0], rtol=0, atol=1e-4)


def shift_matrix(frequencies: list[float], offset: int, sine_first: bool) -> Tensor:
    """Block-diagonal and of rotations: M e_t = e_(t + offset)."""
    blocks = []
    for frequency in frequencies:
        cosine, sine = math.cos(frequency * offset), math.sin(frequency * offset)
        over = sine if sine_first else -sine
        blocks.append(torch.tensor([[cosine, over], [-over, cosine]], dtype=torch.float64))
    return torch.block_diag(*blocks)


@given(st.integers(-50, 50), st.integers(50, 60), st.integers(1, 5))
@settings(max_examples=60)
def test_a_shift_is_a_rotation_of_blocks(offset: int, first: int, pairs: int) -> None:
    """For both bases; one begins with the sine, the other with the cosine, so the signs differ."""
    width, span = 2 * pairs, 67
    places = torch.arange(first, first + 7)[None, :, None]
    bases = {
        True: (
            SinusoidConfig(base=BASE).build(sizes(width, 3, 2)),
            [BASE ** (-2 * i / width) for i in range(pairs)],
        ),
        False: (
            FourierConfig(span=span).build(sizes(width, 3, 2)),
            [math.pi * (i + 1) / span for i in range(pairs)],
        ),
    }
    for sine_first, (basis, frequencies) in bases.items():
        here, there = basis.vectors(places).double(), basis.vectors(places + offset).double()
        matrix = shift_matrix(frequencies, offset, sine_first)
        assert_close(here @ matrix.T, there, rtol=0, atol=5 * ANGLE)
        back = shift_matrix(frequencies, offset, not sine_first)
        assert_close(back, matrix.T, rtol=0, atol=1e-12)
        assert_close(matrix @ matrix.T, torch.eye(width).double(), rtol=0, atol=1e-12)
        largest = max(abs(math.sin(frequency * offset)) for frequency in frequencies)
        if largest > 0.01:  # the other way round is the shift back, and no other
            assert (here @ back.T - there).abs().max() > largest


# Beside the token in place of onto it


@pytest.mark.parametrize("kind", [LearnedConfig, SinusoidConfig, FourierConfig])
@pytest.mark.parametrize("rows", [1, 2])
def test_concat_doubles_the_width(
    kind: type[LearnedConfig | SinusoidConfig | FourierConfig], rows: int
) -> None:
    torch.manual_seed(3)
    added = kind(place="add").build(sizes(7, 3, 37))
    concat = kind(place="concat").build(sizes(7, 3, 37))
    concat.load_state_dict(added.state_dict())
    assert (added.width, concat.width) == (7, 14)
    inputs, places = torch.randn(2, 5, 7), PLACES[-rows:, :, None]
    entered = concat.embed(inputs, places)
    assert entered.shape == (2, 5, 14)
    assert torch.equal(entered[..., :7], inputs)
    assert torch.equal(inputs + entered[..., 7:], added.embed(inputs, places))


# Over x and y

GRID = torch.cartesian_prod(torch.arange(3), torch.arange(5))[None]  # x changes last


def on_grid(width: int, key_width: int = 4) -> PositionSizes:
    return PositionSizes(width=width, key_width=key_width, heads=3, length=5, axes=2)


@pytest.mark.parametrize("width", [10, 11])
def test_learned_over_x_and_y(width: int) -> None:
    learned = LearnedConfig().build(on_grid(width))
    of_x = (width + 1) // 2
    vectors = learned.vectors(GRID)
    assert vectors.shape == (1, 15, width)
    for number, (x, y) in enumerate(GRID[0].tolist()):
        assert torch.equal(vectors[0, number, :of_x], learned.tables[0].weight[x])
        assert torch.equal(vectors[0, number, of_x:], learned.tables[1].weight[y])


@pytest.mark.parametrize("width", [10, 11, 13])
@pytest.mark.parametrize("kind", ["sinusoid", "fourier"])
def test_waves_over_x_and_y(width: int, kind: str) -> None:
    config = SinusoidConfig(base=BASE) if kind == "sinusoid" else FourierConfig(span=5)
    vectors = config.build(on_grid(width)).vectors(GRID)
    of_x = (width + 1) // 2
    for number, place in enumerate(GRID[0].tolist()):
        for i in range(width):
            axis, part = (0, of_x) if i < of_x else (1, width - of_x)
            within = i - axis * of_x
            if kind == "sinusoid":
                angle = place[axis] / BASE ** ((within - within % 2) / part)
                wave = math.cos(angle) if within % 2 else math.sin(angle)
            else:
                angle = math.pi * (within // 2 + 1) * place[axis] / 5
                wave = math.sin(angle) if within % 2 else math.cos(angle)
            assert vectors[0, number, i].item() == pytest.approx(wave, abs=ANGLE)


@pytest.mark.parametrize("pairs", [1, 4, 5])
def test_rotary_over_x_and_y(pairs: int) -> None:
    rotary = RotaryConfig(base=BASE).build(on_grid(19, 2 * pairs))
    heads = torch.randn(2, 3, 15, 2 * pairs, dtype=torch.float64)
    ours = rotate(heads, rotary.rotation(GRID))
    of_x = (pairs + 1) // 2
    for number, (x, y) in enumerate(GRID[0].tolist()):
        for i in range(pairs):
            angle = x / BASE ** (i / of_x)
            if i >= of_x:
                angle = y / BASE ** ((i - of_x) / (pairs - of_x))
            turn = cmath.exp(1j * angle)
            pair = torch.complex(heads[:, :, number, i], heads[:, :, number, i + pairs]) * turn
            assert_close(ours[:, :, number, i], pair.real, rtol=0, atol=ANGLE)
            assert_close(ours[:, :, number, i + pairs], pair.imag, rtol=0, atol=ANGLE)


places = st.integers(0, 40)


@given(st.integers(0, 2**31), places, places, places, places, places, places, st.integers(1, 5))
@settings(max_examples=50)
def test_rotary_scores_depend_only_on_the_distances_in_x_and_y(
    seed: int, x: int, y: int, key_x: int, key_y: int, shift_x: int, shift_y: int, pairs: int
) -> None:
    torch.manual_seed(seed)
    query, key = torch.randn(2, 1, 1, 1, 2 * pairs, dtype=torch.float64)
    rotary = RotaryConfig(base=BASE).build(on_grid(19, 2 * pairs))

    def score(*at: int) -> Tensor:
        here, there = torch.tensor(at).view(2, 1, 1, 2)
        return (rotate(query, rotary.rotation(here)) * rotate(key, rotary.rotation(there))).sum()

    here = score(x, y, key_x, key_y)
    shifted = score(x + shift_x, y + shift_y, key_x + shift_x, key_y + shift_y)
    assert_close(shifted, here, rtol=0, atol=20 * pairs * ANGLE)


def test_rotary_scores_tell_x_from_y() -> None:
    rotary = RotaryConfig(base=BASE).build(on_grid(19, 8))
    vector = torch.randn(1, 1, 1, 8, dtype=torch.float64).expand(1, 1, 15, 8)
    turned_ = rotate(vector, rotary.rotation(GRID))[0, 0]
    scores = turned_ @ turned_[7]  # from the middle, x 1 and y 2
    by_place = scores.view(3, 5)
    assert (by_place[0, 2] - by_place[1, 1]).abs() > 1e-2
    assert_close(by_place[0, 2], by_place[2, 2], rtol=0, atol=ANGLE)
