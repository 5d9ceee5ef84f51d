"""Names of attentions agree with what the modules declare."""

import pytest
from torch import nn

from harken.attention.multihead import MultiHead
from harken.inspection.refs import attention_kind
from harken.models.decoders import AttentionRNNDecoderConfig
from harken.models.encoders import TextEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.seq2seq import EncoderDecoderConfig


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (GPTConfig(layers=1, width=8).build(17, seed=0), {"self"}),
        (TextEncoderConfig(layers=1, width=8).build(17, seed=0), {"self"}),
        (EncoderDecoderConfig().build(17, seed=0), {"encoder", "decoder", "cross"}),
        (
            EncoderDecoderConfig(decoder=AttentionRNNDecoderConfig()).build(17, seed=0),
            {"encoder", "cross"},
        ),
    ],
)
def test_the_path_of_an_attention_tells_its_kind(model: nn.Module, kinds: set[str]) -> None:
    attentions = {
        name: module for name, module in model.named_modules() if isinstance(module, MultiHead)
    }
    assert {attention_kind(name) for name in attentions} == kinds
    for name, module in attentions.items():
        assert (attention_kind(name) == "cross") == (module.kind == "cross")
