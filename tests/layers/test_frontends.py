import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.config import dumps, loads
from harken.errors import UserError
from harken.layers.frontends import (
    Conv2dSubsamplingConfig,
    ConvStemConfig,
    FeatureProjectionConfig,
    ImageFrontendConfig,
    ImageSizes,
    PatchEmbeddingConfig,
    as_map,
    as_tokens,
    grid_coordinates,
)
from small_layers import randomized

BATCH, FEATURES, CHANNELS, WIDTH = 3, 13, 5, 7
SIZES = ImageSizes(channels=2, columns=15, rows=6)
FACTORS = [2, 4]
IMAGES: dict[str, ImageFrontendConfig] = {
    "patch": PatchEmbeddingConfig(patch=3),
    "convolution": ConvStemConfig(channels=(5, 11)),
    "features": FeatureProjectionConfig(),
}


def drawn(module: Any) -> Any:
    return randomized(module, std=0.4, mean=0.1)


def speech(factor: Any) -> Any:
    return drawn(
        Conv2dSubsamplingConfig(channels=CHANNELS, subsampling=factor).build(FEATURES, WIDTH)
    )


def convolved(planes: Tensor, layer: nn.Conv2d, strides: tuple[int, int]) -> Tensor:
    """relu(b + sum of W[dy, dx] plane[stride y + dy, stride x + dx]), zeros beyond the edges."""
    down, across = (math.ceil(planes.shape[1 + n] / strides[n]) for n in (0, 1))
    out = torch.zeros(layer.out_channels, down, across, dtype=torch.float64)
    reach = layer.kernel_size[0] // 2
    for y in range(down):
        for x in range(across):
            total = layer.bias.clone()
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    at = strides[0] * y + dy, strides[1] * x + dx
                    if 0 <= at[0] < planes.shape[1] and 0 <= at[1] < planes.shape[2]:
                        weight = layer.weight[:, :, dy + reach, dx + reach]
                        total += weight @ planes[:, at[0], at[1]]
            out[:, y, x] = total.clamp(min=0)
    return out


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("time", [1, 2, 9, 12])
@torch.no_grad()
def test_speech_by_the_formula(factor: int, time: int) -> None:
    front = speech(factor)
    frames = torch.randn(BATCH, time, FEATURES, dtype=torch.float64)
    ours = front(frames)
    assert ours.tokens.shape == (BATCH, math.ceil(time / factor), WIDTH)
    assert ours.present is None
    assert ours.coordinates.tolist() == [[[t] for t in range(math.ceil(time / factor))]]
    for row in range(BATCH):
        planes = convolved(frames[row][None], front.first, (2, 2))
        planes = convolved(planes, front.second, (factor // 2, 2))
        for t, token in enumerate(ours.tokens[row]):
            expected = front.proj.weight @ planes[:, t].flatten() + front.proj.bias
            assert_close(token, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("factor", FACTORS)
def test_padding_of_speech_changes_nothing(factor: int) -> None:
    """Every length from one on; its own tokens are all that are present."""
    front, longest = speech(factor), 13
    lengths = torch.arange(1, longest + 1)
    present = torch.arange(longest + 6) < lengths[:, None]
    frames = torch.randn(longest, longest + 6, FEATURES, dtype=torch.float64)
    ours = front(100 * frames, present)
    assert ours.present.sum(dim=1).tolist() == [math.ceil(n / factor) for n in lengths.tolist()]
    assert (ours.tokens[~ours.present] == 0).all()
    for row, length in enumerate(lengths.tolist()):
        alone = front(100 * frames[row : row + 1, :length]).tokens[0]
        assert_close(ours.tokens[row][ours.present[row]], alone, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("factor", FACTORS)
def test_padding_of_speech_gets_no_gradient(factor: int) -> None:
    front, present = speech(factor), torch.arange(11) < torch.tensor([[5], [11], [8]])
    frames = torch.randn(BATCH, 11, FEATURES, dtype=torch.float64, requires_grad=True)
    tokens = front(frames, present).tokens
    tokens.square().sum().backward()
    assert frames.grad is not None and frames.grad.isfinite().all()
    assert (frames.grad[~present] == 0).all()
    assert (frames.grad[present] != 0).any(dim=-1).all()
    assert all(
        parameter.grad is not None and parameter.grad.abs().max() > 0
        for parameter in front.parameters()
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_speech_token_is_centered_in_its_receptive_field(factor: int) -> None:
    front, time = speech(factor), 41
    frames = torch.randn(1, time, FEATURES, dtype=torch.float64, requires_grad=True)
    nn.init.constant_(front.first.bias, 50.0)  # past the bend, so that every path is open
    nn.init.constant_(front.second.bias, 5000.0)
    tokens = front(frames).tokens
    for place in range(2, tokens.shape[1] - 2):
        (gradient,) = torch.autograd.grad(tokens[0, place].sum(), frames, retain_graph=True)
        seen = gradient[0].abs().sum(dim=-1).nonzero().flatten().tolist()
        center = front.offset + front.stride * place
        reach = (3 + 2 * front.strides[0]) // 2
        assert seen == list(range(center - reach, center + reach + 1))


@torch.no_grad()
def test_patches_agree_with_hugging_face() -> None:
    vit = pytest.importorskip("transformers.models.vit.modeling_vit")
    config = vit.ViTConfig(image_size=(6, 15), patch_size=3, num_channels=2, hidden_size=WIDTH)
    theirs = vit.ViTPatchEmbeddings(config).double()
    ours = drawn(IMAGES["patch"].build(SIZES, WIDTH))
    theirs.projection.weight.copy_(ours.proj.weight.view_as(theirs.projection.weight))
    theirs.projection.bias.copy_(ours.proj.bias)
    images = torch.randn(BATCH, 2, 6, 15, dtype=torch.float64)
    assert_close(ours(images).tokens, theirs(images), rtol=0, atol=1e-12)


def test_images_that_do_not_divide_into_patches_are_rejected() -> None:
    config = PatchEmbeddingConfig(patch=3)
    with pytest.raises(UserError, match=r"a divisor of 15 and 7 .*, got 3"):
        config.build(ImageSizes(channels=2, columns=15, rows=7), WIDTH)
    with pytest.raises(UserError, match="a divisor of 14 and 6"):
        config.build(SIZES, WIDTH)(torch.zeros(1, 2, 6, 14))
    with pytest.raises(ValueError, match="expected at least one layer"):
        ConvStemConfig(channels=())
    with pytest.raises(ValueError, match="expected an odd number, got 4"):
        ConvStemConfig(kernel=4)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@torch.no_grad()
def test_the_small_cnn_by_the_formula(kernel: int) -> None:
    config = ConvStemConfig(channels=(5, 11), kernel=kernel)
    front = drawn(config.build(SIZES, WIDTH))
    images = torch.randn(BATCH, 2, 6, 15, dtype=torch.float64)
    ours = front(images)
    assert (front.columns, front.rows) == (4, 2)
    for row in range(BATCH):
        planes = images[row]
        for layer in front.convolutions:
            planes = convolved(planes, layer, (2, 2))
        for t, (x, y) in enumerate(ours.coordinates[0].tolist()):
            expected = front.places.proj.weight @ planes[:, y, x] + front.places.proj.bias
            assert_close(ours.tokens[row, t], expected, rtol=0, atol=1e-11)


@torch.no_grad()
def test_every_position_of_a_map_is_a_token() -> None:
    front = drawn(IMAGES["features"].build(ImageSizes(channels=11, columns=5, rows=3), WIDTH))
    maps = torch.randn(BATCH, 5, 3, 11, dtype=torch.float64)
    ours = front(maps)
    assert (front.columns, front.rows) == (5, 3)
    assert ours.coordinates[0].tolist() == [[x, y] for y in range(3) for x in range(5)]
    for t, (x, y) in enumerate(ours.coordinates[0].tolist()):
        expected = maps[:, x, y] @ front.proj.weight.T + front.proj.bias
        assert_close(ours.tokens[:, t], expected, rtol=0, atol=1e-12)


def test_as_map_inverts_as_tokens() -> None:
    maps, places = torch.randn(BATCH, 5, 3, 11), grid_coordinates(5, 3, torch.device("cpu"))
    tokens = as_tokens(maps)
    assert torch.equal(tokens, maps[:, places[0, :, 0], places[0, :, 1]])
    assert torch.equal(as_map(tokens, columns=5), maps)


@pytest.mark.parametrize("kind", ["patch", "convolution"])
def test_image_token_is_centered_in_its_receptive_field(kind: str) -> None:
    sizes = ImageSizes(channels=2, columns=36, rows=24)
    front = drawn(IMAGES[kind].build(sizes, WIDTH))
    for name, parameter in front.named_parameters():
        if name.startswith("convolutions") and name.endswith("bias"):
            nn.init.constant_(parameter, 1000.0)  # past the bend
    images = torch.randn(1, 2, 24, 36, dtype=torch.float64, requires_grad=True)
    ours = front(images)
    for t, (x, y) in enumerate(ours.coordinates[0].tolist()):
        if not (0 < x < front.columns - 1 and 0 < y < front.rows - 1):
            continue
        (gradient,) = torch.autograd.grad(ours.tokens[0, t].sum(), images, retain_graph=True)
        seen = gradient[0].abs().sum(dim=0).nonzero().double()
        middle = (seen.amin(dim=0) + seen.amax(dim=0)) / 2
        expected = [front.offset + front.stride * y, front.offset + front.stride * x]
        assert middle.tolist() == expected


@pytest.mark.parametrize("kind", IMAGES)
def test_gradients_reach_every_weight(kind: str) -> None:
    front = drawn(IMAGES[kind].build(SIZES, WIDTH))
    shape = (BATCH, 15, 6, 2) if kind == "features" else (BATCH, 2, 6, 15)
    images = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    front(images).tokens.square().sum().backward()
    for parameter in (images, *front.parameters()):
        assert parameter.grad is not None and parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("kind", IMAGES)
def test_smaller_images(kind: str) -> None:
    """What is built for the largest serves the others: only the rim's convolutions differ."""
    front = drawn(IMAGES[kind].build(SIZES, WIDTH))
    shape = (BATCH, 15, 6, 2) if kind == "features" else (BATCH, 2, 6, 15)
    images = torch.randn(shape, dtype=torch.float64)
    small = images[:, :9] if kind == "features" else images[..., :9]
    large, ours = front(images), front(small)
    inner = {"patch": 3, "convolution": 2, "features": 9}[kind]
    theirs = {tuple(at): large.tokens[:, t] for t, at in enumerate(large.coordinates[0].tolist())}
    compared = 0
    for t, (x, y) in enumerate(ours.coordinates[0].tolist()):
        if x < inner:
            assert_close(ours.tokens[:, t], theirs[x, y], rtol=0, atol=1e-12)
            compared += 1
    assert compared == inner * front.rows


@pytest.mark.parametrize(
    "config", [Conv2dSubsamplingConfig(channels=3, subsampling=2), *IMAGES.values()], ids=repr
)
def test_configs_load_from_toml(config: Any) -> None:
    assert loads(type(config), dumps(config), base=Path()) == config
