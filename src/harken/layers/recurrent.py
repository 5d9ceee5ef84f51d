"""Recurrent layers: B T J -> B T H, and the state after the last token that each direction reads.

    tanh   h_t = tanh(U x_t + V h_{t-1}), without biases
    gru    h_t = (1 - z) * n + z * h_{t-1}
           r, z = sigmoid(U x_t + a + V h_{t-1} + b),  n = tanh(U x_t + a + r * (V h_{t-1} + b))
    lstm   c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t)
           i, f, o = sigmoid(U x_t + a + V h_{t-1} + b),  g = tanh(U x_t + a + V h_{t-1} + b)

where each of r, z, n, i, f, o, g has its own U, a, V and b. Padding is on the right and does not
affect the results. PyTorch's packed sequences do not use the fused kernels of a CPU and are 1.3 to
3.3 times slower. So here the kernels run over the padding too: backward layers reverse each row
within its length, and the cell of an LSTM does not change at padding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.config import MAX_LAYERS, bounded
from harken.layers.convolution import Present, Tokens, check_right_padding
from harken.layers.dropout import Dropout

Direction = Literal["forward", "backward", "both"]


class RecurrentState(NamedTuple):
    """States h_t and c_t of all layers, on axis 1. A bidirectional layer has two: forward first."""

    hidden: Float[Tensor, "B layers hidden"]
    cell: Float[Tensor, "B layers hidden"] | None  # of the LSTM only

    def layer(self, index: int) -> "RecurrentState":
        """Return the state at one index of axis 1."""
        cell = None if self.cell is None else self.cell[:, index : index + 1]
        return RecurrentState(self.hidden[:, index : index + 1], cell)


def join_layers(states: list[RecurrentState]) -> RecurrentState:
    """Concatenate states along axis 1."""
    hidden, cells = zip(*states, strict=True)
    return RecurrentState(torch.cat(hidden, 1), None if cells[0] is None else torch.cat(cells, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class _RecurrentConfig:
    """Fields of `TanhConfig`, `GRUConfig` and `LSTMConfig`."""

    kind: Literal["tanh", "gru", "lstm"]
    hidden: int | None = bounded(None, at_least=1)  # units per direction; default: the input width
    layers: int = bounded(1, at_least=1, at_most=MAX_LAYERS)  # number of layers
    direction: Direction = "forward"  # direction of reading; "both" concatenates the states
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # dropout between layers

    def hidden_width(self, width: int) -> int:
        """Return the units per direction; by default, outputs are as wide as the inputs."""
        if self.hidden is not None:
            return self.hidden
        if self.direction != "both":
            return width
        if width % 2:
            raise ValueError(
                f"both directions need an even width, got {width}; change the width, or set hidden"
            )
        return width // 2

    def build(self, width: int) -> "Recurrent":
        return Recurrent(self, width)


@dataclass(frozen=True, kw_only=True, slots=True)
class TanhConfig(_RecurrentConfig):
    """A plain RNN with tanh."""

    kind: Literal["tanh"] = "tanh"


@dataclass(frozen=True, kw_only=True, slots=True)
class GRUConfig(_RecurrentConfig):
    """Gated recurrent units."""

    kind: Literal["gru"] = "gru"


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMConfig(_RecurrentConfig):
    """Long short-term memory."""

    kind: Literal["lstm"] = "lstm"


RecurrentConfig = TanhConfig | GRUConfig | LSTMConfig


class Recurrent(nn.Module):
    """A stack of layers; each reads the outputs of all directions of the layer below."""

    def __init__(self, config: _RecurrentConfig, width: int) -> None:
        super().__init__()
        self.kind, self.directions = config.kind, 2 if config.direction == "both" else 1
        self.hidden, self.layers = config.hidden_width(width), config.layers
        self.width = self.directions * self.hidden
        kinds: dict[str, Callable[..., nn.Module]] = {
            "tanh": partial(nn.RNN, bias=False),
            "gru": nn.GRU,
            "lstm": nn.LSTM,
        }
        build_layer = partial(kinds[config.kind], hidden_size=self.hidden, batch_first=True)
        widths = [width] + [self.width] * (config.layers - 1)
        self.forwards = self.backwards = None
        if config.direction != "backward":
            self.forwards = nn.ModuleList(map(build_layer, widths))
        if config.direction != "forward":
            self.backwards = nn.ModuleList(map(build_layer, widths))
        self.dropout = Dropout(config.dropout)
        self.run_layer = run_layer  # `export/onnx_prepare.py` replaces it

    def init_state(self, batch: int) -> RecurrentState:
        """Return the state before any token: zeros, on the device of the weights."""
        states = self.directions * self.layers
        zeros = next(self.parameters()).new_zeros(batch, states, self.hidden)
        return RecurrentState(zeros, zeros if self.kind == "lstm" else None)

    def forward(
        self, inputs: Tokens, present: Present | None = None, state: RecurrentState | None = None
    ) -> tuple[Float[Tensor, "B T width"], RecurrentState]:
        """Return the outputs, zero at padding, and the state after the last token that is read."""
        assert state is None or self.backwards is None, "only forward RNNs accept a state"
        if present is not None:
            check_right_padding(present)
            # NaN at padding would give NaN gradients.
            inputs = inputs.masked_fill(~present[..., None], 0.0)
        past = self.init_state(inputs.shape[0]) if state is None else state
        states: list[RecurrentState] = []
        for index in range(self.layers):
            if index > 0:
                inputs = self.dropout(inputs)
            outputs = []
            for stack, backward in ((self.forwards, False), (self.backwards, True)):
                if stack is not None:
                    ordered = reverse_padded(inputs, present) if backward else inputs
                    layer_state = past.layer(len(states))
                    output, next_state = self.run_layer(stack[index], ordered, present, layer_state)
                    outputs.append(reverse_padded(output, present) if backward else output)
                    states.append(next_state)
            inputs = torch.cat(outputs, dim=-1)
        return inputs, join_layers(states)

    def step(
        self, inputs: Float[Tensor, "B J"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B width"], RecurrentState]:
        """Return the output of one token and the next state; twice as fast as `forward`."""
        assert self.forwards is not None and self.backwards is None, "only forward RNNs can step"
        states: list[RecurrentState] = []
        for index, layer in enumerate(self.forwards):
            inputs, next_state = step_layer(
                layer, self.dropout(inputs) if index else inputs, state.layer(index)
            )
            states.append(next_state)
        return inputs, join_layers(states)


def run_layer(
    layer: nn.Module, inputs: Tokens, present: Present | None, past: RecurrentState
) -> tuple[Float[Tensor, "B T hidden"], RecurrentState]:
    """Run one layer from left to right; a row without any token keeps its state."""
    h0 = past.hidden.transpose(0, 1).contiguous()  # PyTorch puts layers before the batch
    cell: Tensor | None = None
    if past.cell is None:
        outputs, last = layer(inputs, h0)
    else:
        c0 = past.cell.transpose(0, 1).contiguous()
        is_autocast = inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if is_autocast and not has_bfloat16_lstm():
            with torch.autocast("cpu", enabled=False):
                dtype = next(layer.parameters()).dtype
                tensors = (tensor.to(dtype) for tensor in (inputs, h0, c0))
                outputs, last, cell = masked_lstm(layer, present, *tensors)
        else:
            outputs, last, cell = masked_lstm(layer, present, inputs, h0, c0)
        cell = cell.transpose(0, 1)
    if present is None:
        return outputs, RecurrentState(last.transpose(0, 1), cell)
    hidden = last_output(past.hidden, outputs, present)
    return outputs.masked_fill(~present[..., None], 0.0), RecurrentState(hidden, cell)


def last_output(
    first: Float[Tensor, "B 1 hidden"], outputs: Float[Tensor, "B T hidden"], present: Present
) -> Float[Tensor, "B 1 hidden"]:
    """Return the output at the last token of each row, or `first` in a row without tokens."""
    history, lengths = torch.cat((first, outputs), dim=1), present.sum(dim=1)
    rows = torch.arange(lengths.shape[0], device=lengths.device)
    return history[rows, lengths][:, None]


SATURATED = 1e4  # input that makes a gate exactly 0 or 1, even in half precision


@cache
def has_bfloat16_lstm() -> bool:
    """Return whether `nn.LSTM` supports bfloat16 on this CPU; without oneDNN it always does."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return not has_onednn or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def masked_lstm(
    layer: nn.Module,
    present: Present | None,
    inputs: Tokens,
    h0: Float[Tensor, "1 B hidden"],
    c0: Float[Tensor, "1 B hidden"],
) -> tuple[Float[Tensor, "B T hidden"], Float[Tensor, "1 B hidden"], Float[Tensor, "1 B hidden"]]:
    """Return outputs, last output and last cell, with one call of the fused kernel.

    An additional input feature, 1 at padding, sets the input gate to 0 and the forget gate to 1.
    """
    assert isinstance(layer, nn.LSTM)
    if present is None:
        outputs, (last, cell) = layer(inputs, (h0, c0))
        return outputs, last, cell
    ((input_weights, *others),) = layer.all_weights
    outputs, last, cell = torch.lstm(
        torch.cat((inputs, (~present)[..., None].to(inputs.dtype)), dim=-1),
        (h0, c0),
        [with_padding_column(input_weights), *others],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=layer.training,
        bidirectional=False,
        batch_first=True,
    )
    return outputs, last, cell


