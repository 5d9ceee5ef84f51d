"""Compare the depth with the exported graph, and its growth with the course documents.

In the graph a product over n terms takes 1 + ⌈log2 n⌉ steps, or n if inner products are serial and
n is not a length of time; softmax and norm have two sums; copies and views take none.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from harken.attention.multihead import MultiHeadConfig
from harken.cost.formula import LOGARITHMS, Axis, fit_formulas
from harken.cost.step import trace_forward
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig, step_layer
from harken.layers.spatial import SpatialConfig
from harken.models.encoders import EncoderConfig, TransformerEncoderConfig, build_encoder
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import ConvLMConfig, RecurrentLMConfig

WIDTH, LAYERS, VOCABULARY = 20, 2, 37
TIMES = 3, 6

FREE = {
    *("view", "reshape", "permute", "transpose", "expand", "clone", "unsqueeze", "squeeze"),
    *("slice", "select", "cat", "stack", "full", "full_like", "arange", "alias", "unbind"),
    *("zeros", "ones", "new_zeros", "split", "constant_pad_nd", "getitem", "_to_copy", "t"),
    *("scalar_tensor", "empty", "split_with_sizes", "zeros_like", "ones_like", "_unsafe_view"),
}


def graph_of(model: nn.Module, time: int) -> torch.fx.Graph:
    """Export the graph for two rows of tokens."""
    tokens = torch.zeros(2, time, dtype=torch.long)
    return torch.export.export(model, (tokens,)).run_decompositions().graph


def graph_depth(graph: torch.fx.Graph, time: int, *, serial: bool) -> int:
    """Return the longest chain."""
    ready: dict[torch.fx.Node, int] = {}

    def inner(terms: int) -> int:
        return terms if serial and terms != time else 1 + math.ceil(math.log2(terms))

    def steps(node: torch.fx.Node) -> int:
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        shapes = [
            tuple(operand.meta["val"].shape)
            for operand in node.all_input_nodes
            if has_shape(operand)
        ]
        if name in FREE:
            return 0
        if name in {"mm", "bmm"}:
            return inner(shapes[0][-1])
        if name == "addmm":
            return inner(shapes[1][-1]) + 1
        if name == "convolution":
            return inner(math.prod(shapes[1][1:])) + 1
        if name == "_softmax":
            return 3 + 2 * math.ceil(math.log2(shapes[0][-1]))
        if name == "native_layer_norm":
            return 5 + 2 * math.ceil(math.log2(WIDTH))
        return 1

    for node in graph.nodes:
        start = max((ready[operand] for operand in node.all_input_nodes), default=0)
        ready[node] = start + (steps(node) if node.op == "call_function" else 0)
    return max(ready.values())


def has_shape(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


class Unrolled(nn.Module):
    """A stack of cells unrolled over time: the graph inside a fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.cells = TanhConfig(layers=LAYERS, hidden=WIDTH).build(WIDTH)
        self.reader = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        first = self.cells.init_state(tokens.shape[0])
        # One state per layer: in a single tensor, every layer would wait for the last.
        states, outputs = [first.layer(depth) for depth in range(LAYERS)], []
        for vector in self.embedding(tokens).unbind(dim=1):
            for depth, layer in enumerate(self.cells.forwards):
                vector, states[depth] = step_layer(layer, vector, states[depth])
            outputs.append(vector)
        return self.reader(torch.stack(outputs, dim=1))


class ReadOut(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)


CONFIGS = {
    "RNN": RecurrentLMConfig(width=WIDTH, cell=TanhConfig(layers=LAYERS)),
    "CNN": ConvLMConfig(width=WIDTH, convolutions=CausalConvolutionConfig(layers=LAYERS)),
    "Transformer": GPTConfig(
        width=WIDTH, layers=LAYERS, max_length=64, attention=MultiHeadConfig(heads=2)
    ),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_equals_the_graph_as_time_doubles(kind: str) -> None:
    config = CONFIGS[kind]
    model = Unrolled() if kind == "RNN" else ReadOut(config.build(VOCABULARY, 0).eval())
    graphs = [graph_of(model, time) for time in TIMES]
    traced = [
        trace_forward(
            lambda _: ReadOut(config.build(VOCABULARY, 0)).eval(),
            lambda traced_model, time=time: traced_model(torch.zeros(2, time, dtype=torch.long)),
        )
        for time in TIMES
    ]
    for serial in (False, True):
        graphed = [
            graph_depth(graph, time, serial=serial)
            for graph, time in zip(graphs, TIMES, strict=True)
        ]
        depths = [cost.serial if serial else cost.depth for cost in traced]
        assert depths[1] - depths[0] == graphed[1] - graphed[0]


def growth(
    config: Callable[[int], EncoderConfig], letters: str = "TJL", serial: bool = False
) -> str:
    """Return the growth of the depth of an encoder with L layers of width J over T tokens."""

    def count(sizes: dict[str, int]) -> dict[str, int]:
        tokens = torch.zeros(1, sizes["T"], sizes["J"])
        cost = trace_forward(
            lambda _: build_encoder(config(sizes["L"]), sizes["J"]).eval(),
            lambda model: model(tokens, None),
        )
        return {"depth": cost.serial if serial else cost.depth}

    axes = [
        Axis("T", (2, 4, 8, 16), LOGARITHMS),
        Axis("J", (16, 32, 64, 128), LOGARITHMS),
        Axis("L", (1, 2, 3)),
    ]
    formula = fit_formulas(count, axes, ["depth"])["depth"]
    assert formula is not None
    return formula.growth(letters)


def test_growth_is_that_of_the_documents() -> None:
    def attention(layers: int) -> EncoderConfig:
        return TransformerEncoderConfig(layers=layers)

    assert growth(attention) == "O(L ln J + L ln T)"
    assert growth(attention, serial=True) == "O(J L + L ln T)"
    assert growth(lambda layers: TanhConfig(layers=layers)) == "O(L ln J + T ln J)"
    assert growth(lambda layers: LSTMConfig(layers=layers)) == "O(L ln J + T ln J)"
    assert growth(lambda layers: TanhConfig(layers=layers, direction="both")) == "O(T L ln J)"
    backward = growth(lambda layers: GRUConfig(layers=layers, direction="backward"))
    assert backward == "O(L ln J + T ln J)"


def test_depth_over_an_image_is_logarithmic() -> None:
    def depth(columns: int, rows: int) -> int:
        features, encoder = torch.zeros(1, columns * rows, 32), SpatialConfig(layers=2)
        coordinates = torch.cartesian_prod(torch.arange(columns), torch.arange(rows))[None]
        return trace_forward(
            lambda _: encoder.build(32, columns, rows), lambda model: model(features, coordinates)
        ).depth

    assert depth(8, 4) - depth(4, 4) == depth(4, 8) - depth(4, 4) == 2 * 3  # per layer: three sums
