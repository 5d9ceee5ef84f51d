"""States that follow one another: B T J -> B T H, and what the next token needs of those gone by.

    tanh   h_t = tanh(U x_t + V h_{t-1}), without offsets
    gru    h_t = (1 - z) * n + z * h_{t-1}
           r, z = sigmoid(U x_t + a + V h_{t-1} + b),  n = tanh(U x_t + a + r * (V h_{t-1} + b))
    lstm   c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t)
           i, f, o = sigmoid(U x_t + a + V h_{t-1} + b),  g = tanh(U x_t + a + V h_{t-1} + b)

where each of r, z, n, i, f, o, g has its own U, a, V and b.

A layer reads left to right, right to left, or both ways side by side. Padding stands on the right
and changes nothing. Packed sequences would do that too, but leave the fused kernels: training took
1.3 to 3.3 times as long on a CPU. So rows are run with their padding: to the right of what is real
it cannot be seen, a row read from the right is first turned round within its own length, and an
LSTM, whose c_t is not among its outputs, is made to rest where nothing is present.

Nothing here embeds or reads out; gradients by hand are in `backpropagation.py`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import MAX_LAYERS, bounded
from harken.layers.dropout import Dropout

Direction = Literal["forward", "backward", "both"]
"""Which way the rows are read; outputs stand in reading order whatever the way."""


class RecurrentState(NamedTuple):
    """What is left after a row's last token read, layer by layer (forward before backward)."""

    hidden: Float[Tensor, "B layers hidden"]
    cell: Float[Tensor, "B layers hidden"] | None  # c_t, of the LSTM only

    def layer(self, depth: int) -> "RecurrentState":
        """The state of one layer, as a state of one."""
        one = slice(depth, depth + 1)
        return RecurrentState(self.hidden[:, one], None if self.cell is None else self.cell[:, one])


def join_layers(states: list[RecurrentState]) -> RecurrentState:
    """States of single layers as one."""
    memories = [state.cell for state in states if state.cell is not None]
    return RecurrentState(
        torch.cat([state.hidden for state in states], dim=1),
        torch.cat(memories, dim=1) if memories else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sizes:
    """What all kinds choose. `hidden` is of one direction; None keeps the width that was read."""

    kind: Literal["tanh", "gru", "lstm"]
    hidden: int | None = bounded(None, at_least=1)
    layers: int = bounded(1, at_least=1, at_most=MAX_LAYERS)
    direction: Direction = "forward"
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # between layers, in training

    def hidden_width(self, width: int) -> int:
        """Of one direction, so that both together are as wide as what they read."""
        if self.hidden is not None:
            return self.hidden
        if self.direction != "both":
            return width
        if width % 2:
            raise ValueError(
                f"two directions cannot share a width of {width}; make it even, or give hidden"
            )
        return width // 2

    def build(self, width: int) -> "Recurrent":
        return Recurrent(self, width)

    def build_cell(self, input_width: int, hidden: int) -> "RecurrentCell":
        return RecurrentCell(self, input_width, hidden)


@dataclass(frozen=True, kw_only=True, slots=True)
class TanhConfig(_Sizes):
    """The plain recurrence of the lecture."""

    kind: Literal["tanh"] = "tanh"


@dataclass(frozen=True, kw_only=True, slots=True)
class GRUConfig(_Sizes):
    """Gates decide how much of the state is replaced."""

    kind: Literal["gru"] = "gru"


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMConfig(_Sizes):
    """Gates around a cell that is added to, so that gradients last."""

    kind: Literal["lstm"] = "lstm"


RecurrentConfig = TanhConfig | GRUConfig | LSTMConfig


def new_layers(config: _Sizes, reads: list[int], hidden: int) -> nn.ModuleList:
    """Layers of one direction, by the widths that they read."""
    if config.kind == "tanh":
        return nn.ModuleList(nn.RNN(read, hidden, bias=False, batch_first=True) for read in reads)
    gated = nn.GRU if config.kind == "gru" else nn.LSTM
    return nn.ModuleList(gated(read, hidden, batch_first=True) for read in reads)


class Recurrent(nn.Module):
    """Layers one above the other, each reading what all directions of the one below wrote."""

    def __init__(self, config: _Sizes, width: int) -> None:
        super().__init__()
        ways = 2 if config.direction == "both" else 1
        self.hidden, self.depth = config.hidden_width(width), config.layers
        self.width = ways * self.hidden
        reads = [width] + [self.width] * (config.layers - 1)
        self.forwards = self.backwards = None
        if config.direction != "backward":
            self.forwards = new_layers(config, reads, self.hidden)
        if config.direction != "forward":
            self.backwards = new_layers(config, reads, self.hidden)
        self.dropout = Dropout(config.dropout)

    def init_state(self, batch: int) -> RecurrentState:
        """The state before any token: zeros."""
        ways = (self.forwards is not None) + (self.backwards is not None)
        return zero_state(self, batch, ways * self.depth, self.hidden)

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        present: Bool[Tensor, "B T"] | None = None,
        state: RecurrentState | None = None,
    ) -> tuple[Float[Tensor, "B T width"], RecurrentState]:
        """Outputs at padding are zeros; the state is that after each row's last present token."""
        assert state is None or self.backwards is None, "what comes before a row's end is unknown"
        if present is not None:
            assert (present[:, 1:] <= present[:, :-1]).all(), "padding stands on the right"
            # Zeros, since a NaN there would come back through a gradient of zero.
            inputs = inputs.masked_fill(~present[..., None], 0.0)
        before = self.init_state(inputs.shape[0]) if state is None else state
        after: list[RecurrentState] = []
        for depth in range(self.depth):
            if depth > 0:
                inputs = self.dropout(inputs)
            written = []
            for layers in (self.forwards, self.backwards):
                if layers is None:
                    continue
                backwards = layers is self.backwards
                read = reverse_padded(inputs, present) if backwards else inputs
                outputs, left = run_layer(layers[depth], read, present, before.layer(len(after)))
                written.append(reverse_padded(outputs, present) if backwards else outputs)
                after.append(left)
            inputs = torch.cat(written, dim=-1)
        return inputs, join_layers(after)


