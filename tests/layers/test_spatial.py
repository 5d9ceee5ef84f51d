import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    NoPositionConfig,
    PositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import (
    AlibiConfig,
    RelativeConfig,
    RotaryConfig,
    alibi_slopes,
    offset_buckets,
)
from harken.attention.scores import SynthesizerConfig, TransformerXLConfig
from harken.inspection.record import record
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.frontends import grid_coordinates
from harken.layers.spatial import SpatialConfig, SpatialEncoder
from small_layers import randomized
from small_models import over_map

BATCH, COLUMNS, ROWS, WIDTH, HEADS, HEAD_WIDTH, KEY_WIDTH = 2, 5, 3, 11, 2, 7, 6
PLACES = list(product(range(COLUMNS), range(ROWS)))
POSITIONS: dict[str, PositionConfig] = {
    "none": NoPositionConfig(),
    "learned": LearnedConfig(),
    "learned, concat": LearnedConfig(combine="concat"),
    "sinusoid": SinusoidConfig(),
    "fourier": FourierConfig(),
    "fourier, concat": FourierConfig(combine="concat"),
    "rotary": RotaryConfig(base=20.0),
    "alibi": AlibiConfig(),
    "relative": RelativeConfig(buckets=4, max_distance=5),
}
every_position = pytest.mark.parametrize("position", POSITIONS)


def config(position: str, layers: int = 2, **choices: Any) -> SpatialConfig:
    heads = MultiHeadConfig(heads=HEADS, head_width=HEAD_WIDTH, key_width=KEY_WIDTH, **choices)
    return SpatialConfig(
        layers=layers,
        attention=heads,
        position=POSITIONS[position],
        feedforward=FeedForwardConfig(inner=13),
    )


def built(position: str, layers: int = 2, **choices: Any) -> SpatialEncoder:
    encoder = config(position, layers, **choices).build(WIDTH, COLUMNS, ROWS)
    return randomized(encoder, std=0.5, mean=0.1)


def some_maps(columns: int = COLUMNS, rows: int = ROWS) -> Tensor:
    return torch.randn(BATCH, columns, rows, WIDTH, dtype=torch.float64)


def turned(head: Tensor, x: int, y: int) -> Tensor:
    """Pairs (n, n + U/2): the first two by x, the last by y, each from its own fastest turn on."""
    angles = [x * 20.0**0, x * 20.0 ** (-2 / 4), y * 20.0**0]
    out, half = head.clone(), KEY_WIDTH // 2
    for pair, angle in enumerate(angles):
        first, second = head[pair], head[pair + half]
        out[pair] = first * math.cos(angle) - second * math.sin(angle)
        out[pair + half] = first * math.sin(angle) + second * math.cos(angle)
    return out


def bias(encoder: SpatialEncoder, kind: str, head: int, here: Any, there: Any) -> float:
    across, down = there[0] - here[0], there[1] - here[1]
    if kind == "alibi":
        return -alibi_slopes(HEADS)[head] * (abs(across) + abs(down))
    if kind == "relative":
        total = 0.0
        for table, offset in zip(encoder.position.tables, (across, down), strict=True):
            bucket = offset_buckets(torch.tensor(offset), 4, 5, causal=False)
            total += float(table.weight[bucket, head])
        return total
    return 0.0


def looped(encoder: SpatialEncoder, kind: str, maps: Tensor) -> tuple[Tensor, Tensor]:
    """What the first block adds by attention, and alpha[x, y, x', y'], over x, y and x', y'."""
    attention = encoder.stack.blocks[0].attention
    score = attention.score
    alpha = torch.zeros(BATCH, HEADS, COLUMNS, ROWS, COLUMNS, ROWS, dtype=torch.float64)
    mixed = torch.zeros(BATCH, COLUMNS, ROWS, HEADS, HEAD_WIDTH, dtype=torch.float64)
    for b, h in product(range(BATCH), range(HEADS)):
        rows = slice(KEY_WIDTH * h, KEY_WIDTH * (h + 1))
        to_query, to_key = score.q_proj.weight[rows], score.k_proj.weight[rows]
        to_value = attention.v_proj.weight[HEAD_WIDTH * h : HEAD_WIDTH * (h + 1)]
        for x, y in PLACES:
            total = 0.0
            for x_, y_ in PLACES:
                query, key = to_query @ maps[b, x, y], to_key @ maps[b, x_, y_]
                if kind == "rotary":
                    query, key = turned(query, x, y), turned(key, x_, y_)
                compared = float(query @ key) / math.sqrt(KEY_WIDTH)
                grown = math.exp(compared + bias(encoder, kind, h, (x, y), (x_, y_)))
                alpha[b, h, x, y, x_, y_] = grown
                total += grown
            alpha[b, h, x, y] /= total
            for x_, y_ in PLACES:
                mixed[b, x, y, h] += alpha[b, h, x, y, x_, y_] * (to_value @ maps[b, x_, y_])
    return mixed.flatten(3) @ attention.out_proj.weight.T, alpha


@pytest.mark.parametrize("kind", ["none", "rotary", "alibi", "relative"])
@torch.no_grad()
def test_attention_equals_a_loop_over_both_axes(kind: str) -> None:
    encoder, maps = built(kind, layers=1), some_maps()
    block = encoder.stack.blocks[0]
    added, alpha = looped(encoder, kind, block.attention_norm(maps))
    assert_close(alpha.sum(dim=(-2, -1)), torch.ones_like(alpha[..., 0, 0]), rtol=0, atol=1e-12)
    with record(encoder) as seen:
        output = over_map(encoder, maps)
    close = 1e-6 if kind == "rotary" else 1e-11  # its angles are float32
    ours = seen[0].weights.unflatten(3, (ROWS, COLUMNS)).unflatten(2, (ROWS, COLUMNS))
    assert_close(ours.permute(0, 1, 3, 2, 5, 4), alpha, rtol=0, atol=close)
    middle = maps + added
    middle = middle + block.feedforward(block.feedforward_norm(middle).flatten(1, 2)).view_as(maps)
    assert_close(output, encoder.stack.norm(middle), rtol=0, atol=close)


