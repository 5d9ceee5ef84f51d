"""Position kinds compared with their formulas, along one axis and along x and y."""

import cmath
import math

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

POSITIONS = torch.tensor([[0, 1, 2, 3, 4], [2, 0, 31, 1, 7]])[..., None]  # the second row is packed
GRID = torch.cartesian_prod(torch.arange(3), torch.arange(5))[None]  # y changes fastest
COORDINATES = [POSITIONS[:1], POSITIONS, GRID]
BASE, SPAN = 100.0, 37
ANGLE = 1e-5  # angles are float32, and the vectors of these tests float64
over_all_axes = pytest.mark.parametrize("coordinates", COORDINATES, ids=["row", "rows", "grid"])


def sizes(coordinates: Tensor, width: int = 7, key_width: int = 4) -> PositionSizes:
    axes = coordinates.shape[-1]
    return PositionSizes(width=width, key_width=key_width, heads=3, max_length=SPAN, axes=axes)


@over_all_axes
@pytest.mark.parametrize("width", [6, 7, 11])
@pytest.mark.parametrize("config", [SinusoidConfig(base=BASE), FourierConfig(span=SPAN)])
def test_sinusoids_equal_the_formula(
    config: SinusoidConfig | FourierConfig, width: int, coordinates: Tensor
) -> None:
    position = config.build(sizes(coordinates, width))
    inputs = torch.randn(2, coordinates.shape[1], width, dtype=torch.float64)
    vectors = (position.embed(inputs, coordinates) - inputs)[-len(coordinates) :]
    assert position.rotation(coordinates) is None
    assert position.bias(coordinates, coordinates) is None
    of_x = width if coordinates.shape[-1] == 1 else (width + 1) // 2
    for vector, place in zip(vectors.flatten(0, 1), coordinates.flatten(0, 1), strict=True):
        for i in range(width):
            axis, part = (0, of_x) if i < of_x else (1, width - of_x)
            pair, is_odd = divmod(i - axis * of_x, 2)
            angle = place[axis].item() / BASE ** (2 * pair / part)
            if isinstance(config, FourierConfig):
                angle = math.pi * (pair + 1) * place[axis].item() / SPAN
            is_sine = is_odd == isinstance(config, FourierConfig)
            expected = math.sin(angle) if is_sine else math.cos(angle)
            assert vector[i].item() == pytest.approx(expected, abs=ANGLE)


