"""Images and maps through every front and decoder; the RNN against the sources' sum over x, y."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, NoPositionConfig
from harken.inspection.record import record
from harken.layers.frontends import (
    ConvStemConfig,
    FeatureProjectionConfig,
    ImageFrontendConfig,
    ImageSizes,
    PatchEmbeddingConfig,
)
from harken.layers.spatial import SpatialConfig
from harken.models.captioner import Captioner, CaptionerConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.seq2seq import DecoderConfig
from small_layers import check_steps, randomized

VOCABULARY, WIDTH, START = 13, 12, 2
COLUMNS, ROWS, CHANNELS = 14, 10, 3
HEADS = MultiHeadConfig(heads=3)
FRONTS: dict[str, ImageFrontendConfig] = {
    "convolution": ConvStemConfig(channels=(5, 7)),
    "patch": PatchEmbeddingConfig(patch=2),
    "features": FeatureProjectionConfig(),
}
DECODERS: dict[str, DecoderConfig] = {
    "rnn": AttentionRNNDecoderConfig(width=WIDTH, hidden=11),
    "transformer": TransformerDecoderConfig(
        layers=2, width=WIDTH, max_length=29, attention=HEADS, dropout=0.0
    ),
}
TARGET = torch.tensor([[START, 5, 9, 12], [START, 4, 6, 8]])
each_front = pytest.mark.parametrize("front", FRONTS)
each_decoder = pytest.mark.parametrize("decoder", DECODERS)


def pictures(front: str) -> Tensor:
    shape = (2, COLUMNS, ROWS, CHANNELS) if front == "features" else (2, CHANNELS, ROWS, COLUMNS)
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    return made.double()


def built(front: str, decoder: str, encoder: SpatialConfig) -> Captioner:
    config = CaptionerConfig(
        width=WIDTH,
        frontend=FRONTS[front],
        encoder=encoder,
        decoder=DECODERS[decoder],
        dropout=0.0,
    )
    sizes = ImageSizes(channels=CHANNELS, columns=COLUMNS, rows=ROWS)
    torch.manual_seed(0)
    return randomized(config.build(VOCABULARY, sizes, seed=7), std=0.4)


@each_front
@each_decoder
@torch.no_grad()
def test_steps_equal_whole_rows(front: str, decoder: str) -> None:
    model = built(front, decoder, SpatialConfig(layers=1, attention=HEADS))
    whole = model(pictures(front), TARGET)
    check_steps(model, *model.encode(pictures(front)), TARGET, whole)


@torch.no_grad()
def test_the_rnn_sums_over_x_and_y_of_the_map() -> None:
    """a[x,y] = softmax over both of h . W_key M[x,y], V = sum of a M: loops over x and y."""
    model = built("features", "rnn", SpatialConfig(layers=0, position=NoPositionConfig()))
    maps = pictures("features")
    with record(model) as seen:
        model(maps, TARGET[:, :1])
    (looked,) = [call for call in seen if call.name == "decoder.attention"]
    memory = model.encode(maps).memory
    query = model.init_state(*model.encode(maps)).cell.hidden[:, -1]
    (key_matrix,) = model.decoder.attention.score.matrix
    for picture in range(2):
        total = 0.0
        powers = torch.zeros(COLUMNS, ROWS, dtype=torch.float64)
        for x in range(COLUMNS):
            for y in range(ROWS):
                place = model.norm(model.frontend.proj(maps[picture, x, y]))
                assert_close(memory[picture, y * COLUMNS + x], place, rtol=0, atol=1e-12)
                powers[x, y] = (query[picture] @ key_matrix @ place).exp()
                total += float(powers[x, y])
        expected = (powers / total).T.flatten()
        assert_close(looked.weights[picture, 0, 0], expected, rtol=0, atol=1e-10)


@each_front
@torch.no_grad()
def test_places_are_as_many_as_the_front_says(front: str) -> None:
    model = built(front, "rnn", SpatialConfig(layers=0))
    seen = model.encode(pictures(front))
    assert seen.memory.shape[1] == model.frontend.columns * model.frontend.rows
    assert seen.present.all() and seen.present.shape == seen.memory.shape[:2]


@each_decoder
@torch.no_grad()
def test_a_picture_does_not_see_its_neighbor(decoder: str) -> None:
    model = built("convolution", decoder, SpatialConfig(layers=1, attention=HEADS))
    both = model(pictures("convolution"), TARGET)
    alone = model(pictures("convolution")[:1], TARGET[:1])
    assert_close(both[:1], alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_positions_a_map_is_a_set_of_places() -> None:
    """With positions the order matters, without them it does not."""
    order = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(5))
    maps = pictures("features")
    for position, same in ((NoPositionConfig(), True), (LearnedConfig(), False)):
        model = built(
            "features", "rnn", SpatialConfig(layers=1, attention=HEADS, position=position)
        )
        straight, mixed = model(maps, TARGET), model(maps[:, order], TARGET)
        assert torch.allclose(straight, mixed, rtol=0, atol=1e-10) == same