@pytest.mark.parametrize("kind", ["learned", "sinusoid", "fourier", "fourier, concat"])
@torch.no_grad()
def test_input_positions_depend_on_both_axes(kind: str) -> None:
    encoder, maps = built(kind, layers=0), some_maps()
    encoder.stack.norm = nn.Identity()
    told = over_map(encoder, maps)
    told = told[..., WIDTH:] if "concat" in kind else told - maps
    first = 6  # of eleven numbers, told by x; the rest by y
    for x, y in PLACES:
        for place, numbers in ((x, told[0, x, y, :first]), (y, told[0, x, y, first:])):
            size, axis = len(numbers), 0 if len(numbers) == first else 1
            for n, number in enumerate(numbers.tolist()):
                if kind == "learned":
                    expected = float(encoder.position.tables[axis].weight[place, n])
                elif kind == "sinusoid":
                    angle = place / 10000.0 ** ((n - n % 2) / size)
                    expected = math.cos(angle) if n % 2 else math.sin(angle)
                else:
                    angle = math.pi * (n // 2 + 1) * place / COLUMNS
                    expected = math.sin(angle) if n % 2 else math.cos(angle)
                assert number == pytest.approx(expected, abs=1e-6)  # their angles are float32


@every_position
@torch.no_grad()
def test_order_of_tokens_does_not_matter(position: str) -> None:
    """TokenGrid know where they stand from their coordinates alone, each row from its own."""
    encoder, maps = built(position), some_maps()
    whole = over_map(encoder, maps)
    assert whole.shape == (BATCH, COLUMNS, ROWS, encoder.width)
    orders = torch.stack([torch.randperm(len(PLACES)) for _ in range(BATCH)])
    coordinates = torch.tensor(PLACES)[orders]
    rows = torch.arange(BATCH)[:, None]
    at = rows, coordinates[..., 0], coordinates[..., 1]
    assert_close(encoder(maps[at], coordinates), whole[at], rtol=0, atol=1e-11)


@every_position
@torch.no_grad()
def test_without_positions_tokens_are_interchangeable(position: str) -> None:
    """Without them, moving what stands on the map moves the answers and changes none of them."""
    encoder, maps = built(position), some_maps()
    order = torch.randperm(len(PLACES))
    moved = maps.flatten(1, 2)[:, order].view_as(maps)
    whole = over_map(encoder, maps).flatten(1, 2)[:, order]
    difference = (over_map(encoder, moved).flatten(1, 2) - whole).abs().max()
    assert difference < 1e-11 if position == "none" else difference > 1e-3


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative"])
@torch.no_grad()
def test_relative_positions_depend_on_distances_only(position: str) -> None:
    encoder, tokens = built(position), some_maps().flatten(1, 2)
    here = torch.tensor(PLACES)[None]
    there = here + torch.tensor([101, 59])
    assert_close(encoder(tokens, there), encoder(tokens, here), rtol=0, atol=1e-4)  # float32 angles
    crossed = encoder(tokens, here.flip(-1))
    assert (crossed - encoder(tokens, here)).abs().max() > 1e-3 or position == "alibi"


@every_position
@torch.no_grad()
def test_padding_changes_nothing(position: str) -> None:
    encoder, small = built(position), some_maps(columns=4, rows=2)
    large = 100 * some_maps()
    large[:, :4, :2] = small
    present = torch.zeros(BATCH, COLUMNS, ROWS, dtype=torch.bool)
    present[:, :4, :2] = True
    ours = over_map(encoder, large, present)[:, :4, :2]
    assert_close(ours, over_map(encoder, small), rtol=0, atol=1e-11)
    assert (over_map(encoder, large)[:, :4, :2] - ours).abs().max() > 1e-3


@every_position
def test_gradients_reach_every_weight(position: str) -> None:
    encoder, maps = built(position), some_maps().requires_grad_()
    over_map(encoder.train(), maps).sin().sum().backward()
    for name, parameter in [("maps", maps), *encoder.named_parameters()]:
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_per_position_scores_on_smaller_maps() -> None:
    """A random synthesizer's row belongs to (x, y), for any size of image."""
    encoder = built("none", layers=1, score=SynthesizerConfig(form="random"))
    maps = some_maps(columns=3)
    with record(encoder) as seen:
        over_map(encoder, maps)
    table = encoder.stack.blocks[0].attention.score.table
    places = grid_coordinates(3, ROWS, maps.device)[0].tolist()
    for t, (x, y) in enumerate(places):
        row = torch.stack([table[:, COLUMNS * y + x, COLUMNS * v + u] for u, v in places], dim=-1)
        assert_close(seen[0].weights[0, :, t], row.softmax(dim=-1), rtol=0, atol=1e-12)


def test_invalid_configs_are_rejected() -> None:
    with pytest.raises(ValueError, match="'transformer_xl' uses distances along one axis"):
        config("none", score=TransformerXLConfig())
    with pytest.raises(ValueError, match="'synthesizer' has none"):
        config("rotary", score=SynthesizerConfig()).build(WIDTH, COLUMNS, ROWS)
    with pytest.raises(ValueError, match="width 11 does not divide into 4 heads"):
        SpatialConfig().build(WIDTH, COLUMNS, ROWS)
