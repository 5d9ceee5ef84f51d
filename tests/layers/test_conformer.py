from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from harken.attention.masks import NO_MASK, padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.scores import ScaledConfig, TransformerXLConfig
from harken.inspection.record import record
from harken.layers.conformer import ConformerBlock, ConformerEncoderConfig, MaskedBatchNorm
from harken.layers.feedforward import FeedForwardConfig
from small_ctc import lengths_present
from small_layers import causal_context, context_of, randomized

BATCH, TIME, WIDTH, HEADS, INNER, KERNEL = 3, 11, 14, 2, 17, 5
LENGTHS = [11, 6, 1]
PRESENT = lengths_present(LENGTHS, TIME)


def built(norm: str = "batch", dropout: float = 0.0, score: Any = None) -> ConformerBlock:
    config = ConformerEncoderConfig(
        max_length=TIME,
        attention=MultiHeadConfig(heads=HEADS, bias=True, score=score or TransformerXLConfig()),
        feedforward=FeedForwardConfig(activation="silu", inner=INNER),
        kernel=KERNEL,
        convolution_norm=norm,
        dropout=dropout,
    )
    return stirred(ConformerBlock(config, WIDTH))


def stirred(module: Any) -> Any:
    module = randomized(module, std=0.4, mean=0.1)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    return module


def among(present: Tensor | None, time: int = TIME) -> AttentionContext:
    return context_of(NO_MASK if present is None else padding_mask(present), time)


def some_frames() -> Tensor:
    return torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)


def waves(length: int) -> Tensor:
    """Sinusoids of the distances from `length` - 1 to 1 - `length`, in float64."""
    index, distances = torch.arange(WIDTH), torch.arange(length - 1, -length, -1).double()
    angles = distances[:, None] * 10000.0 ** (-(index - index % 2).double() / WIDTH)
    return torch.where(index % 2 == 1, angles.cos(), angles.sin())[None]


def hugging_faces(ours: ConformerBlock) -> Any:
    """Their layer with our weights."""
    conformer = pytest.importorskip(
        "transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer"
    )
    config = conformer.Wav2Vec2ConformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        hidden_act="swish",
        conv_depthwise_kernel_size=KERNEL,
        position_embeddings_type="relative",
        max_source_positions=TIME,
        attn_implementation="eager",
    )
    theirs = conformer.Wav2Vec2ConformerEncoderLayer(config).double().eval()
    attention, convolution, score = ours.attention, ours.convolution, ours.attention.score
    copied = {
        "self_attn.pos_bias_u": score.content_offset[:, 0],
        "self_attn.pos_bias_v": score.distance_offset[:, 0],
        "self_attn.linear_pos.weight": score.pos_proj.weight,
        "conv_module.pointwise_conv1.weight": convolution.up_proj.weight[..., None],
        "conv_module.depthwise_conv.weight": convolution.depthwise.weight[..., 0],
        "conv_module.pointwise_conv2.weight": convolution.down_proj.weight[..., None],
    }
    layers = {
        "ffn1_layer_norm": ours.macaron_norm,
        "ffn1.intermediate_dense": ours.macaron.up_proj,
        "ffn1.output_dense": ours.macaron.down_proj,
        "self_attn_layer_norm": ours.attention_norm,
        "self_attn.linear_q": score.q_proj,
        "self_attn.linear_k": score.k_proj,
        "self_attn.linear_v": attention.v_proj,
        "self_attn.linear_out": attention.out_proj,
        "conv_module.layer_norm": ours.convolution_norm,
        "conv_module.batch_norm": convolution.norm,
        "ffn2_layer_norm": ours.feedforward_norm,
        "ffn2.intermediate_dense": ours.feedforward.up_proj,
        "ffn2.output_dense": ours.feedforward.down_proj,
        "final_layer_norm": ours.final_norm,
    }
    for name, layer in layers.items():
        copied |= {f"{name}.{part}": value for part, value in layer.state_dict().items()}
    theirs.load_state_dict(copied, strict=True)
    return theirs, conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)


