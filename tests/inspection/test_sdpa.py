"""Attention of foreign models: against the weights that they return and PyTorch's own function."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from harken.errors import UserError
from harken.inspection.ablation import with_outputs
from harken.inspection.record import Selection, record
from harken.inspection.store import open_recording, record_to_disk

TOKENS = torch.arange(1, 15).reshape(2, 7)


def gpt2(**options: Any) -> GPT2LMHeadModel:
    config = GPT2Config(vocab_size=17, n_layer=2, n_embd=15, n_head=3, n_positions=11, **options)
    return GPT2LMHeadModel(config)


def bert(**options: Any) -> BertModel:
    sizes = {"hidden_size": 15, "intermediate_size": 13, "max_position_embeddings": 11}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 3}
    return BertModel(BertConfig(vocab_size=17, **sizes, **heads, **options))


def llama(**options: Any) -> LlamaForCausalLM:
    """Two heads share each key."""
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"hidden_size": 24, "intermediate_size": 13, "max_position_embeddings": 11}
    return LlamaForCausalLM(LlamaConfig(vocab_size=17, **sizes, **heads, **options))


MODELS = {
    "gpt2": (gpt2, "transformer.h.{}.attn"),
    "bert": (bert, "encoder.layer.{}.attention.self"),
    "llama": (llama, "model.layers.{}.self_attn"),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("build", "path"), MODELS.values(), ids=MODELS)
def test_weights_equal_those_that_hugging_face_returns(
    build: Callable[..., nn.Module], path: str, padded: bool
) -> None:
    torch.manual_seed(0)
    model = build().eval()
    eager = build(attn_implementation="eager").eval()
    eager.load_state_dict(model.state_dict())
    present = torch.ones_like(TOKENS)
    present[1, 5:] = 0 if padded else 1
    with torch.inference_mode():
        expected = eager(TOKENS, attention_mask=present, output_attentions=True).attentions
        plain = model(TOKENS, attention_mask=present)[0]
        with record(model, Selection(queries=True, keys=True, values=True)) as records:
            recorded = model(TOKENS, attention_mask=present)[0]
    assert torch.equal(plain, recorded)
    assert [call.name for call in records] == [path.format(layer) for layer in (0, 1)]
    assert [call.layer for call in records] == [1, 2]
    for call, weights in zip(records, expected, strict=True):
        assert_close(call.weights, weights, rtol=0, atol=1e-6)
        assert call.queries.shape == call.keys.shape == (*weights.shape[:3], call.queries.shape[3])


BLIND = torch.tensor([0, 1, 0, 0, 1]).bool()[:, None]
CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "bool mask": {"attn_mask": torch.rand(5, 7) > 0.4},
    "bool mask of each head": {"attn_mask": torch.rand(2, 4, 5, 7) > 0.4},
    "float mask": {"attn_mask": torch.randn(4, 5, 7)},
    "blind rows": {"attn_mask": torch.randn(2, 1, 5, 7).masked_fill(BLIND, -torch.inf)},
    "blind rows of each head": {"attn_mask": (torch.rand(2, 4, 5, 7) > 0.4) & ~BLIND},
    "blind rows of all heads": {"attn_mask": ~BLIND.expand(5, 7)},
    "dropout": {"dropout_p": 0.5},
    "shared keys": {"enable_gqa": True},
}


class Direct(nn.Module):
    """A user's module that calls the function itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_every_argument_is_honored(options: dict[str, Any]) -> None:
    """Values are the identity, so that the output of PyTorch's function is the weights."""
    torch.manual_seed(0)
    groups = 2 if "enable_gqa" in options else 4
    query, key = torch.randn(2, 4, 5, 3), torch.randn(2, groups, 7, 3)
    value = torch.eye(7).expand(2, groups, 7, 7)
    model = nn.Sequential()
    model.attend = Direct(**options)
    expected = Direct(**{**options, "dropout_p": 0.0})(query, key, value)
    torch.manual_seed(1)
    plain = model.attend(query, key, value)
    torch.manual_seed(1)
    with record(model) as records:
        assert torch.equal(model.attend(query, key, value), plain)
    assert records[0].name == "attend"
    assert_close(records[0].weights, expected)


@pytest.mark.parametrize("axes", [(), (2,), (2, 3, 4)])
def test_any_number_of_axes(axes: tuple[int, ...]) -> None:
    query, key, value = torch.randn(*axes, 5, 3), torch.randn(*axes, 7, 3), torch.eye(7)
    mask = torch.rand(5, 7) > 0.3
    model = Direct(attn_mask=mask)
    with record(model) as records:
        output = model(query, key, value.expand(*axes, 7, 7))
    assert_close(records[0].weights.reshape(*axes, 5, 7), output)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_multihead_attention_of_pytorch(need_weights: bool, training: bool) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(6, 3, dropout=0.2 * training, batch_first=True).train(training)
    inputs, absent = torch.randn(2, 5, 6), torch.zeros(2, 5).bool()
    absent[1, 3:] = True
    options = {"key_padding_mask": absent, "need_weights": need_weights}
    torch.manual_seed(1)
    plain, returned = model(inputs, inputs, inputs, **options)
    torch.manual_seed(1)
    with record(model) as records:
        output, weights = model(inputs, inputs, inputs, **options)
    assert torch.equal(output, plain)
    assert (weights is None) == (returned is None)
    model.eval()
    _, expected = model(inputs, inputs, inputs, key_padding_mask=absent, average_attn_weights=False)
    assert len(records) == 1
    assert_close(records[0].weights, expected)