class RecurrentCell(nn.Module):
    """One step at a time, for decoders whose next input depends on the last state.

    Its weights bear the names of a forward `Recurrent` of the same config and load from one. The
    kernel is that of a cell: an LSTM's for whole rows takes twice as long over one token.
    """

    def __init__(self, config: _Sizes, input_width: int, hidden: int) -> None:
        super().__init__()
        assert config.direction == "forward", "one step has no other direction"
        reads = [input_width] + [hidden] * (config.layers - 1)
        self.hidden, self.depth, self.width = hidden, config.layers, hidden
        self.forwards = new_layers(config, reads, hidden)
        self.dropout = Dropout(config.dropout)

    def init_state(self, batch: int) -> RecurrentState:
        """The state before any token: zeros."""
        return zero_state(self, batch, self.depth, self.hidden)

    def forward(
        self, inputs: Float[Tensor, "B J"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B width"], RecurrentState]:
        after: list[RecurrentState] = []
        for depth, layer in enumerate(self.forwards):
            if depth > 0:
                inputs = self.dropout(inputs)
            inputs, left = step_layer(layer, inputs, state.layer(depth))
            after.append(left)
        return inputs, join_layers(after)


def zero_state(
    module: Recurrent | RecurrentCell, batch: int, layers: int, hidden: int
) -> RecurrentState:
    """Zeros beside the weights of the module; with a cell where it has one."""
    zeros = next(module.parameters()).new_zeros(batch, layers, hidden)
    remembers = any(isinstance(part, nn.LSTM) for part in module.modules())
    return RecurrentState(zeros, zeros if remembers else None)


def run_layer(
    layer: nn.Module,
    inputs: Float[Tensor, "B T J"],
    present: Bool[Tensor, "B T"] | None,
    before: RecurrentState,
) -> tuple[Float[Tensor, "B T hidden"], RecurrentState]:
    """One layer from left to right; a row without any token keeps its state."""
    first = before.hidden.transpose(0, 1).contiguous()  # PyTorch puts layers before the batch
    cell: Tensor | None = None
    if before.cell is None:
        outputs, last = layer(inputs, first)
    else:
        began = before.cell.transpose(0, 1).contiguous()
        if inputs.device.type == "cpu" and not has_bfloat16_lstm():
            with torch.autocast("cpu", enabled=False):
                parts = (part.to(next(layer.parameters()).dtype) for part in (inputs, first, began))
                outputs, last, cell = masked_lstm(layer, present, *parts)
        else:
            outputs, last, cell = masked_lstm(layer, present, inputs, first, began)
        cell = cell.transpose(0, 1)
    hidden = last.transpose(0, 1)
    if present is not None:
        history = torch.cat((before.hidden, outputs), dim=1)
        lengths = present.sum(dim=1)
        hidden = history[torch.arange(len(lengths), device=lengths.device), lengths][:, None]
        outputs = outputs.masked_fill(~present[..., None], 0.0)
    return outputs, RecurrentState(hidden, cell)


SATURATED = 1e4
"""A gate that is given this is exactly 0 or 1, in half precision too."""


@cache
def has_bfloat16_lstm() -> bool:
    """Whether oneDNN has an LSTM kernel in bfloat16 for this CPU; without one it raises."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return not has_onednn or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def masked_lstm(
    layer: nn.Module,
    present: Bool[Tensor, "B T"] | None,
    inputs: Float[Tensor, "B T J"],
    first: Float[Tensor, "1 B hidden"],
    first_cell: Float[Tensor, "1 B hidden"],
) -> tuple[Float[Tensor, "B T hidden"], Float[Tensor, "1 B hidden"], Float[Tensor, "1 B hidden"]]:
    """Return outputs, last output and last cell; the cell does not change at padding.

    One call of the fused kernel: an additional input, 1 at padding and 0 elsewhere, closes the
    input gate and opens the forget gate.
    """
    assert isinstance(layer, nn.LSTM)
    if present is None:
        outputs, (last, cell) = layer(inputs, (first, first_cell))
        return outputs, last, cell
    ((input_weights, *others),) = layer.all_weights
    # In PyTorch's order i, f, g, o.
    signs = input_weights.new_tensor([-SATURATED, SATURATED, 0.0, 0.0])
    column = signs.repeat_interleave(layer.hidden_size)[:, None]
    outputs, last, cell = torch.lstm(
        torch.cat((inputs, (~present)[..., None].to(inputs.dtype)), dim=-1),
        (first, first_cell),
        [torch.cat((input_weights, column), dim=1), *others],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=layer.training,
        bidirectional=False,
        batch_first=True,
    )
    return outputs, last, cell


def step_layer(
    layer: nn.Module, inputs: Float[Tensor, "B J"], before: RecurrentState
) -> tuple[Float[Tensor, "B hidden"], RecurrentState]:
    """One layer, one token."""
    assert isinstance(layer, nn.RNNBase)
    (weights,), hidden = layer.all_weights, before.hidden[:, 0]
    if before.cell is not None:
        hidden, cell = torch.lstm_cell(inputs, (hidden, before.cell[:, 0]), *weights)
        return hidden, RecurrentState(hidden[:, None], cell[:, None])
    step = torch.gru_cell if isinstance(layer, nn.GRU) else torch.rnn_tanh_cell
    hidden = step(inputs, hidden, *weights)
    return hidden, RecurrentState(hidden[:, None], None)


def reverse_padded(
    inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B T J"]:
    """Each row from its last present token to its first; padding stays. Twice is not at all."""
    if present is None:
        return inputs.flip(1)
    batch, time = present.shape
    slots = torch.arange(time, device=inputs.device)
    sources = torch.where(present, present.sum(dim=1, keepdim=True) - 1 - slots, slots)
    rows: Int[Tensor, "B 1"] = torch.arange(batch, device=inputs.device)[:, None] * time
    # Whole rows are picked from the flat batch: a gather moves single numbers and is 4x slower.
    return inputs.flatten(0, 1).index_select(0, (sources + rows).flatten()).view_as(inputs)