def with_padding_column(
    input_weights: Float[Tensor, "gates inputs"],
) -> Float[Tensor, "gates extended"]:
    """Append the weights of an input feature that is 1 at padding."""
    # PyTorch's order of the gates is i, f, g, o.
    gate_inputs = input_weights.new_tensor([-SATURATED, SATURATED, 0.0, 0.0])
    column = gate_inputs.repeat_interleave(len(input_weights) // 4)[:, None]
    return torch.cat((input_weights, column), dim=1)


def step_layer(
    layer: nn.Module, inputs: Float[Tensor, "B J"], past: RecurrentState
) -> tuple[Float[Tensor, "B hidden"], RecurrentState]:
    """Run one layer over one token."""
    assert isinstance(layer, nn.RNNBase)
    (weights,), hidden = layer.all_weights, past.hidden[:, 0]
    if past.cell is not None:
        hidden, cell = torch.lstm_cell(inputs, (hidden, past.cell[:, 0]), *weights)
        return hidden, RecurrentState(hidden[:, None], cell[:, None])
    step = torch.gru_cell if isinstance(layer, nn.GRU) else torch.rnn_tanh_cell
    hidden = step(inputs, hidden, *weights)
    return hidden, RecurrentState(hidden[:, None], None)


def reverse_padded(inputs: Tokens, present: Present | None) -> Tokens:
    """Reverse the tokens of each row and keep its padding on the right."""
    if present is None:
        return inputs.flip(1)
    batch, time = present.shape
    index = torch.arange(time, device=inputs.device)
    source = torch.where(present, present.sum(dim=1, keepdim=True) - 1 - index, index)
    offset: Int[Tensor, "B 1"] = torch.arange(batch, device=inputs.device)[:, None] * time
    # This is 4 times faster than `gather`, which copies single elements.
    return inputs.flatten(0, 1).index_select(0, (source + offset).flatten()).view_as(inputs)