@torch.no_grad()
def test_agrees_with_hugging_face() -> None:
    """On full rows, and on each row of a padded batch."""
    ours, inputs = built(), some_frames()
    theirs, encoding = hugging_faces(ours)
    # Their own waves are float32.
    assert_close(encoding(inputs.float()).double(), waves(TIME), rtol=0, atol=1e-5)
    expected = theirs(inputs, relative_position_embeddings=waves(TIME))
    assert_close(ours(inputs, among(None)), expected, rtol=0, atol=1e-10)
    output = ours(inputs, among(PRESENT), PRESENT)
    for row, length in enumerate(LENGTHS):
        own = inputs[row : row + 1, :length]
        (alone,) = theirs(own, relative_position_embeddings=waves(length))
        assert_close(output[row, :length], alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("score", [TransformerXLConfig(), ScaledConfig()])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_nothing(norm: str, score: Any, training: bool) -> None:
    """Neither outputs, nor gradients, nor what the norm remembers of a batch."""
    inputs = some_frames()
    noise = torch.where(PRESENT[..., None], inputs, 100 * torch.randn_like(inputs))
    longer = F.pad(noise, (0, 0, 0, 4), value=7.0)
    still = F.pad(PRESENT, (0, 4))
    results = []
    block = built(norm, score=score)
    state = {name: value.clone() for name, value in block.state_dict().items()}
    for frames, seen in ((inputs, PRESENT), (longer, still)):
        block.load_state_dict(state)
        block.train(training).zero_grad()
        output = block(frames, among(seen, frames.shape[1]), seen)[seen]
        output.sin().sum().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in block.named_parameters()}
        results.append((output, gradients, {n: b.clone() for n, b in block.named_buffers()}))
    assert_close(results[1], results[0], rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_the_convolution_part_by_the_formula() -> None:
    part = built("layer").convolution
    inputs = some_frames()
    ours = part(inputs, PRESENT)
    kernel, norm = part.depthwise.weight[:, 0, :, 0], part.norm
    for row, length in enumerate(LENGTHS):
        wide = inputs[row, :length] @ part.up_proj.weight.T
        gated = wide[:, :WIDTH] / (1 + (-wide[:, WIDTH:]).exp())
        for t in range(length):
            near = torch.zeros(WIDTH, dtype=torch.float64)
            for place in range(KERNEL):
                if 0 <= t + place - KERNEL // 2 < length:
                    near += kernel[:, place] * gated[t + place - KERNEL // 2]
            centered = near - near.mean()
            normed = centered / (centered.square().mean() + 1e-5).sqrt() * norm.weight + norm.bias
            written = part.down_proj.weight @ (normed / (1 + (-normed).exp()))
            assert_close(ours[row, t], written, rtol=0, atol=1e-12)


def test_batch_norm_ignores_padding() -> None:
    norm = stirred(MaskedBatchNorm(WIDTH)).train()
    before = norm.running_mean.clone(), norm.running_var.clone()
    inputs = some_frames()
    output = norm(inputs, PRESENT)
    frames = torch.cat([inputs[row, :length] for row, length in enumerate(LENGTHS)])
    mean, variance = frames.mean(dim=0), frames.var(dim=0, unbiased=False)
    expected = (frames - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
    assert_close(output[PRESENT], expected, rtol=0, atol=1e-12)
    assert (output[~PRESENT] == 0).all()
    unbiased = frames.var(dim=0, unbiased=True)
    assert_close(norm.running_mean, 0.9 * before[0] + 0.1 * mean, rtol=0, atol=1e-12)
    assert_close(norm.running_var, 0.9 * before[1] + 0.1 * unbiased, rtol=0, atol=1e-12)


@pytest.mark.parametrize("present", [None, torch.tensor([[True, False, False]])])
def test_batch_of_one_frame_uses_running_statistics(present: Tensor | None) -> None:
    norm = stirred(MaskedBatchNorm(WIDTH))
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    inputs = torch.randn(1, 1 if present is None else 3, WIDTH, dtype=torch.float64)
    training, later = norm.train()(inputs, present), norm.eval()(inputs, present)
    assert_close(training[:, 0], later[:, 0], rtol=0, atol=1e-12)
    assert_close(norm.state_dict(), state, rtol=0, atol=0)


def test_gradients_reach_every_weight() -> None:
    block, inputs = built().train(), some_frames().requires_grad_()
    block(inputs, among(PRESENT), PRESENT)[PRESENT].sin().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-8 or name == "attention.score.k_proj.bias", name
    assert inputs.grad is not None and inputs.grad.isfinite().all()
    assert (inputs.grad[~PRESENT] == 0).all() and (inputs.grad[PRESENT] != 0).all()


def test_attention_is_recorded() -> None:
    block = built()
    with record(block) as seen:
        block(some_frames(), among(PRESENT), PRESENT)
    weights = seen[0].weights
    assert [call.name for call in seen] == ["attention"]
    assert weights.shape == (BATCH, HEADS, TIME, TIME)
    assert_close(weights.sum(dim=-1), torch.ones(BATCH, HEADS, TIME).double())
    assert (weights.movedim(-1, 1)[~PRESENT] == 0).all()


def test_mask_restricts_attention_but_not_the_kernel() -> None:
    block, inputs, context = built("layer"), some_frames(), causal_context(0, TIME)
    other = inputs.clone()
    other[:, 8] += torch.randn(WIDTH)
    moved = (block(other, context) - block(inputs, context)).abs().amax(dim=(0, 2))
    assert (moved[:6] == 0).all() and (moved[6:] > 1e-6).all()  # 8 less half the kernel


def test_dropout_applies_to_residual_branches_only() -> None:
    block, inputs = built(dropout=1 - 1e-9), some_frames()
    centered = inputs - inputs.mean(dim=-1, keepdim=True)
    normed = centered / (centered.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    stream = normed * block.final_norm.weight + block.final_norm.bias
    assert_close(block.train()(inputs, among(None)), stream, rtol=0, atol=1e-12)
    assert (block.eval()(inputs, among(None)) - stream).abs().max() > 1e-3


def test_even_kernel_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected an odd number, got 4"):
        ConformerEncoderConfig(kernel=4)
