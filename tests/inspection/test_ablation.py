"""Ablated models compared with models built without the part, and with slow loops."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from writers import stirred as stirred_module

from harken.attention.kernels import fused_attention
from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.errors import UserError
from harken.inspection.ablation import (
    AblationMethod,
    AttentionRef,
    FeedForwardRef,
    HeadRef,
    LayerRef,
    Mean,
    MeanActivations,
    ModelPart,
    PositionRef,
    Resample,
    Zero,
    ablated,
    layer_parts,
    mean_activations,
    other_rows,
    position_parts,
    with_outputs,
)
from harken.inspection.record import record
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.spatial import SpatialConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.seq2seq import DecoderConfig, EncoderDecoder, EncoderDecoderConfig
from small_models import (
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    POSITIONS,
    VOCABULARY,
    over_map,
)
from small_models import small_model as small

TOKENS = torch.arange(1, 16).reshape(3, 5)
FIRST, SECOND = "stack.blocks.0.attention", "stack.blocks.1.attention"
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 2, 3], [4, 10, 11, 1, 2, 0, 0]])
PRESENT = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
TARGET = torch.tensor([[3, 5, 9], [3, 14, 6]])
THREE = MultiHeadConfig(heads=3)
DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(layers=2, width=12, max_length=29, attention=THREE),
    "rnn": AttentionRNNDecoderConfig(width=12, hidden=13),
}


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def translator(decoder: str, *, conformer: bool = False) -> EncoderDecoder:
    body = (
        ConformerEncoderConfig(layers=1, max_length=31, kernel=3)
        if conformer
        else TransformerEncoderConfig(layers=1, max_length=31, attention=THREE)
    )
    config = EncoderDecoderConfig(encoder=body, decoder=DECODERS[decoder])
    return stirred_module(config.build(17, seed=0), torch.float64)


def means_of(model: nn.Module) -> MeanActivations:
    return mean_activations(model, lambda: model(TOKENS))[0]


def test_removing_nothing_changes_no_bit() -> None:
    model = small()
    whole = model(TOKENS)
    with ablated(model, []):
        assert torch.equal(model(TOKENS), whole)
    result = mean_activations(model, lambda: model(TOKENS))[1]
    assert torch.equal(result, whole)


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_removed_head_has_no_output_columns(name: str) -> None:
    """Setting its columns of W_O to zero has the same effect."""
    model, other = small(), small()
    join = other.get_submodule(name).out_proj.weight
    join[:, HEAD_WIDTH : 2 * HEAD_WIDTH] = 0.0
    with ablated(model, [HeadRef(name, 2)]):
        assert_close(model(TOKENS), other(TOKENS), rtol=0, atol=1e-12)
    assert not torch.allclose(model(TOKENS), other(TOKENS), atol=1e-3)


def test_an_attention_without_heads_returns_the_output_bias() -> None:
    config = GPTConfig(
        layers=1, width=12, max_length=7, attention=MultiHeadConfig(heads=3, bias=True)
    )
    model = stirred_module(config.build(VOCABULARY, seed=0), torch.float64)
    attention = model.get_submodule(FIRST)
    written: list[Tensor] = []
    attention.register_forward_hook(lambda module, inputs, output: written.append(output[0]))
    heads: list[ModelPart] = [HeadRef(FIRST, head) for head in (1, 2, 3)]
    for parts in (heads, [AttentionRef(FIRST)]):
        with ablated(model, parts):
            model(TOKENS)
        assert torch.equal(written.pop(), attention.out_proj.bias.expand(3, 5, 12))


def test_replacements_of_a_head() -> None:
    model = small()
    mixed: list[Tensor] = []
    with with_outputs(model, {FIRST: lambda output: mixed.append(output) or output}):
        model(TOKENS)
    own = mixed[0]
    assert own.shape == (3, HEADS, 5, HEAD_WIDTH)
    hows: list[AblationMethod] = [Zero(), Mean(means_of(model)), Resample(seed=3)]
    rows = other_rows(3, 3)
    for how in hows:
        with (
            with_outputs(model, {SECOND: lambda output: output}),
            ablated(model, [HeadRef(FIRST, 3)], how),
            with_outputs(model, {FIRST: lambda output: mixed.append(output) or output}),
        ):
            model(TOKENS)
        result = mixed.pop()
        assert torch.equal(result[:, :2], own[:, :2])
        for b in range(3):
            for t in range(5):
                expected = torch.zeros(HEAD_WIDTH).double()
                if isinstance(how, Mean):
                    expected = sum(own[i, 2, j] for i in range(3) for j in range(5)) / 15
                elif isinstance(how, Resample):
                    expected = own[rows[b], 2, t]
                assert_close(result[b, 2, t], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", range(2, 9))
def test_other_rows_is_a_permutation_without_fixed_points(rows: int) -> None:
    for seed in range(5):
        others = other_rows(rows, seed)
        assert sorted(others.tolist()) == list(range(rows))
        assert not (others == torch.arange(rows)).any()
    assert torch.equal(other_rows(rows, 1), other_rows(rows, 1))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_model_without_its_second_layer(norm: str) -> None:
    model, other = small(norm=norm), small(norm=norm)  # type: ignore[arg-type]
    del other.stack.blocks[1]
    with ablated(model, [LayerRef("stack.blocks.1")]):
        assert torch.equal(model(TOKENS), other(TOKENS))


def test_a_removed_feed_forward_layer() -> None:
    model, other = small(), small()
    for weight in other.stack.blocks[0].feedforward.down_proj.parameters():
        weight.zero_()
    with ablated(model, [FeedForwardRef("stack.blocks.0.feedforward")]):
        assert_close(model(TOKENS), other(TOKENS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"none"}))
def test_a_model_without_positions(position: str) -> None:
    model = small(position=position)
    other = small(position="none")
    other.load_state_dict(
        {name: value for name, value in model.state_dict().items() if "position" not in name}
    )
    (part,) = position_parts(model)
    with ablated(model, [part]):
        assert_close(model(TOKENS), other(TOKENS), rtol=0, atol=1e-12)
    assert not torch.allclose(model(TOKENS), other(TOKENS), atol=1e-3)
    assert position_parts(other) == []


SPATIAL = [
    (HeadRef(FIRST, 1), SpatialConfig(layers=1, attention=THREE)),
    (
        PositionRef("position"),
        SpatialConfig(layers=1, position=replace(POSITIONS["learned"], combine="concat")),
    ),
]


@pytest.mark.parametrize(("part", "config"), SPATIAL, ids=["head", "concatenated position"])
def test_parts_of_a_spatial_encoder(part: ModelPart, config: SpatialConfig) -> None:
    """An ablated head or position equals one whose weights are zero."""
    model = config.build(12, 3, 2).double()
    picture = torch.randn(2, 3, 2, 12).double()
    whole = over_map(model, picture)
    with ablated(model, [part]):
        bare = over_map(model, picture)
    if isinstance(part, HeadRef):
        model.get_submodule(FIRST).out_proj.weight[:, :4] = 0.0
    else:
        assert position_parts(model) == [part]
        for table in model.position.tables:
            table.weight.zero_()
    assert not torch.allclose(whole, bare)
    assert_close(bare, over_map(model, picture), rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", [Zero(), Resample()], ids=["zero", "resample"])
@pytest.mark.parametrize("decoder", ["transformer", "rnn"])
def test_steps_equal_a_full_pass(decoder: str, how: AblationMethod) -> None:
    model = translator(decoder)
    path = "decoder.attention" if decoder == "rnn" else "decoder.stack.blocks.1.cross"
    parts: list[ModelPart] = [HeadRef(path, 1)]
    if decoder == "transformer":
        parts += [
            HeadRef("decoder.stack.blocks.0.attention", 3),
            LayerRef("decoder.stack.blocks.1"),
        ]
    whole = model.states(SOURCE, PRESENT, TARGET)
    with ablated(model, parts, how):
        bare = model.states(SOURCE, PRESENT, TARGET)
        state, steps = model.init_state(SOURCE, PRESENT), []
        for token in TARGET.unbind(dim=1):
            states, state = model.step(token[:, None], torch.ones(2, 1).bool(), state)
            steps.append(states)
    assert_close(torch.cat(steps, dim=1), bare, rtol=0, atol=1e-12)
    assert not torch.allclose(whole, bare, atol=1e-4)


def test_an_rnn_decoder_without_attention_has_a_zero_context() -> None:
    model = translator("rnn")
    state = model.init_state(SOURCE, PRESENT)
    tokens = TARGET[:, 0]
    with ablated(model, [AttentionRef("decoder.attention")]):
        result, _ = model.decoder._step_token(model.decoder.embedding(tokens), state)
    decoder = model.decoder
    nothing = torch.zeros(2, model.encoder.width).double()
    expected, _ = decoder.cell.step(
        torch.cat((nothing, decoder.embedding(tokens)), dim=-1), state.cell
    )
    assert torch.equal(result, expected)


def test_every_part_of_an_encoder_and_a_decoder_matters() -> None:
    model = translator("transformer", conformer=True)
    whole = model(SOURCE, PRESENT, TARGET)
    means, _ = mean_activations(model, lambda: model(SOURCE, PRESENT, TARGET))
    parts: list[ModelPart] = [*means.heads(), *layer_parts(model), *position_parts(model)]
    names = {part.module for part in parts}
    kinds = {"decoder.stack.blocks.1.cross", "decoder.position", "encoder.blocks.0.macaron"}
    assert kinds <= names, names
    hows: list[AblationMethod] = [Zero(), Mean(means), Resample()]
    for part in parts:
        for how in hows:
            with ablated(model, [part], how):
                bare = model(SOURCE, PRESENT, TARGET)
            assert not torch.equal(bare, whole), (part, how)
    assert torch.equal(model(SOURCE, PRESENT, TARGET), whole)


def test_heads_are_those_that_ran() -> None:
    expected = [HeadRef(name, head) for name in (FIRST, SECOND) for head in range(1, HEADS + 1)]
    assert means_of(small()).heads() == expected
    assert means_of(small(score="merged")).heads() == expected
    assert len(layer_parts(small())) == 3 * LAYERS


def test_blocks_may_be_nested_and_leave_when_they_raise() -> None:
    model = small()
    whole = model(TOKENS)
    parts = [HeadRef(FIRST, 1), LayerRef("stack.blocks.1"), PositionRef("position")]
    with ablated(model, parts):
        together = model(TOKENS)
    with ablated(model, parts[:1]), ablated(model, parts[1:2]), ablated(model, parts[2:]):
        assert torch.equal(model(TOKENS), together)
    with pytest.raises(IndexError), ablated(model, parts):
        model(torch.tensor([[-1]]))
    with (
        pytest.raises(ValueError, match="LayerNorm"),
        ablated(model, [*parts, LayerRef("stack.norm")]),
    ):
        pytest.fail("never entered")
    assert torch.equal(model(TOKENS), whole)
    kernels = {module.kernel for module in model.modules() if isinstance(module, MultiHead)}
    assert kernels == {fused_attention}
    assert not any(module._forward_hooks for module in model.modules())


def test_recorded_within_and_around() -> None:
    model = small()
    with ablated(model, [HeadRef(FIRST, 2)]):
        bare = model(TOKENS)
        with record(model) as within:
            assert_close(model(TOKENS), bare, rtol=0, atol=1e-12)
    with record(model) as around, ablated(model, [HeadRef(FIRST, 2)]):
        assert_close(model(TOKENS), bare, rtol=0, atol=1e-12)
    for inner, outer in zip(within, around, strict=True):
        assert_close(inner.weights, outer.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("part", "how", "message"),
    [
        (HeadRef(FIRST, HEADS + 1), Zero(), "head 4 of .* .expected 1 to 3."),
        (HeadRef("stack", 1), Zero(), "stack: expected an attention layer, .* got Stack"),
        (PositionRef("stack"), Zero(), "expected a positional encoding"),
        (HeadRef(FIRST, 1), Mean(MeanActivations({})), "ran in the sample"),
    ],
)
def test_errors(part: ModelPart, how: AblationMethod, message: str) -> None:
    model = small()
    with pytest.raises((ValueError, UserError), match=message), ablated(model, [part], how):
        model(TOKENS)
