"""Change a copy of a model so that it can be traced for ONNX, with equal outputs."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.kernels import ScoreTerms, eager_attention
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead
from harken.layers.recurrent import (
    Recurrent,
    RecurrentState,
    last_output,
    with_padding_column,
)


def prepared(model: nn.Module) -> nn.Module:
    """Return a copy on the CPU in which every layer can be exported."""
    changed = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    for module in changed.modules():
        if isinstance(module, MultiHead):
            module.kernel = exported_attention
        if isinstance(module, Recurrent):
            module.run_layer = exported_layer
    return changed


def exported_attention(
    terms: ScoreTerms, values: Tensor, mask: Mask, dropout: float
) -> Float[Tensor, "B k T I"]:
    """Return the output of `eager_attention`: zero where all keys are masked.

    The ONNX operators of PyTorch's fused kernel return NaN there.
    """
    return eager_attention(terms, values, mask).output


# The gates of PyTorch in the order of ONNX: i o f g (LSTM), z r n (GRU)
OPERATORS = {"LSTM": ("LSTM", (0, 3, 1, 2)), "GRU": ("GRU", (1, 0, 2)), "RNN": ("RNN", (0,))}


def exported_layer(
    layer: nn.Module, inputs: Tensor, present: Tensor | None, past: RecurrentState
) -> tuple[Tensor, RecurrentState]:
    """Return the outputs of `run_layer` from the ONNX operator of a recurrent layer.

    The exporter of PyTorch unrolls plain RNNs, and gives LSTM and GRU the length of its example.
    """
    assert isinstance(layer, nn.RNNBase) and present is not None
    operator, gates = OPERATORS[type(layer).__name__]
    weights: list[Tensor] = list(layer.all_weights[0])
    if operator == "LSTM":
        weights = [with_padding_column(weights[0]), *weights[1:]]
        inputs = torch.cat((inputs, (~present)[..., None].to(inputs.dtype)), dim=-1)
    size, (batch, time, _) = layer.hidden_size, inputs.shape
    chunks = (weight.chunk(len(gates)) for weight in weights)
    ordered = [torch.cat([parts[gate] for gate in gates])[None] for parts in chunks]
    biases = torch.cat(ordered[2:], dim=1) if len(ordered) > 2 else None
    first = [state.transpose(0, 1) for state in past if state is not None]
    attributes: Any = {"hidden_size": size}
    if operator == "GRU":
        attributes["linear_before_reset"] = 1  # as in PyTorch
    outputs, _, *cell = torch.onnx.ops.symbolic_multi_out(
        operator,
        (inputs.transpose(0, 1), *ordered[:2], biases, None, *first),
        attributes,
        dtypes=[inputs.dtype] * (1 + len(first)),
        shapes=[(time, 1, batch, size), *[(1, batch, size)] * len(first)],
    )
    outputs = outputs[:, 0].transpose(0, 1)
    state = RecurrentState(
        last_output(past.hidden, outputs, present), cell[0].transpose(0, 1) if cell else None
    )
    return outputs.masked_fill(~present[..., None], 0.0), state