def test_the_fused_kernel_of_an_encoder_layer_is_off_while_recording() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 3, 7, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    inputs = torch.randn(2, 5, 6)
    with torch.inference_mode():
        plain = model(inputs)
        with record(model, outputs="layers.*.linear2", residual=True) as records:
            assert_close(model(inputs), plain)
    assert [call.name for call in records] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert [output.name for output in records.outputs] == ["layers.0.linear2", "layers.1.linear2"]
    first, second = records.residual
    assert first.input is not None and torch.equal(first.input, inputs)
    assert second.input is not None and torch.equal(first.output, second.input)
    assert_close(second.output, plain)


@pytest.mark.parametrize(("build", "path"), MODELS.values(), ids=MODELS)
def test_the_residual_stream_is_the_hidden_states_of_hugging_face(
    build: Callable[..., nn.Module], path: str
) -> None:
    model = build().eval()
    with torch.inference_mode(), record(model, residual=True) as records:
        states = model(TOKENS, output_hidden_states=True).hidden_states
    for state, activation in zip(states, records.residual, strict=False):
        assert activation.input is not None and torch.equal(activation.input, state)


@pytest.mark.parametrize(("build", "path"), MODELS.values(), ids=MODELS)
def test_a_head_that_is_removed_is_a_slice_of_zeros_before_the_output_projection(
    build: Callable[..., nn.Module], path: str
) -> None:
    torch.manual_seed(0)
    model = build().eval()
    name, heads = path.format(1), model.config.num_attention_heads
    width = model.config.hidden_size // heads
    project = {
        "gpt2": "transformer.h.1.attn.c_proj",
        "bert": "encoder.layer.1.attention.output.dense",
        "llama": "model.layers.1.self_attn.o_proj",
    }[model.config.model_type]

    def without(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        joined = inputs[0].clone()
        joined[..., width : 2 * width] = 0
        return joined

    def second_is_zero(output: Tensor) -> Tensor:
        stored = torch.ones(heads, 1, 1)
        stored[1] = 0
        return output * stored

    with torch.inference_mode():
        plain = model(TOKENS)[0]
        hook = model.get_submodule(project).register_forward_pre_hook(without)
        expected = model(TOKENS)[0]
        hook.remove()
        with with_outputs(model, {name: second_is_zero}):
            assert torch.equal(model(TOKENS)[0], expected)
        assert not torch.equal(plain, expected)
        assert torch.equal(model(TOKENS)[0], plain)


def test_recording_inside_recording_and_ablation() -> None:
    for model in (gpt2().eval(), nn.MultiheadAttention(6, 3).eval()):
        inputs = (TOKENS,) if isinstance(model, GPT2LMHeadModel) else (torch.randn(5, 2, 6),) * 3
        name = "transformer.h.0.attn" if isinstance(model, GPT2LMHeadModel) else ""
        with torch.inference_mode(), record(model) as outer:
            with record(model) as inner:
                model(*inputs)
            with with_outputs(model, {name: torch.zeros_like}):
                silent = model(*inputs)[0]
        assert len(outer) == 2 * len(inner) > 0
        assert torch.equal(inner[0].weights, outer[0].weights)
        if not name:
            assert_close(silent, model.out_proj.bias.expand_as(silent))


def test_selected_heads_and_steps_on_disk(tmp_path: Any) -> None:
    model, selection = gpt2().eval(), Selection(layers=(2,), heads=(3, 1), steps=(-1, 2))
    with torch.inference_mode(), record(model) as records:
        model(TOKENS)
    with torch.inference_mode(), record_to_disk(model, tmp_path / "seen", selection):
        model(TOKENS)
    (call,) = open_recording(tmp_path / "seen").calls
    assert (call.heads, call.steps) == ((3, 1), (6, 2))
    assert_close(call.read(), records[1].weights[:, [2, 0]][:, :, [6, 2]])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"selection": Selection(layers=(3,))}, "layers (3,) is not in the model"),
        ({"selection": Selection(heads=(4,))}, "head 4 in transformer.h.0.attn is not"),
        ({"selection": Selection(steps=(7,))}, "steps (7,) match no query"),
        ({"outputs": "*.feedforward"}, "outputs: '*.feedforward' matches no module"),
    ],
)  # fmt: skip
def test_a_selection_that_matches_nothing_is_refused(
    options: dict[str, Any], complaint: str
) -> None:
    model = gpt2().eval()
    with pytest.raises(UserError, match=re.escape(complaint)), record(model, **options):
        model(TOKENS)
    assert not model._forward_hooks and torch.backends.mha.get_fastpath_enabled()


def test_a_model_without_calls_is_refused() -> None:
    model = gpt2(attn_implementation="eager").eval()
    with pytest.raises(UserError, match=r"no attention intercepted.*sdpa"), record(model):
        model(TOKENS)
    with (
        pytest.raises(UserError, match=r"'transformer.h': no attention ran"),
        with_outputs(model := gpt2(), {"transformer.h": torch.zeros_like}),
    ):
        model(TOKENS)
    with pytest.raises(UserError, match="no residual stream"), record(Direct(), residual=True):
        pass