@over_all_axes
@pytest.mark.parametrize("width", [10, 11])
def test_learned_vectors_are_rows_of_the_table_of_each_axis(
    width: int, coordinates: Tensor
) -> None:
    learned = LearnedConfig().build(sizes(coordinates, width))
    inputs = torch.randn(len(coordinates), coordinates.shape[1], width)
    rows = [table.weight[coordinates[..., axis]] for axis, table in enumerate(learned.tables)]
    assert [row.shape[-1] for row in rows] == ([width] if len(rows) == 1 else [(width + 1) // 2, 5])
    assert torch.equal(learned.embed(inputs, coordinates), inputs + torch.cat(rows, dim=-1))
    assert learned.rotation(coordinates) is None


def test_no_position_adds_nothing() -> None:
    inputs, position = torch.randn(2, 5, 7), NoPositionConfig().build(sizes(POSITIONS))
    assert torch.equal(position.embed(inputs, POSITIONS), inputs)
    assert position.rotation(POSITIONS) is None


@over_all_axes
@pytest.mark.parametrize("pairs", [1, 4, 5])
def test_rotary_rotates_each_pair_by_its_angle(pairs: int, coordinates: Tensor) -> None:
    """Element i and element i + U/2 are the parts of a complex number."""
    rotary = RotaryConfig(base=BASE).build(sizes(coordinates, key_width=2 * pairs))
    heads = torch.randn(2, 3, coordinates.shape[1], 2 * pairs, dtype=torch.float64)
    assert torch.equal(rotary.embed(heads[:, 0], coordinates), heads[:, 0])
    rotated = rotate(heads, rotary.rotation(coordinates))
    of_x = pairs if coordinates.shape[-1] == 1 else (pairs + 1) // 2
    for b, row in enumerate(coordinates.expand(2, -1, -1).tolist()):
        for t, place in enumerate(row):
            for i in range(pairs):
                angle = place[0] / BASE ** (i / of_x)
                if i >= of_x:
                    angle = place[1] / BASE ** ((i - of_x) / (pairs - of_x))
                pair = torch.complex(heads[b, :, t, i], heads[b, :, t, i + pairs])
                pair *= cmath.exp(1j * angle)
                assert_close(rotated[b, :, t, i], pair.real, rtol=0, atol=ANGLE)
                assert_close(rotated[b, :, t, i + pairs], pair.imag, rtol=0, atol=ANGLE)


points = st.tuples(st.integers(0, 60), st.integers(0, 60))


@given(st.integers(0, 2**31), points, points, points, st.integers(1, 6), st.sampled_from([1, 2]))
@settings(max_examples=80)
def test_rotary_scores_depend_only_on_distances(
    seed: int,
    query_at: tuple[int, int],
    key_at: tuple[int, int],
    shift: tuple[int, int],
    pairs: int,
    axes: int,
) -> None:
    torch.manual_seed(seed)
    query, key = torch.randn(2, 1, 1, 1, 2 * pairs, dtype=torch.float64)
    places = torch.tensor([query_at, key_at])[:, None, None, :axes]
    rotary = RotaryConfig(base=BASE).build(sizes(places, key_width=2 * pairs))

    def score(query_place: Tensor, key_place: Tensor) -> Tensor:
        rotated = rotate(query, rotary.rotation(query_place))
        return (rotated * rotate(key, rotary.rotation(key_place))).sum()

    shifted = score(*(places + torch.tensor(shift)[:axes]))
    assert_close(shifted, score(*places), rtol=0, atol=20 * pairs * ANGLE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_positions_keep_the_dtype(dtype: torch.dtype) -> None:
    rotation = RotaryConfig().build(sizes(POSITIONS)).rotation(POSITIONS)
    assert rotate(torch.ones(2, 3, 5, 4, dtype=dtype), rotation).dtype == dtype
    sinusoid = SinusoidConfig().build(sizes(POSITIONS))
    assert sinusoid.embed(torch.ones(2, 5, 7, dtype=dtype), POSITIONS).dtype == dtype


@given(st.integers(2, 40), st.integers(0, 90), st.integers(1, 9))
@settings(max_examples=40)
def test_fourier_repeats_after_twice_its_span_and_not_before(
    span: int, first: int, width: int
) -> None:
    fourier = FourierConfig(span=span).build(sizes(POSITIONS, width))
    assert fourier.max_length == span
    (vectors,) = fourier.vectors(torch.arange(first, first + 2 * span + 1)[None, :, None])
    assert_close(vectors[-1], vectors[0], rtol=0, atol=1e-4)
    if width > 1:  # a cosine alone is symmetric
        assert (vectors[1:-1] - vectors[0]).abs().amax(dim=-1).min() > 1e-2
    assert_close(vectors[span, 0], -vectors[0, 0], rtol=0, atol=1e-4)
    assert FourierConfig().build(sizes(POSITIONS)).span == SPAN  # the length of the model


@pytest.mark.parametrize("kind", [LearnedConfig, SinusoidConfig, FourierConfig])
@pytest.mark.parametrize("rows", [1, 2])
def test_concat_doubles_the_width(
    kind: type[LearnedConfig | SinusoidConfig | FourierConfig], rows: int
) -> None:
    added = kind(combine="add").build(sizes(POSITIONS))
    concat = kind(combine="concat").build(sizes(POSITIONS))
    concat.load_state_dict(added.state_dict())
    assert (added.width, concat.width) == (7, 14)
    inputs, coordinates = torch.randn(2, 5, 7), POSITIONS[-rows:]
    embedded = concat.embed(inputs, coordinates)
    assert embedded.shape == (2, 5, 14)
    assert torch.equal(embedded[..., :7], inputs)
    assert torch.equal(inputs + embedded[..., 7:], added.embed(inputs, coordinates))
